//! "There is a better first hop": redirects of both families, for links whose neighbours this stack asks
//! itself (RFC 1122 §3.2.2.2, RFC 4861 §8).
//!
//! Believed is only the router that is used for the destination now, and over IPv4, where its address is
//! easily forged from afar, only with a segment that a connection has in flight. At most
//! [`REDIRECTS_MAX`] of an interface hold for ten minutes each, the oldest goes first; one whose router
//! does not answer goes at once.

use crate::icmp::Quote;
use crate::input::Arrival;
use crate::interface::{InterfaceId, Resolution};
use crate::path::PATH_MTU_LIFETIME;
use crate::route::Route;
use crate::stack::Stack;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tcp::Instant;
use wire::ethernet;

/// Redirects kept on one interface at most.
pub(crate) const REDIRECTS_MAX: usize = 32;

/// A better first hop to one destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Redirect {
    pub(crate) route: Route,
    pub(crate) until: Instant,
}

impl Stack<'_> {
    /// RFC 1122 §3.2.2.2. `quoted` is the packet that took the longer way.
    pub(crate) fn handle_redirect_v4(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        gateway: Ipv4Addr,
        quoted: &[u8],
    ) {
        let Some(quote) = Quote::parse(quoted) else {
            return;
        };
        let destination = quote.tuple.remote();
        let is_near = self.interfaces.find(arrival.interface).is_some_and(|link| {
            link.config.resolution == Resolution::Arp && link.is_on_link(gateway.into())
        });
        if is_near
            && self.is_usable_hop(gateway.into())
            && self.is_first_hop(arrival, destination)
            && self.quoted_connection(Some(&quote)).is_some()
        {
            self.redirect(now, arrival.interface, destination, Some(gateway.into()));
        }
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
        self.interfaces.is_unicast(hop) && !self.interfaces.owns(hop)
    }

    /// Whether who sent this is who gets the packets for `destination`.
    fn is_first_hop(&self, arrival: &Arrival<'_>, destination: IpAddr) -> bool {
        let hop = self.hop_to(destination, None);
        hop.is_some_and(|hop| {
            hop.interface == arrival.interface && hop.next_hop == Some(arrival.source)
        })
    }

    fn redirect(
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
        let Some(link) = self.interfaces.find_mut(interface) else {
            return;
        };
        let redirects = &mut link.discovery.redirects;
        redirects.retain(|one| one.route.destination != destination);
        if redirects.len() >= REDIRECTS_MAX {
            let oldest = redirects.remove(0);
            let _ = self.routes.remove(&oldest.route);
        }
        let until = now + PATH_MTU_LIFETIME;
        if self.routes.add(route).is_ok() {
            redirects.push(Redirect { route, until });
            self.counters.redirects_taken += 1;
        }
        self.schedule_interfaces();
    }

    /// The neighbour `router` does not answer: what was redirected to it takes the old way
    /// (RFC 1122 §3.3.1.6).
    pub(crate) fn forget_redirects_to(&mut self, interface: InterfaceId, router: IpAddr) {
        self.forget_redirects(interface, |one| {
            one.route.gateway.unwrap_or(one.route.destination) == router
        });
    }

    /// Redirects that have had their time.
    pub(crate) fn forget_old_redirects(&mut self, now: Instant, interface: InterfaceId) {
        self.forget_redirects(interface, |one| one.until <= now);
    }

    fn forget_redirects(&mut self, interface: InterfaceId, is_over: impl Fn(&Redirect) -> bool) {
        let Self {
            interfaces, routes, ..
        } = self;
        if let Some(link) = interfaces.find_mut(interface) {
            link.discovery.redirects.retain(|one| {
                let over = is_over(one);
                if over {
                    let _ = routes.remove(&one.route);
                }
                !over
            });
        }
    }
}
