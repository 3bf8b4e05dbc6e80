//! Header prediction for TCP (Jacobson 1990, "4BSD TCP header prediction"): a frame whose headers stand as those of the frame before it on the same connection needs no address judged and no tuple hashed again.
//!
//! What is predicted is whose a segment is, never what it says: lengths, sums and everything that TCP looks
//! at are checked each time. A prediction ends with its connection, and when an interface or its
//! addresses change, on which the checks rested that it stands for. Frames of any other kind go the long way.

use crate::link::interface::InterfaceId;
use wire::ethernet;
use wire::ipv4::{self, Protocol};
use wire::ipv6;

/// Connections that are remembered; those whose ports collide take turns. A power of two.
const ENTRIES: usize = 64;
const IP_AT: usize = ethernet::Header::LEN;
/// Version 4 and no options; and where in such a frame stand: the bytes that make a fragment, the protocol,
/// the addresses, the ports (RFC 791 §3.1, RFC 9293 §3.1).
const PLAIN: u8 = 0x45;
const FRAGMENT_AT: usize = IP_AT + 6;
const PROTOCOL_AT: usize = IP_AT + 9;
const ADDRESSES_AT: usize = IP_AT + 12;
const PORTS_AT: usize = IP_AT + ipv4::Header::LEN;
const END: usize = PORTS_AT + 4;
/// The same of version 6, where any other header than TCP's behind the first is a next one (RFC 8200 §3).
const NEXT_HEADER_AT_V6: usize = IP_AT + 6;
const ADDRESSES_AT_V6: usize = IP_AT + 8;
const PORTS_AT_V6: usize = IP_AT + ipv6::Header::LEN;
const END_V6: usize = PORTS_AT_V6 + 4;

/// What says whose a segment is, as it stands in its frame. The type in the link's header tells the families apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Key {
    interface: u16,
    link: [u8; ethernet::Header::LEN],
    /// The first eight bytes of it over IPv4.
    addresses: [u8; 32],
    /// The peer's port and ours.
    ports: [u8; 4],
}

impl Key {
    /// `None`: not a TCP segment in a packet that is plain and whole. Nothing else is checked.
    fn of(interface: InterfaceId, frame: &[u8]) -> Option<Self> {
        let mut addresses = [0; 32];
        let ports = if *frame.get(IP_AT)? == PLAIN {
            let head = frame.first_chunk::<END>()?;
            if !is_whole_tcp(head) {
                return None;
            }
            addresses[..8].copy_from_slice(&head[ADDRESSES_AT..PORTS_AT]);
            head.last_chunk()?
        } else {
            let head = frame.first_chunk::<END_V6>()?;
            if head[IP_AT] >> 4 != 6 || head[NEXT_HEADER_AT_V6] != Protocol::TCP.0 {
                return None;
            }
            addresses.copy_from_slice(&head[ADDRESSES_AT_V6..PORTS_AT_V6]);
            head.last_chunk()?
        };
        Some(Self {
            interface: interface.0,
            link: *frame.first_chunk()?,
            addresses,
            ports: *ports,
        })
    }

    /// Whether this is [`Key::of`] a frame.
    #[inline]
    fn is_of(&self, interface: InterfaceId, frame: &[u8]) -> bool {
        let Some(head) = frame.first_chunk::<END>() else {
            return false;
        };
        let is_same_link = self.interface == interface.0 && head.first_chunk() == Some(&self.link);
        if head[IP_AT] != PLAIN {
            return is_same_link && Self::of(interface, frame).is_some_and(|key| key == *self);
        }
        is_same_link
            && is_whole_tcp(head)
            && head[ADDRESSES_AT..PORTS_AT] == self.addresses[..8]
            && head[PORTS_AT..END] == self.ports
    }
}

/// Of a packet without options: TCP, no more fragments and no offset.
#[inline]
fn is_whole_tcp(head: &[u8; END]) -> bool {
    let fragment = (head[FRAGMENT_AT] & 0x3f) | head[FRAGMENT_AT + 1];
    head[PROTOCOL_AT] == Protocol::TCP.0 && fragment == 0
}

