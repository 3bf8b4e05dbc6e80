//! A connection's figures, for `ss` and `TCP_INFO`.

use crate::{
    chrono::Chrono,
    congestion::{Algorithm, CongestionInfo},
    connection::Connection,
    counters::Counters,
    recovery::phase::Phase,
    state::State,
    time::Instant,
};

/// A snapshot of a connection's variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// State.
    pub state: State,
    /// Smoothed round-trip time, microseconds; 0 before the first sample.
    pub srtt_us: u64,
    /// The shortest one of late, microseconds; `None` before the first sample.
    pub min_rtt_us: Option<u64>,
    /// What is done about loss.
    pub repair: Repair,
    /// Its variation, microseconds.
    pub rttvar_us: u64,
    /// Retransmission timeout, microseconds.
    pub rto_us: u64,
    /// Congestion window, bytes.
    pub cwnd: u32,
    /// Slow-start threshold, bytes; `u32::MAX` before the first loss.
    pub ssthresh: u32,
    /// Congestion control.
    pub congestion: Algorithm,
    /// Bytes per second at which segments leave; `None`: not paced.
    pub pacing_rate: Option<u64>,
    /// Bytes per second that arrived lately; 0 before the first measurement.
    pub delivery_rate: u64,
    /// Payload of a full segment we send, bytes.
    pub snd_mss: u16,
    /// Payload of a full segment we receive, bytes.
    pub rcv_mss: u16,
    /// The peer's window, bytes.
    pub snd_wnd: u64,
    /// The window we have advertised, bytes.
    pub rcv_wnd: u64,
    /// Sent and not acknowledged, bytes.
    pub flight: u64,
    /// Written by the program and not acknowledged, bytes.
    pub send_queue: u64,
    /// The same with our FIN.
    pub unacknowledged: u64,
    /// Received and not consumed by the program, bytes.
    pub receive_queue: u64,
    /// Received beyond a hole, bytes.
    pub out_of_order: u64,
    /// Sent and reported as held beyond a hole, bytes.
    pub sacked: u64,
    /// Sent, counted as lost and not sent again yet, bytes.
    pub lost: u64,
    /// Counted as lost, sent again since and not answered, bytes.
    pub resent: u64,
    /// How often the path was seen to reorder (RFC 8985 §6.2), and by how many bytes at most.
    pub reordering: (u16, u32),
    /// Segments sent again.
    pub retransmissions: u64,
    /// Retransmission timeouts in a row.
    pub backoff: u8,
    /// Selective acknowledgements in use.
    pub sack: bool,
    /// Timestamps in use.
    pub timestamps: bool,
    /// Data went with a SYN and arrived (RFC 7413).
    pub syn_data: bool,
    /// Window shifts: the peer's and ours.
    pub window_shifts: (u8, u8),
    /// MSS that we announced, bytes.
    pub advertised_mss: u16,
    /// Keep-alive or window probes in a row without an answer.
    pub probes: u8,
    /// When a segment with data was sent last.
    pub last_sent: Instant,
    /// When a segment arrived last.
    pub last_received: Instant,
    /// Acknowledged by the peer, bytes.
    pub bytes_acked: u64,
    /// Received in order, bytes.
    pub bytes_received: u64,
    /// Sent at least once, bytes.
    pub bytes_sent_once: u64,
    /// Written by the program and never sent, bytes.
    pub unsent: u64,
    /// What the program reads in a round trip, bytes; 0: not measured.
    pub receive_space: u64,
    /// Window probes are sent.
    pub persisting: bool,
    /// The program was the limit of `delivery_rate`.
    pub app_limited: bool,
    /// `SO_MAX_PACING_RATE`, bytes per second; 0: none.
    pub max_pacing_rate: u64,
    /// ECN is in use; a mark of its was seen.
    pub ecn: (bool, bool),
    /// The peer's SYN opened the connection, with data or without.
    pub passive: (bool, bool),
    /// Counts of segments.
    pub counters: Counters,
    /// Times that the sender was busy.
    pub chrono: Chrono,
}

/// What is done about loss, as Linux tells it (`enum tcp_ca_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Nothing.
    Open,
    /// Something arrived out of order, or an ACK twice: too little to act upon.
    Disorder,
    /// Fast recovery.
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

