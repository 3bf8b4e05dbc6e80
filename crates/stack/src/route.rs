//! Routes: longest prefix first, then lowest metric (RFC 1122 §3.3.1, RFC 1812 §5.2.4.3).
//!
//! The list is sorted and short ([`ROUTES_MAX`]); connections keep what they found until the
//! generation changes, so that no packet of a connection searches it.

use crate::error::Error;
use crate::interface::{InterfaceId, mask};
use core::net::Ipv4Addr;

/// Routes at most.
pub const ROUTES_MAX: usize = 1_024;

/// Where packets for a prefix go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The prefix.
    pub destination: Ipv4Addr,
    /// Bits of it that count.
    pub prefix_len: u8,
    /// The router to hand packets to; `None`: the destination itself is on the link.
    pub gateway: Option<Ipv4Addr>,
    /// The interface that leads there.
    pub interface: InterfaceId,
    /// The lower one wins among equally long prefixes.
    pub metric: u32,
    /// The source address that new connections take.
    pub source: Option<Ipv4Addr>,
}

impl Route {
    fn matches(&self, address: Ipv4Addr) -> bool {
        (self.destination.to_bits() ^ address.to_bits()) & mask(self.prefix_len) == 0
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
        if route.prefix_len > 32 {
            return Err(Error::InvalidArgument);
        }
        route.destination =
            Ipv4Addr::from_bits(route.destination.to_bits() & mask(route.prefix_len));
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
        let masked = Ipv4Addr::from_bits(route.destination.to_bits() & mask(route.prefix_len));
        let wanted = Route {
            destination: masked,
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

    pub(crate) fn lookup(&self, address: Ipv4Addr) -> Option<&Route> {
        self.sorted.iter().find(|route| route.matches(address))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Route> {
        self.sorted.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn route(destination: u32, prefix_len: u8, metric: u32) -> Route {
        let destination = Ipv4Addr::from_bits(destination);
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
            let address = Ipv4Addr::from_bits(address << 28);
            let best = table.iter().filter(|route| route.matches(address))
                .min_by_key(|route| (32 - route.prefix_len, route.metric));
            prop_assert_eq!(table.lookup(address), best);
        }
    }

    #[test]
    fn a_removed_route_changes_the_generation() {
        let mut table = Routes::new();
        table.add(route(0, 0, 5)).unwrap();
        let before = table.generation();
        table.remove(&route(0, 0, 5)).unwrap();
        assert_ne!(table.generation(), before);
        assert_eq!(table.lookup(Ipv4Addr::LOCALHOST), None);
        assert_eq!(table.remove(&route(0, 0, 5)), Err(Error::NotFound));
    }
}
