//! Tests of one connection against a script, and of two connections against each other.
//!
//! `harness` and `cable` give them; the other files are named after what they hold.

mod attacks;
mod autotune;
mod cable;
mod close;
mod congestion;
mod data;
mod harness;
mod loss;
mod open;
mod options;
mod pmtud;
mod timers;
mod window;
