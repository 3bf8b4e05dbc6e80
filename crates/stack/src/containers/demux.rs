//! Finding the connection of a segment: a hash table from four-tuple to index.
//!
//! Chained, with the keys beside the links so that a lookup touches no connection but the right one,
//! and keyed with SipHash (Aumasson and Bernstein 2012), so that a peer cannot choose ports that all
//! fall into one chain. Connections and TIME-WAIT records share the table: an index below the number
//! of connection slots is one, the rest are the other.

use crate::address::PackedAddress;
use crate::containers::intrusive::{at, slot, zeroed};
use crate::containers::prediction::Predictions;
use crate::link::interface::InterfaceId;
use core::net::{IpAddr, SocketAddr};
use siphasher::sip::SipHasher13;
use wire::ipv4::Protocol;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The two ends of a connection, as this host sees them.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FourTuple {
    local: PackedAddress,
    remote: PackedAddress,
    local_port: u16,
    remote_port: u16,
    /// Interface + 1 for link-local addresses, which are unique on their link only; else 0.
    zone: u32,
}

impl FourTuple {
    /// The tuple of a connection from `local` to `remote`.
    #[inline]
    pub const fn new(local: IpAddr, local_port: u16, remote: IpAddr, remote_port: u16) -> Self {
        Self {
            local: PackedAddress::new(local),
            remote: PackedAddress::new(remote),
            local_port,
            remote_port,
            zone: 0,
        }
    }

    /// The tuple as it is on the link of `interface`: that counts where an address is link-local.
    #[must_use]
    #[inline]
    pub(crate) fn on_link(mut self, interface: InterfaceId) -> Self {
        let needs_zone = self.local.needs_zone() || self.remote.needs_zone();
        self.zone = match needs_zone {
            true => u32::from(interface.0) + 1,
            false => 0,
        };
        self
    }

    /// The only interface that the connection can use, where its addresses are link-local.
    pub(crate) fn zone(&self) -> Option<InterfaceId> {
        let zone = self.zone.checked_sub(1)?;
        u16::try_from(zone).ok().map(InterfaceId)
    }

    /// Both ends: this host's, the peer's.
    pub(crate) fn ends(&self) -> (SocketAddr, SocketAddr) {
        (
            SocketAddr::new(self.local(), self.local_port),
            SocketAddr::new(self.remote(), self.remote_port),
        )
    }

    /// This host's address.
    pub const fn local(&self) -> IpAddr {
        self.local.address()
    }

    /// The peer's address.
    pub const fn remote(&self) -> IpAddr {
        self.remote.address()
    }

    /// This host's port.
    pub const fn local_port(&self) -> u16 {
        self.local_port
    }

    /// The peer's port.
    pub const fn remote_port(&self) -> u16 {
        self.remote_port
    }
}

#[derive(Clone, Copy, Debug, FromZeros)]
struct Node {
    tuple: FourTuple,
    /// Index + 1 of the next node of the chain, 0 for none.
    next: u32,
    /// Of which bucket the chain is.
    bucket: u32,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Demux {
    buckets: Vec<u32>,
    nodes: Vec<Node>,
    hasher: SipHasher13,
    steps: u64,
    /// What was looked for last, and its bucket: who was not found is often added next, and who was is asked for again.
    last: (FourTuple, u32),
    /// Where segments went lately.
    pub(crate) predictions: Predictions<{ Protocol::TCP.0 }>,
}

impl Demux {
    /// A table for indexes below `capacity`, hashed with `key`.
    pub(crate) fn new(capacity: usize, key: &[u8; 16]) -> Self {
        let mut demux = Self {
            buckets: zeroed(capacity.next_power_of_two()),
            nodes: zeroed(capacity),
            hasher: SipHasher13::new_with_key(key),
            steps: 0,
            last: (FourTuple::default(), 0),
            predictions: Predictions::new(),
        };
        demux.last.1 = demux.bucket(&demux.last.0);
        demux
    }

    /// Nodes looked at since the start: what the tests bound instead of time.
    pub(crate) const fn steps(&self) -> u64 {
        self.steps
    }

