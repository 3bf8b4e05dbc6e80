//! Segments of peers that lie, and of strangers.

mod blind;
mod defence;
mod lies;
mod reset;
mod spoofed;
