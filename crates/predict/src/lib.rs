//! What offload would buy: the commands around the simulator, `shunt sim` and `shunt path`, and the measurements that their
//! predictions start from and are held against: `shunt sim calibrate`, `shunt sim plan --verify`, `shunt measure`.
//!
//! The model itself is `sim`'s, which knows no clock and no file; servers and clients of a measurement are `load`'s.

#![deny(clippy::print_stderr, clippy::print_stdout)] // they end the process where nobody reads: see `output`

#[macro_use]
extern crate output;

mod calibrate;
mod command;
mod control;
pub mod layers;
pub mod machine;
mod paper;
pub mod path;
mod plan;
mod progress;
mod run;
mod sweep;
mod theory;
mod verify;

pub use command::{Arguments, execute};