impl Connection {
    fn repair(&self) -> Repair {
        match self.recovery.phase {
            Phase::Fast => Repair::Recovery,
            Phase::Loss => Repair::Loss,
            Phase::Open if self.snd.sent.sacked() > 0 || self.snd.duplicate_acks > 0 => {
                Repair::Disorder
            }
            Phase::Open => Repair::Open,
        }
    }

    /// What the congestion control believes (`TCP_CC_INFO`).
    pub fn congestion_info(&self) -> CongestionInfo {
        match self.congestion.info() {
            CongestionInfo::Dctcp {
                alpha,
                marked,
                acked,
                ..
            } => CongestionInfo::Dctcp {
                alpha,
                marked,
                acked,
                is_enabled: self.ecn.in_use().0,
                is_receiving_marks: self.ecn.is_echoing(),
            },
            other => other,
        }
    }

    /// Segments sent again so far.
    #[must_use]
    pub fn retransmissions(&self) -> u64 {
        self.recovery.retransmissions
    }

    /// How many round trips were measured, modulo 2^32.
    #[must_use]
    pub const fn round_trips(&self) -> u32 {
        self.rtt.samples()
    }

    /// The last round trip that was measured, microseconds.
    #[must_use]
    pub const fn latest_round_trip_us(&self) -> u32 {
        self.rtt.latest_us()
    }

    /// A snapshot of the connection's variables.
    pub fn info(&self) -> Info {
        Info {
            state: self.state,
            srtt_us: self.rtt.srtt_us().unwrap_or(0),
            min_rtt_us: self.rtt.min_rtt().map(|rtt| rtt.as_us()),
            repair: self.repair(),
            rttvar_us: self.rtt.rttvar_us(),
            rto_us: self.backed_off_rto().as_us(),
            cwnd: self.congestion.cwnd(),
            ssthresh: self.congestion.ssthresh(),
            congestion: self.congestion.algorithm(),
            pacing_rate: self.pacing_rate(),
            delivery_rate: self.rate.latest(),
            snd_mss: self.snd.segment_payload,
            rcv_mss: self.rcv.segment_payload,
            snd_wnd: self.snd.window,
            rcv_wnd: self.rcv.advertised_edge.saturating_sub(self.rcv.nxt),
            flight: self.snd.max - self.snd.una,
            send_queue: self.snd.written_offset() - self.snd.acknowledged(),
            // Our SYN is position 0.
            unacknowledged: self.snd.end().saturating_sub(self.snd.una.max(1)),
            receive_queue: self
                .rcv
                .readable_end()
                .saturating_sub(self.rcv.consumed_offset()),
            out_of_order: self.rcv.out_of_order.total(),
            sacked: self.snd.sent.sacked(),
            lost: self.snd.sent.lost(),
            resent: self.snd.sent.resent(),
            reordering: self.rack.reordering(),
            retransmissions: self.recovery.retransmissions,
            backoff: self.timers.retries,
            sack: self.rcv.sack,
            timestamps: self.rcv.timestamps,
            syn_data: self.is_syn_data_taken(),
            window_shifts: (self.snd.window_shift, self.rcv.window_shift),
            advertised_mss: self.rcv.advertised_mss,
            probes: if self.timers.persisting {
                self.timers.retries
            } else {
                self.timers.keepalive_probes
            },
            last_sent: self.timers.last_sent,
            last_received: self.timers.last_received,
            // As Linux counts: our SYN is among them, unless it was a SYN-ACK, and so is our FIN.
            bytes_acked: self.snd.una.saturating_sub(u64::from(self.passive)),
            // So is the peer's.
            bytes_received: self.rcv.readable_end() + u64::from(self.rcv.fin_reached),
            bytes_sent_once: self.sent(),
            unsent: self.written() - self.sent(),
            receive_space: u64::from(self.rcv.tuning.taken),
            persisting: self.timers.persisting,
            app_limited: self.rate.is_latest_app_limited(),
            max_pacing_rate: self.options.max_pacing_rate,
            ecn: self.ecn.in_use(),
            passive: (self.passive, self.passive && self.is_syn_data_taken()),
            counters: self.counters,
            chrono: self.chrono,
        }
    }

    /// Whether `seq`, quoted in an ICMP error, is one we have in flight (RFC 5927 §4.1).
    pub fn is_quote_plausible(&self, seq: u32) -> bool {
        self.snd
            .space
            .position(seq, self.snd.una)
            .is_some_and(|position| {
                self.snd.una <= position && position < self.snd.max.max(self.snd.una + 1)
            })
    }
}
