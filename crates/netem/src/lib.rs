//! Networks that are not there, and records of those that are: cables that lose, delay and reorder frames as tc-netem(8)
//! does, links of several queues in memory, a device without a link, and captures in pcapng, written and played.
//!
//! [`Cable`] is one direction as a value, without clock or system; [`Impaired`] puts two of them in front of any
//! driver, [`join`] between two TAPs. `shunt` has captures and the laboratory's cable from here; all else is for tests.

pub mod bundle;
pub mod cable;
mod ecn;
pub mod impaired;
pub mod impairment;
pub mod join;
mod nowhere;
pub mod pcap;
pub mod pool;

pub use bundle::Bundle;
pub use cable::{Cable, CableCounters};
pub use impaired::Impaired;
pub use impairment::{Impairment, ParseError};
pub use nowhere::Nowhere;
