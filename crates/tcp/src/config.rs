//! What a connection is given at birth, and what its program may change later.

use crate::{
    congestion::{Algorithm, ecn::EcnMode},
    state::FastOpen,
    time::Duration,
};
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// In [`SocketOptions::fin_timeout_s`]: an orphan does not wait in FIN-WAIT-2 at all.
pub const NO_FIN_TIMEOUT: u16 = u16::MAX;

/// The last of `tcp_rmem` on a Linux that nobody has told anything, bytes.
pub const RECEIVE_BUFFER_MAX: u32 = 6 << 20;

/// Fixed parameters of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Largest payload we can receive in one packet, announced in our SYN (RFC 9293 §3.7.1), bytes.
    pub mss: u16,
    /// What to assume when the peer's SYN names none: 536, over IPv6 1220 (RFC 9293 §3.7.1).
    pub default_mss: u16,
    /// Capacity of the receive window, bytes; a power of two.
    pub receive_capacity: u32,
    /// How much of it is offered at first, bytes; more than the capacity: all of it.
    pub receive_offer: u32,
    /// What a receive window may grow to on this host (the last of Linux `tcp_rmem`), bytes: as it does there, the shift
    /// of our window fields comes from it.
    pub receive_buffer_max: u32,
    /// Capacity of the send window, bytes; a power of two.
    pub send_capacity: u32,
    /// Offer window scaling (RFC 7323 §2).
    pub window_scaling: bool,
    /// Offer timestamps (RFC 7323 §3).
    pub timestamps: bool,
    /// Offer selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Offset of this connection's timestamp clock (RFC 7323 §5.4 permits a random one).
    pub timestamp_offset: u32,
    /// Of a connection that we open: [`FastOpen::Off`], [`FastOpen::Asking`] or [`FastOpen::Holding`].
    pub fast_open: FastOpen,
    /// The MSS that the peer had when it gave its Fast Open cookie, bytes; 0: not known.
    pub peer_mss: u16,
    /// What the program may change later.
    pub options: SocketOptions,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mss: 1460,
            default_mss: 536,
            receive_capacity: 512 * 1024,
            receive_offer: u32::MAX,
            receive_buffer_max: RECEIVE_BUFFER_MAX,
            send_capacity: 512 * 1024,
            window_scaling: true,
            timestamps: true,
            sack: true,
            timestamp_offset: 0,
            fast_open: FastOpen::Off,
            peer_mss: 0,
            options: SocketOptions::default(),
        }
    }
}

/// Retransmissions before a connection is given up (R2 of RFC 9293 §3.8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct Retries {
    /// Of a SYN (Linux `tcp_syn_retries`).
    pub syn: u8,
    /// Of a SYN-ACK (Linux `tcp_synack_retries`).
    pub syn_ack: u8,
    /// Of data: it takes as long as so many would, as Linux `tcp_retries2`.
    pub data: u8,
    /// Once the program has closed (Linux `tcp_orphan_retries`).
    pub orphan: u8,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            syn: 6,
            syn_ack: 5,
            data: 15,
            orphan: 8,
        }
    }
}

/// Parameters that a program may change while the connection lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct SocketOptions {
    /// `TCP_NODELAY`: small segments leave at once (RFC 9293 §3.7.4).
    pub nodelay: bool,
    /// `TCP_CORK`: partial segments wait, 200 ms at most.
    pub cork: bool,
    /// `SO_KEEPALIVE` (RFC 9293 §3.8.4).
    pub keepalive: bool,
    /// Unanswered keep-alive probes before the connection is given up.
    pub keepalive_count: u8,
    /// `TCP_SYNCNT`: retransmissions of a SYN or SYN-ACK; 0: as `retries` says.
    pub syn_retries: u8,
    /// How often others are sent again.
    pub retries: Retries,
    /// `TCP_DEFER_ACCEPT`: SYN-ACK timeouts for which a bare ACK does not complete a passive open.
    pub defer_accept: u8,
    /// Segments of a train on a path that is not short, at least (Linux `tcp_min_tso_segs`).
    pub min_train_segments: u8,
    /// `TCP_LINGER2`: how long an orphan waits in FIN-WAIT-2; 0: the default.
    pub fin_timeout_s: u16,
    /// Time between keep-alive probes.
    pub keepalive_interval_s: u16,
    /// Silence before the first keep-alive probe.
    pub keepalive_idle: Duration,
    /// `TCP_USER_TIMEOUT`: how long sent data may stay unacknowledged; zero: the default back-off count.
    pub user_timeout: Duration,
    /// Upper limit on the advertised receive window, bytes; zero: the window's capacity.
    pub receive_limit: u32,
    /// `TCP_WINDOW_CLAMP`, likewise.
    pub window_clamp: u32,
    /// `SO_MAX_PACING_RATE`, bytes per second; 0: no limit.
    pub max_pacing_rate: u64,
    /// `TCP_NOTSENT_LOWAT`: above so many unsent bytes the program is not asked for more; 0: no limit.
    pub notsent_low_water: u32,
    /// `TCP_MAXSEG`: largest payload either way, bytes; 0: what the path carries.
    pub max_segment: u16,
    /// `TCP_CONGESTION`.
    pub congestion: Algorithm,
    /// Explicit congestion notification: what to ask for and to grant.
    pub ecn: EcnMode,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            nodelay: false,
            cork: false,
            keepalive: false,
            keepalive_count: 9,
            syn_retries: 0,
            retries: Retries::default(),
            defer_accept: 0,
            min_train_segments: 2,
            fin_timeout_s: 0,
            keepalive_interval_s: 75,
            keepalive_idle: Duration::from_secs(7_200),
            user_timeout: Duration::ZERO,
            receive_limit: 0,
            window_clamp: 0,
            max_pacing_rate: 0,
            notsent_low_water: 0,
            max_segment: 0,
            congestion: Algorithm::default(),
            ecn: EcnMode::default(),
        }
    }
}
