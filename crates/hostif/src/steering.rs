//! Which engine core serves a TCP connection: a keyed hash of its two ends.
//!
//! Three sides compute it and must agree: the device's receive path (a classic BPF program, `nic`),
//! the engine (may this port be used here?) and the program (which core to ask for a connection). So
//! it uses only what classic BPF has: 32-bit wrapping arithmetic, no rotation. It is symmetric, so that
//! both ends of a connection between two addresses of one engine are at the same core. The key keeps
//! strangers from choosing tuples that all fall on one core. UDP, ICMP and fragments are not
//! spread: they belong to the first core.
//!
//! Where a network card spreads frames by the Toeplitz hash and takes a key, the engine's hash is the card's
//! ([`Steering::of_card`]), so that a packet arrives in a queue of the core that serves it (decision 91).

use core::net::{IpAddr, SocketAddr};

/// No engine has more cores: their number is part of every [`crate::SocketId`].
pub const CORES_MAX: u16 = 64;

/// Multipliers of the mix; see [`Steering::hash`].
pub const MULTIPLIERS: [u32; 3] = [0x9e37_79b1, 0x85eb_ca6b, 0xc2b2_ae35];
/// Right shifts of the mix.
pub const SHIFTS: [u32; 3] = [15, 13, 16];

/// Entries of a card's table that its hash tells apart.
pub const CARD_ENTRIES: u16 = 128;
/// The upper half of a key that a card has too.
const OF_CARD: u32 = 0xffff_0000;

/// How an engine spreads connections over its cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Steering {
    /// Cores, 1 to [`CORES_MAX`].
    pub cores: u16,
    /// Random, the same as long as the engine runs.
    pub key: u32,
}

/// What a card has to be told to spread frames as an engine does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CardKey {
    /// By how many bits each the folded input is rotated to the right: bit n, by n.
    pub rotations: u16,
}

impl CardKey {
    /// The key of the card's Toeplitz hash, `len` bytes. It repeats after 16 bits, so that both directions of a connection
    /// have one hash, which depends on nothing but the XOR of all words of 16 bits in addresses and ports.
    #[must_use]
    pub fn bytes(self, len: usize) -> Vec<u8> {
        let word = self.rotations.rotate_right(1).to_be_bytes();
        word.into_iter().cycle().take(len).collect()
    }

    /// What [`Steering::hash`] is of the connections whose card's hash leads to this entry of its table.
    #[must_use]
    pub fn value_of_entry(entry: usize) -> u16 {
        // The seven bits that choose the entry are in opposite order.
        let entry = u16::try_from(entry % usize::from(CARD_ENTRIES)).unwrap_or(0);
        entry.reverse_bits() >> 9
    }

    fn hash(self, folded: u32) -> u32 {
        let half = (folded ^ folded >> 16) & 0xffff;
        let doubled = half << 16 | half;
        let rotated = (0..16).filter(|by| self.rotations >> by & 1 == 1);
        let sum = rotated.fold(0, |sum, by| sum ^ doubled >> by);
        sum >> 8 & u32::from(CARD_ENTRIES - 1)
    }

    /// Whether ports that differ in nine of their lower bits, the lowest excepted, which clients may leave alone, lead to every
    /// entry of the table.
    fn spreads_ports(self) -> bool {
        let mut reached = [None; CARD_ENTRIES.ilog2() as usize];
        for port in (1..10).map(|bit| 1 << bit) {
            let mut value = self.hash(port);
            // Gauss's elimination over bits.
            while value != 0 {
                let highest = value.ilog2() as usize;
                match reached[highest] {
                    Some(other) => value ^= other,
                    None => {
                        reached[highest] = Some(value);
                        break;
                    }
                }
            }
        }
        reached.iter().all(Option::is_some)
    }
}

impl Steering {
    /// Everything on one core.
    pub const SINGLE: Steering = Steering { cores: 1, key: 0 };

