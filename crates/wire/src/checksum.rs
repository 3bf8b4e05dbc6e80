//! The Internet checksum (RFC 1071) and the pseudo headers of what runs over IPv4 and IPv6 (RFC 9293
//! §3.1, RFC 768, RFC 8200 §8.1).
//!
//! RFC 1071 §2 is what makes it fast: ones'-complement sums may be taken over wider words, in any
//! order and in the byte order of the machine, and be folded and swapped once at the end.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ipv4::Protocol;
use crate::udp;

/// Bytes that one turn of the main loop takes, spread over [`LANES`] independent accumulators.
const BLOCK_LEN: usize = LANES * 8;
const LANES: usize = 8;

/// A ones'-complement sum over pieces of any length, as if they lay one behind the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// The sum modulo 2^64 - 1, of words in the byte order of the machine.
    words: u64,
    /// An odd number of bytes came before: the next byte is the second half of a 16-bit word.
    odd: bool,
}

impl Sum {
    /// The sum of nothing.
    #[must_use]
    pub const fn new() -> Sum {
        Sum {
            words: 0,
            odd: false,
        }
    }

    /// Adds the bytes of `data` behind those added so far.
    #[must_use]
    #[inline]
    #[allow(
        clippy::should_implement_trait,
        reason = "chains like the other methods; `+` would hide the order"
    )]
    pub fn add(self, data: &[u8]) -> Sum {
        let added = self.add_words(sum_words(data));
        Sum {
            odd: self.odd ^ (data.len() & 1 != 0),
            ..added
        }
    }

    /// Adds two bytes, the high one first, behind those added so far.
    #[must_use]
    #[inline]
    pub const fn add_u16(self, value: u16) -> Sum {
        self.add_words(value.to_be() as u64)
    }

    /// Adds the pseudo header of a segment of `len` bytes, its own header included.
    #[must_use]
    #[inline]
    pub fn pseudo_header_v4(
        self,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        protocol: Protocol,
        len: usize,
    ) -> Sum {
        self.add_words(u64::from(u32::from_ne_bytes(source.octets())))
            .add_words(u64::from(u32::from_ne_bytes(destination.octets())))
            .add_u16(u16::from(protocol.0))
            .add_len(len)
    }

    /// Adds the length that a pseudo header ends with.
    #[must_use]
    #[inline]
    pub fn add_len(self, len: usize) -> Sum {
        // Summing the length as one number, not as 16 bits, is the same modulo 2^16 - 1.
        let len = u64::try_from(len).expect("invariant: lengths fit 64 bits");
        self.add_words(if cfg!(target_endian = "little") {
            len << 8
        } else {
            len
        })
    }

    /// Adds the pseudo header of an upper-layer packet of `len` bytes over IPv6 (RFC 8200 §8.1).
    #[must_use]
    #[inline]
    pub fn pseudo_header_v6(
        self,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        protocol: Protocol,
        len: usize,
    ) -> Sum {
        // The length has 32 bits here; what does not fit cannot be sent.
        let len = u32::try_from(len).expect("invariant: a packet is shorter than 4 GiB");
        self.add(&source.octets())
            .add(&destination.octets())
            .add(&len.to_be_bytes())
            .add_u16(u16::from(protocol.0))
    }

    /// Adds the pseudo header of the family of `source`.
    ///
    /// # Panics
    /// When the two addresses are of different families.
    #[must_use]
    #[inline]
    #[track_caller]
    pub fn pseudo_header(
        self,
        source: IpAddr,
        destination: IpAddr,
        protocol: Protocol,
        len: usize,
    ) -> Sum {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                self.pseudo_header_v4(source, destination, protocol, len)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                self.pseudo_header_v6(source, destination, protocol, len)
            }
            _ => panic!("invariant: both ends of a packet are of one family"),
        }
    }

    /// The sum as it stands, not complemented: what a partial checksum puts into the field.
    #[must_use]
    #[inline]
    pub const fn fold(self) -> u16 {
        let sum = (self.words >> 32) + (self.words & 0xffff_ffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let [low, high, ..] = sum.to_le_bytes();
        u16::from_be(u16::from_le_bytes([low, high]))
    }

    /// Whether the sum of what was added, its checksum included, is what a right checksum makes it: -0.
    #[must_use]
    #[inline]
    pub const fn is_right(self) -> bool {
        // Divided by 0xffff modulo 2^64, a multiple gives its quotient and any other number a larger one (Warren, Hacker's
        // Delight §10-17). 2^64 - 1 is a multiple, so its quotient is -1 over 0xffff.
        const HIGHEST: u64 = u64::MAX / 0xffff;
        let quotient = self.words.wrapping_mul(HIGHEST.wrapping_neg());
        quotient.wrapping_sub(1) < HIGHEST
    }

    /// The checksum: the complement of the sum.
    #[must_use]
    #[inline]
    pub const fn finish(self) -> u16 {
        !self.fold()
    }

    /// Adds a word with end-around carry. Rotating by a byte multiplies by 256 modulo 2^16 - 1, which
    /// is the swap that RFC 1071 §2 (B) asks for at an odd offset.
    #[inline]
    const fn add_words(self, words: u64) -> Sum {
        let words = if self.odd {
            words.rotate_left(8)
        } else {
            words
        };
        let (sum, carry) = self.words.overflowing_add(words);
        // Cannot overflow: after a carry the sum is at most 2^64 - 2.
        Sum {
            words: sum + carry as u64,
            odd: self.odd,
        }
    }
}

