//! Fast Open (RFC 7413): which SYNs may carry data, in both roles. `peers.rs` remembers the cookies that others gave us.
//!
//! A cookie of ours is a keyed hash of the two addresses, computed as Linux does, so that servers with the same
//! key (`TCP_FASTOPEN_KEY`) take each other's. A listener counts the requests whose handshake is not over, and for a
//! minute those that ended in a reset: an attacker with a cookie gets no more of them (RFC 7413 §5.1).

mod peers;

pub(crate) use peers::Peers;

use crate::config::{FAST_OPEN_KEYS_MAX, FastOpenModes};
use crate::containers::intrusive::at;
use crate::error::Error;
use crate::handshake::Syn;
use crate::stack::Stack;
use crate::tables::{Flags, ListenerId, Row as _};
use core::hash::Hasher as _;
use core::net::IpAddr;
use siphasher::sip::SipHasher24;
use tcp::{ConnectionError, Duration, FastOpen, Instant, State, Transmit};
use wire::tcp::{FastOpenCookie, Flags as TcpFlags, Header};

/// How long a request that ended in a reset counts (Linux `reqsk_fastopen_remove`).
const RESET_MEMORY: Duration = Duration::from_secs(60);

/// What a listener knows of requests beside its row.
#[derive(Clone, Copy, Debug, Default, zerocopy::FromZeros)]
pub(crate) struct Pending {
    /// Requests whose handshake is not over, and those that still count although they were reset.
    count: u32,
    /// The latter.
    resets: u32,
    /// When those are forgotten.
    resets_until: Instant,
}

impl Pending {
    fn has_room(&mut self, now: Instant, most: u32) -> bool {
        if self.resets > 0 && self.resets_until <= now {
            self.count -= self.resets;
            self.resets = 0;
        }
        self.count < most
    }

    /// One more request.
    pub(crate) const fn add(&mut self) {
        self.count += 1;
    }

    fn remove(&mut self, now: Instant, was_reset: bool) {
        if !was_reset {
            self.count = self.count.saturating_sub(1);
            return;
        }
        if self.resets == 0 {
            self.resets_until = now + RESET_MEMORY;
        }
        self.resets += 1;
    }
}

/// What a listener does with a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The handshake as ever.
    Plain,
    /// So too, and the SYN-ACK tells the cookie.
    Grant,
    /// Its data is taken.
    Serve,
    /// So too; the SYN-ACK tells a cookie of the newer key.
    Renew,
}