    /// By a hash of the engine's own.
    #[must_use]
    pub fn random(cores: u16, random: u32) -> Steering {
        let key = random & !(1 << 31);
        Steering { cores, key }
    }

    /// By the hash of a card that is given [`Steering::card_key`].
    #[must_use]
    pub fn of_card(cores: u16, random: u32) -> Steering {
        let mut rotations = random;
        while !CardKey::from(rotations).spreads_ports() {
            // Knuth's generator, the upper half of which is used.
            rotations = rotations
                .wrapping_mul(1_664_525)
                .wrapping_add(1_013_904_223);
        }
        let key = OF_CARD | rotations >> 16;
        Steering { cores, key }
    }

    /// The key for the card, where its hash is the engine's.
    #[must_use]
    pub fn card_key(&self) -> Option<CardKey> {
        let is_of_card = self.key & OF_CARD == OF_CARD;
        is_of_card.then(|| CardKey::from(self.key << 16))
    }

    /// The core of the connection between these two ends, in either order.
    #[must_use]
    pub fn core_of(&self, one: SocketAddr, other: SocketAddr) -> u16 {
        if self.cores <= 1 {
            return 0;
        }
        let cores = u32::from(self.cores);
        u16::try_from(self.hash(one, other) % cores).unwrap_or(0)
    }

    /// 16 well-mixed bits; a card's are seven.
    #[must_use]
    pub fn hash(&self, one: SocketAddr, other: SocketAddr) -> u32 {
        let addresses = fold(one.ip()) ^ fold(other.ip());
        let ports = u32::from(one.port() ^ other.port());
        if let Some(card) = self.card_key() {
            return card.hash(addresses ^ ports);
        }
        let mixed = (addresses ^ self.key).wrapping_mul(MULTIPLIERS[0]);
        let mixed = (mixed ^ (mixed >> SHIFTS[0]) ^ ports).wrapping_mul(MULTIPLIERS[1]);
        let mixed = (mixed ^ (mixed >> SHIFTS[1])).wrapping_mul(MULTIPLIERS[2]);
        mixed >> SHIFTS[2]
    }
}

impl From<u32> for CardKey {
    /// Of the upper half of a random number.
    fn from(random: u32) -> Self {
        let rotations = u16::try_from(random >> 16).unwrap_or(0);
        Self { rotations }
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
            for steering in [Steering::random(cores, key), Steering::of_card(cores, key)] {
                let core = steering.core_of(end(a, p), end(b, q));
                prop_assert!(core < cores);
                prop_assert_eq!(core, steering.core_of(end(b, q), end(a, p)));
            }
        }

        #[test]
        fn consecutive_ports_of_one_client_spread_evenly(key: u32, client: u32, cores in 2u16..=8, step in 1_usize..=2) {
            for steering in [Steering::random(cores, key), Steering::of_card(cores, key)] {
                let mut counts = [0_u32; 8];
                for port in (32_768..32_768 + 4_000 * 2_u16).step_by(step).take(4_000) {
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
        fn a_key_is_a_cards_or_the_engines_own(random: u32) {
            prop_assert_eq!(Steering::random(4, random).card_key(), None);
            let card = Steering::of_card(4, random).card_key().unwrap();
            prop_assert_eq!(&card.bytes(52)[..2], &card.bytes(40)[38..]);
            prop_assert_eq!(card.bytes(41).len(), 41);
        }
    }

    #[test]
    fn every_entry_of_a_cards_table_has_a_value_of_its_own() {
        let mut seen = [false; CARD_ENTRIES as usize];
        for entry in 0..usize::from(CARD_ENTRIES) {
            let value = CardKey::value_of_entry(entry);
            assert!(!std::mem::replace(&mut seen[usize::from(value)], true));
            assert_eq!(CardKey::value_of_entry(entry + 3 * 128), value);
        }
        assert_eq!(CardKey::value_of_entry(1), 64);
    }

    #[test]
    fn a_single_core_serves_everything() {
        assert_eq!(Steering::SINGLE.core_of(end(1, 2), end(3, 4)), 0);
    }
}