/// The ones'-complement sum of `data` as words in machine order, a short last word padded with zeros.
#[inline]
fn sum_words(data: &[u8]) -> u64 {
    let (blocks, rest) = data.as_chunks::<BLOCK_LEN>();
    let mut sum = if blocks.is_empty() {
        0
    } else {
        sum_blocks(blocks)
    };
    let (words, mut tail) = rest.as_chunks::<8>();
    for word in words {
        sum = add_carry(sum, u64::from_ne_bytes(*word));
    }
    // Each piece starts at an even offset, and 16-bit words weigh the same wherever they stand.
    if let Some((four, rest)) = tail.split_first_chunk() {
        sum = add_carry(sum, u64::from(u32::from_ne_bytes(*four)));
        tail = rest;
    }
    if let Some((two, rest)) = tail.split_first_chunk() {
        sum = add_carry(sum, u64::from(u16::from_ne_bytes(*two)));
        tail = rest;
    }
    if let [last] = *tail {
        sum = add_carry(sum, u64::from(u16::from_ne_bytes([last, 0])));
    }
    sum
}

/// Sums the two halves of each word apart, so that no carry is lost and no lane waits for another: the
/// compiler turns this into vector adds. A lane could overflow after 2^32 blocks, which is 256 GiB.
fn sum_blocks(blocks: &[[u8; BLOCK_LEN]]) -> u64 {
    let mut low = [0_u64; LANES];
    let mut high = [0_u64; LANES];
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in words.iter().enumerate() {
            let word = u64::from_ne_bytes(*word);
            low[lane] += word & 0xffff_ffff;
            high[lane] += word >> 32;
        }
    }
    // 2^32 is 1 modulo 2^16 - 1, so both halves weigh the same.
    low.iter()
        .chain(&high)
        .fold(0, |sum, &lane| add_carry(sum, lane))
}

#[inline]
const fn add_carry(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u64
}

/// Whether the checksum of a TCP segment, header and payload, is right.
#[must_use]
#[inline]
pub fn verify_tcp_v4(source: Ipv4Addr, destination: Ipv4Addr, segment: &[u8]) -> bool {
    Sum::new()
        .pseudo_header_v4(source, destination, Protocol::TCP, segment.len())
        .add(segment)
        .is_right()
}

/// Whether the checksum of a packet of an upper layer, which must have one, is right.
///
/// # Panics
/// When the two addresses are of different families.
#[must_use]
#[inline]
#[track_caller]
pub fn verify(source: IpAddr, destination: IpAddr, protocol: Protocol, packet: &[u8]) -> bool {
    Sum::new()
        .pseudo_header(source, destination, protocol, packet.len())
        .add(packet)
        .is_right()
}

/// Whether the checksum of a UDP datagram, header and payload without padding, is right; over IPv4 it
/// may be absent, over IPv6 it must not be (RFC 8200 §8.1).
///
/// # Panics
/// When the two addresses are of different families.
#[must_use]
#[track_caller]
pub fn verify_udp(source: IpAddr, destination: IpAddr, datagram: &[u8]) -> bool {
    let absent = checksum_field(datagram, udp::CHECKSUM_OFFSET) == Some([0, 0]);
    if absent {
        source.is_ipv4()
    } else {
        verify(source, destination, Protocol::UDP, datagram)
    }
}

/// Whether the checksum of a UDP datagram, header and payload without padding, is right or absent.
#[must_use]
pub fn verify_udp_v4(source: Ipv4Addr, destination: Ipv4Addr, datagram: &[u8]) -> bool {
    // RFC 768: an all-zero field means that the sender computed none.
    checksum_field(datagram, udp::CHECKSUM_OFFSET) == Some([0, 0])
        || Sum::new()
            .pseudo_header_v4(source, destination, Protocol::UDP, datagram.len())
            .add(datagram)
            .is_right()
}

fn checksum_field(segment: &[u8], offset: u16) -> Option<[u8; 2]> {
    segment.get(usize::from(offset)..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests;
