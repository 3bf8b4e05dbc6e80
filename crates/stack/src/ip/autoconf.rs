//! Routers and prefixes that the link announces: default routes, on-link prefixes, addresses made from
//! them (RFC 4861 §6.3, RFC 4862 §5.5). Only on interfaces that ask for it.
//!
//! Bounds: [`LEARNED_MAX`] routes and [`MADE_MAX`] addresses of an interface; further announcements are
//! not taken. The advertised times of neighbour discovery and the hop limit are not taken over, and the
//! flags M and O (DHCPv6) are ignored.

use super::Ip;
use super::arrival::Arrival;
use super::discovery::{TimedRoute, forget};
use super::route::Route;
use crate::link::interface::{AddressState, Interface, InterfaceId};
use crate::link::questions::Question;
use core::net::{IpAddr, Ipv6Addr};
use tcp::{Duration, Instant};
use wire::icmpv6::ndp::{PrefixInformation, RouterAdvertisement};
use wire::ipv6::MINIMUM_MTU;

/// Routes learned on one interface at most.
const LEARNED_MAX: usize = 16;
/// Addresses made on one interface at most, the link-local one not counted.
const MADE_MAX: usize = 8;
/// RFC 4861 §10, RTR_SOLICITATION_INTERVAL.
const SOLICITATION_INTERVAL: Duration = Duration::from_secs(4);
/// RFC 4862 §5.5.3 (e): an unauthenticated advertisement shortens a lifetime to no less than this.
const LIFETIME_FLOOR: Duration = Duration::from_secs(2 * 60 * 60);
/// Metrics of learned routes: configured ones are better (Linux `IP6_RT_PRIO_ADDRCONF`, `_USER`).
const PREFIX_METRIC: u32 = 256;
const ROUTER_METRIC: u32 = 1_024;

impl Ip {
    /// Takes in a router advertisement; false: it must not be believed (RFC 4861 §6.1.2).
    pub(crate) fn handle_router_advertisement(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        advertisement: &RouterAdvertisement<'_>,
    ) -> bool {
        let IpAddr::V6(router) = arrival.source else {
            return false;
        };
        if !router.is_unicast_link_local() {
            return false;
        }
        let id = arrival.interface;
        let Some(interface) = self.link.interfaces.find_mut(id) else {
            return true;
        };
        if !interface.config.router_discovery || arrival.station == interface.config.hardware {
            return true;
        }
        let link_mtu = interface.config.mtu;
        if let Some(mtu) = advertisement.options.mtu() {
            let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
            if (MINIMUM_MTU..=link_mtu).contains(&mtu) {
                interface.learned_mtu = Some(mtu);
            }
        }
        if let Some(discovery) = self.discoveries.get_mut(usize::from(id.0)) {
            // A router has spoken: no more questions (§6.3.7).
            (discovery.solicit_at, discovery.solicitations_left) = (Instant::NEVER, 0);
        }
        if let Some(hardware) = advertisement.options.source_link_layer()
            && hardware.is_unicast()
        {
            self.learn_neighbour(now, id, arrival.source, hardware);
        }
        let lifetime_s = u32::from(advertisement.router_lifetime_s);
        let metric = ROUTER_METRIC;
        let (any, gateway) = (Ipv6Addr::UNSPECIFIED.into(), Some(arrival.source));
        self.learn_route(now, id, (any, 0), gateway, metric, lifetime_s);
        for prefix in advertisement.options.prefixes() {
            self.take_prefix(now, id, &prefix);
        }
        self.schedule_interfaces();
        true
    }

    /// RFC 4861 §6.3.4, RFC 4862 §5.5.3.
    fn take_prefix(&mut self, now: Instant, id: InterfaceId, prefix: &PrefixInformation) {
        if prefix.prefix.is_unicast_link_local()
            || prefix.prefix.is_multicast()
            || prefix.prefix_len > 128
        {
            return;
        }
        if prefix.on_link {
            let (to, lifetime_s) = (prefix.prefix.into(), prefix.valid_lifetime_s);
            self.learn_route(
                now,
                id,
                (to, prefix.prefix_len),
                None,
                PREFIX_METRIC,
                lifetime_s,
            );
        }
        let is_usable = prefix.autonomous
            && prefix.prefix_len == 64
            && prefix.preferred_lifetime_s <= prefix.valid_lifetime_s;
        if is_usable {
            self.take_address(now, id, prefix);
        }
    }

