//! Captures: [`Recorder`] writes what passes any driver to a pcapng file, [`Replay`] is a driver that
//! plays a capture as received frames. [`Writer`] writes
//! frames that come another way. `format.rs` is the file format alone.
//!
//! The pcap-file crate was tried and left: its version 2 takes every timestamp of pcapng as
//! nanoseconds, whatever the file says, and allocates per packet.

mod format;
mod recorder;
mod replay;

pub use format::{Direction, FormatError, Writer};
pub use recorder::Recorder;
pub use replay::{Config, OpenError, Replay, Timing};

#[cfg(test)]
mod tests;
