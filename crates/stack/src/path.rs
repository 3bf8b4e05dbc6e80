//! Where the packets of a connection go: route, next hop, neighbour, path MTU.
//!
//! Found once and kept beside the connection until the routes change; after that a packet costs two
//! comparisons. Reverse path and equal-cost multipath are not considered.

use crate::address::needs_zone;
use crate::interface::{InterfaceId, Resolution};
use crate::neighbour::Readiness;
use crate::stack::Stack;
use core::net::IpAddr;
use tcp::{Duration, Instant};
use wire::ethernet;
use zerocopy::FromZeros;

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
/// How long a lowered path MTU is believed (RFC 1191 §6.3).
pub(crate) const PATH_MTU_LIFETIME: Duration = Duration::from_secs(600);

/// What a connection remembers of its path. All zero: nothing.
#[derive(Clone, Copy, Debug, FromZeros)]
pub(crate) struct Path {
    /// Generation of the routes when the rest was found.
    route_generation: u32,
    neighbour_generation: u32,
    /// Neighbour + 1; 0: none is needed.
    neighbour: u32,
    /// Neighbour + 1 for which the connection waits; 0: it does not wait.
    waiting_on: u32,
    interface: u16,
    padding: u16,
}

/// The next hop towards an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    pub(crate) interface: InterfaceId,
    /// Whom to hand the packet to; `None`: it stays on this host.
    pub(crate) next_hop: Option<IpAddr>,
    /// The source address that the route asks for.
    pub(crate) source: Option<IpAddr>,
}

/// Whether a connection may send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// To this hardware address.
    Open(InterfaceId, ethernet::Address),
    /// The neighbour is being asked.
    Waiting,
    /// There is no way: what is sent is lost.
    Lost,
}

impl Stack<'_> {
    /// The way to `destination` (RFC 1122 §3.3.1.1); a link-local one lies on the link of `zone`.
    pub(crate) fn hop_to(&self, destination: IpAddr, zone: Option<InterfaceId>) -> Option<Hop> {
        let is_ours = match zone {
            Some(zone) => self.interfaces.owns_on(zone, destination),
            None => self.interfaces.owns(destination),
        };
        if is_ours {
            let interface = self.interfaces.loopback()?;
            let source = if destination.is_loopback() {
                // Of a whole network one address speaks, as on Linux.
                let lo = self.interfaces.find(interface)?;
                lo.source_for(destination, destination)
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
                source: self
                    .interfaces
                    .find(interface)?
                    .source_for(destination, destination),
            });
        }
        let route = self.routes.lookup(destination)?;
        let interface = self.interfaces.find(route.interface)?;
        let next_hop = route.gateway.unwrap_or(destination);
        let source = route
            .source
            .or_else(|| interface.source_for(destination, next_hop));
        let stays_here = interface.config.resolution == Resolution::Loopback;
        Some(Hop {
            interface: route.interface,
            next_hop: (!stays_here).then_some(next_hop),
            source,
        })
    }

    /// Whether connection `index` may send now; starts what is needed if not, and queues it to be woken.
    pub(crate) fn gate(&mut self, now: Instant, index: usize) -> Gate {
        let path = self.paths[index];
        if !self.is_current(&path) && !self.find_path(now, index) {
            return Gate::Lost;
        }
        let path = self.paths[index];
        let interface = InterfaceId(path.interface);
        let Some(n) = path.neighbour.checked_sub(1) else {
            return Gate::Open(interface, ethernet::Address([0; 6]));
        };
        match self.neighbours.ready(now, n) {
            Readiness::Ready(hardware) => {
                self.arm_neighbour(n);
                Gate::Open(interface, hardware)
            }
            Readiness::Waiting(probe) => {
                self.wait_for(index, n);
                if let Some(probe) = probe {
                    self.ask(probe);
                    self.arm_neighbour(n);
                    if let Some(oldest) = self.neighbours.excess_incomplete() {
                        self.neighbour_failed(oldest);
                    }
                }
                Gate::Waiting
            }
        }
    }

    /// Whether routes and neighbour are still what they were when the path was found.
    fn is_current(&self, path: &Path) -> bool {
        let same_neighbour = |n| self.neighbours.entry(n).generation == path.neighbour_generation;
        path.route_generation == self.routes.generation()
            && path.neighbour.checked_sub(1).is_none_or(same_neighbour)
    }

    /// Fills in the path of connection `index`; false: there is none.
    fn find_path(&mut self, now: Instant, index: usize) -> bool {
        let tuple = &self.tables.connections[index].tuple;
        let Some(hop) = self.hop_to(tuple.remote(), tuple.zone()) else {
            self.counters.ip_out_no_routes += 1;
            return false;
        };
        let mut neighbour = 0;
        let mut neighbour_generation = 0;
        if let Some(next_hop) = hop.next_hop {
            let Some(n) = self.neighbours.want(now, hop.interface, next_hop) else {
                self.counters.neighbour_table_full += 1;
                return false;
            };
            neighbour = n + 1;
            neighbour_generation = self.neighbours.entry(n).generation;
        }
        let path = &mut self.paths[index];
        path.route_generation = self.routes.generation();
        path.interface = hop.interface.0;
        path.neighbour = neighbour;
        path.neighbour_generation = neighbour_generation;
        true
    }

    /// Largest packet towards the peer of connection `index`.
    pub(crate) fn path_mtu(&mut self, now: Instant, index: usize, interface: InterfaceId) -> u16 {
        let is_v6 = self.tables.connections[index].tuple.remote().is_ipv6();
        let mtu = self
            .interfaces
            .find(interface)
            .map_or(PATH_MTU_MIN_V4, |interface| interface.mtu_for(is_v6));
        let record = &mut self.tables.connections[index];
        if record.path_mtu == 0 {
            return mtu;
        }
        if record.path_mtu_until <= now {
            record.path_mtu = 0;
            return mtu;
        }
        record.path_mtu.min(mtu)
    }

    /// The peer of connection `index` has answered: so has the neighbour on the way (RFC 4861 §7.3.1).
    pub(crate) fn confirm_path(&mut self, now: Instant, index: usize) {
        let path = self.paths[index];
        if let Some(n) = path
            .neighbour
            .checked_sub(1)
            .filter(|_| self.is_current(&path))
        {
            self.neighbours.confirm(now, n);
            self.arm_neighbour(n);
        }
    }

    pub(crate) fn is_waiting(&self, index: usize) -> bool {
        self.paths[index].waiting_on != 0
    }

    fn wait_for(&mut self, index: usize, n: u32) {
        self.paths[index].waiting_on = n + 1;
        let waiters = &mut self.neighbours.entry_mut(n).waiters;
        self.waiter_links
            .push_back(waiters, crate::intrusive::slot(index));
    }

    /// Takes the connection that has waited longest for neighbour `n` out of its list.
    pub(crate) fn pop_waiter(&mut self, n: u32) -> Option<u32> {
        let waiters = &mut self.neighbours.entry_mut(n).waiters;
        let index = self.waiter_links.pop_front(waiters)?;
        self.paths[crate::intrusive::at(index)].waiting_on = 0;
        Some(index)
    }

    /// Connection `index` is done with its path.
    pub(crate) fn forget_path(&mut self, index: usize) {
        let path = core::mem::replace(&mut self.paths[index], Path::new_zeroed());
        if let Some(n) = path.waiting_on.checked_sub(1) {
            let waiters = &mut self.neighbours.entry_mut(n).waiters;
            self.waiter_links
                .remove(waiters, crate::intrusive::slot(index));
        }
    }
}
