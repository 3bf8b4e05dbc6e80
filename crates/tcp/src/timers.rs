//! The timers of a connection and what happens when each fires (RFC 9293 §3.8, RFC 6298).

use crate::{
    connection::Connection,
    events::Events,
    recovery::rtt::MAX_RTO,
    send::flight_pool::FlightPool,
    state::{FastOpen, State},
    time::{Duration, Instant},
};
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// R1 of RFC 9293 §3.8.3 (Linux `tcp_retries1`).
const R1_RETRIES: u8 = 3;
/// How long a corked partial segment may wait.
pub(crate) const CORK_LIMIT: Duration = Duration::from_ms(200);
/// How long an orphan waits in FIN-WAIT-2 (Linux `tcp_fin_timeout`).
pub(crate) const FIN_WAIT_2_LIMIT: Duration = Duration::from_secs(60);

/// Deadlines; [`Instant::NEVER`] means not running.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Timers {
    /// Retransmission (RFC 6298), or zero-window probe while `persisting` (RFC 9293 §3.8.6.1).
    pub retransmit: Instant,
    /// Tail loss probe (RFC 8985 §7.2).
    pub probe: Instant,
    /// RACK's reordering timer (RFC 8985 §6.3).
    pub reordering: Instant,
    pub delayed_ack: Instant,
    pub keepalive: Instant,
    pub cork: Instant,
    /// When the next paced segment may leave.
    pub pacing: Instant,
    /// FIN-WAIT-2 of an orphan.
    pub linger: Instant,
    /// No later than the first transmission of what is at SND.UNA.
    pub oldest_sent: Instant,
    /// When the oldest unacknowledged data was first sent, for the user timeout.
    pub unacknowledged_since: Instant,
    pub last_received: Instant,
    pub last_sent: Instant,
    /// Expirations of `retransmit` in a row.
    pub retries: u8,
    /// Keep-alive probes in a row without an answer.
    pub keepalive_probes: u8,
    pub persisting: bool,
    /// The SYN had to be sent again.
    pub syn_retransmitted: bool,
    /// No probe of the path MTU leaves earlier, in units of `pmtud`.
    pub path_search_at: u16,
    pub reserved: u16,
}

impl Timers {
    pub const fn unset() -> Self {
        Self {
            retransmit: Instant::NEVER,
            probe: Instant::NEVER,
            reordering: Instant::NEVER,
            delayed_ack: Instant::NEVER,
            keepalive: Instant::NEVER,
            cork: Instant::NEVER,
            pacing: Instant::NEVER,
            linger: Instant::NEVER,
            oldest_sent: Instant::ZERO,
            unacknowledged_since: Instant::NEVER,
            last_received: Instant::ZERO,
            last_sent: Instant::ZERO,
            retries: 0,
            keepalive_probes: 0,
            persisting: false,
            syn_retransmitted: false,
            path_search_at: 0,
            reserved: 0,
        }
    }

    #[inline]
    fn earliest(&self) -> Instant {
        self.retransmit
            .min(self.probe)
            .min(self.reordering)
            .min(self.delayed_ack)
            .min(self.keepalive)
            .min(self.cork)
            .min(self.pacing)
            .min(self.linger)
    }
}

impl Connection {
    /// When [`Self::handle_timeout`] wants to be called next.
    pub fn deadline(&self) -> Option<Instant> {
        self.next_deadline().if_set()
    }

    /// [`Self::deadline`], or [`Instant::NEVER`].
    #[inline]
    pub fn next_deadline(&self) -> Instant {
        self.timers.earliest()
    }

    /// When the ACK that is owed leaves at the latest, or [`Instant::NEVER`].
    #[inline]
    pub fn ack_deadline(&self) -> Instant {
        self.timers.delayed_ack
    }

    /// The earliest of the timers that sending new data, or the ACK of some, sets.
    #[inline]
    pub fn flight_deadline(&self) -> Instant {
        let timers = &self.timers;
        timers.retransmit.min(timers.probe).min(timers.cork)
    }

    /// Acts on every timer that has expired at `now`.
    pub fn handle_timeout(&mut self, now: Instant, pool: &mut dyn FlightPool) -> Events {
        let mut events = Events::empty();
        if self.timers.delayed_ack <= now {
            self.timers.delayed_ack = Instant::NEVER;
            self.rcv.ack_now = true;
            // No answer came in time.
            self.rcv.answers = false;
            events |= Events::TRANSMIT;
        }
        if self.timers.cork <= now {
            self.snd.is_tail_unpushed = false;
            events |= Events::TRANSMIT;
        }
        if self.timers.pacing <= now {
            self.timers.pacing = Instant::NEVER;
            events |= Events::TRANSMIT;
        }
        if self.timers.linger <= now {
            self.enter_closed();
            return events | Events::CLOSED;
        }
        if self.timers.reordering <= now {
            events |= self.on_reordering_timeout(now, pool);
        }
        if self.timers.probe <= now {
            events |= self.on_probe_timeout(now);
        }
        if self.timers.retransmit <= now {
            events |= if self.timers.persisting {
                self.on_persist_timeout(now)
            } else {
                self.on_retransmit_timeout(now, pool)
            };
        }
        if self.timers.keepalive <= now && self.state != State::Closed {
            events |= self.on_keepalive_timeout(now);
        }
        events
    }

