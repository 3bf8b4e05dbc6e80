//! The switch that a preloaded program calls instead of libc's socket functions. The crates `preload` (`libshunt.so`) and
//! `preload_inline` (`libshunt_inline.so`, with an engine inside) make the libraries.
//!
//! Start at `abi::exports` (the symbols), `fd_table` (is a number ours?), `socket` (the decision between kernel and
//! engine, DESIGN §4), `calls` (what each call does) and `wait` (how a thread sleeps). Every descriptor the program
//! sees is a real kernel socket; what the switch does not know goes to libc untouched. `accelerated` alone speaks to the engine.
//!
//! README.md in this folder lists each symbol and how far it is served.

mod abi;
mod accelerated;
mod addresses;
mod calls;
mod comeback;
mod epoll;
mod fd_table;
pub mod inline;
mod outcome;
mod policy;
pub mod process;
mod report;
mod socket;
mod sys;
mod wait;

pub use report::line as report_line;
pub use sys::Inside;
