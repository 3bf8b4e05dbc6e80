//! Opening: active, passive and simultaneous (RFC 9293 §3.5, §3.10.7.3), options of the SYN.

pub mod cookies;
pub(crate) mod defer;
pub(crate) mod fast_open;
pub mod isn;

use crate::{
    config::Config,
    congestion::Path,
    connection::Connection,
    events::{ConnectionError, Events},
    receive::{Arrival, receive_window::ReceiveWindow, receiver::QUICK_ACKS},
    recovery::rtt::RttEstimator,
    seq::{SeqNumber, SequenceSpace},
    state::{FastOpen, State},
    time::Instant,
    timers::Timers,
};
use wire::ecn::Ecn;
use wire::tcp::{Flags, Header, Options};
use zerocopy::FromZeros as _;

/// No peer may make us cut segments smaller than this.
const MIN_MSS: u16 = 88;
/// RFC 7323 §2.3: a larger shift is used as 14.
const MAX_WINDOW_SHIFT: u8 = 14;

/// Payload that the peer's full segments are taken to have until one has come (Linux `TCP_MSS_DEFAULT`).
const FIRST_SEGMENT_GUESS: u16 = 536;

impl Connection {
    /// A connection in SYN-SENT whose SYN waits in [`Self::poll_transmit`].
    pub fn connect(config: &Config, iss: SeqNumber, now: Instant) -> Self {
        let mut connection = Self::default();
        connection.begin(config, iss, now);
        connection.state = State::SynSent;
        connection
    }

    /// Whatever it was, it begins anew: in its place, because it is large.
    fn begin(&mut self, config: &Config, iss: SeqNumber, now: Instant) {
        self.zero();
        let (snd, rcv) = (&mut self.snd, &mut self.rcv);
        snd.space = SequenceSpace::new(iss);
        snd.written = 1;
        snd.capacity = config.send_capacity;
        snd.mss = match config.peer_mss {
            0 => config.default_mss,
            known => limit_mss(config.options.max_segment, known).max(MIN_MSS),
        };
        snd.segment_payload = config.default_mss;
        rcv.consumed = 1;
        rcv.capacity = config.receive_capacity;
        rcv.tuning.offered = config.receive_offer.min(config.receive_capacity);
        rcv.segment_payload = config.default_mss;
        rcv.advertised_mss = config.mss;
        rcv.window_shift = own_window_shift(config);
        rcv.timestamps = config.timestamps;
        rcv.sack = config.sack;
        rcv.window_scaling = config.window_scaling;
        rcv.quick_acks = QUICK_ACKS;
        self.options = config.options;
        self.timestamp_offset = config.timestamp_offset;
        self.fast_open = config.fast_open;
        self.timers = Timers::unset();
        self.timers.last_received = now;
        self.timers.last_sent = now;
        self.rtt = RttEstimator::default();
    }

    /// A connection in SYN-RECEIVED, answering `syn`, whose SYN-ACK waits in [`Self::poll_transmit`].
    pub fn accept(config: &Config, iss: SeqNumber, now: Instant, syn: &Header) -> Self {
        let mut connection = Self::default();
        connection.accept_in_place(config, iss, now, syn);
        connection
    }

    /// [`Self::accept`] in the place of a connection that is over.
    pub fn accept_in_place(&mut self, config: &Config, iss: SeqNumber, now: Instant, syn: &Header) {
        self.begin(config, iss, now);
        self.state = State::SynReceived;
        self.passive = true;
        self.take_syn(now, syn);
        self.grant_ecn(syn);
    }

    /// In the place of a connection that is over one in SYN-RECEIVED whose SYN-ACK was a cookie with number `iss`; the
    /// ACK that brought it back is to be handled next. `syn` is what the cookie remembered.
    pub fn accept_cookie(&mut self, config: &Config, iss: SeqNumber, now: Instant, syn: &Header) {
        self.accept_in_place(config, iss, now, syn);
        if self.rcv.window_scaling {
            // As in the cookie's SYN-ACK.
            self.rcv.window_shift = window_shift(config.receive_buffer_max);
        }
        self.snd.nxt = 1;
        self.snd.max = 1;
    }

