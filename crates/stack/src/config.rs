//! What a stack is given at start.

use crate::error::Error;
use crate::protocols::Protocols;
use bitflags::bitflags;
use core::net::IpAddr;
use siphasher::sip::SipHasher13;
use wire::tcp::Header;

/// A listener's keys: the one for new cookies, and an older one whose cookies are still good.
pub const FAST_OPEN_KEYS_MAX: usize = 2;

bitflags! {
    /// Who uses Fast Open (RFC 7413), with the bits of Linux's `net.ipv4.tcp_fastopen`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FastOpenModes: u32 {
        /// Programs that connect.
        const CLIENT = 1;
        /// Listeners that ask for it (`TCP_FASTOPEN`).
        const SERVER = 2;
        /// Data goes with a SYN although there is no cookie.
        const CLIENT_WITHOUT_COOKIE = 4;
        /// Data of a SYN is taken although there is no cookie.
        const SERVER_WITHOUT_COOKIE = 0x200;
        /// Listeners that do not ask for it, too.
        const SERVER_WITHOUT_OPTION = 0x400;
    }
}

/// When a SYN is answered with a cookie (RFC 4987 §3.6), numbered as Linux's `net.ipv4.tcp_syncookies`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SynCookies {
    /// Never: SYNs beyond the queue are dropped.
    Never,
    /// While the queue of handshakes is full.
    #[default]
    WhenFull,
    /// Always.
    Always,
}

impl SynCookies {
    /// From Linux's number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Never),
            1 => Some(Self::WhenFull),
            2 => Some(Self::Always),
            _ => None,
        }
    }
}

/// Options of TCP that SYNs offer, and that are taken from peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offers {
    /// Timestamps (RFC 7323 §3).
    pub timestamps: bool,
    /// Selective acknowledgments (RFC 2018).
    pub sack: bool,
    /// Window scaling (RFC 7323 §2).
    pub window_scaling: bool,
}

impl Offers {
    /// All of them.
    pub const ALL: Self = Self {
        timestamps: true,
        sack: true,
        window_scaling: true,
    };

    /// The peer's SYN as if it offered no more.
    pub(crate) fn limit(self, syn: &mut Header) {
        let options = &mut syn.options;
        options.timestamps = options.timestamps.filter(|_| self.timestamps);
        options.sack_permitted &= self.sack;
        options.window_scale = options.window_scale.filter(|_| self.window_scaling);
    }
}

/// Fixed parameters of a stack. Every bound here is a memory or a work bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Random; the same for as long as connections live, over restarts too (RFC 6528 §3).
    pub secret: [u8; 16],
    /// What it speaks besides IPv4.
    pub protocols: Protocols,
    /// First and last ephemeral port (Linux `ip_local_port_range`).
    pub ephemeral_ports: (u16, u16),
    /// Entries of the neighbour cache at most (Linux `gc_thresh3`).
    pub neighbours_max: usize,
    /// Connections that no program holds any more, at most; the next one is reset
    /// (Linux `tcp_max_orphans`).
    pub orphans_max: u32,
    /// Bytes of its receive window that a connection offers at first (the middle of Linux `tcp_rmem`).
    pub receive_offer: u32,
    /// What one may grow to, bytes (the last of `tcp_rmem`): the scale of window fields comes from it.
    pub receive_buffer_max: u32,
    /// ICMP errors sent per second in the long run (Linux `icmp_msgs_per_sec`).
    pub icmp_errors_per_second: u32,
    /// ICMP errors sent at once (Linux `icmp_msgs_burst`).
    pub icmp_errors_burst: u32,
    /// Bytes of fragments that are kept at most (Linux `ipfrag_high_thresh`).
    pub fragment_bytes_max: usize,
    /// Packets of which fragments are kept at most.
    pub fragmented_packets_max: usize,
    /// Tell the link of own addresses (RFC 5227 §3). Of several stacks with the same addresses one does.
    pub announces_addresses: bool,
    /// The kernel has the same addresses: it answers for ports that nobody here holds, and
    /// [`crate::Stack::take_ended_flows`] is asked.
    pub shares_addresses: bool,
    /// Which options of TCP are used.
    pub offers: Offers,
    /// Who uses Fast Open.
    pub fast_open: FastOpenModes,
    /// Keys of the cookies of listeners without keys of their own (`net.ipv4.tcp_fastopen_key`), the newest first; none: a
    /// secret of the stack.
    pub fast_open_keys: [Option<[u8; 16]>; FAST_OPEN_KEYS_MAX],
    /// Peers whose Fast Open cookies are kept, at most.
    pub fast_open_peers: usize,
    /// When SYNs are answered with cookies.
    pub syn_cookies: SynCookies,
    /// Resets do not end TIME-WAIT (RFC 1337; Linux `tcp_rfc1337`).
    pub protects_time_wait: bool,
}

impl Config {
    /// The defaults of Linux, with this secret.
    pub const fn new(secret: [u8; 16]) -> Self {
        Self {
            secret,
            protocols: Protocols::all(),
            ephemeral_ports: (32_768, 60_999),
            neighbours_max: 1_024,
            orphans_max: 16_384,
            receive_offer: 256 * 1024,
            receive_buffer_max: tcp::RECEIVE_BUFFER_MAX,
            icmp_errors_per_second: 1_000,
            icmp_errors_burst: 50,
            fragment_bytes_max: 4 << 20,
            fragmented_packets_max: 512,
            announces_addresses: true,
            shares_addresses: false,
            offers: Offers::ALL,
            fast_open: FastOpenModes::CLIENT,
            fast_open_keys: [None; FAST_OPEN_KEYS_MAX],
            fast_open_peers: 1_024,
            syn_cookies: SynCookies::WhenFull,
            protects_time_wait: false,
        }
    }

    /// Whether sockets of the kind may be opened towards `address`.
    pub(crate) fn check_socket(&self, kind: Protocols, address: IpAddr) -> Result<(), Error> {
        self.protocols.check_socket(kind, address)
    }

    /// A key for one purpose, derived from the secret.
    pub(crate) fn subkey(&self, purpose: &[u8]) -> [u8; 16] {
        let hasher = SipHasher13::new_with_key(&self.secret);
        let half = |n: u8| hasher.hash(&[&[n], purpose].concat());
        (u128::from(half(1)) << 64 | u128::from(half(2))).to_le_bytes()
    }
}

/// IP header fields that a program may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpOptions {
    /// `IP_TTL`.
    pub ttl: u8,
    /// `IP_TOS`; the two ECN bits are ignored.
    pub tos: u8,
}

impl Default for IpOptions {
    fn default() -> Self {
        // RFC 1122 §3.2.1.7 leaves the value open; 64 is what the assigned numbers recommend.
        Self { ttl: 64, tos: 0 }
    }
}
