//! Which engine core serves a TCP connection: a keyed hash of its two ends.
//!
//! Three sides compute it and must agree: the device's receive path (a classic BPF program, `nic`),
//! the engine (may this port be used here?) and the program (which core to ask for a connection). So
//! it uses only what classic BPF has: 32-bit wrapping arithmetic, no rotation. It is symmetric, so that
//! both ends of a connection between two addresses of one engine are at the same core. The key keeps
//! strangers from choosing tuples that all fall on one core. UDP, ICMP and fragments are not
//! spread: they belong to the first core.

use core::net::{IpAddr, SocketAddr};

/// No engine has more cores: their number is part of every [`crate::SocketId`].
pub const CORES_MAX: u16 = 64;

/// Multipliers of the mix; see [`Steering::hash`].
pub const MULTIPLIERS: [u32; 3] = [0x9e37_79b1, 0x85eb_ca6b, 0xc2b2_ae35];
/// Right shifts of the mix.
pub const SHIFTS: [u32; 3] = [15, 13, 16];

/// How an engine spreads connections over its cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Steering {
    /// Cores, 1 to [`CORES_MAX`].
    pub cores: u16,
    /// Random, the same as long as the engine runs.
    pub key: u32,
}

impl Steering {
    /// Everything on one core.
    pub const SINGLE: Steering = Steering { cores: 1, key: 0 };

    /// The core of the connection between these two ends, in either order.
    #[must_use]
    pub fn core_of(&self, one: SocketAddr, other: SocketAddr) -> u16 {
        if self.cores <= 1 {
            return 0;
        }
        let cores = u32::from(self.cores);
        u16::try_from(self.hash(one, other) % cores).unwrap_or(0)
    }

    /// 16 well-mixed bits.
    #[must_use]
    pub fn hash(&self, one: SocketAddr, other: SocketAddr) -> u32 {
        let addresses = fold(one.ip()) ^ fold(other.ip());
        let ports = u32::from(one.port() ^ other.port());
        let mixed = (addresses ^ self.key).wrapping_mul(MULTIPLIERS[0]);
        let mixed = (mixed ^ (mixed >> SHIFTS[0]) ^ ports).wrapping_mul(MULTIPLIERS[1]);
        let mixed = (mixed ^ (mixed >> SHIFTS[1])).wrapping_mul(MULTIPLIERS[2]);
        mixed >> SHIFTS[2]
    }
}

/// An address in 32 bits: its words, XORed.
fn fold(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(address) => u32::from(address),
        IpAddr::V6(address) => {
            let words = address.octets();
            let words = words.as_chunks::<4>().0;
            words
                .iter()
                .fold(0, |sum, word| sum ^ u32::from_be_bytes(*word))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn end(address: u32, port: u16) -> SocketAddr {
        SocketAddr::from((core::net::Ipv4Addr::from(address), port))
    }

    proptest! {
        #[test]
        fn both_ends_compute_the_same_core(
            a: u32, b: u32, p: u16, q: u16, key: u32, cores in 1..=CORES_MAX
        ) {
            let steering = Steering { cores, key };
            let core = steering.core_of(end(a, p), end(b, q));
            prop_assert!(core < cores);
            prop_assert_eq!(core, steering.core_of(end(b, q), end(a, p)));
        }

        #[test]
        fn consecutive_ports_of_one_client_spread_evenly(key: u32, client: u32, cores in 2u16..=8) {
            let steering = Steering { cores, key };
            let mut counts = [0_u32; 8];
            for port in 32_768..36_768_u16 {
                let core = steering.core_of(end(client, port), end(0x0a00_0001, 80));
                counts[usize::from(core)] += 1;
            }
            let fair = 4_000 / u32::from(cores);
            for count in &counts[..usize::from(cores)] {
                prop_assert!(count.abs_diff(fair) < fair / 3, "{counts:?}");
            }
        }
    }

    #[test]
    fn a_single_core_serves_everything() {
        assert_eq!(Steering::SINGLE.core_of(end(1, 2), end(3, 4)), 0);
    }
}
