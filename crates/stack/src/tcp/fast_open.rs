//! Fast Open (RFC 7413): which SYNs may carry data, in both roles. `peers.rs` remembers the cookies that others gave us.
//!
//! A cookie of ours is a keyed hash of the two addresses, computed as Linux does, so that servers with the same
//! key (`TCP_FASTOPEN_KEY`) take each other's. A listener counts the requests whose handshake is not over, and for a
//! minute those that ended in a reset: an attacker with a cookie gets no more of them (RFC 7413 §5.1).

pub(crate) mod peers;
pub(crate) mod pending;

use super::Tcp;
use super::handshake::Syn;
use crate::config::{FAST_OPEN_KEYS_MAX, FastOpenModes};
use crate::containers::intrusive::at;
use crate::ip::Ip;
use crate::tables::Flags;
use core::hash::Hasher as _;
use core::net::IpAddr;
use siphasher::sip::SipHasher24;
use tcp::{ConnectionError, FastOpen, Instant, State, Transmit};
use wire::tcp::{FastOpenCookie, Flags as TcpFlags, Header};

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

impl Tcp<'_> {
    /// Linux `tcp_try_fastopen`.
    pub(crate) fn judge_fast_open(&mut self, ip: &mut Ip, now: Instant, syn: &Syn<'_>) -> Verdict {
        let cookie = syn.header.options.fast_open;
        let modes = ip.link.config.fast_open;
        let needs_cookie = !modes.contains(FastOpenModes::SERVER_WITHOUT_COOKIE);
        let is_asked = cookie.is_some() || !syn.payload.is_empty() && !needs_cookie;
        if !is_asked || !modes.contains(FastOpenModes::SERVER) {
            return Verdict::Plain;
        }
        if !self.has_fast_open_room(ip, now, syn.listener) {
            return Verdict::Plain;
        }
        if !needs_cookie {
            return Verdict::Serve;
        }
        let Some(cookie) = cookie.filter(|cookie| !cookie.is_request()) else {
            ip.link.counters.fast_open_cookie_requests += 1;
            return Verdict::Grant;
        };
        let (local, remote) = (syn.tuple.local(), syn.tuple.remote());
        let mut keys = self.fast_open_keys(ip, syn.listener);
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
        ip.link.counters.fast_open_passive_fail += 1;
        Verdict::Grant
    }

    fn has_fast_open_room(&mut self, ip: &mut Ip, now: Instant, listener: u32) -> bool {
        let row = &self.listeners.rows[at(listener)];
        let modes = ip.link.config.fast_open;
        let without_option = modes.contains(FastOpenModes::SERVER_WITHOUT_OPTION);
        let most = match row.fast_open_max {
            0 if without_option => row.backlog,
            most => most,
        };
        if most == 0 {
            return false;
        }
        let has_capacity = self.listeners.fast_open(listener).has_capacity(now, most);
        ip.link.counters.fast_open_listen_overflows += u64::from(!has_capacity);
        has_capacity
    }

    fn fast_open_keys(&self, ip: &Ip, listener: u32) -> impl Iterator<Item = [u8; 16]> + use<> {
        let row = &self.listeners.rows[at(listener)];
        let common = match ip.link.config.fast_open_keys {
            _ if row.fast_open_key_count > 0 => [None; FAST_OPEN_KEYS_MAX],
            [None, ..] => [Some(ip.link.config.subkey(b"fast open")), None],
            keys => keys,
        };
        let given = row.fast_open_keys.into_iter();
        common
            .into_iter()
            .flatten()
            .chain(given.take(at(row.fast_open_key_count)))
    }

    /// Connection `index` may have been a request whose handshake is over now, one way or another.
    pub(crate) fn settle_fast_open(&mut self, now: Instant, index: u32) {
        let record = self.record(index);
        if record.tcp.state() == State::SynReceived {
            return;
        }
        let was_reset = record.tcp.error() == Some(ConnectionError::Reset);
        let listener = record.listener();
        self.mark(index, Flags::FAST_OPEN, false);
        if self.listeners.check(listener).is_ok() {
            self.listeners
                .fast_open(listener.index)
                .remove(now, was_reset);
        }
    }

    /// How to open a connection to `remote`, for which the program has bytes at hand or not; and the MSS that came with
    /// the cookie.
    pub(crate) fn fast_open_towards(
        &self,
        ip: &Ip,
        now: Instant,
        remote: IpAddr,
        has_data: bool,
    ) -> (FastOpen, u16) {
        let without = FastOpenModes::CLIENT_WITHOUT_COOKIE;
        let needs_cookie = !ip.link.config.fast_open.contains(without);
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
    pub(crate) fn with_cookie(
        &self,
        ip: &Ip,
        now: Instant,
        index: u32,
        transmit: &Transmit,
    ) -> Transmit {
        let mut transmit = *transmit;
        let record = self.record(index);
        let (local, remote) = (record.tuple.local(), record.tuple.remote());
        let cookie = if transmit.header.flags.contains(TcpFlags::ACK) {
            let listener = record.listener();
            let is_there = self.listeners.check(listener).is_ok();
            let key = is_there.then(|| self.fast_open_keys(ip, listener.index).next());
            let placeholder = transmit.header.options.fast_open;
            let is_experimental = placeholder.is_some_and(|one| one.is_experimental());
            key.flatten()
                .map(|key| cookie_of(&key, local, remote).in_form(is_experimental))
        } else {
            let known = self.fast_open_peers.find(now, remote);
            let cookie = known.and_then(|peer| peer.cookie());
            let is_asking = record.tcp.fast_open() == FastOpen::Asking;
            let without = FastOpenModes::CLIENT_WITHOUT_COOKIE;
            if cookie.is_none() && (is_asking || !ip.link.config.fast_open.contains(without)) {
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
    pub(crate) fn learn_fast_open(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        index: u32,
        syn_ack: &Header,
    ) {
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
                ip.link.counters.fast_open_active += 1;
                self.fast_open_peers.forgive(now, remote);
            }
            FastOpen::Sent => ip.link.counters.fast_open_active_fail += 1,
            _ => {}
        }
    }

    /// After a timeout of connection `index`: its peer is left in peace if Fast Open may be the reason.
    pub(crate) fn watch_fast_open(&mut self, ip: &mut Ip, now: Instant, index: u32) {
        let record = self.record(index);
        if record.tcp.suspects_fast_open() {
            let remote = record.tuple.remote();
            ip.link.counters.fast_open_blackholes +=
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
