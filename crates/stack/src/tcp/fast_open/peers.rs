//! What is known of the peers that connections were opened to: their Fast Open cookies, and whom to leave in peace
//! because its path seems to swallow data in SYNs (RFC 7413 §4.1.3).
//!
//! A table of fixed size, four places for each hash: a fifth peer takes the place of the one that was used least
//! lately. What is forgotten costs one round trip. Linux keeps the same in `tcp_metrics`.

use crate::address::PackedAddress;
use core::net::IpAddr;
use siphasher::sip::SipHasher13;
use tcp::{Duration, Instant};
use wire::tcp::FastOpenCookie;

/// Places for each hash.
const WAYS: usize = 4;
/// How long a peer is left in peace the first time; twice as long each time that follows (Linux's
/// `tcp_fastopen_blackhole_timeout` before it was switched off, and its bound).
const AVOIDED: Duration = Duration::from_secs(3_600);
const AVOIDED_MAX: Duration = Duration::from_secs(64 * 3_600);

/// One peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peer {
    address: PackedAddress,
    /// Empty: none.
    cookie: FastOpenCookie,
    /// MSS of the SYN-ACK that brought it.
    mss: u16,
    failures: u8,
    is_used: bool,
    is_avoided: bool,
    avoided_until: Instant,
    used_at: Instant,
}

impl Peer {
    /// The cookie; `None`: there is none, and none is to be asked for now.
    pub(crate) fn cookie(&self) -> Option<FastOpenCookie> {
        (!self.is_avoided && !self.cookie.is_request()).then_some(self.cookie)
    }

    /// The peer's MSS.
    pub(crate) const fn mss(&self) -> u16 {
        self.mss
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Peers {
    hasher: SipHasher13,
    places: Vec<Peer>,
}

impl Peers {
    /// Capacity for at least `most` peers.
    pub(crate) fn new(most: usize, key: &[u8; 16]) -> Self {
        let sets = most.div_ceil(WAYS).next_power_of_two();
        Self {
            hasher: SipHasher13::new_with_key(key),
            places: vec![Peer::default(); sets * WAYS],
        }
    }

    /// What is worth knowing of a peer: a cookie, or that it is to be left in peace.
    pub(crate) fn find(&self, now: Instant, address: IpAddr) -> Option<Peer> {
        let packed = PackedAddress::new(address);
        let mut peer = *self.places[self.set(packed)]
            .iter()
            .find(|peer| peer.is_used && peer.address == packed)?;
        peer.is_avoided &= now < peer.avoided_until;
        (peer.is_avoided || !peer.cookie.is_request()).then_some(peer)
    }

    /// The peer gave a cookie.
    pub(crate) fn learn(
        &mut self,
        now: Instant,
        address: IpAddr,
        cookie: FastOpenCookie,
        mss: u16,
    ) {
        let peer = self.place(now, address);
        peer.cookie = cookie;
        peer.mss = mss;
    }

    /// Fast Open does not seem to get through; whether that is news.
    pub(crate) fn avoid(&mut self, now: Instant, address: IpAddr) -> bool {
        let peer = self.place(now, address);
        if peer.is_avoided && now < peer.avoided_until {
            return false;
        }
        peer.is_avoided = true;
        peer.avoided_until = now + AVOIDED.doubled(u32::from(peer.failures), AVOIDED_MAX);
        peer.failures = peer.failures.saturating_add(1);
        true
    }

    /// It did get through.
    pub(crate) fn forgive(&mut self, now: Instant, address: IpAddr) {
        let peer = self.place(now, address);
        (peer.is_avoided, peer.failures) = (false, 0);
    }

    /// The peer's place, in place of another's if it has none.
    fn place(&mut self, now: Instant, address: IpAddr) -> &mut Peer {
        let packed = PackedAddress::new(address);
        let set = self.set(packed);
        let places = &mut self.places[set];
        let own = places
            .iter()
            .position(|peer| peer.is_used && peer.address == packed);
        let index = own.unwrap_or_else(|| {
            let oldest = (0..WAYS).min_by_key(|&way| (places[way].is_used, places[way].used_at));
            let oldest = oldest.unwrap_or(0);
            places[oldest] = Peer {
                address: packed,
                is_used: true,
                ..Peer::default()
            };
            oldest
        });
        places[index].used_at = now;
        &mut places[index]
    }

    fn set(&self, address: PackedAddress) -> core::ops::Range<usize> {
        let hash = self.hasher.hash(zerocopy::IntoBytes::as_bytes(&address));
        let sets = u64::try_from(self.places.len() / WAYS).unwrap_or(1);
        let first = usize::try_from(hash % sets).unwrap_or(0) * WAYS;
        first..first + WAYS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    fn cookie(n: u8) -> FastOpenCookie {
        FastOpenCookie::new(&[n; 8]).unwrap()
    }

    fn at(s: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(s)
    }

    #[test]
    fn a_cookie_is_kept_with_its_mss_until_another_comes() {
        let mut peers = Peers::new(16, &[1; 16]);
        assert!(peers.find(at(0), address(1)).is_none());
        peers.learn(at(0), address(1), cookie(1), 1_400);
        peers.learn(at(1), address(1), cookie(2), 1_300);
        let peer = peers.find(at(9), address(1)).unwrap();
        assert_eq!((peer.cookie(), peer.mss()), (Some(cookie(2)), 1_300));
    }

    #[test]
    fn the_table_does_not_grow_and_forgets_who_was_used_least_lately() {
        let mut peers = Peers::new(4, &[1; 16]);
        for n in 0..10_000 {
            peers.learn(at(u64::from(n)), address(n), cookie(7), 1_000);
        }
        assert_eq!(peers.places.len(), 4);
        let known = (0..10_000).filter(|n| peers.find(at(10_000), address(*n)).is_some());
        assert_eq!(known.collect::<Vec<_>>(), [9_996, 9_997, 9_998, 9_999]);
    }

    #[test]
    fn a_silent_path_is_left_in_peace_twice_as_long_each_time() {
        let mut peers = Peers::new(4, &[1; 16]);
        peers.learn(at(0), address(1), cookie(1), 1_000);
        assert!(peers.avoid(at(0), address(1)));
        assert!(!peers.avoid(at(1), address(1)), "known already");
        assert_eq!(peers.find(at(3_599), address(1)).unwrap().cookie(), None);
        assert!(
            peers
                .find(at(3_600), address(1))
                .unwrap()
                .cookie()
                .is_some()
        );
        assert!(peers.avoid(at(3_600), address(1)));
        assert_eq!(peers.find(at(10_799), address(1)).unwrap().cookie(), None);
        assert!(
            peers
                .find(at(10_800), address(1))
                .unwrap()
                .cookie()
                .is_some()
        );
        peers.forgive(at(10_800), address(1));
        assert!(peers.avoid(at(10_800), address(1)));
        assert!(
            peers
                .find(at(14_400), address(1))
                .unwrap()
                .cookie()
                .is_some()
        );
    }

    #[test]
    fn who_never_gave_a_cookie_is_asked_again_after_the_peace() {
        let mut peers = Peers::new(4, &[1; 16]);
        peers.avoid(at(0), address(1));
        assert_eq!(peers.find(at(1), address(1)).unwrap().cookie(), None);
        assert!(peers.find(at(3_600), address(1)).is_none());
    }
}
