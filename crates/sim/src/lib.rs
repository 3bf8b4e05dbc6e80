//! What would offload buy? A simulator of hosts, NIC processors, buses and links, and the closed
//! forms beside it.
//!
//! It first reproduces the `nic-net` paper, then answers questions about other machines. Read
//! docs/simulator.md for what is modelled and what is not. The crate is pure: no clock, no thread, no
//! system call; the same scenario and seed give the same bytes.

#![forbid(unsafe_code)]

#[macro_use]
pub mod scenario;

pub mod event;
pub mod flow;
pub mod formula;
pub mod machine;
pub mod paper;
pub mod path;
pub mod placement;
pub mod plan;
pub mod report;
pub mod rng;
pub mod rss;
pub mod statistics;
pub mod theory;
pub mod time;
pub mod toe;
