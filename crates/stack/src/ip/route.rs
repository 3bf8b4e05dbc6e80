//! Routes: longest prefix first, then lowest metric (RFC 1122 §3.3.1, RFC 1812 §5.2.4.3).
//!
//! The list is sorted and short ([`ROUTES_MAX`]); connections keep what they found until the
//! generation changes, so that no packet of a connection searches it.

use crate::address::{bits_of_family, is_in_prefix, masked, same_family};
use crate::error::Error;
use crate::link::interface::InterfaceId;
use core::net::IpAddr;

/// Routes at most.
pub const ROUTES_MAX: usize = 1_024;

/// Where packets for a prefix go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The prefix.
    pub destination: IpAddr,
    /// Bits of it that count.
    pub prefix_len: u8,
    /// The router to hand packets to; `None`: the destination itself is on the link.
    pub gateway: Option<IpAddr>,
    /// The interface that leads there.
    pub interface: InterfaceId,
    /// The lower one wins among equally long prefixes.
    pub metric: u32,
    /// The source address that new connections take.
    pub source: Option<IpAddr>,
}

impl Route {
    fn matches(&self, address: IpAddr) -> bool {
        is_in_prefix(address, self.destination, self.prefix_len)
    }

    fn is_same(&self, other: &Self) -> bool {
        self.destination == other.destination
            && self.prefix_len == other.prefix_len
            && self.metric == other.metric
    }
}

/// A route, and whether its router answers.
#[derive(Clone, Copy, Debug)]
struct Entry {
    route: Route,
    /// When its router was last found not to answer: counts such events; 0: it is not known to be silent.
    silent: u32,
}

/// The routing table.
#[derive(Debug)]
pub(crate) struct Routes {
    sorted: Vec<Entry>,
    generation: u32,
    /// Routers found silent so far.
    silences: u32,
}

impl Routes {
    pub(crate) fn new() -> Self {
        Self {
            sorted: Vec::new(),
            generation: 1,
            silences: 0,
        }
    }

    /// Changes whenever an earlier lookup may give another answer now; never 0.
    pub(crate) const fn generation(&self) -> u32 {
        self.generation
    }

    pub(crate) fn touch(&mut self) {
        self.generation = self.generation.wrapping_add(1).max(1);
    }

    /// Adds a route, in place of one with the same prefix and metric.
    pub(crate) fn add(&mut self, mut route: Route) -> Result<(), Error> {
        let of_one_family = |other: IpAddr| same_family(other, route.destination);
        if route.prefix_len > bits_of_family(route.destination)
            || !route.gateway.is_none_or(of_one_family)
            || !route.source.is_none_or(of_one_family)
        {
            return Err(Error::InvalidArgument);
        }
        route.destination = masked(route.destination, route.prefix_len);
        self.sorted.retain(|other| !other.route.is_same(&route));
        if self.sorted.len() >= ROUTES_MAX {
            return Err(Error::NoMemory);
        }
        let rank = |route: &Route| (u8::MAX - route.prefix_len, route.metric);
        let place = self
            .sorted
            .partition_point(|other| rank(&other.route) <= rank(&route));
        self.sorted.insert(place, Entry { route, silent: 0 });
        self.touch();
        Ok(())
    }

    /// Removes the route with the prefix and metric of `route`.
    pub(crate) fn remove(&mut self, route: &Route) -> Result<(), Error> {
        let wanted = Route {
            destination: masked(route.destination, route.prefix_len),
            ..*route
        };
        let place = self
            .sorted
            .iter()
            .position(|other| other.route.is_same(&wanted))
            .ok_or(Error::NotFound)?;
        self.sorted.remove(place);
        self.touch();
        Ok(())
    }

    /// The best route to `address`: among those with the longest prefix the one with the lowest metric
    /// whose router answers. If none does, the one that has been silent longest: each gets its turn to be
    /// asked again (RFC 4861 §6.3.6, RFC 1122 §3.3.1.5).
    pub(crate) fn lookup(&self, address: IpAddr) -> Option<&Route> {
        let mut matching = self
            .sorted
            .iter()
            .filter(|entry| entry.route.matches(address));
        let first = matching.next()?;
        if first.silent == 0 {
            return Some(&first.route);
        }
        let as_long = matching.take_while(|entry| entry.route.prefix_len == first.route.prefix_len);
        let best = core::iter::once(first).chain(as_long);
        best.min_by_key(|entry| entry.silent)
            .map(|entry| &entry.route)
    }