    /// The index of `tuple`.
    pub(crate) fn find(&mut self, tuple: &FourTuple) -> Option<u32> {
        let bucket = self.bucket_of(tuple);
        self.last = (*tuple, bucket);
        let mut link = self.buckets[at(bucket)];
        while let Some(index) = link.checked_sub(1) {
            self.steps += 1;
            let node = &self.nodes[at(index)];
            if node.tuple == *tuple {
                return Some(index);
            }
            link = node.next;
        }
        None
    }

    /// The tuple of `index`, which must be there.
    pub(crate) fn tuple(&self, index: u32) -> &FourTuple {
        &self.nodes[at(index)].tuple
    }

    /// Adds `tuple`, which must not be there.
    pub(crate) fn insert(&mut self, tuple: &FourTuple, index: u32) {
        let bucket = self.bucket_of(tuple);
        let next = core::mem::replace(&mut self.buckets[at(bucket)], index + 1);
        self.nodes[at(index)] = Node {
            tuple: *tuple,
            next,
            bucket,
        };
    }

    /// Removes `index`; nothing happens if it is not there.
    pub(crate) fn remove(&mut self, index: u32) {
        let Node {
            tuple,
            next,
            bucket,
        } = self.nodes[at(index)];
        self.predictions
            .forget(tuple.local_port, tuple.remote_port, index);
        let bucket = at(bucket);
        let mut link = self.buckets[bucket];
        if link == index + 1 {
            self.buckets[bucket] = next;
            return;
        }
        while let Some(before) = link.checked_sub(1) {
            self.steps += 1;
            link = self.nodes[at(before)].next;
            if link == index + 1 {
                self.nodes[at(before)].next = next;
                return;
            }
        }
    }

    #[inline]
    fn bucket_of(&self, tuple: &FourTuple) -> u32 {
        if self.last.0 == *tuple {
            self.last.1
        } else {
            self.bucket(tuple)
        }
    }

    fn bucket(&self, tuple: &FourTuple) -> u32 {
        let hash = match (tuple.local.v4(), tuple.remote.v4()) {
            // A third of the words.
            (Some([a, b, c, d]), Some([e, f, g, h])) => {
                let [i, j] = tuple.local_port.to_ne_bytes();
                let [k, l] = tuple.remote_port.to_ne_bytes();
                self.hasher.hash(&[a, b, c, d, e, f, g, h, i, j, k, l])
            }
            _ => self.hasher.hash(tuple.as_bytes()),
        };
        let [a, b, c, d, ..] = hash.to_le_bytes();
        u32::from_le_bytes([a, b, c, d]) & (slot(self.buckets.len()) - 1)
    }

    #[cfg(test)]
    fn longest_chain(&self) -> usize {
        let chain = |first: &u32| {
            std::iter::successors(first.checked_sub(1), |index| {
                self.nodes[at(*index)].next.checked_sub(1)
            })
            .count()
        };
        self.buckets.iter().map(chain).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn tuple(n: u32) -> FourTuple {
        let [a, b, c, d] = n.to_be_bytes();
        FourTuple::new(
            IpAddr::from([10, 0, 0, 1]),
            80,
            IpAddr::from([10, a, b, 9]),
            u16::from_be_bytes([c, d]),
        )
    }

    #[test]
    fn consecutive_ports_spread_over_the_buckets() {
        let mut demux = Demux::new(65_536, &[3; 16]);
        for n in 0..65_536 {
            demux.insert(&tuple(n), n);
        }
        assert!(demux.longest_chain() < 12, "{}", demux.longest_chain());
        for n in (0..65_536).step_by(97) {
            assert_eq!(demux.find(&tuple(n)), Some(n));
        }
        assert_eq!(demux.find(&tuple(65_536)), None);
    }

    proptest! {
        #[test]
        fn the_table_agrees_with_a_map(operations in proptest::collection::vec((any::<bool>(), 0_u32..12), 0..120)) {
            let (mut demux, mut oracle) = (Demux::new(4, &[1; 16]), HashMap::new());
            let mut free: Vec<u32> = (0..4).collect();
            for (insert, n) in operations {
                if insert && !oracle.contains_key(&n) && let Some(index) = free.pop() {
                    demux.insert(&tuple(n), index);
                    oracle.insert(n, index);
                } else if !insert && let Some(index) = oracle.remove(&n) {
                    demux.remove(index);
                    free.push(index);
                }
                for n in 0..12 {
                    prop_assert_eq!(demux.find(&tuple(n)), oracle.get(&n).copied());
                }
            }
        }
    }
}
