//! One TCP connection as a value: segment in, time in, segments out (RFC 9293).
//!
//! Start with [`Connection`] and RFC 9293 §3.10. Nothing here reads a clock, opens a socket or
//! allocates: a [`Connection`] is plain data without pointers, so that it can live in memory that
//! outlives the process. Ports, addresses, listeners and the choice of *when* to run belong to the
//! `stack` crate; bytes of headers to `wire`. IPv6 needs nothing here.
#![forbid(unsafe_code)]

mod ack;
mod chrono;
mod close;
pub mod config;
pub mod congestion;
mod connect;
mod connection;
mod counters;
mod events;
mod info;
mod receive;
mod recovery;
mod send;
pub mod seq;
pub mod state;
pub mod time;
mod timers;
mod undo_part;

#[cfg(any(test, fuzzing, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(test)]
mod tests;

pub use chrono::Chrono;
pub use close::reset::reset_reply;
pub use close::time_wait::{TimeWait, TimeWaitAction};
pub use config::{Config, RECEIVE_BUFFER_MAX, Retries, SocketOptions};
pub use congestion::ecn::EcnMode;
pub use congestion::{Algorithm, CongestionInfo};
pub use connect::isn::initial_sequence;
pub use connect::{cookies, isn};
pub use connection::{Connection, OffsetError, WriteMode};
pub use counters::Counters;
pub use events::{ConnectionError, Events};
pub use info::{Info, Repair};
pub use receive::plain::PlainArrival;
pub use receive::ranges::RangeSlot;
pub use receive::receive_window::ReceiveWindow;
pub use send::flight_pool::{FlightPool, NoPool};
pub use send::plain::PlainTransmit;
pub use send::segment::{Transmit, TransmitLimits};
pub use send::sent::Run;
pub use seq::SeqNumber;
pub use state::{FastOpen, State};
pub use time::{Duration, Instant};
pub use undo_part::UndoPart;
