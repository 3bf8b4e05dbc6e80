//! A deterministic network: two of our stacks on virtual time, joined by a path that loses, bends and
//! blackens as its seed says.
//!
//! Nothing here reads a clock or a random source: a [`Scenario`] follows from its seed, and the same
//! scenario gives the same trace, byte for byte. What must hold in every one of them is checked in
//! [`simulation`]: bytes delivered are the bytes sent, nobody falls silent for longer than the
//! protocol's timers explain, and everything ends.

pub mod bad_peer;
pub mod content;
pub mod host;
pub mod path;
pub mod random;
pub mod scenario;
pub mod simulation;
pub mod trace;

pub use bad_peer::Habit;
pub use scenario::Scenario;
pub use simulation::{Failure, Report, run, run_against, run_beside};
