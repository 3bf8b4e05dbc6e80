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
#![forbid(unsafe_code)]

mod address;
pub mod config;
mod containers;
pub mod counters;
mod detour;
pub mod egress;
pub mod error;
mod fast_open;
#[cfg(any(test, fuzzing, feature = "fuzzing"))]
pub mod fuzzing;
mod handshake;
mod host;
mod icmp;
mod icmpv6;
mod input;
mod ip;
mod lifecycle;
mod link;
mod links;
mod listener;
mod listening;
mod listing;
mod multicast;
pub mod pools;
mod ports;
mod protocols;
mod quote;
mod rebuild;
mod segment;
mod socket;
mod stack;
pub mod tables;
#[cfg(test)]
mod tests;
mod time_wait;
mod transmit;
pub mod udp;

pub use address::PackedAddress;
pub use config::{Config, FAST_OPEN_KEYS_MAX, FastOpenModes, IpOptions, Offers, SynCookies};
pub use containers::demux::FourTuple;
pub use counters::Counters;
pub use egress::{Busy, Egress, EgressCaps, Frame, PartialChecksum, Payload, RxChecksum, RxMeta};
pub use error::Error;
pub use host::{ConnectionView, Detour, Host, Incoming, ReceiveUse};
pub use ip::route::Route;
pub use link::interface::{InterfaceAddress, InterfaceConfig, InterfaceId, Resolution};
pub use link::neighbour::{ExternalNeighbour, Neighbour, NeighbourState};
pub use listener::{Accepted, Listen};
pub use listing::{ConnectionRow, ListenerRow, TimeWaitRow, UdpRow};
pub use multicast::{GroupChange, Membership};
pub use protocols::Protocols;
pub use rebuild::Rebuilt;
pub use socket::Connect;
pub use stack::{Stack, Work};
pub use tables::{ConnectionId, HeapTables, ListenerId, ReusePort, Tables};
pub use udp::{Datagram, DatagramError, FamilyOptions, SendError, UdpBind, UdpId, UdpOptions};
