//! Connections and listeners.

mod defence;
mod ecn;
mod fast_open;
mod handshake;
mod listener;
mod options;
mod pools;
mod prediction;
mod round_trips;
mod time_wait;
