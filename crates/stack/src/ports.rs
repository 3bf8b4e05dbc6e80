//! Ephemeral ports (RFC 6056 §3.3.4 and §3.3.5: double hash, random increments).
//!
//! Each destination starts at its own secret offset, so that an outsider cannot guess the next port
//! of somebody else's connection, and goes on from where similar destinations stopped, so that a
//! port is reused as late as possible. As in Linux every second port, the first among them, comes before the others, which
//! bind(2) hands out first: a program that binds meets few connections. Also counts who uses a local port, for bind conflicts; ports
//! are counted over all own addresses together.

use crate::containers::demux::FourTuple;
use crate::containers::intrusive::zeroed;
use core::net::IpAddr;
use siphasher::sip::SipHasher13;
use zerocopy::IntoBytes as _;

/// Counters of the double hash; more of them separate destinations better.
const COUNTERS: usize = 1_024;
/// Random increments are at most this (RFC 6056 §3.3.5, the trade-off N).
const INCREMENT_MAX: u64 = 8;

/// Users of local ports, and the state of the ephemeral port choice.
#[derive(Debug)]
pub(crate) struct Ports {
    users: Vec<u32>,
    counters: Vec<u32>,
    hasher: SipHasher13,
    draws: u64,
    first: u16,
    last: u16,
}

impl Ports {
    /// Hands out ports from `first` to `last`, both included.
    pub(crate) fn new(secret: &[u8; 16], first: u16, last: u16) -> Self {
        Self {
            users: zeroed(usize::from(u16::MAX) + 1),
            counters: zeroed(COUNTERS),
            hasher: SipHasher13::new_with_key(secret),
            draws: 0,
            first: first.min(last),
            last: last.max(first),
        }
    }

    /// From now on hands out those from `first` to `last`.
    pub(crate) fn set_range(&mut self, (first, last): (u16, u16)) {
        (self.first, self.last) = (first.min(last), last.max(first));
    }

    /// Counts a connection or TIME-WAIT record on local port `port`.
    pub(crate) fn add_user(&mut self, port: u16) {
        self.users[usize::from(port)] += 1;
    }

    /// Takes back one [`Ports::add_user`].
    pub(crate) fn remove_user(&mut self, port: u16) {
        self.users[usize::from(port)] -= 1;
    }

    /// Connections and TIME-WAIT records on local port `port`.
    pub(crate) fn users(&self, port: u16) -> u32 {
        self.users[usize::from(port)]
    }

    /// A port for a connection from `local` to `remote` that `is_usable`; `None` when none is.
    pub(crate) fn allocate(
        &mut self,
        local: IpAddr,
        remote: IpAddr,
        remote_port: u16,
        mut is_usable: impl FnMut(u16) -> bool,
    ) -> Option<u16> {
        let count = u32::from(self.last - self.first) + 1;
        let even_count = count.div_ceil(2);
        let offset = self.hash(0, local, remote, remote_port);
        let counter = usize::try_from(self.hash(1, local, remote, remote_port) % 1_024)
            .expect("invariant: below 1024");
        for tried in 0..count {
            let sum = offset
                .wrapping_add(u64::from(self.counters[counter]))
                .wrapping_add(u64::from(tried));
            let step = match tried < even_count {
                true => sum % u64::from(even_count) * 2,
                false => sum % u64::from(count - even_count) * 2 + 1,
            };
            let step = u16::try_from(step).expect("invariant: below the number of ports");
            let port = self.first + step;
            if is_usable(port) {
                self.draws += 1;
                let random = self.hasher.hash(&self.draws.to_le_bytes()) % INCREMENT_MAX;
                let increment = tried + 1 + u32::try_from(random).expect("invariant: below 8");
                self.counters[counter] = self.counters[counter].wrapping_add(increment);
                return Some(port);
            }
        }
        None
    }

    /// F (`purpose` 0) and G (`purpose` 1) of RFC 6056 §3.3.4.
    fn hash(&self, purpose: u16, local: IpAddr, remote: IpAddr, remote_port: u16) -> u64 {
        self.hasher
            .hash(FourTuple::new(local, purpose, remote, remote_port).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use std::collections::HashSet;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const REMOTE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn every_port_of_the_range_is_found_before_the_range_is_exhausted() {
        let mut ports = Ports::new(&[1; 16], 32_768, 60_999);
        let mut used = HashSet::new();
        for _ in 32_768..=60_999 {
            let port = ports
                .allocate(LOCAL, REMOTE, 80, |port| !used.contains(&port))
                .unwrap();
            assert!((32_768..=60_999).contains(&port) && used.insert(port));
        }
        assert_eq!(
            ports.allocate(LOCAL, REMOTE, 80, |port| !used.contains(&port)),
            None
        );
    }

    #[test]
    fn ports_of_the_first_ones_parity_are_given_before_the_others() {
        let mut ports = Ports::new(&[1; 16], 40_000, 40_008);
        let mut given = Vec::new();
        while let Some(port) = ports.allocate(LOCAL, REMOTE, 80, |port| !given.contains(&port)) {
            given.push(port);
        }
        assert_eq!(given.len(), 9);
        assert!(given[..5].iter().all(|port| port % 2 == 0), "{given:?}");
    }

    #[test]
    fn destinations_and_secrets_start_at_unrelated_ports() {
        let first = |secret, port| {
            Ports::new(&[secret; 16], 32_768, 60_999).allocate(LOCAL, REMOTE, port, |_| true)
        };
        let starts: HashSet<_> = (0..64).map(|n| first(1, 1_000 + n)).collect();
        assert!(starts.len() > 60);
        assert_ne!(first(1, 80), first(2, 80));
    }

    #[test]
    fn a_destination_moves_on_before_it_reuses_a_port() {
        let mut ports = Ports::new(&[1; 16], 32_768, 60_999);
        let given: HashSet<_> = (0..1_000)
            .map(|_| ports.allocate(LOCAL, REMOTE, 80, |_| true))
            .collect();
        assert_eq!(given.len(), 1_000);
    }
}
