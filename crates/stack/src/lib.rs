//! The stack above one connection: interfaces, routes, neighbours, IP, ICMP, ports, listeners,
//! demultiplexing, TIME-WAIT, timers, and who may send next. Start with [`Stack`]; RFC 1122 is what a
//! host must do.
//!
//! Pure: time, secrets, frames and windows come from the caller. The caller feeds
//! [`Stack::handle_frame`] and [`Stack::handle_timeouts`], drains [`Stack::poll_transmit`], and sleeps
//! until [`Stack::next_deadline`]. Work per packet does not depend on the number of connections, and
//! nothing is allocated after start.
//!
//! TCP and UDP over IPv4 and IPv6.
//!
//! [`Stack`] is a composition of layers, each of which has its own state and knows those below it only: `link`
//! (interfaces, neighbours, frames), `multicast`, `ip` (routes, addresses, fragments), `tcp` and `udp`. A frame goes up in
//! `input.rs`; what programs ask for is `connections.rs`, `listeners.rs`, `datagrams.rs` and `links.rs`.
#![forbid(unsafe_code)]

mod address;
pub mod config;
mod connections;
mod containers;
pub mod counters;
mod datagrams;
mod detour;
pub mod egress;
pub mod error;
#[cfg(any(test, fuzzing, feature = "fuzzing"))]
pub mod fuzzing;
mod host;
mod icmp;
mod icmpv6;
mod input;
mod ip;
mod link;
mod links;
mod listeners;
mod listing;
mod multicast;
mod ports;
mod protocols;
mod rebuild;
mod stack;
pub mod tables;
mod tcp;
#[cfg(test)]
mod tests;
pub mod udp;

pub use address::PackedAddress;
pub use config::{Config, FAST_OPEN_KEYS_MAX, FastOpenModes, IpOptions, Offers, SynCookies};
pub use connections::Connect;
pub use containers::demux::FourTuple;
pub use counters::Counters;
pub use egress::{Busy, Egress, EgressCaps, Frame, PartialChecksum, Payload, RxChecksum, RxMeta};
pub use error::Error;
pub use host::{ConnectionView, Detour, Host, Incoming, ReceiveUse};
pub use ip::route::Route;
pub use link::interface::{InterfaceAddress, InterfaceConfig, InterfaceId, Resolution};
pub use link::neighbour::{ExternalNeighbour, Neighbour, NeighbourState};
pub use listeners::{Accepted, Listen};
pub use listing::{ConnectionRow, ListenerRow, TimeWaitRow, UdpRow};
pub use multicast::{GroupChange, Membership};
pub use protocols::Protocols;
pub use stack::{Stack, Work};
pub use tables::{ConnectionId, HeapTables, ListenerId, Rebuilt, ReusePort, Tables};
pub use udp::{Datagram, DatagramError, FamilyOptions, SendError, UdpBind, UdpId, UdpOptions};
