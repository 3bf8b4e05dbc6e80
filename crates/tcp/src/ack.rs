//! Acknowledgements: what they free, what they measure, what they say about loss
//! (RFC 9293 §3.10.7.4 fifth check, RFC 5681, RFC 5961 §5).

use crate::{
    chrono::Doing, connection::Connection, events::Events, receive::Arrival,
    recovery::phase::Phase, send::flight_pool::FlightPool, state::State, time::Instant,
};
use wire::tcp::{Flags, Header, Timestamps};

impl Connection {
    /// The position that a segment acknowledges, if it may be believed. `Err`: what to do instead; nothing of
    /// such a segment counts.
    pub(crate) fn judge_ack(&mut self, now: Instant, header: &Header) -> Result<u64, Events> {
        let ack = self.snd.space.position(header.ack, self.snd.una);
        if self.state == State::SynReceived {
            // RFC 9293 §3.10.7.4: <SEQ=SEG.ACK><CTL=RST>.
            return ack
                .filter(|ack| (1..=self.snd.max).contains(ack))
                .ok_or_else(|| self.owe_reset_reply(header.ack));
        }
        // RFC 5961 §5.2: outside SND.UNA − MAX.SND.WND ..= SND.NXT an ACK is answered and dropped.
        let oldest = self.snd.una.saturating_sub(self.snd.max_window.max(1));
        ack.filter(|ack| (oldest..=self.snd.max).contains(ack))
            .ok_or_else(|| self.owe_challenge_ack(now))
    }

    /// Takes in what a segment that acknowledges position `ack` says; [`Self::judge_ack`] has passed it.
    pub(crate) fn handle_ack(
        &mut self,
        now: Instant,
        header: &Header,
        arrival: &Arrival,
        ack: u64,
        pool: &mut dyn FlightPool,
    ) -> Events {
        let mut events = Events::empty();
        if self.state == State::SynReceived {
            // The first segment after the handshake: its window is the first that is scaled.
            self.update_window(header, arrival, 1);
            events |= self.become_established(now);
            self.take_handshake_ace(header);
        }
        let is_next = arrival.seq == self.rcv.nxt && arrival.seq >= self.snd.window_seq;
        if is_next && ack > self.snd.una && self.is_calm() && header.options.sack.is_empty() {
            let stamps = header.options.timestamps;
            #[cfg(test)]
            let long = (ack % 64 < 2 && self.snd.sent.is_here()).then_some(*self);
            let calm = match self.is_syn_alone(ack) {
                true => self.take_calm_ack(now, header.window, stamps, ack, pool),
                false => self.handle_calm_ack(now, header.window, stamps, ack, pool),
            };
            #[cfg(test)]
            if let Some(mut long) = long {
                let any = long.handle_any_ack(now, header, arrival, ack, pool);
                assert_eq!(format!("{calm:?} {self:?}"), format!("{any:?} {long:?}"));
            }
            return events | calm;
        }
        events | self.handle_any_ack(now, header, arrival, ack, pool)
    }

    /// [`Self::handle_ack`], whatever else it says.
    fn handle_any_ack(
        &mut self,
        now: Instant,
        header: &Header,
        arrival: &Arrival,
        ack: u64,
        pool: &mut dyn FlightPool,
    ) -> Events {
        let mut events = Events::empty();
        let before = self.delivery_mark();
        let is_syn_alone = self.is_syn_alone(ack);
        let window_before = self.snd.window;
        self.update_window(header, arrival, ack);
        let echo = self.echo(header.options.timestamps);
        let mut feedback = self.take_feedback(now, echo, &header.options.sack, ack, pool);
        feedback.is_duplicate = ack == self.snd.una
            && arrival.end == arrival.seq
            && self.snd.max > ack
            && (feedback.sacked > 0 || self.snd.window == window_before)
            && !header.flags.intersects(Flags::SYN | Flags::FIN);
        if feedback.acked > 0 {
            self.handle_new_ack(now, ack, pool);
            events |= Events::WRITABLE | Events::TRANSMIT;
        }
        if feedback.acked > 0 || feedback.is_duplicate || feedback.has_blocks {
            self.recover(now, &feedback, &before, pool);
            self.arm_probe(now);
            // RFC 3042: the pipe may have shrunk.
            events |= Events::TRANSMIT;
        }
        if feedback.acked > 0 {
            events |= self.on_fin_acknowledged(now);
        }
        if self.snd.window > window_before {
            events |= self.on_window_opened(now);
        }
        // Last, when all is known about what arrived and what was lost.
        let delivered = u32::try_from(self.delivered_since(&before)).unwrap_or(u32::MAX);
        let ece = self.marked_bytes(header, delivered);
        if !is_syn_alone {
            self.congestion_on_ack(now, ece, &before, pool);
        }
        events
    }