/// Where a frame's key would stand.
#[inline]
fn place_of_frame(frame: &[u8]) -> Option<usize> {
    let ports_at = if *frame.get(IP_AT)? == PLAIN {
        PORTS_AT
    } else {
        PORTS_AT_V6
    };
    frame
        .get(ports_at..)?
        .first_chunk()
        .map(|ports| place_of(*ports))
}

#[inline]
fn place_of([a, b, c, d]: [u8; 4]) -> usize {
    place(u16::from_be_bytes([c, d]), u16::from_be_bytes([a, b]))
}

fn place(local_port: u16, remote_port: u16) -> usize {
    usize::from(remote_port ^ (remote_port >> 6) ^ local_port) % ENTRIES
}

/// Where a segment with this key goes.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    key: Key,
    /// Of the interfaces, when the key was judged.
    generation: u32,
    /// Index + 1; 0: the entry is free.
    connection: u32,
}

/// What was learned.
#[derive(Debug)]
pub(crate) struct Predictions(Vec<Entry>);

impl Predictions {
    pub(crate) fn new() -> Self {
        Self(vec![Entry::default(); ENTRIES])
    }

    /// The connection of a frame whose key is known, if the interfaces still are of that generation.
    #[inline]
    pub(crate) fn find(
        &self,
        interface: InterfaceId,
        frame: &[u8],
        generation: u32,
    ) -> Option<u32> {
        let entry = &self.0[place_of_frame(frame)?];
        let index = entry.connection.checked_sub(1)?;
        (entry.generation == generation && entry.key.is_of(interface, frame)).then_some(index)
    }

    /// This frame went the long way to the connection `index`; others like it go there too.
    pub(crate) fn learn(
        &mut self,
        interface: InterfaceId,
        frame: &[u8],
        generation: u32,
        index: u32,
    ) {
        if let Some(key) = Key::of(interface, frame) {
            self.0[place_of(key.ports)] = Entry {
                key,
                generation,
                connection: index + 1,
            };
        }
    }

    /// Segments with these ports do not find connection `index` any more.
    pub(crate) fn forget(&mut self, local_port: u16, remote_port: u16, index: u32) {
        let entry = &mut self.0[place(local_port, remote_port)];
        if entry.connection == index + 1 {
            entry.connection = 0;
        }
    }

    #[cfg(test)]
    pub(crate) fn forget_all(&mut self) {
        self.0.fill(Entry::default());
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
        frame[PROTOCOL_AT] = 6;
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

    fn learned() -> (Predictions, Key) {
        let key = Key::of(InterfaceId(0), &frame()).unwrap();
        let mut predictions = Predictions::new();
        predictions.learn(InterfaceId(0), &frame(), 3, 7);
        (predictions, key)
    }

    #[test]
    fn every_byte_that_says_whose_a_segment_is_counts() {
        let (predictions, _) = learned();
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
        let mut predictions = Predictions::new();
        predictions.learn(InterfaceId(0), &frame_v6(), 3, 7);
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
        assert!(Key::of(InterfaceId(0), &other).is_none(), "no such version");
        assert!(Key::of(InterfaceId(0), &frame_v6()[..END_V6 - 1]).is_none());
    }

    #[test]
    fn options_fragments_and_other_protocols_have_no_key() {
        let at = |at: usize, value: u8| {
            let mut frame = frame();
            frame[at] = value;
            Key::of(InterfaceId(0), &frame)
        };
        assert!(at(FRAGMENT_AT, 0).is_some());
        assert!(at(FRAGMENT_AT, 0x20).is_none(), "more fragments");
        assert!(at(FRAGMENT_AT, 0x10).is_none(), "an offset");
        assert!(at(FRAGMENT_AT + 1, 1).is_none(), "an offset");
        assert!(at(IP_AT, 0x46).is_none(), "options");
        assert!(at(PROTOCOL_AT, 17).is_none(), "UDP");
        assert!(Key::of(InterfaceId(0), &frame()[..END - 1]).is_none());
    }

    #[test]
    fn a_prediction_ends_with_its_connection_and_with_its_generation() {
        let (mut predictions, key) = learned();
        let [a, b, c, d] = key.ports;
        let ports = (u16::from_be_bytes([c, d]), u16::from_be_bytes([a, b]));
        let find = |predictions: &Predictions, interface, generation| {
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
