//! "There is a better first hop": redirects of both families, for links whose neighbours this stack asks
//! itself (RFC 1122 §3.2.2.2, RFC 4861 §8).
//!
//! Believed is only the router that is used for the destination now, and over IPv4, where its address is
//! easily forged from afar, only with a segment that a connection has in flight. At most
//! [`REDIRECTS_MAX`] of an interface hold for ten minutes each, the oldest goes first; one whose router
//! does not answer goes at once.

use super::Ip;
use super::arrival::Arrival;
use super::discovery::{REDIRECTS_MAX, TimedRoute, forget};
use super::path::PATH_MTU_LIFETIME;
use super::route::Route;
use crate::link::interface::{InterfaceId, Resolution};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tcp::Instant;
use wire::ethernet;

impl Ip {
    /// Whether a redirect over IPv4 (RFC 1122 §3.2.2.2) comes from the router in use for `destination`, and names one
    /// that can be reached.
    pub(crate) fn is_better_hop(
        &self,
        arrival: &Arrival<'_>,
        gateway: Ipv4Addr,
        destination: IpAddr,
    ) -> bool {
        let link = self.link.interfaces.find(arrival.interface);
        let is_near = link.is_some_and(|link| {
            link.config.resolution == Resolution::Arp && link.is_on_link(gateway.into())
        });
        is_near && self.is_usable_hop(gateway.into()) && self.is_first_hop(arrival, destination)
    }

    /// RFC 4861 §8.3; false: it must not be believed (§8.1).
    pub(crate) fn handle_redirect_v6(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        (target, destination): (Ipv6Addr, Ipv6Addr),
        hardware: Option<ethernet::Address>,
    ) -> bool {
        let is_to_router = target.is_unicast_link_local();
        let from_router = match arrival.source {
            IpAddr::V6(source) => source.is_unicast_link_local(),
            IpAddr::V4(_) => false,
        };
        if !from_router
            || destination.is_multicast()
            || !(is_to_router || target == destination)
            || hardware.is_some_and(|hardware| !hardware.is_unicast())
            || !self.is_usable_hop(target.into())
            || !self.is_first_hop(arrival, destination.into())
        {
            return false;
        }
        if let Some(hardware) = hardware {
            self.learn_neighbour(now, arrival.interface, target.into(), hardware);
        }
        // §8.3: the destination itself is on the link where it is its own target.
        let gateway = (target != destination).then_some(target.into());
        self.redirect(now, arrival.interface, destination.into(), gateway);
        true
    }

    fn is_usable_hop(&self, hop: IpAddr) -> bool {
        self.link.interfaces.is_unicast(hop) && !self.link.interfaces.owns(hop)
    }

    /// Whether who sent this is who gets the packets for `destination`.
    fn is_first_hop(&self, arrival: &Arrival<'_>, destination: IpAddr) -> bool {
        let hop = self.hop_to(destination, None);
        hop.is_some_and(|hop| {
            hop.interface == arrival.interface && hop.next_hop == Some(arrival.source)
        })
    }

    /// Packets for `destination` go by another router, or to itself, for a while.
    pub(crate) fn redirect(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        destination: IpAddr,
        gateway: Option<IpAddr>,
    ) {
        let route = Route {
            destination,
            prefix_len: crate::address::bits_of_family(destination),
            gateway,
            interface,
            // Beside a route that the host has configured for the very address, it is nothing.
            metric: u32::MAX,
            source: None,
        };
        let Some(discovery) = self.discoveries.get_mut(usize::from(interface.0)) else {
            return;
        };
        let redirects = &mut discovery.redirects;
        redirects.retain(|one| one.route.destination != destination);
        if redirects.len() >= REDIRECTS_MAX {
            let oldest = redirects.remove(0);
            let _ = self.routes.remove(&oldest.route);
        }
        let until = now + PATH_MTU_LIFETIME;
        if self.routes.add(route).is_ok() {
            redirects.push(TimedRoute { route, until });
            self.link.counters.redirects_taken += 1;
        }
        self.schedule_interfaces();
    }

    /// What is known to lie behind a router that does not answer goes another way.
    pub(super) fn forget_redirects_to(&mut self, interface: InterfaceId, router: IpAddr) {
        let discovery = self.discoveries.get_mut(usize::from(interface.0));
        let redirects = discovery.map(|discovery| &mut discovery.redirects);
        forget(&mut self.routes, redirects, |one| {
            one.route.gateway.unwrap_or(one.route.destination) == router
        });
    }
}
