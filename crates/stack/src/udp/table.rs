//! Which socket a datagram is for: the connected one, else one bound to the address, else one bound to
//! ANY. Each is one look into a hash table, keyed so that peers cannot make its chains long.
//!
//! Sockets that share an end form a group: with `SO_REUSEPORT` the hash of the sender chooses one,
//! without it the last that was bound gets everything, as on Linux. Broadcast and multicast go to all
//! sockets of the port that match. Memory grows with sockets, never with packets.

use super::record::Ends;
use crate::containers::keyed::Keyed;
use crate::link::interface::InterfaceId;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use siphasher::sip::SipHasher13;
use std::collections::HashMap;
use zerocopy::IntoBytes as _;

/// One end or pair of ends, and the sockets there in the order of binding.
#[derive(Debug, Default)]
struct Group {
    members: Vec<u32>,
    /// All of them asked to share by hash.
    is_balanced: bool,
}

/// A socket as the table knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) index: u32,
    pub(crate) ends: Ends,
    pub(crate) reuse_port: bool,
    /// Bound to `::` and not to IPv6 only: gets IPv4 too (RFC 3493 §3.7).
    pub(crate) is_dual: bool,
}

impl Entry {
    /// Under which ends it is found.
    fn places(&self) -> impl Iterator<Item = Ends> {
        let port = self.ends.local().port();
        let any_v4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
        let twin = self.is_dual.then(|| Ends::bound(any_v4));
        core::iter::once(self.ends).chain(twin)
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct Table {
    groups: HashMap<Ends, Group, Keyed>,
    ports: HashMap<u16, Vec<Entry>, Keyed>,
    hasher: SipHasher13,
}

impl Table {
    pub(crate) fn new(key: &[u8; 16]) -> Self {
        let hasher = SipHasher13::new_with_key(key);
        Self {
            groups: HashMap::with_hasher(Keyed(hasher)),
            ports: HashMap::with_hasher(Keyed(hasher)),
            hasher,
        }
    }

    /// Adds a socket.
    pub(crate) fn insert(&mut self, entry: Entry) {
        for ends in entry.places() {
            let group = self.groups.entry(ends).or_default();
            group.is_balanced = entry.reuse_port && (group.members.is_empty() || group.is_balanced);
            group.members.push(entry.index);
        }
        let port = entry.ends.local().port();
        self.ports.entry(port).or_default().push(entry);
    }

    /// Removes a socket.
    pub(crate) fn remove(&mut self, index: u32, ends: &Ends) {
        let port = ends.local().port();
        let Some(entries) = self.ports.get_mut(&port) else {
            return;
        };
        let Some(place) = entries.iter().position(|entry| entry.index == index) else {
            return;
        };
        let entry = entries.remove(place);
        if entries.is_empty() {
            self.ports.remove(&port);
        }
        for ends in entry.places() {
            if let Some(group) = self.groups.get_mut(&ends) {
                group.members.retain(|member| *member != index);
                if group.members.is_empty() {
                    self.groups.remove(&ends);
                }
            }
        }
    }

    /// The sockets whose local port this is.
    pub(crate) fn on_port(&self, port: u16) -> &[Entry] {
        self.ports.get(&port).map_or(&[], Vec::as_slice)
    }

    /// Local addresses at which sockets have that port, some more than once.
    pub(crate) fn addresses_on(&self, port: u16) -> impl Iterator<Item = IpAddr> {
        let places = self.on_port(port).iter().flat_map(Entry::places);
        places.map(|ends| ends.local().ip())
    }

    /// The ports that sockets have.
    pub(crate) fn used_ports(&self) -> impl Iterator<Item = u16> {
        self.ports.keys().copied()
    }

    /// The socket that a datagram from `source` to an address of this host, by the link of `interface`,
    /// is for.
    pub(crate) fn find(
        &self,
        source: SocketAddr,
        destination: SocketAddr,
        interface: InterfaceId,
    ) -> Option<u32> {
        let connected = Ends::connected(destination, source).on_link(interface);
        let bound = Ends::bound(destination).on_link(interface);
        let any = SocketAddr::new(unspecified(destination.ip()), destination.port());
        [connected, bound, Ends::bound(any)]
            .iter()
            .find_map(|ends| self.groups.get(ends))
            .map(|group| self.choose(group, &connected))
    }

    fn choose(&self, group: &Group, flow: &Ends) -> u32 {
        let last = group.members.len() - 1;
        let place = match (group.is_balanced, u64::try_from(group.members.len())) {
            (true, Ok(count)) if count > 1 => {
                usize::try_from(self.hasher.hash(flow.as_bytes()) % count).unwrap_or(last)
            }
            _ => last,
        };
        group.members[place]
    }
}

/// ANY of the same family.
pub(crate) const fn unspecified(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: InterfaceId = InterfaceId(0);

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn entry(index: u32, ends: Ends) -> Entry {
        Entry {
            index,
            ends,
            reuse_port: false,
            is_dual: false,
        }
    }

    #[test]
    fn the_closest_socket_gets_the_datagram() {
        let mut table = Table::new(&[1; 16]);
        let (local, peer) = (at("10.0.0.1:53"), at("10.0.0.9:4000"));
        let sockets = [
            Ends::bound(at("0.0.0.0:53")),
            Ends::bound(local),
            Ends::connected(local, peer),
        ];
        for (index, ends) in (0_u32..).zip(sockets) {
            assert_eq!(table.find(peer, local, LINK), index.checked_sub(1));
            table.insert(entry(index, ends));
        }
        assert_eq!(table.find(peer, local, LINK), Some(2));
        assert_eq!(table.find(at("10.0.0.8:4000"), local, LINK), Some(1));
        assert_eq!(table.find(peer, at("10.0.0.2:53"), LINK), Some(0));
        assert_eq!(table.find(peer, at("10.0.0.1:54"), LINK), None);
        table.remove(2, &sockets[2]);
        assert_eq!(table.find(peer, local, LINK), Some(1));
    }

    #[test]
    fn the_last_that_was_bound_wins_where_nobody_balances() {
        let mut table = Table::new(&[1; 16]);
        let ends = Ends::bound(at("10.0.0.1:53"));
        table.insert(entry(4, ends));
        table.insert(entry(7, ends));
        assert_eq!(
            table.find(at("1.2.3.4:5"), at("10.0.0.1:53"), LINK),
            Some(7)
        );
        table.remove(7, &ends);
        assert_eq!(
            table.find(at("1.2.3.4:5"), at("10.0.0.1:53"), LINK),
            Some(4)
        );
    }

    #[test]
    fn a_balanced_group_shares_senders_and_keeps_each_with_one_socket() {
        let mut table = Table::new(&[1; 16]);
        let (end, count) = (at("10.0.0.1:53"), 4_u32);
        for index in 0..count {
            table.insert(Entry {
                reuse_port: true,
                ..entry(index, Ends::bound(end))
            });
        }
        let mut given = [0_u32; 4];
        for port in 1..=4_000 {
            let source = SocketAddr::new("10.0.0.9".parse().unwrap(), port);
            let chosen = table.find(source, end, LINK).unwrap();
            assert_eq!(table.find(source, end, LINK), Some(chosen));
            given[usize::try_from(chosen).unwrap()] += 1;
        }
        assert!(given.iter().all(|n| (800..1_200).contains(n)), "{given:?}");
    }

    #[test]
    fn a_dual_socket_gets_both_families_and_link_local_peers_are_told_apart_by_link() {
        let mut table = Table::new(&[1; 16]);
        let any = Ends::bound(at("[::]:53"));
        table.insert(Entry {
            is_dual: true,
            ..entry(3, any)
        });
        assert_eq!(
            table.find(at("1.2.3.4:5"), at("10.0.0.1:53"), LINK),
            Some(3)
        );
        let (local, peer) = (at("[fe80::1]:53"), at("[fe80::2]:9"));
        assert_eq!(table.find(peer, local, LINK), Some(3));
        let ends = Ends::connected(local, peer).on_link(InterfaceId(1));
        table.insert(entry(4, ends));
        assert_eq!(table.find(peer, local, LINK), Some(3));
        assert_eq!(table.find(peer, local, InterfaceId(1)), Some(4));
        table.remove(3, &any);
        assert_eq!(table.find(at("1.2.3.4:5"), at("10.0.0.1:53"), LINK), None);
    }
}