    /// [`Self::handle_ack`] for the next segment in order, without blocks, that acknowledges more, while nothing is being
    /// repaired ([`Self::is_calm`]).
    #[inline(always)]
    pub(crate) fn handle_calm_ack(
        &mut self,
        now: Instant,
        window: u16,
        timestamps: Option<Timestamps>,
        ack: u64,
        pool: &mut dyn FlightPool,
    ) -> Events {
        let before = self.delivery_mark();
        let events = self.take_calm_ack(now, window, timestamps, ack, pool);
        self.congestion_on_calm_ack(now, &before);
        events
    }

    /// [`Self::handle_calm_ack`] but for what congestion control makes of it.
    #[inline(always)]
    fn take_calm_ack(
        &mut self,
        now: Instant,
        window: u16,
        timestamps: Option<Timestamps>,
        ack: u64,
        pool: &mut dyn FlightPool,
    ) -> Events {
        let window_before = self.snd.window;
        self.snd.window = u64::from(window) << self.snd.window_shift;
        self.snd.max_window = self.snd.max_window.max(self.snd.window);
        self.snd.window_seq = self.rcv.nxt;
        self.snd.window_ack = ack;
        let echo = self.echo(timestamps);
        self.take_plain_feedback(now, echo, ack, pool);
        self.handle_new_ack(now, ack, pool);
        self.snd.duplicate_acks = 0;
        self.timers.reordering = Instant::NEVER;
        self.arm_probe(now);
        if self.snd.window > window_before {
            self.on_window_opened(now);
        }
        Events::WRITABLE | Events::TRANSMIT
    }

    /// Whether what an ACK acknowledges is our SYN and nothing else, which congestion control is not told of: it begins with the
    /// first data.
    fn is_syn_alone(&self, ack: u64) -> bool {
        self.snd.una == 0 && ack == 1
    }

    /// Whether an ACK that moves SND.UNA tells nothing but that: what is in flight left once, in order.
    pub(crate) fn is_calm(&self) -> bool {
        self.recovery.phase == Phase::Open
            && self.snd.sent.sacked() + self.snd.sent.lost() == 0
            && !self.probe.is_out()
            && self.state == State::Established
            && !self.ecn.in_use().0
    }

    #[inline(always)]
    fn handle_new_ack(&mut self, now: Instant, ack: u64, pool: &mut dyn FlightPool) {
        if self.snd.una == 0 {
            self.rtt.on_syn_acknowledged(now);
        }
        self.recovery.last_step = u32::try_from(ack - self.snd.una).unwrap_or(u32::MAX);
        self.snd.una = ack;
        self.end_path_probe_if_arrived();
        self.snd.nxt = self.snd.nxt.max(ack);
        if !self.snd.sent.is_empty()
            && let Some(first) = self.snd.sent.oldest(now, pool)
        {
            self.timers.oldest_sent = self.timers.oldest_sent.max(first);
        }
        if self.timers.retries > 0 && !self.timers.persisting {
            self.counters.end_timeouts(now);
        }
        self.timers.retries = 0;
        self.soft_error_code = 0;
        self.timers.unacknowledged_since = if self.snd.max > ack {
            now
        } else {
            if self.snd.written <= ack {
                self.chrono.turn_to(now, Doing::Nothing);
            }
            Instant::NEVER
        };
        // RFC 6298 §5.2 and §5.3. RFC 6582 §3.2 step 3: of partial ACKs only the first; one hole for each
        // round trip would take longer than a timeout.
        let is_later_partial = self.recovery.partial_seen
            && self.recovery.phase == Phase::Fast
            && ack < self.recovery.point;
        if !is_later_partial {
            self.arm_retransmit(now);
        }
    }

    /// RFC 9293 §3.10.7.4: SND.WND, SND.WL1 and SND.WL2.
    fn update_window(&mut self, header: &Header, arrival: &Arrival, ack: u64) {
        let snd = &mut self.snd;
        let window = u64::from(header.window) << snd.window_shift;
        let newer = arrival.seq > snd.window_seq
            || (arrival.seq == snd.window_seq && (ack > snd.window_ack || (ack == snd.window_ack && window >= snd.window)))
            // The handshake is the only time when nothing is known yet.
            || snd.window_ack == 0;
        if newer && ack >= snd.una {
            snd.window = window;
            snd.max_window = snd.max_window.max(window);
            snd.window_seq = arrival.seq;
            snd.window_ack = ack;
        }
    }

    /// A closed window opened: leave probing, send.
    fn on_window_opened(&mut self, now: Instant) -> Events {
        if self.timers.persisting {
            self.timers.persisting = false;
            self.snd.probe_owed = false;
            self.timers.retransmit = Instant::NEVER;
            self.timers.retries = 0;
            self.arm_retransmit(now);
        }
        Events::TRANSMIT
    }
}
