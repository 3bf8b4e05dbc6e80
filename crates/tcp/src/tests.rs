//! Tests of one connection against a script, and of two connections against each other.
//!
//! `harness` and `cable` give them; the other files are named after what they hold.

mod autotune;
mod blind;
mod bottleneck;
mod cable;
mod close;
mod congestion;
mod data;
mod defence;
mod ecn;
mod fast_open;
mod harness;
mod loss;
mod open;
mod options;
mod pair;
mod pmtud;
mod probe;
mod rack;
mod recovery;
mod reset;
mod spoofed;
mod storm;
mod timers;
mod undo;
mod window;
