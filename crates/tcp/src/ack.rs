//! Acknowledgements: what they free, what they measure, what they say about loss
//! (RFC 9293 §3.10.7.4 fifth check, RFC 5681, RFC 5961 §5).

use crate::{
    connection::{Connection, Events},
    receive::Arrival,
    state::State,
    time::{Duration, Instant},
};
use wire::tcp::{Flags, Header};

impl Connection {
    /// `Err`: the rest of the segment is not looked at.
    pub(crate) fn handle_ack(
        &mut self,
        now: Instant,
        header: &Header,
        arrival: &Arrival,
    ) -> Result<Events, Events> {
        let ack = self.snd.space.position(header.ack, self.snd.una);
        let mut events = Events::empty();
        if self.state == State::SynReceived {
            if ack.is_none_or(|ack| ack == 0 || ack > self.snd.max) {
                // RFC 9293 §3.10.7.4: <SEQ=SEG.ACK><CTL=RST>.
                return Err(self.owe_reset_reply(header.ack));
            }
            // The first segment after the handshake: its window is the first that is scaled.
            self.update_window(header, arrival, 1);
            events |= self.become_established(now);
        }
        let Some(ack) = ack else {
            return Err(self.owe_challenge_ack(now));
        };
        // RFC 5961 §5: outside SND.UNA − MAX.SND.WND ..= SND.NXT an ACK is answered and dropped.
        if ack > self.snd.max || ack + self.snd.max_window.max(1) < self.snd.una {
            return Err(self.owe_challenge_ack(now));
        }
        let before = self.delivery_mark();
        let sacked_more = self.update_scoreboard(header);
        let window_before = self.snd.window;
        self.update_window(header, arrival, ack);
        if ack > self.snd.una {
            events |= self.handle_new_ack(now, header, ack);
        } else if ack == self.snd.una {
            let is_duplicate = arrival.end == arrival.seq
                && self.snd.max > self.snd.una
                && (sacked_more || self.snd.window == window_before)
                && !header.flags.intersects(Flags::SYN | Flags::FIN);
            if is_duplicate {
                events |= self.handle_duplicate_ack(now);
            }
        }
        if self.snd.window > window_before {
            events |= self.on_window_opened(now);
        }
        // Last, when all is known about what arrived and what was lost.
        self.congestion_on_ack(now, &before);
        Ok(events)
    }

    fn handle_new_ack(&mut self, now: Instant, header: &Header, ack: u64) -> Events {
        let acknowledged = ack - self.snd.una;
        if !self.rtt.on_acknowledged(now, ack) {
            self.sample_by_timestamp(now, header, ack);
        }
        self.snd.una = ack;
        self.snd.nxt = self.snd.nxt.max(ack);
        self.snd.sacked.remove_below(ack);
        self.timers.retries = 0;
        self.timers.unacknowledged_since = if self.snd.max > ack {
            now
        } else {
            Instant::NEVER
        };
        self.on_progress_in_recovery(now, acknowledged);
        // RFC 6298 §5.2 and §5.3.
        self.arm_retransmit(now);
        Events::WRITABLE | Events::TRANSMIT | self.on_fin_acknowledged(now)
    }

    /// RFC 7323 §4.1: an echoed timestamp measures what Karn's rule cannot.
    fn sample_by_timestamp(&mut self, now: Instant, header: &Header, ack: u64) {
        let retransmitted = ack <= self.recovery.retransmitted_up_to;
        if let Some(timestamps) = header.options.timestamps
            && self.rcv.timestamps
            && retransmitted
            && timestamps.echo != 0
        {
            let elapsed_ms = self.timestamp_clock(now).wrapping_sub(timestamps.echo);
            if elapsed_ms > 0 && elapsed_ms < 1 << 30 {
                self.rtt.sample(Duration::from_ms(u64::from(elapsed_ms)));
            }
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