    /// What the peer's SYN tells us: its sequence numbers, options and window.
    fn take_syn(&mut self, now: Instant, syn: &Header) {
        let rcv = &mut self.rcv;
        rcv.space = SequenceSpace::new(SeqNumber(syn.seq));
        rcv.nxt = 1;
        rcv.consumed = 1;
        rcv.last_ack_sent = 1;
        rcv.timestamps &= syn.options.timestamps.is_some();
        rcv.sack &= syn.options.sack_permitted;
        rcv.window_scaling &= syn.options.window_scale.is_some();
        if let Some(timestamps) = syn.options.timestamps {
            rcv.ts_recent = timestamps.value;
            rcv.ts_recent_at = now;
        }
        if !rcv.window_scaling {
            rcv.window_shift = 0;
        }
        let offered = u64::from(self.syn_window_field());
        let rcv = &mut self.rcv;
        rcv.advertised_edge = 1 + offered;
        self.snd.window_shift = if rcv.window_scaling {
            syn.options.window_scale.unwrap_or(0).min(MAX_WINDOW_SHIFT)
        } else {
            0
        };
        self.snd.mss = limit_mss(
            self.options.max_segment,
            // Until data comes, that is what to assume.
            syn.options.mss.unwrap_or(rcv.segment_payload),
        )
        .max(MIN_MSS);
        // What the peer's full segments hold is not known yet: as Linux no more than this, so that the second of
        // them is acknowledged at once over IPv6 too, where the default is larger (RFC 5681 §4.2).
        rcv.segment_payload = rcv.segment_payload.min(FIRST_SEGMENT_GUESS);
        // RFC 7323 §2.2: the window of a SYN is never scaled.
        self.snd.window = u64::from(syn.window);
        self.snd.max_window = self.snd.window;
        self.snd.window_seq = 0;
        self.snd.segment_payload = self.snd.mss - if rcv.timestamps { 12 } else { 0 };
    }

    /// RFC 9293 §3.10.7.3.
    pub(crate) fn handle_in_syn_sent(
        &mut self,
        now: Instant,
        mark: Ecn,
        header: &Header,
        payload: &[u8],
        window: &mut dyn ReceiveWindow,
    ) -> Events {
        let acknowledges_syn = header.flags.contains(Flags::ACK);
        let ack = self
            .snd
            .space
            .position(header.ack, self.snd.una)
            .filter(|ack| (1..=self.snd.max).contains(ack));
        if acknowledges_syn && ack.is_none() {
            return self.meet_older_connection(header);
        }
        if header.flags.contains(Flags::RST) {
            return if acknowledges_syn {
                self.fail(ConnectionError::Refused)
            } else {
                Events::empty()
            };
        }
        if !header.flags.contains(Flags::SYN) {
            return Events::empty();
        }
        self.note_handshake_mark(mark);
        self.take_syn(now, header);
        self.start_congestion(now, false);
        if acknowledges_syn {
            self.take_granted_ecn(header);
        }
        self.rcv.ack_now = true;
        let Some(ack) = ack.filter(|_| acknowledges_syn) else {
            // RFC 9293 §3.5 figure 8: simultaneous open; our SYN goes again, now with an ACK.
            self.state = State::SynReceived;
            self.fast_open = FastOpen::Off;
            self.snd.nxt = 0;
            self.snd.max = self.snd.max.min(1);
            return Events::TRANSMIT;
        };
        self.rtt.on_syn_acknowledged(now);
        self.take_syn_acknowledgement(ack);
        let events = self.become_established(now);
        if payload.is_empty() || self.fast_open == FastOpen::Off {
            return events;
        }
        // RFC 7413 §4.2.1: a server may answer in its SYN-ACK.
        let arrival = Arrival::of_syn(payload.len());
        events | self.handle_payload(now, &arrival, payload, window)
    }

