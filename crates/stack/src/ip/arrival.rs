//! A packet that has arrived.

use crate::address::needs_zone;
use crate::egress::RxChecksum;
use crate::link::interface::{InterfaceId, Interfaces, Resolution};
use crate::link::output::Envelope;
use core::net::{IpAddr, Ipv6Addr};
use wire::ethernet;
use wire::ipv4::Protocol;

/// A packet for this host, and how it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    pub(crate) interface: InterfaceId,
    pub(crate) resolution: Resolution,
    /// The station that delivered it.
    pub(crate) station: ethernet::Address,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// What `payload` is.
    pub(crate) protocol: Protocol,
    /// Where in `packet` the byte stands that says so.
    pub(crate) next_header_at: usize,
    pub(crate) hop_limit: u8,
    pub(crate) dscp_ecn: u8,
    /// Time to live, or hop limit.
    pub(crate) ttl: u8,
    /// From the IP header on.
    pub(crate) packet: &'a [u8],
    /// What follows the IP header with its options and extension headers.
    pub(crate) payload: &'a [u8],
    /// An option asks routers to look at it (RFC 2113, RFC 2711); told of IPv6 only.
    pub(crate) router_alert: bool,
    /// It came in fragments, or behind a fragment header.
    pub(crate) is_marked_fragment: bool,
    /// The device cannot have seen whose it is: it came in fragments or has extension headers.
    pub(crate) is_detour: bool,
    pub(crate) checksum: RxChecksum,
    /// Payload of each of the packets that it was merged from.
    pub(crate) segment_bytes: Option<u16>,
    /// All of it, by which the next segment of its connection can be told if it is plain enough; empty: it came in fragments.
    pub(crate) frame: &'a [u8],
}

impl Arrival<'_> {
    /// To be filled in.
    pub(crate) const NOTHING: Self = Self {
        interface: InterfaceId(0),
        resolution: Resolution::Arp,
        station: ethernet::Address::UNSPECIFIED,
        source: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        destination: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        protocol: Protocol::NO_NEXT_HEADER,
        next_header_at: 0,
        hop_limit: 0,
        dscp_ecn: 0,
        ttl: 0,
        packet: &[],
        payload: &[],
        router_alert: false,
        is_marked_fragment: false,
        is_detour: false,
        checksum: RxChecksum::Unknown,
        segment_bytes: None,
        frame: &[],
    };

    /// The way back. Only for packets to an address of this host's own.
    pub(crate) fn reply(&self) -> Envelope {
        Envelope {
            interface: self.interface,
            hardware: self.station,
            source: self.destination,
            destination: self.source,
            ttl: 64,
            tos: 0,
            identification: 0,
            flow_label: 0,
        }
    }

    /// Whether the transport checksum still has to be verified.
    pub(crate) fn must_verify(&self) -> bool {
        self.checksum == RxChecksum::Unknown
    }

    /// Whether the packet went to a group.
    pub(crate) fn is_to_group(&self) -> bool {
        self.destination.is_multicast()
    }

    /// The link of a packet for many: of what this host has sent, that of the sender.
    pub(crate) fn link_of_many(&self, interfaces: &Interfaces) -> InterfaceId {
        if self.resolution == Resolution::Loopback {
            interfaces.owner_of(self.source).unwrap_or(self.interface)
        } else {
            self.interface
        }
    }

    /// The link that the link-local addresses of a packet lie on. What came by the loopback was sent to
    /// an address of this host's own: that address's interface.
    pub(crate) fn link_of(&self, interfaces: &Interfaces) -> InterfaceId {
        let is_local = self.resolution == Resolution::Loopback;
        if is_local && needs_zone(self.destination) {
            interfaces
                .owner_of(self.destination)
                .unwrap_or(self.interface)
        } else {
            self.interface
        }
    }

    /// The link that programs are told of a packet for one of this host's own addresses: what stayed on
    /// the host came to the interface that has the address.
    pub(crate) fn own_link_of(&self, interfaces: &Interfaces) -> InterfaceId {
        if self.resolution == Resolution::Loopback {
            interfaces
                .owner_of(self.destination)
                .unwrap_or(self.interface)
        } else {
            self.interface
        }
    }
}
