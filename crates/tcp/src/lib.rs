//! One TCP connection as a value: segment in, time in, segments out (RFC 9293).
//!
//! Start with [`Connection`] and RFC 9293 §3.10. Nothing here reads a clock, opens a socket or
//! allocates: a [`Connection`] is plain data without pointers, so that it can live in memory that
//! outlives the process. Ports, addresses, listeners and the choice of *when* to run belong to the
//! `stack` crate; bytes of headers to `wire`. IPv6 needs nothing here.
#![forbid(unsafe_code)]

mod ack;
mod autotune;
mod chrono;
mod close;
pub mod config;
pub mod congestion;
mod connect;
mod connection;
pub mod cookies;
mod counters;
mod defer;
mod ecn;
mod fast_open;
mod flight_pool;
mod info;
pub mod isn;
mod keepalive;
mod pacing;
mod pmtud;
mod probe;
mod prr;
mod rack;
mod ranges;
mod rate;
mod receive;
mod receiver;
mod recovery;
mod reset;
mod rtt;
mod sack;
mod send;
mod sender;
mod sent;
pub mod seq;
pub mod state;
pub mod time;
mod time_wait;
mod timers;
mod transmit;
mod undo;
mod urgent;
mod window;

#[cfg(any(test, fuzzing, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(test)]
mod tests;

pub use chrono::Chrono;
pub use config::{Config, RECEIVE_BUFFER_MAX, Retries, SocketOptions};
pub use congestion::{Algorithm, CongestionInfo};
pub use connection::{Connection, ConnectionError, Events, OffsetError, ReceiveWindow, WriteMode};
pub use counters::Counters;
pub use ecn::EcnMode;
pub use fast_open::FastOpen;
pub use flight_pool::{FlightPool, NoPool};
pub use info::{Info, Repair};
pub use isn::initial_sequence;
pub use ranges::RangeSlot;
pub use reset::reset_reply;
pub use sent::Run;
pub use seq::SeqNumber;
pub use state::State;
pub use time::{Duration, Instant};
pub use time_wait::{TimeWait, TimeWaitAction};
pub use transmit::{Transmit, TransmitLimits};