    /// RFC 6298 §5.4–5.7 and RFC 5681 §3.1 equation (4).
    fn on_retransmit_timeout(&mut self, now: Instant, pool: &mut dyn FlightPool) -> Events {
        self.timers.retries = self.timers.retries.saturating_add(1);
        if self.gives_up(now) {
            return self.time_out();
        }
        if !self.is_waiting_for_first_data() {
            self.counters.count_timeout(now, self.timers.retries == 1);
        }
        if self.state.is_synchronized() || self.snd.una > 0 {
            if self.snd.window > 0 {
                self.suspect_black_hole(now);
            }
            self.enter_loss_recovery(now, pool);
        } else if self.is_waiting_for_first_data() {
            self.timers.retransmit = self.retransmit_deadline(now);
            return Events::empty();
        } else {
            self.timers.syn_retransmitted = true;
            self.rtt.stop_timing();
            self.snd.nxt = self.snd.una;
        }
        self.timers.retransmit = self.retransmit_deadline(now);
        Events::TRANSMIT
    }

    /// R2 of RFC 9293 §3.8.3: by count for a SYN, by time for data, as Linux; or the user timeout.
    fn gives_up(&self, now: Instant) -> bool {
        if self.user_timeout_expired(now) {
            return true;
        }
        if self.is_answered_behind_closed_window(now) {
            return false;
        }
        let retries = self.options.retries;
        let limit = match self.state {
            State::SynSent | State::SynReceived if self.options.syn_retries > 0 => {
                return self.timers.retries > self.options.syn_retries;
            }
            State::SynSent => return self.timers.retries > retries.syn,
            State::SynReceived if self.deferred => {
                return self.timers.retries > retries.syn_ack.max(self.options.defer_accept);
            }
            // As Linux: the program may have it already, so once more.
            State::SynReceived => {
                let more = u8::from(self.fast_open == FastOpen::Serving);
                return self.timers.retries > retries.syn_ack.saturating_add(more);
            }
            _ if self.options.user_timeout > Duration::ZERO => return false,
            _ if self.orphan => retries.orphan,
            _ => retries.data,
        };
        // A clock that jumps must not end a connection at its first timeout.
        self.timers.retries > R1_RETRIES
            && now.since(self.timers.unacknowledged_since) >= patience(limit)
    }

    /// The peer has taken its window back with bytes in flight, and answers what is sent again. RFC 9293 §3.8.6.1 (MUST-37):
    /// the connection stays open as behind a window that was always closed (Linux `tcp_rtx_probe0_timed_out`).
    fn is_answered_behind_closed_window(&self, now: Instant) -> bool {
        let silence = now.since(self.timers.last_received);
        let is_held = self.state.is_synchronized() && !self.orphan;
        is_held && self.snd.window == 0 && silence <= MAX_RTO.doubled(1, MAX_SILENCE)
    }

    fn user_timeout_expired(&self, now: Instant) -> bool {
        // RFC 5482 §3: the user timeout bounds how long data stays unacknowledged.
        self.options.user_timeout > Duration::ZERO
            && self.timers.unacknowledged_since.is_set()
            && now.since(self.timers.unacknowledged_since) >= self.options.user_timeout
    }

    /// RFC 9293 §3.8.6.1: probe a closed window for as long as the peer answers.
    fn on_persist_timeout(&mut self, now: Instant) -> Events {
        self.timers.retries = self.timers.retries.saturating_add(1);
        let retries = self.options.retries;
        let silent = now.since(self.timers.last_received)
            > self.rtt.rto().doubled(u32::from(retries.data), MAX_SILENCE);
        if (silent && self.timers.retries > retries.data)
            || (self.orphan && self.timers.retries > retries.orphan)
            || self.user_timeout_expired(now)
        {
            return self.time_out();
        }
        self.snd.probe_owed = true;
        self.timers.retransmit = self.retransmit_deadline(now);
        Events::TRANSMIT
    }

    /// When the retransmission or persist timer fires next: no later than the user timeout ends, as Linux.
    pub(crate) fn retransmit_deadline(&self, now: Instant) -> Instant {
        let deadline = now + self.backed_off_rto();
        let since = self.timers.unacknowledged_since;
        if self.options.user_timeout > Duration::ZERO && since.is_set() {
            deadline.min(since + self.options.user_timeout).max(now)
        } else {
            deadline
        }
    }

    pub(crate) fn backed_off_rto(&self) -> Duration {
        self.rtt
            .rto()
            .doubled(u32::from(self.timers.retries), MAX_RTO)
    }

    /// Sets the retransmission or persist timer to what the send side needs now.
    pub(crate) fn arm_retransmit(&mut self, now: Instant) {
        let in_flight = self.snd.max > self.snd.una;
        if in_flight {
            self.timers.persisting = false;
            self.timers.retransmit = self.retransmit_deadline(now);
        } else {
            self.timers.retransmit = Instant::NEVER;
            self.timers.persisting = false;
            self.timers.retries = 0;
            self.timers.unacknowledged_since = Instant::NEVER;
        }
    }

    /// Starts zero-window probing when data waits and nothing is in flight that would elicit an ACK.
    pub(crate) fn arm_persist(&mut self, now: Instant) {
        let waiting = self.snd.end() > self.snd.max && self.state.is_synchronized();
        if waiting && self.snd.max == self.snd.una && !self.timers.retransmit.is_set() {
            self.timers.persisting = true;
            self.timers.retries = 0;
            self.timers.unacknowledged_since = now;
            self.timers.retransmit = self.retransmit_deadline(now);
        }
    }
}

/// How long `retries` doublings of the smallest timeout take: Linux turns its counts into times so that
/// a path with a long round trip is not waited for longer.
fn patience(retries: u8) -> Duration {
    (0..=u32::from(retries)).fold(Duration::ZERO, |sum, nth| {
        sum + crate::recovery::rtt::MIN_RTO.doubled(nth, MAX_RTO)
    })
}

/// Beyond this a silent peer behind a closed window is given up.
const MAX_SILENCE: Duration = Duration::from_secs(900);
