//! The engine's state region: every connection, listener, TIME-WAIT record and socket row as plain
//! data in one memory file that no program ever maps, and beside them what the engine knows of its programs (`rows`).
//!
//! What is here is enough to go on with a connection; hash tables, timers and queues are derived from
//! it. A keeper process holds the file while an engine is replaced: docs/decisions/0067-state-that-outlives-its-engine.md.

pub mod rows;
mod sys;

pub use sys::{State, StateError, duplicate, is_open, layout, take};
