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
mod arp;
mod autoconf;
pub mod config;
pub mod counters;
mod demux;
mod detour;
pub mod egress;
pub mod error;
mod fast_open;
mod fragments;
#[cfg(any(test, fuzzing, feature = "fuzzing"))]
pub mod fuzzing;
mod handshake;
mod icmp;
mod icmp_meaning;
mod icmpv6;
mod input;
pub mod interface;
mod intrusive;
mod lifecycle;
mod listener;
mod listening;
mod listing;
mod multicast;
mod ndp;
mod neighbour;
mod output;
mod own;
mod path;
pub mod pools;
mod ports;
mod prediction;
mod protocols;
mod rate;
mod reassembly;
mod rebuild;
mod redirect;
mod refuse;
mod route;
mod segment;
mod socket;
mod source;
mod stack;
pub mod tables;
#[cfg(test)]
mod tests;
mod time_wait;
mod transmit;
pub mod udp;
mod wheel;

pub use address::PackedAddress;
pub use config::{Config, FastOpenModes, Offers, SynCookies};
pub use counters::Counters;
pub use demux::FourTuple;
pub use detour::Detour;
pub use egress::{
    Busy, ConnectionView, Egress, EgressCaps, Frame, Host, Incoming, IpOptions, PartialChecksum,
    Payload, ReceiveUse, RxChecksum, RxMeta,
};
pub use error::Error;
pub use fast_open::FAST_OPEN_KEYS_MAX;
pub use interface::{InterfaceAddress, InterfaceConfig, InterfaceId, Resolution};
pub use listener::{Accepted, Listen, ReusePort};
pub use listing::{ConnectionRow, ListenerRow, TimeWaitRow, UdpRow};
pub use multicast::{GroupChange, Membership};
pub use neighbour::{ExternalNeighbour, Neighbour, NeighbourState};
pub use protocols::Protocols;
pub use rebuild::Rebuilt;
pub use route::Route;
pub use socket::Connect;
pub use stack::{Stack, Work};
pub use tables::{ConnectionId, HeapTables, ListenerId, Tables};
pub use udp::{Datagram, DatagramError, FamilyOptions, SendError, UdpBind, UdpId, UdpOptions};
