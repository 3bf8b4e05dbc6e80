//! Header prediction (Jacobson 1990, "4BSD TCP header prediction"): a frame whose headers stand as those of the frame before it on the same connection, or from
//! one UDP socket to another, needs no address judged and no tuple hashed again.
//!
//! What is predicted is whose a segment or a datagram is, never what it says: lengths, sums and everything that TCP and UDP look
//! at are checked each time. A prediction ends with its connection, and when an interface or its
//! addresses change, on which the checks rested that it stands for. Frames of any other kind go the long way.

use crate::containers::intrusive::at;
use crate::link::interface::InterfaceId;
use wire::ethernet;
use wire::ipv4::{self, Protocol};
use wire::ipv6;
use zerocopy::FromZeros;

/// Connections that are remembered; those whose ports collide take turns. A power of two.
const ENTRIES: usize = 1_024;
const IP_AT: usize = ethernet::Header::LEN;
/// Version 4 and no options; and where in such a frame stand: the bytes that make a fragment, the protocol,
/// the addresses, the ports (RFC 791 §3.1, RFC 9293 §3.1).
const PLAIN: u8 = 0x45;
const FRAGMENT_AT: usize = IP_AT + 6;
/// Of the four bytes from there: more fragments and an offset, and the protocol.
const WHOLE_MASK: u32 = u32::from_ne_bytes([0x3f, 0xff, 0, 0xff]);
const ADDRESSES_AT: usize = IP_AT + 12;
const PORTS_AT: usize = IP_AT + ipv4::Header::LEN;
const END: usize = PORTS_AT + 4;
/// The same of version 6, where any other header than the protocol's behind the first is a next one (RFC 8200 §3).
const NEXT_HEADER_AT_V6: usize = IP_AT + 6;
const ADDRESSES_AT_V6: usize = IP_AT + 8;
const PORTS_AT_V6: usize = IP_AT + ipv6::Header::LEN;
const END_V6: usize = PORTS_AT_V6 + 4;

/// What says whose a segment or a datagram is, as it stands in its frame. The type in the link's header tells the versions of IP apart.
#[derive(Clone, Copy, PartialEq, FromZeros)]
struct Key<A> {
    /// The first and the last eight bytes of the link's header.
    link: [u64; 2],
    addresses: A,
    /// The peer's and ours.
    ports: u32,
    interface: u16,
}

/// Both addresses of one version of IP.
trait Addresses: Copy + PartialEq + FromZeros {
    /// `None`: not of the protocol in a packet of this version that is plain and whole. Nothing else is checked.
    fn key(protocol: Protocol, interface: InterfaceId, frame: &[u8]) -> Option<Key<Self>>;
}

impl Addresses for u64 {
    #[inline(always)]
    fn key(protocol: Protocol, interface: InterfaceId, frame: &[u8]) -> Option<Key<Self>> {
        let head = frame.first_chunk::<END>()?;
        // The bytes between are time to live.
        let whole = u32::from_ne_bytes([0, 0, 0, protocol.0]);
        let is_whole = u32_at(head, FRAGMENT_AT) & WHOLE_MASK == whole;
        (head[IP_AT] == PLAIN && is_whole).then(|| Key {
            link: link_of(head),
            addresses: u64_at(head, ADDRESSES_AT),
            ports: u32_at(head, PORTS_AT),
            interface: interface.0,
        })
    }
}

impl Addresses for [u64; 4] {
    #[inline(always)]
    fn key(protocol: Protocol, interface: InterfaceId, frame: &[u8]) -> Option<Key<Self>> {
        let head = frame.first_chunk::<END_V6>()?;
        let is_its = head[IP_AT] >> 4 == 6 && head[NEXT_HEADER_AT_V6] == protocol.0;
        is_its.then(|| Key {
            link: link_of(head),
            addresses: [0, 8, 16, 24].map(|at| u64_at(head, ADDRESSES_AT_V6 + at)),
            ports: u32_at(head, PORTS_AT_V6),
            interface: interface.0,
        })
    }
}

#[inline(always)]
fn link_of<const N: usize>(head: &[u8; N]) -> [u64; 2] {
    [u64_at(head, 0), u64_at(head, IP_AT - 8)]
}

#[inline(always)]
fn u64_at<const N: usize>(head: &[u8; N], at: usize) -> u64 {
    u64::from_ne_bytes(
        *head[at..]
            .first_chunk()
            .expect("invariant: within the headers"),
    )
}