    /// The neighbour `router` does not answer. Returns whether another one does to what goes over it.
    pub(crate) fn on_silent_router(&mut self, interface: InterfaceId, router: IpAddr) -> bool {
        let is_its = |route: &Route| route.interface == interface && route.gateway == Some(router);
        let Some(own) = self.sorted.iter().position(|entry| is_its(&entry.route)) else {
            return false;
        };
        self.silences += 1;
        let (mut has_other, mut has_answering) = (false, false);
        let Route {
            destination,
            prefix_len,
            ..
        } = self.sorted[own].route;
        for entry in &mut self.sorted {
            if is_its(&entry.route) {
                entry.silent = self.silences;
            } else if entry.route.destination == destination && entry.route.prefix_len == prefix_len
            {
                has_other = true;
                has_answering |= entry.silent == 0;
            }
        }
        if has_other {
            self.touch();
        }
        has_answering
    }

    /// The neighbour `router` answers.
    pub(crate) fn on_heard_router(&mut self, interface: InterfaceId, router: IpAddr) {
        let mut is_back = false;
        for entry in &mut self.sorted {
            if entry.silent > 0
                && entry.route.interface == interface
                && entry.route.gateway == Some(router)
            {
                entry.silent = 0;
                is_back = true;
            }
        }
        if is_back {
            self.touch();
        }
    }

    /// Whether any router is known to be silent.
    pub(crate) fn has_silent_routers(&self) -> bool {
        self.silences > 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Route> {
        self.sorted.iter().map(|entry| &entry.route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    fn route(destination: u32, prefix_len: u8, metric: u32) -> Route {
        let destination = Ipv4Addr::from_bits(destination).into();
        Route {
            destination,
            prefix_len,
            gateway: None,
            interface: InterfaceId(0),
            metric,
            source: None,
        }
    }

    proptest! {
        #[test]
        fn lookup_agrees_with_trying_every_route(
            routes in proptest::collection::vec((0_u32..16, 0_u8..=32, 0_u32..3), 0..20),
            address in 0_u32..16,
        ) {
            let mut table = Routes::new();
            for (destination, prefix_len, metric) in routes {
                table.add(route(destination << 28, prefix_len, metric)).unwrap();
            }
            let address = Ipv4Addr::from_bits(address << 28).into();
            let best = table.iter().filter(|route| route.matches(address))
                .min_by_key(|route| (32 - route.prefix_len, route.metric));
            prop_assert_eq!(table.lookup(address), best);
        }
    }

    #[test]
    fn a_silent_router_is_avoided_until_it_is_heard() {
        let mut table = Routes::new();
        let far = Ipv4Addr::new(8, 8, 8, 8).into();
        let routers = [1, 2, 3].map(|n| IpAddr::from([10, 0, 0, n]));
        for (metric, router) in (0..).zip(routers) {
            let gateway = Some(router);
            let way = Route {
                gateway,
                ..route(0, 0, metric)
            };
            table.add(way).unwrap();
        }
        let gateway = |table: &Routes| table.lookup(far).unwrap().gateway.unwrap();
        assert_eq!(gateway(&table), routers[0]);
        for (silent, next, answers) in [(0, 1, true), (1, 2, true), (2, 0, false), (0, 1, false)] {
            let before = table.generation();
            let has_answering = table.on_silent_router(InterfaceId(0), routers[silent]);
            assert_eq!(has_answering, answers);
            assert_ne!(table.generation(), before);
            assert_eq!(gateway(&table), routers[next], "silent longest");
        }
        table.on_heard_router(InterfaceId(0), routers[2]);
        assert_eq!(gateway(&table), routers[2]);
        let stranger = Ipv4Addr::new(10, 0, 0, 9).into();
        assert!(!table.on_silent_router(InterfaceId(0), stranger));
    }

    #[test]
    fn the_families_have_routes_of_their_own() {
        let mut table = Routes::new();
        let default_v6 = Route {
            destination: Ipv6Addr::UNSPECIFIED.into(),
            prefix_len: 0,
            ..route(0, 0, 0)
        };
        table.add(default_v6).unwrap();
        assert_eq!(table.lookup(Ipv4Addr::LOCALHOST.into()), None);
        assert_eq!(table.lookup(Ipv6Addr::LOCALHOST.into()), Some(&default_v6));
        let mixed = Route {
            gateway: Some(Ipv4Addr::LOCALHOST.into()),
            ..default_v6
        };
        assert_eq!(table.add(mixed), Err(Error::InvalidArgument));
    }

    #[test]
    fn a_removed_route_changes_the_generation() {
        let mut table = Routes::new();
        table.add(route(0, 0, 5)).unwrap();
        let before = table.generation();
        table.remove(&route(0, 0, 5)).unwrap();
        assert_ne!(table.generation(), before);
        assert_eq!(table.lookup(Ipv4Addr::LOCALHOST.into()), None);
        assert_eq!(table.remove(&route(0, 0, 5)), Err(Error::NotFound));
    }
}
