//! Which listener a SYN is for: by port and address, and among those that share an end by a hash of its four parts
//! (`SO_REUSEPORT`, socket(7)). Derived from the listeners' rows.
//!
//! Each end of a port is looked at, of which a program has a few; how many listeners share one costs a SYN nothing.

use crate::address::same_family;
use crate::containers::demux::FourTuple;
use crate::tables::ListenerRecord;
use crate::tables::ReusePort;
use core::net::IpAddr;
use siphasher::sip::SipHasher13;
use std::collections::BTreeMap;
use tcp::Instant;
use zerocopy::IntoBytes as _;

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    address: IpAddr,
    /// Of the unspecified address of IPv6: not those of IPv4 as well.
    is_v6_only: bool,
}

impl End {
    fn new(address: IpAddr, is_v6_only: bool) -> Self {
        Self {
            address,
            is_v6_only: is_v6_only && address.is_ipv6() && address.is_unspecified(),
        }
    }

    fn of(row: &ListenerRecord) -> Self {
        Self::new(row.address(), row.v6_only == 1)
    }

    /// Whether a packet to `address` may be for it: its own address, or the unspecified one of the
    /// family; that of IPv6 is for both unless it is for IPv6 only.
    fn takes(&self, address: IpAddr) -> bool {
        match self.address {
            IpAddr::V4(any) if any.is_unspecified() => address.is_ipv4(),
            IpAddr::V6(any) if any.is_unspecified() => address.is_ipv6() || !self.is_v6_only,
            own => own == address,
        }
    }

    /// Whether some packet could be for both.
    fn overlaps(&self, other: &Self) -> bool {
        self.address == other.address
            || (self.address.is_unspecified() && self.takes(other.address))
            || (other.address.is_unspecified() && other.takes(self.address))
    }
}

/// Those that listen on one end: never none.
#[derive(Debug)]
struct Group {
    end: End,
    sharer: Option<ReusePort>,
    members: Vec<u32>,
    /// Answers to SYN cookies may come until then.
    cookies_until: Instant,
}

impl Group {
    /// Whether it is the one of that listener.
    fn is_of(&self, row: &ListenerRecord) -> bool {
        self.end == End::of(row) && self.sharer == row.sharer()
    }
}

/// All listeners by their ends.
#[derive(Debug)]
pub(crate) struct Listening {
    ports: BTreeMap<u16, Vec<Group>>,
    hasher: SipHasher13,
}

impl Listening {
    /// Nobody; `key` is random.
    pub(crate) fn new(key: &[u8; 16]) -> Self {
        Self {
            ports: BTreeMap::new(),
            hasher: SipHasher13::new_with_key(key),
        }
    }

    fn on(&self, port: u16) -> &[Group] {
        self.ports.get(&port).map_or(&[], Vec::as_slice)
    }

    /// Whether somebody listens on the port.
    pub(crate) fn has_port(&self, port: u16) -> bool {
        self.ports.contains_key(&port)
    }

    /// The ports that somebody listens on.
    pub(crate) fn used_ports(&self) -> impl Iterator<Item = u16> {
        self.ports.keys().copied()
    }