#[inline(always)]
fn u32_at<const N: usize>(head: &[u8; N], at: usize) -> u32 {
    u32::from_ne_bytes(
        *head[at..]
            .first_chunk()
            .expect("invariant: within the headers"),
    )
}

/// Where a segment with this key goes.
#[derive(Clone, Copy, FromZeros)]
#[repr(align(64))]
struct Entry<A> {
    key: Key<A>,
    /// Of what the key was judged by.
    generation: u32,
    /// Index + 1; 0: the entry is free.
    connection: u32,
}

/// What was learned of packets of one version of IP.
struct Table<A, const PROTOCOL: u8>(Box<[Entry<A>; ENTRIES]>);

impl<A: Addresses, const PROTOCOL: u8> Table<A, PROTOCOL> {
    /// All zero: memory that no connection has come to need is none.
    fn new() -> Self {
        let fits = "invariant: some pages fit the address space";
        Self(FromZeros::new_box_zeroed().expect(fits))
    }

    #[inline(always)]
    fn find(&self, interface: InterfaceId, frame: &[u8], generation: u32) -> Option<u32> {
        let key = A::key(Protocol(PROTOCOL), interface, frame)?;
        let entry = &self.0[place(key.ports)];
        let index = entry.connection.checked_sub(1)?;
        (entry.generation == generation && entry.key == key).then_some(index)
    }

    fn learn(&mut self, interface: InterfaceId, frame: &[u8], generation: u32, index: u32) {
        if let Some(key) = A::key(Protocol(PROTOCOL), interface, frame) {
            self.0[place(key.ports)] = Entry {
                key,
                generation,
                connection: index + 1,
            };
        }
    }

    fn forget(&mut self, ports: u32, index: u32) {
        let entry = &mut self.0[place(ports)];
        if entry.connection == index + 1 {
            entry.connection = 0;
        }
    }
}

/// Where a key with these ports stands: Fibonacci hashing (Knuth, volume 3, §6.4) of the numbers that they are, so that those of a
/// peer, who takes every second one for its connections, stand apart.
#[inline(always)]
fn place(ports: u32) -> usize {
    at(u32::from_be(ports).wrapping_mul(0x9e37_79b1) >> (u32::BITS - ENTRIES.ilog2()))
}

/// What was learned of frames of a protocol.
pub(crate) struct Predictions<const PROTOCOL: u8> {
    v4: Table<u64, PROTOCOL>,
    v6: Table<[u64; 4], PROTOCOL>,
}

impl<const PROTOCOL: u8> core::fmt::Debug for Predictions<PROTOCOL> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Predictions").finish_non_exhaustive()
    }
}

impl<const PROTOCOL: u8> Predictions<PROTOCOL> {
    pub(crate) fn new() -> Self {
        Self {
            v4: Table::new(),
            v6: Table::new(),
        }
    }

    /// The connection, or the socket, of a frame whose key is known, if what it was judged by still is of that generation.
    #[inline(always)]
    pub(crate) fn find(
        &self,
        interface: InterfaceId,
        frame: &[u8],
        generation: u32,
    ) -> Option<u32> {
        if frame.get(IP_AT) == Some(&PLAIN) {
            self.v4.find(interface, frame, generation)
        } else {
            self.v6.find(interface, frame, generation)
        }
    }

    /// This frame went the long way to the connection `index`; others like it go there too.
    pub(crate) fn learn(
        &mut self,
        interface: InterfaceId,
        frame: &[u8],
        generation: u32,
        index: u32,
    ) {
        self.v4.learn(interface, frame, generation, index);
        self.v6.learn(interface, frame, generation, index);
    }

    /// Segments with these ports do not find connection `index` any more.
    pub(crate) fn forget(&mut self, local_port: u16, remote_port: u16, index: u32) {
        let [a, b] = remote_port.to_be_bytes();
        let [c, d] = local_port.to_be_bytes();
        let ports = u32::from_ne_bytes([a, b, c, d]);
        self.v4.forget(ports, index);
        self.v6.forget(ports, index);
    }