impl Stack<'_> {
    /// `TCP_FASTOPEN`: requests of a listener at most whose handshake is not over; 0: none are served.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn set_fast_open(&mut self, listener: ListenerId, most: u32) -> Result<(), Error> {
        self.check_listener(listener)?;
        self.tables.listeners[at(listener.index)]
            .change(|row| row.fast_open_max = most.min(crate::listener::BACKLOG_MAX));
        Ok(())
    }

    /// `TCP_FASTOPEN_KEY`: the newest key first; none: the stack's own.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::InvalidArgument`]: too many.
    pub fn set_fast_open_keys(
        &mut self,
        listener: ListenerId,
        keys: &[[u8; 16]],
    ) -> Result<(), Error> {
        self.check_listener(listener)?;
        if keys.len() > FAST_OPEN_KEYS_MAX {
            return Err(Error::InvalidArgument);
        }
        self.tables.listeners[at(listener.index)].change(|row| {
            row.fast_open_keys = [[0; 16]; FAST_OPEN_KEYS_MAX];
            row.fast_open_keys[..keys.len()].copy_from_slice(keys);
            row.fast_open_key_count = u32::try_from(keys.len()).unwrap_or(0);
        });
        Ok(())
    }

    /// Linux `tcp_try_fastopen`.
    pub(crate) fn judge_fast_open(
        &mut self,
        now: Instant,
        listener: u32,
        syn: &Syn<'_>,
    ) -> Verdict {
        let cookie = syn.header.options.fast_open;
        let modes = self.ip.link.config.fast_open;
        let needs_cookie = !modes.contains(FastOpenModes::SERVER_WITHOUT_COOKIE);
        let is_asked = cookie.is_some() || !syn.payload.is_empty() && !needs_cookie;
        if !is_asked || !modes.contains(FastOpenModes::SERVER) {
            return Verdict::Plain;
        }
        if !self.has_fast_open_room(now, listener) {
            return Verdict::Plain;
        }
        if !needs_cookie {
            return Verdict::Serve;
        }
        let Some(cookie) = cookie.filter(|cookie| !cookie.is_request()) else {
            self.ip.link.counters.fast_open_cookie_requests += 1;
            return Verdict::Grant;
        };
        let (local, remote) = (syn.tuple.local(), syn.tuple.remote());
        let mut keys = self.fast_open_keys(listener);
        if keys
            .next()
            .is_some_and(|key| cookie_of(&key, local, remote).as_bytes() == cookie.as_bytes())
        {
            return Verdict::Serve;
        }
        if keys.any(|key| cookie_of(&key, local, remote).as_bytes() == cookie.as_bytes()) {
            return Verdict::Renew;
        }
        drop(keys);
        self.ip.link.counters.fast_open_passive_fail += 1;
        Verdict::Grant
    }

    fn has_fast_open_room(&mut self, now: Instant, listener: u32) -> bool {
        let row = &self.tables.listeners[at(listener)];
        let without_option = self
            .ip
            .link
            .config
            .fast_open
            .contains(FastOpenModes::SERVER_WITHOUT_OPTION);
        let most = match row.fast_open_max {
            0 if without_option => row.backlog,
            most => most,
        };
        if most == 0 {
            return false;
        }
        let has_room = self.listener_queues[at(listener)]
            .fast_open
            .has_room(now, most);
        self.ip.link.counters.fast_open_listen_overflows += u64::from(!has_room);
        has_room
    }

    fn fast_open_keys(&self, listener: u32) -> impl Iterator<Item = [u8; 16]> + use<> {
        let row = &self.tables.listeners[at(listener)];
        let common = match self.ip.link.config.fast_open_keys {
            _ if row.fast_open_key_count > 0 => [None; FAST_OPEN_KEYS_MAX],
            [None, ..] => [Some(self.ip.link.config.subkey(b"fast open")), None],
            keys => keys,
        };
        let given = row.fast_open_keys.into_iter();
        common
            .into_iter()
            .flatten()
            .chain(given.take(at(row.fast_open_key_count)))
    }

    /// The keys of all listeners without keys of their own, from now on.
    pub fn set_common_fast_open_keys(&mut self, keys: [Option<[u8; 16]>; FAST_OPEN_KEYS_MAX]) {
        self.ip.link.config.fast_open_keys = keys;
    }

    /// Connection `index` may have been a request whose handshake is over now, one way or another.
    pub(crate) fn settle_fast_open(&mut self, now: Instant, index: u32) {
        let record = self.record(index);
        if record.tcp.state() == State::SynReceived {
            return;
        }
        let was_reset = record.tcp.error() == Some(ConnectionError::Reset);
        let listener = record.listener();
        self.change(index, |record| record.set(Flags::FAST_OPEN, false));
        if self.check_listener(listener).is_ok() {
            self.listener_queues[at(listener.index)]
                .fast_open
                .remove(now, was_reset);
        }
    }

    /// How to open a connection to `remote`, for which the program has bytes at hand or not; and the MSS that came with
    /// the cookie.
    pub(crate) fn fast_open_towards(
        &self,
        now: Instant,
        remote: IpAddr,
        has_data: bool,
    ) -> (FastOpen, u16) {
        let without = FastOpenModes::CLIENT_WITHOUT_COOKIE;
        let needs_cookie = !self.ip.link.config.fast_open.contains(without);
        let Some(peer) = self.fast_open_peers.find(now, remote) else {
            return match (needs_cookie, has_data) {
                (true, _) => (FastOpen::Asking, 0),
                (false, true) => (FastOpen::Holding, 0),
                (false, false) => (FastOpen::Off, 0),
            };
        };
        match peer.cookie() {
            Some(_) if has_data => (FastOpen::Holding, peer.mss()),
            Some(_) => (FastOpen::Asking, peer.mss()),
            None => (FastOpen::Off, 0),
        }
    }

    /// `transmit` with the cookie that belongs where `tcp` has put a request.
    #[cold]
    pub(crate) fn with_cookie(&self, now: Instant, index: u32, transmit: &Transmit) -> Transmit {
        let mut transmit = *transmit;
        let record = self.record(index);
        let (local, remote) = (record.tuple.local(), record.tuple.remote());
        let cookie = if transmit.header.flags.contains(TcpFlags::ACK) {
            let listener = record.listener();
            let is_there = self.check_listener(listener).is_ok();
            let key = is_there.then(|| self.fast_open_keys(listener.index).next());
            let placeholder = transmit.header.options.fast_open;
            let is_experimental = placeholder.is_some_and(|one| one.is_experimental());
            key.flatten()
                .map(|key| cookie_of(&key, local, remote).in_form(is_experimental))
        } else {
            let known = self.fast_open_peers.find(now, remote);
            let cookie = known.and_then(|peer| peer.cookie());
            let is_asking = record.tcp.fast_open() == FastOpen::Asking;
            let without = FastOpenModes::CLIENT_WITHOUT_COOKIE;
            if cookie.is_none() && (is_asking || !self.ip.link.config.fast_open.contains(without)) {
                // It was forgotten meanwhile: the data counts as refused when the SYN-ACK is here.
                transmit.len = 0;
                Some(FastOpenCookie::REQUEST)
            } else {
                cookie
            }
        };
        transmit.header.options.fast_open = cookie;
        transmit
    }

    /// The SYN-ACK has come to connection `index`, which had asked for Fast Open (Linux `tcp_rcv_fastopen_synack`).
    pub(crate) fn learn_fast_open(&mut self, now: Instant, index: u32, syn_ack: &Header) {
        let tcp = &self.record(index).tcp;
        let (outcome, lost) = (tcp.fast_open(), tcp.lost_syn_data());
        let remote = self.record(index).tuple.remote();
        let cookie = syn_ack
            .options
            .fast_open
            .filter(|cookie| !cookie.is_request());
        if let Some(cookie) = cookie {
            let mss = syn_ack.options.mss.unwrap_or(0);
            self.fast_open_peers.learn(now, remote, cookie, mss);
        } else if lost {
            self.fast_open_peers.avoid(now, remote);
        }
        match outcome {
            FastOpen::Accepted => {
                self.ip.link.counters.fast_open_active += 1;
                self.fast_open_peers.forgive(now, remote);
            }
            FastOpen::Sent => self.ip.link.counters.fast_open_active_fail += 1,
            _ => {}
        }
    }

    /// After a timeout of connection `index`: its peer is left in peace if Fast Open may be the reason.
    pub(crate) fn watch_fast_open(&mut self, now: Instant, index: u32) {
        let record = self.record(index);
        if record.tcp.suspects_fast_open() {
            let remote = record.tuple.remote();
            self.ip.link.counters.fast_open_blackholes +=
                u64::from(self.fast_open_peers.avoid(now, remote));
        }
    }
}

