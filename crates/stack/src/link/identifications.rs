//! Identification fields of packets that may be fragmented.

use core::net::IpAddr;
use siphasher::sip::SipHasher13;

/// Identifications of packets that may be fragmented: unique for a destination for as long as possible
/// (RFC 6864 §4.3, RFC 8200 §4.5), and not to be guessed from those of another (RFC 7739 §5.3 for the hashed
/// counters).
#[derive(Debug)]
pub(crate) struct Identifications {
    hasher: SipHasher13,
    counters: [u32; Self::COUNTERS],
}

impl Identifications {
    const COUNTERS: usize = 512;

    pub(super) fn new(key: &[u8; 16]) -> Self {
        let hasher = SipHasher13::new_with_key(key);
        let start = |n: usize| {
            let [a, b, c, d, ..] = hasher.hash(&n.to_le_bytes()).to_le_bytes();
            u32::from_le_bytes([a, b, c, d])
        };
        Self {
            counters: core::array::from_fn(start),
            hasher,
        }
    }

    /// IPv4 has room for the lower half.
    pub(crate) fn next(&mut self, destination: IpAddr) -> u32 {
        let hash = match destination {
            IpAddr::V4(address) => self.hasher.hash(&address.octets()),
            IpAddr::V6(address) => self.hasher.hash(&address.octets()),
        };
        let [a, b, ..] = hash.to_le_bytes();
        let counter = &mut self.counters[usize::from(u16::from_le_bytes([a, b])) % Self::COUNTERS];
        *counter = counter.wrapping_add(1);
        *counter
    }
}
