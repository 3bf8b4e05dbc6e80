//! The engine's state region: every connection, listener, TIME-WAIT record and socket row as plain
//! data in one memory file that no program ever maps.
//!
//! What is here is enough to go on with a connection; hash tables, timers and queues are derived from
//! it. The file is what a keeper process would hold while an engine is replaced; that process does
//! not exist yet.

mod sys;

pub use sys::{State, StateError};