    fn take_address(&mut self, now: Instant, id: InterfaceId, prefix: &PrefixInformation) {
        let Some(interface) = self.link.interfaces.find(id) else {
            return;
        };
        let made = |interface: &Interface| {
            let made = interface.addresses.iter().filter(|owned| owned.is_made());
            made.count()
        };
        let exists = interface
            .addresses
            .iter()
            .any(|owned| owned.is_made() && owned.address.contains(prefix.prefix.into()));
        if !exists
            && (prefix.valid_lifetime_s == 0
                || made(interface) >= MADE_MAX
                || self.make_address(now, id, prefix.prefix, 0).is_err())
        {
            return;
        }
        let Some(interface) = self.link.interfaces.find_mut(id) else {
            return;
        };
        for owned in &mut interface.addresses {
            if !owned.is_made() || !owned.address.contains(prefix.prefix.into()) {
                continue;
            }
            owned.preferred_until = until(now, prefix.preferred_lifetime_s);
            if owned.state == AddressState::Deprecated && prefix.preferred_lifetime_s > 0 {
                owned.state = AddressState::Preferred;
            }
            let valid_until = until(now, prefix.valid_lifetime_s);
            let floor = now + LIFETIME_FLOOR;
            if !exists || valid_until > floor || valid_until > owned.valid_until {
                owned.valid_until = valid_until;
            } else if owned.valid_until > floor {
                owned.valid_until = floor;
            }
        }
    }

    /// A route that holds for so long from now; 0 takes it away.
    fn learn_route(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        (destination, prefix_len): (IpAddr, u8),
        gateway: Option<IpAddr>,
        metric: u32,
        lifetime_s: u32,
    ) {
        let Some(discovery) = self.discoveries.get_mut(usize::from(interface.0)) else {
            return;
        };
        let learned = &mut discovery.learned;
        let destination = crate::address::masked(destination, prefix_len);
        let known = learned.iter().position(|one| {
            one.route.destination == destination
                && one.route.prefix_len == prefix_len
                && one.route.gateway == gateway
        });
        match known {
            Some(known) if lifetime_s == 0 => {
                let removed = learned.swap_remove(known);
                let _ = self.routes.remove(&removed.route);
            }
            Some(known) => learned[known].until = until(now, lifetime_s),
            None if lifetime_s == 0 || learned.len() >= LEARNED_MAX => {}
            None => {
                // Several routers are told apart by their metrics; the first one heard is preferred.
                let taken = |metric| learned.iter().any(|one| one.route.metric == metric);
                let metric = (metric..).find(|metric| !taken(*metric)).unwrap_or(metric);
                let route = Route {
                    destination,
                    prefix_len,
                    gateway,
                    interface,
                    metric,
                    source: None,
                };
                learned.push(TimedRoute {
                    route,
                    until: until(now, lifetime_s),
                });
                let _ = self.routes.add(route);
            }
        }
    }

    /// A neighbour is no router any more (RFC 4861 §7.2.5): its routes go.
    pub(crate) fn forget_router(&mut self, id: InterfaceId, router: Ipv6Addr) {
        let discovery = self.discoveries.get_mut(usize::from(id.0));
        let learned = discovery.map(|discovery| &mut discovery.learned);
        forget(&mut self.routes, learned, |one| {
            one.route.gateway == Some(router.into())
        });
    }

    /// What routers said holds no longer than they said.
    pub(super) fn forget_expired(&mut self, now: Instant, id: InterfaceId) {
        let Some(discovery) = self.discoveries.get_mut(usize::from(id.0)) else {
            return;
        };
        for list in [&mut discovery.learned, &mut discovery.redirects] {
            forget(&mut self.routes, Some(list), |one| one.until <= now);
        }
    }

    /// Asks for routers when it is time (RFC 4861 §6.3.7).
    pub(crate) fn solicit_routers(&mut self, now: Instant, id: InterfaceId) {
        let Some(discovery) = self.discoveries.get_mut(usize::from(id.0)) else {
            return;
        };
        if discovery.solicit_at > now {
            return;
        }
        let Some(left) = discovery.solicitations_left.checked_sub(1) else {
            discovery.solicit_at = Instant::NEVER;
            return;
        };
        discovery.solicitations_left = left;
        discovery.solicit_at = now + SOLICITATION_INTERVAL;
        self.link.question(Question::Routers(id));
    }
}

/// All ones stand for ever (RFC 4861 §4.6.2).
fn until(now: Instant, lifetime_s: u32) -> Instant {
    if lifetime_s == u32::MAX {
        Instant::NEVER
    } else {
        now + Duration::from_secs(u64::from(lifetime_s))
    }
}