/// The cookie for a client at `remote` (Linux `__tcp_fastopen_cookie_gen_cipher`).
fn cookie_of(key: &[u8; 16], local: IpAddr, remote: IpAddr) -> FastOpenCookie {
    let mut hasher = SipHasher24::new_with_key(key);
    for address in [remote, local] {
        match address {
            IpAddr::V4(v4) => hasher.write(&v4.octets()),
            IpAddr::V6(v6) => hasher.write(&v6.octets()),
        }
    }
    FastOpenCookie::new(&hasher.finish().to_le_bytes())
        .expect("invariant: eight bytes are a cookie")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_count_for_a_minute() {
        let mut pending = Pending::default();
        let at = |s| Instant::ZERO + Duration::from_secs(s);
        assert!(pending.has_room(at(0), 2));
        pending.add();
        pending.add();
        assert!(!pending.has_room(at(0), 2));
        pending.remove(at(1), false);
        assert!(pending.has_room(at(1), 2));
        pending.add();
        pending.remove(at(2), true);
        pending.remove(at(50), true);
        assert!(!pending.has_room(at(61), 2));
        assert!(pending.has_room(at(62), 2), "both at once");
        assert_eq!(pending.count, 0);
    }

    #[test]
    fn a_cookie_is_what_linux_makes_of_the_key() {
        // `tcp_fastopen_key` 00112233-44556677-8899aabb-ccddeeff, as Linux 6.18 has told its client.
        let words = [0x0011_2233_u32, 0x4455_6677, 0x8899_aabb, 0xccdd_eeff];
        let mut key = [0; 16];
        for (place, word) in key.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let (server, client): (IpAddr, IpAddr) = ([10, 77, 0, 1].into(), [10, 77, 0, 2].into());
        let cookie = cookie_of(&key, server, client);
        let linux = [0x2d, 0x61, 0xbf, 0xa6, 0x54, 0xe1, 0xf9, 0xbb];
        assert_eq!(cookie.as_bytes(), linux);
    }

    #[test]
    fn cookies_differ_by_client_server_and_key() {
        let (a, b): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let one = cookie_of(&[1; 16], a, b);
        assert_eq!(one, cookie_of(&[1; 16], a, b));
        assert_ne!(one, cookie_of(&[1; 16], b, a));
        assert_ne!(one, cookie_of(&[2; 16], a, b));
        assert_eq!(one.as_bytes().len(), 8);
    }
}
