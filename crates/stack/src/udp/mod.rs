//! UDP sockets (RFC 768; RFC 1122 §4.1 is what a host must do, RFC 8085 what its users should).
//!
//! A socket is a row ([`UdpRecord`]) from bind to close. Read `table` (which socket a datagram is for),
//! `receive`, `send`, and `errors` (what ICMP says of datagrams that were sent). Payload is never kept
//! here, but for packets that wait for a neighbour (`held`).

pub(crate) mod datagram;
mod errors;
mod fields;
mod options;
mod path_mtu;
mod prepared;
mod receive;
mod recent;
pub(crate) mod record;
mod send;
mod socket;
mod table;

use crate::config::Config;
use crate::containers::prediction::Predictions;
use crate::link::interface::Interfaces;
use crate::ports::Ports;
pub use datagram::{Datagram, DatagramError, DatagramErrorKind, Outgoing, SendError};
pub use options::{FamilyOptions, MtuDiscovery, UdpOptions};
use path_mtu::PathMtus;
pub(crate) use receive::UdpPacket;
use recent::Recent;
pub use record::{UdpId, UdpRecord};
pub use socket::UdpBind;
use table::Table;
use wire::ipv4::Protocol;

/// Rows for UDP sockets unless the caller wants others.
pub const UDP_SOCKETS_DEFAULT: usize = 16_384;

/// UDP of this host.
#[derive(Debug)]
pub(crate) struct Udp<'m> {
    pub(crate) rows: &'m mut [UdpRecord],
    /// Rows that were ever used.
    pub(crate) used: &'m mut u32,
    free: Vec<u32>,
    pub(crate) table: Table,
    pub(crate) ports: Ports,
    path_mtus: PathMtus,
    /// Where datagrams went lately.
    recent: Recent,
    /// And whose those were that came.
    predictions: Predictions<{ Protocol::UDP.0 }>,
    /// Counts what may have changed the sockets or the interfaces.
    generation: u32,
    /// Of the interfaces, when that was looked at.
    interfaces: u32,
    /// Orders sockets that share an end by when they were bound.
    bindings: u64,
}

impl<'m> Udp<'m> {
    /// UDP over the table, all indexes empty.
    pub(crate) fn new(rows: &'m mut [UdpRecord], used: &'m mut u32, config: &Config) -> Self {
        let (first, last) = config.ephemeral_ports;
        Self {
            free: Vec::with_capacity(rows.len()),
            table: Table::new(&config.subkey(b"udp table")),
            ports: Ports::new(&config.subkey(b"udp ports"), first, last),
            path_mtus: PathMtus::new(&config.subkey(b"udp path mtus")),
            recent: Recent::new(),
            predictions: Predictions::new(),
            generation: 0,
            interfaces: 0,
            bindings: 0,
            rows,
            used,
        }
    }

    /// Whether the way of such a datagram is remembered.
    #[cfg(test)]
    pub(crate) fn remembers(
        &mut self,
        ip: &crate::ip::Ip,
        id: UdpId,
        outgoing: &Outgoing,
        destination: core::net::SocketAddr,
    ) -> bool {
        let generation = self.generation(&ip.link.interfaces);
        let like = recent::Like::new((ip, generation), id, outgoing, destination);
        self.recent.find(&like).is_some()
    }

    #[cfg(test)]
    pub(crate) fn forget_recent(&mut self) {
        self.recent = Recent::new();
        self.predictions.forget_all();
    }

    /// As long as it is the same, neither a socket nor an interface has changed.
    #[inline]
    fn generation(&mut self, interfaces: &Interfaces) -> u32 {
        if self.interfaces != interfaces.generation() {
            self.interfaces = interfaces.generation();
            self.generation = self.generation.wrapping_add(1);
        }
        self.generation
    }
}
