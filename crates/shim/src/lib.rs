//! The switch that a preloaded program calls instead of libc's socket functions. The crates `preload` (`libshunt.so`) and
//! `preload_inline` (`libshunt_inline.so`, with an engine inside) make the libraries.
//!
//! Start at `abi` (the exported symbols), `descriptors` (is a number ours?) and `socket` (the decision
//! between kernel and engine, DESIGN §4). Every descriptor the program sees is a real kernel socket;
//! what the switch does not know goes to libc untouched. `accelerated` is the only door to the engine.
//!
//! README.md in this folder lists each symbol and how far it is served.

mod abi;
mod accelerated;
mod addresses;
mod caller;
mod cancel;
mod close;
mod comeback;
mod connect;
mod control;
mod create;
mod datagram;
mod descriptors;
mod device;
mod entries;
mod epoll;
mod error_queue;
mod exec;
pub mod exit;
mod fast_open;
mod file;
mod fork;
mod inherited;
pub mod inline;
mod listen;
mod load;
mod memory;
mod messages;
mod name;
mod options;
mod outcome;
mod policy;
mod poll;
mod process;
mod readiness;
mod report;
mod select;
mod sendfile;
mod sigio;
mod signals;
mod sleep;
mod socket;
mod splice;
mod stamping;
mod symbol;
mod sys;
mod syscall;
mod transfer;
mod waker;

pub use report::line as report_line;
pub use sys::Inside;
