//! Measurements beside the kernel: `shunt bench`, and the disk's of `shunt measure`.
//!
//! What it puts load on a stack with is `load`'s, what predictions start from is measured by `predict`.

#![deny(clippy::print_stderr, clippy::print_stdout)] // they end the process where nobody reads: see `output`

#[macro_use]
extern crate output;

mod all;
mod apps;
mod command;
mod cores;
mod demo;
mod distance;
mod micro;
pub mod mover;
mod overload;
mod paper;
mod tcp;
mod tools;
mod unit;

pub use apps::parse_size;
pub use command::{Arguments, execute};
