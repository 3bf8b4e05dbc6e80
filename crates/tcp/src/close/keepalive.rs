//! Keep-alives (RFC 9293 §3.8.4): off unless the program asks.

use crate::{
    connection::Connection,
    events::Events,
    state::State,
    time::{Duration, Instant},
};

impl Connection {
    pub(crate) fn arm_keepalive(&mut self, now: Instant) {
        let wanted =
            self.options.keepalive && self.state.is_synchronized() && self.state != State::TimeWait;
        self.timers.keepalive = if wanted {
            now + self.options.keepalive_idle
        } else {
            Instant::NEVER
        };
    }

    pub(crate) fn on_keepalive_timeout(&mut self, now: Instant) -> Events {
        let silence = now.since(self.timers.last_received);
        // Data in flight is watched by the retransmission timer.
        if self.snd.max > self.snd.una || silence < self.options.keepalive_idle {
            let remaining = self
                .options
                .keepalive_idle
                .as_us()
                .saturating_sub(silence.as_us())
                .max(1);
            self.timers.keepalive = now + Duration::from_us(remaining);
            return Events::empty();
        }
        let out_of_time = if self.options.user_timeout > Duration::ZERO {
            silence >= self.options.user_timeout && self.timers.keepalive_probes > 0
        } else {
            self.timers.keepalive_probes >= self.options.keepalive_count
        };
        if out_of_time {
            let events = self.time_out();
            self.reset_owed = true;
            return events;
        }
        self.timers.keepalive_probes = self.timers.keepalive_probes.saturating_add(1);
        self.snd.probe_owed = true;
        self.timers.keepalive =
            now + Duration::from_secs(u64::from(self.options.keepalive_interval_s));
        Events::TRANSMIT
    }
}
