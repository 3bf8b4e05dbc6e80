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
//! `input`; what programs and the host ask for is `api`.
#![forbid(unsafe_code)]

mod address;
mod api;
pub mod config;
mod containers;
pub mod counters;
pub mod egress;
pub mod error;
#[cfg(any(test, fuzzing, feature = "fuzzing"))]
pub mod fuzzing;
pub mod histogram;
mod host;
mod input;
mod ip;
mod link;
mod multicast;
mod ports;
mod protocols;
mod stack;
pub mod tables;
mod tcp;
#[cfg(test)]
mod tests;
pub mod udp;

pub use address::PackedAddress;
pub use api::connect::Connect;
pub use api::listeners::{Accepted, Listen};
pub use api::listing::{ConnectionRow, ListenerRow, TimeWaitRow, UdpRow};
pub use config::{Config, FAST_OPEN_KEYS_MAX, FastOpenModes, IpOptions, Offers, SynCookies};
pub use containers::demux::FourTuple;
pub use counters::Counters;
pub use egress::{Busy, Egress, EgressCaps, Frame, PartialChecksum, Payload, RxChecksum, RxMeta};
pub use error::Error;
pub use histogram::Histogram;
pub use host::{AcceptReady, ConnectionView, Detour, Host, Incoming, ReceiveUse};
pub use ip::route::Route;
pub use link::interface::{InterfaceAddress, InterfaceConfig, InterfaceId, Resolution};
pub use link::neighbour::{ExternalNeighbour, Neighbour, NeighbourState};
pub use multicast::{GroupChange, Membership};
pub use protocols::Protocols;
pub use stack::{Stack, Work};
pub use tables::{ConnectionId, HeapTables, ListenerId, Rebuilt, ReusePort, Tables};
pub use udp::{Datagram, DatagramError, FamilyOptions, SendError, UdpBind, UdpId, UdpOptions};
