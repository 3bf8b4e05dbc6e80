//! Segments of peers that lie, and of strangers.

mod blind;
mod defence;
mod reset;
mod spoofed;
