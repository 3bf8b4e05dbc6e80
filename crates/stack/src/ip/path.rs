//! Where the packets of a connection go: route, next hop, neighbour, path MTU.
//!
//! Found once and kept beside the connection until the routes change; after that a packet costs two
//! comparisons. Reverse path and equal-cost multipath are not considered.

use super::Ip;
use super::flows::Path;
use crate::address::needs_zone;
use crate::containers::demux::FourTuple;
use crate::link::interface::{InterfaceId, Resolution};
use core::net::IpAddr;
use tcp::{Duration, Instant};
use wire::ethernet;

/// No ICMP message makes us send smaller packets than this over IPv4 (Linux `min_pmtu`; RFC 1191 §3
/// allows 68, which invites abuse).
const PATH_MTU_MIN_V4: u16 = 552;

/// The smallest packet size towards `address` that is ever believed.
pub(crate) const fn path_mtu_min(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(_) => PATH_MTU_MIN_V4,
        // RFC 8201 §4: every IPv6 link carries this much.
        IpAddr::V6(_) => wire::ipv6::MINIMUM_MTU,
    }
}

/// Whether no link towards `address` can have that MTU. RFC 8201 §4: a message that names one below the minimum of
/// IPv6 must be discarded, not taken for the minimum. Over IPv4 there are such links, and 0 is a router that names none.
pub(crate) const fn cannot_be_a_link(address: IpAddr, mtu: u16) -> bool {
    address.is_ipv6() && mtu < wire::ipv6::MINIMUM_MTU
}

/// How long a lowered path MTU is believed (RFC 1191 §6.3).
pub(crate) const PATH_MTU_LIFETIME: Duration = Duration::from_secs(600);

/// The next hop towards an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    pub(crate) interface: InterfaceId,
    /// Whom to hand the packet to; `None`: it stays on this host.
    pub(crate) next_hop: Option<IpAddr>,
    /// The source address that the route asks for, where somebody wanted to know.
    pub(crate) source: Option<IpAddr>,
}

/// A hardware address and the interface that leads there, in one word: every packet asks for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Station(u64);

impl Station {
    #[inline(always)]
    pub(crate) fn new(interface: InterfaceId, hardware: ethernet::Address) -> Self {
        let [a, b, c, d, e, f] = hardware.0;
        // Of eight bytes the compiler makes a word by far more steps than of three words.
        let low = u64::from(u32::from_le_bytes([a, b, c, d]));
        let high = u64::from(u16::from_le_bytes([e, f]));
        Self(low | high << 32 | u64::from(interface.0) << 48)
    }

    #[inline(always)]
    pub(crate) fn interface(self) -> InterfaceId {
        let [.., low, high] = self.0.to_le_bytes();
        InterfaceId(u16::from_le_bytes([low, high]))
    }

    pub(crate) fn hardware(self) -> ethernet::Address {
        let [a, b, c, d, e, f, ..] = self.0.to_le_bytes();
        ethernet::Address([a, b, c, d, e, f])
    }
}

/// Whether a connection may send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// To this station.
    Open(Station),
    /// The neighbour is being asked.
    Waiting,
    /// There is no way: what is sent is lost.
    Lost,
}

impl Ip {
    /// The way to `destination` (RFC 1122 §3.3.1.1); a link-local one lies on the link of `zone`.
    pub(crate) fn hop_to(&self, destination: IpAddr, zone: Option<InterfaceId>) -> Option<Hop> {
        self.find_hop(destination, zone, false)
    }

    /// [`Self::hop_to`], with the source address.
    pub(crate) fn hop_and_source(
        &self,
        destination: IpAddr,
        zone: Option<InterfaceId>,
    ) -> Option<Hop> {
        self.find_hop(destination, zone, true)
    }

    #[inline(always)]
    fn find_hop(
        &self,
        destination: IpAddr,
        zone: Option<InterfaceId>,
        wants_source: bool,
    ) -> Option<Hop> {
        let is_ours = match zone {
            Some(zone) => self.link.interfaces.owns_on(zone, destination),
            None => self.link.interfaces.owns(destination),
        };
        if is_ours {
            let interface = self.link.interfaces.loopback()?;
            let source = if !wants_source {
                None
            } else if destination.is_loopback() {
                // Of a whole network one address speaks, as on Linux.
                self.link.interfaces.source_on(interface, destination)
            } else {
                Some(destination)
            };
            return Some(Hop {
                interface,
                next_hop: None,
                source,
            });
        }
        if needs_zone(destination) {
            let interface = zone?;
            return Some(Hop {
                interface,
                next_hop: Some(destination),
                source: wants_source
                    .then(|| self.link.interfaces.source_on(interface, destination))
                    .flatten(),
            });
        }
        let route = self.routes.lookup(destination)?;
        let interface = self.link.interfaces.find(route.interface)?;
        let next_hop = route.gateway.unwrap_or(destination);
        let source_for = || interface.source_for(destination, next_hop);
        let source = wants_source.then(|| route.source.or_else(source_for));
        let stays_here = interface.config.resolution == Resolution::Loopback;
        Some(Hop {
            interface: route.interface,
            next_hop: (!stays_here).then_some(next_hop),
            source: source.flatten(),
        })
    }

