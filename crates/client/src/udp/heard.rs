//! By which stack a UDP socket that receives on several answers a peer. Whoever spoke first is answered by the stack that it
//! was last heard on: from the address that was asked, which is all that a peer listens to whose socket is connected. To
//! whom the program spoke first the routes lead, whatever they were before.
//!
//! Of a peer only a hash is kept, at the place that the hash names. One that is heard takes the place of another; the
//! routes decide for who is not there.

use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicU64, Ordering};
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use crate::engines::EngineIndex;

/// So many peers at most: 4 KiB of a socket that hears on several stacks.
const PEERS_MAX: usize = 512;
/// The part of a word that says which stack; the rest is of the hash.
const STACK_MASK: u64 = 0xff;
/// In it: the program spoke first.
const ROUTES: u64 = 1;
/// The kernel; from [`ENGINE`] on the places of engines.
const KERNEL: u64 = 2;
const ENGINE: u64 = 3;

/// A stack that a datagram came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeardBy {
    /// The kernel.
    Kernel,
    /// An engine.
    Engine(EngineIndex),
}

/// See the file's head. Any thread may note and ask.
#[derive(Default)]
pub struct Heard(OnceLock<Box<[AtomicU64]>>);

impl Heard {
    /// A datagram of this peer came by that stack.
    pub fn note(&self, peer: SocketAddr, stack: HeardBy) {
        let number = match stack {
            HeardBy::Kernel => KERNEL,
            HeardBy::Engine(place) => ENGINE + u64::try_from(place.index()).unwrap_or(0),
        };
        let (word, hash) = self.find(peer);
        let (before, noted) = (word.load(Ordering::Relaxed), hash | number);
        if before != noted && before != hash | ROUTES {
            word.store(noted, Ordering::Relaxed);
        }
    }

    /// The stack by which an answer to this peer leaves; `None`: the routes decide, and where it was not heard yet, they
    /// do from now on.
    #[must_use]
    pub fn answer_by(&self, peer: SocketAddr) -> Option<HeardBy> {
        let (word, hash) = self.find(peer);
        let noted = word.load(Ordering::Relaxed);
        if noted == 0 {
            word.store(hash | ROUTES, Ordering::Relaxed);
        }
        if noted & !STACK_MASK != hash {
            return None;
        }
        match noted & STACK_MASK {
            KERNEL => Some(HeardBy::Kernel),
            number => {
                let index = usize::try_from(number.checked_sub(ENGINE)?).ok()?;
                EngineIndex::new(index).map(HeardBy::Engine)
            }
        }
    }

    /// Where a peer stands, and its hash without the place for the stack. The keys are this process's: nobody can choose
    /// an address that stands for another.
    fn find(&self, peer: SocketAddr) -> (&AtomicU64, u64) {
        static KEYS: OnceLock<RandomState> = OnceLock::new();
        let words = self
            .0
            .get_or_init(|| (0..PEERS_MAX).map(|_| AtomicU64::new(0)).collect());
        let ip: IpAddr = peer.ip().to_canonical();
        let keys = KEYS.get_or_init(RandomState::new);
        let hash = keys.hash_one((ip, peer.port()));
        let [low, high, ..] = hash.to_be_bytes();
        let at = usize::from(u16::from_be_bytes([low, high])) % words.len();
        (&words[at], hash & !STACK_MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn who_spoke_first_is_answered_by_the_stack_that_it_was_last_heard_on() {
        let heard = Heard::default();
        let second = HeardBy::Engine(EngineIndex::new(1).unwrap());
        heard.note(peer("10.0.0.5:53"), HeardBy::Kernel);
        assert_eq!(heard.answer_by(peer("10.0.0.5:53")), Some(HeardBy::Kernel));
        let mapped = peer("[::ffff:10.0.0.5]:53");
        assert_eq!(heard.answer_by(mapped), Some(HeardBy::Kernel));
        heard.note(mapped, second);
        assert_eq!(heard.answer_by(peer("10.0.0.5:53")), Some(second));
    }

    #[test]
    fn to_whom_the_program_spoke_first_the_routes_lead() {
        let heard = Heard::default();
        assert_eq!(heard.answer_by(peer("10.0.0.5:53")), None);
        heard.note(peer("10.0.0.5:53"), HeardBy::Kernel);
        assert_eq!(heard.answer_by(peer("10.0.0.5:53")), None);
    }

    #[test]
    fn many_peers_displace_one_another_and_are_never_mistaken() {
        let heard = Heard::default();
        let peer = |port: u16| SocketAddr::from(([10, 0, 0, 5], port));
        let stack = |port: u16| match port % 2 {
            0 => HeardBy::Kernel,
            _ => HeardBy::Engine(EngineIndex::FIRST),
        };
        (1..=u16::MAX).for_each(|port| heard.note(peer(port), stack(port)));
        let known = (1..=u16::MAX).filter(|port| {
            let by = heard.answer_by(peer(*port));
            assert!(by.is_none_or(|by| by == stack(*port)));
            by.is_some()
        });
        let known = known.count();
        assert!(known > 0 && known <= PEERS_MAX, "{known}");
    }
}