    #[cfg(test)]
    pub(crate) fn forget_all(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> [u8; END] {
        let mut frame = [0; END];
        for (byte, value) in frame.iter_mut().zip(100..) {
            *byte = value;
        }
        frame[IP_AT] = PLAIN;
        frame[23] = 6;
        // Don't fragment.
        frame[FRAGMENT_AT..FRAGMENT_AT + 2].copy_from_slice(&[0x40, 0]);
        frame
    }

    fn frame_v6() -> [u8; END_V6] {
        let mut frame = [0; END_V6];
        for (byte, value) in frame.iter_mut().zip(100..) {
            *byte = value;
        }
        frame[IP_AT] = 0x60;
        frame[NEXT_HEADER_AT_V6] = 6;
        frame
    }

    /// Linux gives every second port to connections that programs open to one place (`inet_hash_connect`).
    #[test]
    fn a_hundred_connections_of_one_peer_stand_apart() {
        let ports = |peer: u16| {
            let [[a, b], [c, d]] = [peer, 6379].map(u16::to_be_bytes);
            u32::from_ne_bytes([a, b, c, d])
        };
        for (first, step) in [(32_768, 2), (40_000, 2), (51_234, 2), (33_000, 14)] {
            let all = (0..100).map(|n| place(ports(first + step * n)));
            let mut places: Vec<usize> = all.collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), 100, "from port {first}");
        }
    }

    fn learned(frame: &[u8]) -> Predictions<{ Protocol::TCP.0 }> {
        let mut predictions = Predictions::<{ Protocol::TCP.0 }>::new();
        predictions.learn(InterfaceId(0), frame, 3, 7);
        predictions
    }

    #[test]
    fn every_byte_that_says_whose_a_segment_is_counts() {
        let predictions = learned(&frame());
        for at in 0..END {
            let mut other = frame();
            other[at] ^= 1;
            let found = predictions.find(InterfaceId(0), &other, 3);
            // Type of service, total length, identification, time to live and checksum are of the packet.
            let is_of_packet = [15, 16, 17, 18, 19, 22, 24, 25].contains(&at);
            assert_eq!(found.is_some(), is_of_packet, "byte {at}");
        }
    }

    #[test]
    fn every_byte_of_ipv6_that_says_whose_a_segment_is_counts() {
        let predictions = learned(&frame_v6());
        for at in 0..END_V6 {
            let mut other = frame_v6();
            other[at] ^= 1;
            let found = predictions.find(InterfaceId(0), &other, 3);
            // Traffic class, flow label, payload length and hop limit are of the packet.
            let is_of_packet = [14, 15, 16, 17, 18, 19, 21].contains(&at);
            assert_eq!(found.is_some(), is_of_packet, "byte {at}");
        }
        let mut other = frame_v6();
        other[IP_AT] = 0x50;
        let of = |frame: &[u8]| <[u64; 4]>::key(Protocol::TCP, InterfaceId(0), frame);
        assert!(of(&frame_v6()).is_some());
        assert!(of(&other).is_none(), "no such version");
        assert!(of(&frame_v6()[..END_V6 - 1]).is_none());
    }

    #[test]
    fn options_fragments_and_other_protocols_have_no_key() {
        let at = |at: usize, value: u8| {
            let mut frame = frame();
            frame[at] = value;
            u64::key(Protocol::TCP, InterfaceId(0), &frame)
        };
        assert!(at(FRAGMENT_AT, 0).is_some());
        assert!(at(FRAGMENT_AT, 0x20).is_none(), "more fragments");
        assert!(at(FRAGMENT_AT, 0x10).is_none(), "an offset");
        assert!(at(FRAGMENT_AT + 1, 1).is_none(), "an offset");
        assert!(at(IP_AT, 0x46).is_none(), "options");
        assert!(at(23, 17).is_none(), "UDP");
        assert!(u64::key(Protocol::TCP, InterfaceId(0), &frame()[..END - 1]).is_none());
    }

    #[test]
    fn a_prediction_ends_with_its_connection_and_with_its_generation() {
        let mut predictions = learned(&frame());
        let [.., a, b, c, d] = frame();
        let ports = (u16::from_be_bytes([c, d]), u16::from_be_bytes([a, b]));
        let find = |predictions: &Predictions<{ Protocol::TCP.0 }>, interface, generation| {
            predictions.find(InterfaceId(interface), &frame(), generation)
        };
        assert_eq!(find(&predictions, 0, 3), Some(7));
        assert_eq!(find(&predictions, 0, 4), None);
        assert_eq!(find(&predictions, 1, 3), None);
        predictions.forget(ports.0, ports.1, 8);
        assert_eq!(find(&predictions, 0, 3), Some(7), "another's end");
        predictions.forget(ports.0, ports.1, 7);
        assert_eq!(find(&predictions, 0, 3), None);
    }
}
