//! What runs, as the engines and programs say it themselves: finding engines and asking them, and the commands that print the
//! answers: `shunt status`, `top`, `ss`, `stacks`, `explain`, `metrics`.
//!
//! What an engine answers is composed in `engine`; starting, replacing and ending engines is `cli`'s.

#![deny(clippy::print_stderr, clippy::print_stdout)] // they end the process where nobody reads: see `output`

#[macro_use]
extern crate output;

pub mod control;
pub mod engines;
pub mod explain;
mod figures;
pub mod metrics;
pub mod ss;
pub mod stacks;
pub mod status;
pub mod top;
