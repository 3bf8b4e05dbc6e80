//! From a decision to a segment: header fields, options, and the books that sending one changes.

use crate::{
    connection::Connection,
    receive::DELAYED_ACK,
    send::segment::{Stretch, Transmit},
    state::State,
    time::Instant,
};
use wire::ecn::Ecn;
use wire::tcp::{Flags, Header, Options, SackBlocks, Timestamps};

impl Connection {
    /// The clock that our timestamps carry, milliseconds (RFC 7323 §5.4).
    pub(crate) fn timestamp_clock(&self, now: Instant) -> u32 {
        now.as_timestamp_ms().wrapping_add(self.timestamp_offset)
    }

    pub(crate) fn timestamps_option(&self, now: Instant) -> Option<Timestamps> {
        self.rcv.timestamps.then(|| Timestamps {
            value: self.timestamp_clock(now),
            echo: self.rcv.ts_recent,
        })
    }

    /// Options of a segment after the handshake: timestamps, and SACK blocks while there is a hole.
    pub(crate) fn segment_options(&self, now: Instant) -> Options {
        let mut sack = SackBlocks::default();
        if self.rcv.has_blocks() {
            // RFC 2018 §3: three blocks fit beside timestamps, four without.
            let room = if self.rcv.timestamps { 3 } else { 4 };
            // RFC 2883 §4: a duplicate is reported first, once.
            let ranges = self
                .rcv
                .duplicate()
                .into_iter()
                .chain(self.rcv.sack_ranges());
            for range in ranges.take(room) {
                sack.push(
                    self.rcv.space.wire(range.start),
                    self.rcv.space.wire(range.end),
                );
            }
        }
        Options {
            timestamps: self.timestamps_option(now),
            sack,
            ..Options::default()
        }
    }

    pub(crate) fn header(&mut self, now: Instant, position: u64, flags: Flags) -> Header {
        let mut header = Header {
            seq: self.snd.space.wire(position),
            ack: self.rcv.space.wire(self.rcv.nxt),
            flags: flags | Flags::ACK,
            window: self.take_window_field(),
            options: self.segment_options(now),
            ..Header::default()
        };
        self.echo_ecn(&mut header);
        self.on_ack_sent();
        header
    }

    pub(crate) fn on_ack_sent(&mut self) {
        self.rcv.ack_now = false;
        self.rcv.since_due = 0;
        self.rcv.unacknowledged = 0;
        self.rcv.duplicate_end = 0;
        self.rcv.pushed = 0;
        self.rcv.last_ack_sent = self.rcv.nxt;
        self.timers.delayed_ack = Instant::NEVER;
    }

    /// The SYN or SYN-ACK.
    pub(crate) fn transmit_syn(&mut self, now: Instant, mss: u16) -> Option<Transmit> {
        if self.snd.nxt > 0 || self.holds_syn() {
            return None;
        }
        let passive = self.state == State::SynReceived;
        let options = self.syn_options(now, mss);
        let mut len = 0;
        self.rcv.advertised_mss = options.mss.unwrap_or(0);
        let mut header = Header {
            seq: self.snd.space.wire(0),
            ack: if passive {
                self.rcv.space.wire(self.rcv.nxt)
            } else {
                0
            },
            flags: if passive {
                Flags::SYN | Flags::ACK
            } else {
                Flags::SYN
            },
            window: self.syn_window_field(),
            options,
            ..Header::default()
        };
        if passive {
            self.tell_ecn(&mut header);
        } else {
            self.ask_for_ecn(&mut header);
        }
        if self.snd.max == 0 {
            (header.options.fast_open, len) = self.open_first_syn(mss);
            self.rtt.start_timing(now);
            self.timers.unacknowledged_since = now;
            self.snd.max = 1 + u64::from(len);
        } else {
            self.rtt.stop_timing();
            self.recovery.retransmissions += 1;
        }
        self.snd.nxt = self.snd.max;
        self.on_ack_sent();
        self.timers.last_sent = now;
        if !self.timers.retransmit.is_set() {
            self.timers.retransmit = self.retransmit_deadline(now);
        }
        Some(Transmit {
            header,
            offset: 0,
            len,
            segment_size: None,
            ecn: Ecn::NotEct,
        })
    }

    /// One segment (or a large one for the device to cut) that carries `stretch`.
    pub(crate) fn transmit_stretch(
        &mut self,
        now: Instant,
        stretch: Stretch,
        segment: u64,
    ) -> Transmit {
        let data_end = stretch.end.min(self.snd.written);
        let mut flags = Flags::empty();
        let is_train = data_end - stretch.start > segment;
        let ends_record = self.snd.record_end(stretch.start) == Some(data_end);
        let is_last = data_end == self.snd.written && data_end > stretch.start;
        if is_train || ends_record || is_last && !self.snd.is_tail_unpushed {
            // RFC 9293 §3.9.1.2: PSH with the last of what the program wrote. And with the last segment of a train, so that
            // a receiver that puts segments together does not wait for more (Linux `__tcp_transmit_skb`). A FIN alone
            // pushes nothing, and what was written with `MSG_MORE` nobody has pushed yet.
            flags |= Flags::PSH;
        }
        if stretch.end > data_end {
            flags |= Flags::FIN;
        }
        let mut header = self.header(now, stretch.start, flags);
        if let Some(ahead) = self.urgent_field(stretch.start) {
            header.flags |= Flags::URG;
            header.urgent = ahead;
        }
        let len = data_end - stretch.start;
        self.note_data_sent(now);
        Transmit {
            header,
            offset: stretch.start - 1,
            len: u32::try_from(len).expect("invariant: a stretch is at most max_payload long"),
            segment_size: is_train.then(|| u16::try_from(segment).unwrap_or(u16::MAX)),
            ecn: Ecn::NotEct,
        }
    }

    /// Data leaves, which may be the answer to what has just come.
    pub(crate) fn note_data_sent(&mut self, now: Instant) {
        self.timers.last_sent = now;
        self.rcv.answers |= self.counters.data_segments_in > 0
            && now.since(self.counters.last_data_in) < DELAYED_ACK;
    }

    /// A segment without payload at `position`.
    pub(crate) fn transmit_empty(&mut self, now: Instant, position: u64) -> Transmit {
        let option = self.accurate_ecn_option();
        let mut header = self.header(now, position, Flags::empty());
        header.options.accurate_ecn = option;
        Transmit {
            header,
            offset: 0,
            len: 0,
            segment_size: None,
            ecn: Ecn::NotEct,
        }
    }

    /// The reset that ends this connection, or one that answers an unacceptable ACK.
    pub(crate) fn transmit_reset(&mut self, now: Instant) -> Option<Transmit> {
        let header = if self.reset_reply_owed {
            self.reset_reply_owed = false;
            Header {
                seq: self.reset_reply_seq,
                flags: Flags::RST,
                ..Header::default()
            }
        } else if self.reset_owed {
            self.reset_owed = false;
            Header {
                seq: self.snd.space.wire(self.snd.max),
                ack: self.rcv.space.wire(self.rcv.nxt),
                flags: Flags::RST | Flags::ACK,
                window: self.take_window_field(),
                // RFC 7323 §3.2: a reset may carry them; Linux' own do.
                options: Options {
                    timestamps: self.timestamps_option(now),
                    ..Options::default()
                },
                ..Header::default()
            }
        } else {
            return None;
        };
        Some(Transmit {
            header,
            offset: 0,
            len: 0,
            segment_size: None,
            ecn: Ecn::NotEct,
        })
    }
}