    /// Whether flow `index`, between the ends of `tuple`, may send now; starts what is needed if not, and queues it
    /// to be woken.
    #[inline(always)]
    pub(crate) fn gate(&mut self, now: Instant, index: usize, tuple: &FourTuple) -> Gate {
        let path = &self.flows.paths[index];
        if path.route_generation == self.routes.generation()
            && let Some(n) = path.neighbour.checked_sub(1)
            && let Some(hardware) = self
                .link
                .neighbours
                .known(now, n, path.neighbour_generation)
        {
            return Gate::Open(Station::new(InterfaceId(path.interface), hardware));
        }
        self.gate_anew(now, index, tuple)
    }

    fn gate_anew(&mut self, now: Instant, index: usize, tuple: &FourTuple) -> Gate {
        let mut path = self.flows.paths[index];
        if !self.is_current(&path) {
            if !self.find_path(now, index, tuple) {
                return Gate::Lost;
            }
            path = self.flows.paths[index];
        }
        let interface = InterfaceId(path.interface);
        let Some(n) = path.neighbour.checked_sub(1) else {
            return Gate::Open(Station::new(interface, ethernet::Address([0; 6])));
        };
        if let Some(hardware) = self.resolve(now, n) {
            return Gate::Open(Station::new(interface, hardware));
        }
        self.flows.wait_for(index, n, &mut self.link.neighbours);
        Gate::Waiting
    }

    /// Whether routes and neighbour are still what they were when the path was found.
    fn is_current(&self, path: &Path) -> bool {
        let same_neighbour =
            |n| self.link.neighbours.entry(n).generation == path.neighbour_generation;
        path.route_generation == self.routes.generation()
            && path.neighbour.checked_sub(1).is_none_or(same_neighbour)
    }

    /// Fills in the path of flow `index`; false: there is none.
    fn find_path(&mut self, now: Instant, index: usize, tuple: &FourTuple) -> bool {
        let Some(hop) = self.hop_to(tuple.remote(), tuple.zone()) else {
            self.link.counters.ip_out_no_routes += 1;
            return false;
        };
        self.take_path(now, index, &hop)
    }

    /// Flow `index` goes by this hop, if its neighbour has a place.
    pub(crate) fn take_path(&mut self, now: Instant, index: usize, hop: &Hop) -> bool {
        let mut neighbour = 0;
        let mut neighbour_generation = 0;
        if let Some(next_hop) = hop.next_hop {
            let Some(n) = self.want_neighbour(now, hop.interface, next_hop) else {
                return false;
            };
            neighbour = n + 1;
            neighbour_generation = self.link.neighbours.entry(n).generation;
        }
        let path = &mut self.flows.paths[index];
        path.route_generation = self.routes.generation();
        path.interface = hop.interface.0;
        path.neighbour = neighbour;
        path.neighbour_generation = neighbour_generation;
        true
    }

    /// The entry of a neighbour that packets are to go to; `None`: there is no place for one.
    pub(crate) fn want_neighbour(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        address: IpAddr,
    ) -> Option<u32> {
        let found = self.link.neighbours.want(now, interface, address);
        self.link.counters.neighbour_table_full += u64::from(found.is_none());
        found
    }

    /// The MTU of a link for packets to `destination`.
    pub(crate) fn link_mtu(&self, interface: InterfaceId, destination: IpAddr) -> u16 {
        let link = self.link.interfaces.find(interface);
        link.map_or(PATH_MTU_MIN_V4, |link| link.mtu_for(destination.is_ipv6()))
    }

    /// The peer of flow `index` has answered: so has the neighbour on the way (RFC 4861 §7.3.1).
    #[inline]
    pub(crate) fn confirm_path(&mut self, now: Instant, index: usize) {
        let path = &self.flows.paths[index];
        if let Some(n) = path.neighbour.checked_sub(1)
            && self.is_current(path)
            && self.link.neighbours.confirm(now, n)
        {
            self.link.arm_neighbour(n);
        }
    }

    /// Flow `index` is done with its way.
    pub(crate) fn forget_path(&mut self, index: usize) {
        self.flows.forget(index, &mut self.link.neighbours);
    }
}