    /// The addresses that somebody listens on with that port, one for both families as the unspecified one of each.
    pub(crate) fn addresses_on(&self, port: u16) -> impl Iterator<Item = IpAddr> {
        self.on(port).iter().flat_map(|group| {
            let any_v4 = IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED);
            let is_dual = group.end.address.is_ipv6() && group.end.takes(any_v4);
            core::iter::once(group.end.address).chain(is_dual.then_some(any_v4))
        })
    }

    /// Whether one more may listen on that address, all of IPv6 only if so said, and port.
    pub(crate) fn is_free(
        &self,
        port: u16,
        (address, is_v6_only): (IpAddr, bool),
        sharer: Option<ReusePort>,
    ) -> bool {
        let end = End::new(address, is_v6_only);
        let shares = |group: &Group| sharer.is_some() && group.sharer == sharer;
        self.on(port)
            .iter()
            .all(|group| !group.end.overlaps(&end) || shares(group))
    }

    /// The listener in row `index` hears from now on.
    pub(crate) fn insert(&mut self, index: u32, row: &ListenerRecord) {
        let groups = self.ports.entry(row.port).or_default();
        match groups.iter_mut().find(|group| group.is_of(row)) {
            Some(group) => group.members.push(index),
            None => groups.push(Group {
                end: End::of(row),
                sharer: row.sharer(),
                members: vec![index],
                cookies_until: Instant::default(),
            }),
        }
    }

    /// It hears no more. The last of its group takes its place, as in Linux (`__reuseport_detach_sock`).
    pub(crate) fn remove(&mut self, index: u32, row: &ListenerRecord) {
        let Some(groups) = self.ports.get_mut(&row.port) else {
            return;
        };
        if let Some(group) = groups.iter_mut().find(|group| group.is_of(row))
            && let Some(place) = group.members.iter().position(|member| *member == index)
        {
            group.members.swap_remove(place);
        }
        groups.retain(|group| !group.members.is_empty());
        if groups.is_empty() {
            self.ports.remove(&row.port);
        }
    }

    /// Whether a packet to that end would be for somebody.
    pub(crate) fn hears(&self, address: IpAddr, port: u16) -> bool {
        self.group_for(address, port).is_some()
    }

    /// The listener for a packet of these ends.
    pub(crate) fn find(&self, tuple: &FourTuple) -> Option<u32> {
        let members = &self.group_for(tuple.local(), tuple.local_port())?.members;
        if let [only] = members[..] {
            return Some(only);
        }
        let [.., a, b, c, d] = self.hasher.hash(tuple.as_bytes()).to_le_bytes();
        let hash = u32::from_le_bytes([a, b, c, d]);
        members.get(scale(hash, members.len())).copied()
    }

    /// The end for its address before the one for all of its family, and that before the one for both.
    fn group_for(&self, address: IpAddr, port: u16) -> Option<&Group> {
        let mut for_all: Option<&Group> = None;
        for group in self.on(port) {
            if group.end.address == address {
                return Some(group);
            }
            let is_nearer = for_all.is_none() || same_family(group.end.address, address);
            if group.end.takes(address) && is_nearer {
                for_all = Some(group);
            }
        }
        for_all
    }

    /// Cookies were sent that this listener or another of its group will hear of.
    pub(crate) fn expect_cookies(&mut self, row: &ListenerRecord, until: Instant) {
        let groups = self.ports.get_mut(&row.port).into_iter().flatten();
        for group in groups.filter(|group| group.is_of(row)) {
            group.cookies_until = until;
        }
    }

    /// Whether an ACK for this listener may answer one.
    pub(crate) fn expects_cookies(&self, row: &ListenerRecord, now: Instant) -> bool {
        let groups = self.on(row.port).iter();
        groups
            .filter(|group| group.is_of(row))
            .any(|group| now < group.cookies_until)
    }
}

