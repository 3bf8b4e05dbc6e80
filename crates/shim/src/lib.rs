//! The switch that a preloaded program calls instead of libc's socket functions. The crates `preload` (`libshunt.so`) and
//! `preload_inline` (`libshunt_inline.so`, with an engine inside) make the libraries.
//!
//! Start at `abi::exports` (the symbols), `fd_table` (is a number ours?), `socket` (what is known of a program's
//! socket), `calls` (what each call does) and `wait` (how a thread sleeps). Every descriptor the program
//! sees is a real kernel socket; what the switch does not know goes to libc untouched. Which stack a socket is on the crate `switch` decides.
//!
//! README.md in this folder lists each symbol and how far it is served.

mod abi;
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
