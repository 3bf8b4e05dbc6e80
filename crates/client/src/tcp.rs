//! TCP sockets on an engine: connections and listeners.
//!
//! `socket` is what a socket is, `send` and `receive` are the fast path: shared memory and one descriptor, no lock but the
//! socket's own. `listener` and `accept` are the passive side.

pub(crate) mod accept;
pub(crate) mod byte_channels;
mod comeback;
mod fast_open;
pub(crate) mod files;
mod listener;
mod open;
mod readiness;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod signals;
pub(crate) mod socket;
mod stamps;
mod sys;
pub(crate) mod urgent;
