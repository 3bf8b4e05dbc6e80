//! Routes: longest prefix first, then lowest metric (RFC 1122 §3.3.1, RFC 1812 §5.2.4.3).
//!
//! The list is sorted and short ([`ROUTES_MAX`]); connections keep what they found until the
//! generation changes, so that no packet of a connection searches it.

use crate::address::{bits_of_family, is_in_prefix, masked, same_family};
use crate::error::Error;
use crate::interface::InterfaceId;
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

/// The routing table.
#[derive(Debug)]
pub(crate) struct Routes {
    sorted: Vec<Route>,
    generation: u32,
}

impl Routes {
    pub(crate) fn new() -> Self {
        Self {
            sorted: Vec::new(),
            generation: 1,
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
        self.sorted.retain(|other| !other.is_same(&route));
        if self.sorted.len() >= ROUTES_MAX {
            return Err(Error::NoMemory);
        }
        let rank = |route: &Route| (u8::MAX - route.prefix_len, route.metric);
        let place = self
            .sorted
            .partition_point(|other| rank(other) <= rank(&route));
        self.sorted.insert(place, route);
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
            .position(|other| other.is_same(&wanted))
            .ok_or(Error::NotFound)?;
        self.sorted.remove(place);
        self.touch();
        Ok(())
    }

    pub(crate) fn lookup(&self, address: IpAddr) -> Option<&Route> {
        self.sorted.iter().find(|route| route.matches(address))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Route> {
        self.sorted.iter()
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