    /// The handshake is complete: from SYN-SENT, or by the ACK of our SYN in SYN-RECEIVED.
    pub(crate) fn become_established(&mut self, now: Instant) -> Events {
        if self.timers.syn_retransmitted {
            self.rtt.on_syn_lost();
        }
        let syn_lost = self.timers.syn_retransmitted;
        self.start_congestion(now, syn_lost);
        self.timers.retries = 0;
        if self.counters.data_segments_in == 0 {
            // As Linux counts (`icsk_ack.lrcvtime`): from the handshake on.
            self.counters.last_data_in = now;
        }
        self.finish_fast_open();
        self.state = if self.snd.fin_requested {
            State::FinWait1
        } else {
            State::Established
        };
        self.arm_retransmit(now);
        self.arm_keepalive(now);
        Events::ESTABLISHED | Events::WRITABLE | Events::TRANSMIT
    }

    /// Before the first data may leave.
    pub(crate) fn start_congestion(&mut self, now: Instant, syn_lost: bool) {
        // RFC 5681 §2: SMSS is bounded by the link too. A peer that names 65,535 would get an initial window of twice
        // that (RFC 6928 §2), in segments that are no larger than others.
        let mss = self
            .snd
            .segment_payload
            .min(self.rcv.advertised_mss.max(MIN_MSS));
        let path = Path {
            mss: u32::from(mss),
            syn_lost,
            srtt_us: self.rtt.srtt_us().unwrap_or(0),
        };
        self.congestion.start(self.options.congestion, now, &path);
    }

    /// The peer acknowledges what was never sent: it has an older connection of these ends, perhaps in TIME-WAIT. A reset
    /// ends that one, and our SYN, which nobody has taken, follows at once where it was sent only once (RFC 9293 §3.5
    /// figure 9; Linux sends it two ticks later).
    fn meet_older_connection(&mut self, header: &Header) -> Events {
        if self.timers.retries == 0 && self.recovery.retransmissions == 0 {
            self.snd.nxt = 0;
        }
        if header.flags.contains(Flags::RST) {
            return Events::TRANSMIT;
        }
        self.owe_reset_reply(header.ack)
    }

    pub(crate) fn owe_reset_reply(&mut self, seq: u32) -> Events {
        self.reset_reply_owed = true;
        self.reset_reply_seq = seq;
        Events::TRANSMIT
    }

    /// Options of our SYN or SYN-ACK: those offered, or those both sides know.
    pub(crate) fn syn_options(&self, now: Instant, path_mss: u16) -> Options {
        Options {
            mss: Some(limit_mss(self.options.max_segment, path_mss)),
            window_scale: self.rcv.window_scaling.then_some(self.rcv.window_shift),
            sack_permitted: self.rcv.sack,
            timestamps: self.timestamps_option(now),
            ..Options::default()
        }
    }
}

/// `TCP_MAXSEG` bounds what is announced and what is sent.
fn limit_mss(max_segment: u16, mss: u16) -> u16 {
    match max_segment {
        0 => mss,
        limit => mss.min(limit),
    }
}

/// RFC 7323 §2.2: the shift that lets 16 bits express the widest window that there may be (Linux
/// `tcp_select_initial_window`). What the program has set is not exceeded later either.
fn own_window_shift(config: &Config) -> u8 {
    let options = &config.options;
    let widest = match options.receive_limit {
        0 => config.receive_capacity.max(config.receive_buffer_max),
        limit => limit,
    };
    window_shift(match options.window_clamp {
        0 => widest,
        clamp => widest.min(clamp),
    })
}

/// The shift for windows as wide as that.
pub(crate) fn window_shift(widest: u32) -> u8 {
    let bits = widest.checked_ilog2().unwrap_or(0);
    u8::try_from(bits.saturating_sub(15))
        .map_or(MAX_WINDOW_SHIFT, |shift| shift.min(MAX_WINDOW_SHIFT))
}