/// Evenly one of `count` (Linux `reciprocal_scale`).
fn scale(hash: u32, count: usize) -> usize {
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    let place = u64::from(hash).saturating_mul(count) >> 32;
    usize::try_from(place).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::PackedAddress;
    use core::net::{Ipv4Addr, Ipv6Addr};

    const ANN: Option<ReusePort> = Some(ReusePort { user: 1_000 });
    const BOB: Option<ReusePort> = Some(ReusePort { user: 1_001 });
    const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    const ANY6: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    fn row(address: IpAddr, is_v6_only: bool, sharer: Option<ReusePort>) -> ListenerRecord {
        ListenerRecord {
            address: PackedAddress::new(address),
            port: 80,
            v6_only: u8::from(is_v6_only),
            reuse_port: u32::from(sharer.is_some()),
            sharer: sharer.map_or(0, |sharer| sharer.user),
            used: 1,
            ..ListenerRecord::default()
        }
    }

    fn group(members: u32) -> Listening {
        let mut all = Listening::new(&[7; 16]);
        for index in 0..members {
            assert!(all.is_free(80, (ONE, false), ANN));
            all.insert(index, &row(ONE, false, ANN));
        }
        all
    }

    fn tuple(n: u16) -> FourTuple {
        FourTuple::new(ONE, 80, OTHER, n)
    }

    #[test]
    fn an_end_is_shared_by_those_of_one_user_who_all_ask_for_it() {
        let table = [
            (ONE, None, ONE, None, false),
            (ONE, ANN, ONE, ANN, true),
            (ONE, ANN, ONE, None, false),
            (ONE, None, ONE, ANN, false),
            (ONE, ANN, ONE, BOB, false),
            (ONE, ANN, OTHER, BOB, true),
            (ANY, ANN, ONE, ANN, true),
            (ONE, ANN, ANY, ANN, true),
            (ANY, ANN, ONE, BOB, false),
            (ANY, None, ONE, None, false),
            (ANY6, ANN, ANY, ANN, true),
            (ANY6, ANN, ONE, BOB, false),
            (ONE, BOB, ANY6, ANN, false),
        ];
        for (n, (first, of, second, by, is_free)) in table.into_iter().enumerate() {
            let mut all = Listening::new(&[7; 16]);
            all.insert(0, &row(first, false, of));
            assert_eq!(all.is_free(80, (second, false), by), is_free, "row {n}");
            assert!(all.is_free(81, (second, false), by), "row {n}");
        }
        let mut all = Listening::new(&[7; 16]);
        all.insert(0, &row(ANY6, true, None));
        assert!(all.is_free(80, (ANY, false), None) && !all.is_free(80, (ANY6, false), None));
    }

    #[test]
    fn a_group_gets_even_shares_and_each_pair_of_ends_the_same_one() {
        for members in [1, 2, 3, 7, 200] {
            let all = group(members);
            let mut shares = vec![0_u32; members.try_into().unwrap()];
            for n in 1..=40_000 {
                let found = all.find(&tuple(n)).unwrap();
                assert_eq!(all.find(&tuple(n)), Some(found));
                shares[usize::try_from(found).unwrap()] += 1;
            }
            // Five standard deviations.
            let (mean, spread) = (40_000 / members, 5 * (40_000 / members).isqrt());
            let is_even = |share: &u32| share.abs_diff(mean) <= spread.max(1);
            assert!(shares.iter().all(is_even), "{members}: {shares:?}");
        }
    }

    #[test]
    fn who_leaves_is_found_no_more_and_the_last_to_leave_frees_the_port() {
        let mut all = group(3);
        for index in [1, 0, 2] {
            assert!(all.has_port(80) && all.hears(ONE, 80));
            all.remove(index, &row(ONE, false, ANN));
            assert!((1..1_000).all(|n| all.find(&tuple(n)) != Some(index)));
        }
        assert!(!all.has_port(80) && !all.hears(ONE, 80));
        assert!(all.is_free(80, (ANY6, false), None));
    }

    #[test]
    fn the_nearest_end_is_found_whoever_came_first() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let mut all = Listening::new(&[7; 16]);
            for index in order {
                let ends = [ONE, ANY, ANY6];
                all.insert(index, &row(ends[at(index)], false, ANN));
            }
            let to = |address| all.find(&FourTuple::new(address, 80, OTHER, 9));
            assert_eq!((to(ONE), to(OTHER)), (Some(0), Some(1)));
            assert_eq!(to(Ipv6Addr::LOCALHOST.into()), Some(2));
        }
    }

    #[test]
    fn cookies_are_expected_by_the_whole_group() {
        let mut all = group(2);
        let (now, until) = (Instant::from_us(1_000_000), Instant::from_us(2_000_000));
        let (ours, others) = (row(ONE, false, ANN), row(ANY, false, ANN));
        all.insert(2, &others);
        all.expect_cookies(&ours, until);
        assert!(all.expects_cookies(&ours, now) && !all.expects_cookies(&others, now));
        assert!(!all.expects_cookies(&ours, until));
        all.remove(0, &ours);
        assert!(all.expects_cookies(&ours, now));
    }

    fn at(index: u32) -> usize {
        usize::try_from(index).unwrap()
    }
}
