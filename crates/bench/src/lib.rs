//! Measurements: `shunt bench`, and those behind `shunt sim calibrate`, `shunt sim plan --verify` and `shunt measure`.
//!
//! Programs that put load on a stack are here too, and run as hidden commands of the binary: they are measured on
//! the kernel and under `shunt run`, as any program. What a measurement means for a plan is `sim`'s.

#![deny(clippy::print_stderr, clippy::print_stdout)] // they end the process where nobody reads: see `output`

#[macro_use]
extern crate output;

mod all;
mod apps;
pub mod calibrate;
mod command;
mod cores;
mod demo;
mod idle;
pub mod interrupt;
pub mod layers;
pub mod load;
pub mod machine;
mod micro;
pub mod mover;
pub mod observe;
mod overload;
mod sys;
mod tcp;
mod tools;
pub mod trial;
pub mod verify;

pub use apps::parse_size;
pub use command::{Arguments, execute};
