//! The latency meter: `shunt ping` and `shunt echo`.
//!
//! Round trips of ICMP, UDP, TCP and Ethernet frames, in closed and open loop, with the distribution and everything that
//! disturbed it; over the kernel's stack, or over Shunt's where `shunt run` starts it. It calls the C library's
//! sockets, as any program would. What an engine does is not known here.

#![deny(clippy::print_stderr, clippy::print_stdout)] // they end the process where nobody reads: see `output`

#[macro_use]
extern crate output;

mod card_clocks;
mod clock;
pub mod echo;
mod environment;
mod error_queue;
mod flight;
mod graph;
mod measure;
pub mod measure_clock;
pub mod ping;
mod probe;
mod report;
pub mod runs;
pub mod saved;
mod served;
mod session;
pub mod stages;
mod sys;
mod target;
mod testbed;

pub use report::Report;
