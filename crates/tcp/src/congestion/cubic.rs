//! CUBIC (RFC 9438): the window follows a cubic function of the time since the last congestion, flat
//! where congestion was, and never grows slower than Reno would. Slow start ends by HyStart++.
//!
//! How fast the window grows is decided once in four milliseconds, in whole segments, as Linux does: see docs/rfc.md.
//!
//! Integers only: bytes, and ticks of 1/1024 s. `cubic/tests.rs` compares with floating point.

use super::{
    AckSample, CongestionEvent, Controller, Window,
    hystart::HyStart,
    window::{MAX_CWND, scaled},
};
use crate::time::Instant;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// β_cubic (RFC 9438 §4.6) as a fraction.
const BETA: (u64, u64) = (7, 10);
/// (1 + β_cubic) / 2, for fast convergence (§4.7).
const CONVERGENCE: (u64, u64) = (17, 20);
/// α_cubic = 3 (1 − β) / (1 + β) (§4.3).
const ALPHA: (u64, u64) = (9, 17);
/// C (§5.1), segments per second cubed.
const C: (u64, u64) = (4, 10);
/// Ticks per second, as a shift.
const TICK_SHIFT: u32 = 10;
/// How long a rate of growth stands: a jiffy of the kernels that most distributions build (250 a second).
const DECISION_US: u64 = 4_000;
/// Beyond this distance from K, four minutes, the function is above every window there can be.
const MAX_DISTANCE: u64 = 1 << 18;

/// Variables of one congestion avoidance stage (§4.1.2). Bytes, but for the times.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Epoch {
    /// t_epoch, microseconds; 0: the stage begins with the next ACK.
    since_us: u64,
    /// Since when the program or the peer's window is the limit; 0: neither is.
    paused_us: u64,
    /// What is left of the last division for `w_est`.
    est_remainder: u64,
    /// W_max; 0: unknown, the function begins at its plateau.
    w_max: u32,
    /// cwnd_prior: before the last reduction.
    cwnd_prior: u32,
    /// W_est: what Reno would have.
    w_est: u32,
    /// K, in ticks.
    k: u32,
    /// Bytes to be acknowledged for one segment more; 0: not decided in this stage.
    per: u32,
    /// In which stretch of [`DECISION_US`] that was decided, modulo 2^32.
    decided: u32,
}

/// The variables of CUBIC.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Cubic {
    epoch: Epoch,
    /// Before the last reduction (§4.9).
    prior: Epoch,
    hystart: HyStart,
}

impl Controller for Cubic {
    fn start(&mut self, _window: &mut Window, _now: Instant, _srtt_us: u64) {
        self.hystart.start(0);
    }

    #[inline(always)]
    fn on_ack(&mut self, window: &mut Window, sample: &AckSample) {
        if sample.in_recovery {
            return;
        }
        if window.in_first_slow_start() {
            self.hystart.on_ack(window, sample);
            return;
        }
        // §4.2 and §5.8: time that the program left the window unused does not count.
        if !sample.cwnd_limited {
            self.epoch.pause(sample.now);
            return;
        }
        self.epoch.resume(sample.now);
        let rest = window.slow_start(sample.acked);
        if rest > 0 {
            self.avoid(window, sample.now, rest, sample.srtt_us);
        }
    }

    fn on_congestion_event(&mut self, window: &mut Window, event: &CongestionEvent) {
        self.prior = self.epoch;
        let cwnd = window.cwnd;
        // §4.7: a flow that did not come back to its last W_max makes room for others.
        let w_max = if cwnd < self.epoch.w_max {
            scaled(cwnd, CONVERGENCE)
        } else {
            cwnd
        };
        self.epoch = Epoch {
            w_max,
            cwnd_prior: cwnd,
            ..Epoch::default()
        };
        // §4.6.
        window.reduce_to(scaled(event.flight.min(cwnd), BETA));
    }

    fn on_timeout(&mut self, window: &mut Window, event: &CongestionEvent, first: bool) {
        if first {
            self.on_congestion_event(window, event);
        }
        window.collapse();
        // §4.8: the next stage begins at its plateau.
        self.epoch.w_max = 0;
    }

    /// §4.9.
    fn undo(&mut self, window: &mut Window, _now: Instant) {
        if window.restore() {
            self.epoch = self.prior;
        }
    }

    fn on_idle(&mut self, window: &mut Window, now: Instant, long: bool) {
        self.epoch.pause(now);
        if !long {
            return;
        }
        let before = window.cwnd;
        window.restart();
        if window.cwnd < before {
            // Slow start comes first; the stage after it is a new one.
            self.epoch.since_us = 0;
            self.epoch.paused_us = 0;
        }
    }
}

impl Cubic {
    /// Congestion avoidance (§4.2 to §4.5).
    fn avoid(&mut self, window: &mut Window, now: Instant, acked: u32, srtt_us: u64) {
        let now_us = now.as_us().max(1);
        if self.epoch.since_us == 0 {
            self.epoch.begin(now_us, window);
        }
        let epoch = &mut self.epoch;
        epoch.estimate_reno(window, acked);
        let now_decides = low(now_us / DECISION_US);
        if epoch.per == 0 || epoch.decided != now_decides {
            epoch.decided = now_decides;
            let ahead_us = now_us.saturating_sub(epoch.since_us) + srtt_us.max(DECISION_US);
            epoch.per = epoch.decide(window, ahead_us);
            // What was saved up at a slower rate is worth a segment at most.
            window.acknowledged = window.acknowledged.min(epoch.per);
        }
        window.avoid(acked, epoch.per);
        // §4.3: the Reno-friendly region.
        window.cwnd = window.cwnd.max(epoch.w_est).min(MAX_CWND);
    }
}

impl Epoch {
    fn begin(&mut self, now_us: u64, window: &Window) {
        self.since_us = now_us;
        self.est_remainder = 0;
        self.w_est = window.cwnd;
        // §4.2: K is the time it takes to reach W_max; at or above it the stage begins on the plateau.
        let below = self.w_max.saturating_sub(window.cwnd);
        if below == 0 {
            self.w_max = window.cwnd;
        }
        self.k = time_to_climb(below, window.mss);
    }

    /// §4.4 and §4.5: for how many bytes the window grows by a segment, so that in one round trip it is where the
    /// function will be, but half as large again at most. Below the plateau in whole segments: a window of a few
    /// of them would otherwise wait for seconds.
    fn decide(&self, window: &Window, ahead_us: u64) -> u32 {
        let Window { cwnd, mss, .. } = *window;
        let exact = self.w_cubic(mss, ahead_us).saturating_sub(cwnd);
        let room = if ticks(ahead_us) < u64::from(self.k) {
            exact.next_multiple_of(mss)
        } else {
            exact
        };
        if room == 0 {
            return u32::MAX;
        }
        let per = u64::from(cwnd) * u64::from(mss) / u64::from(room);
        u32::try_from(per).unwrap_or(u32::MAX).max(2 * mss)
    }

    /// W_cubic(t) (§4.2 figure 1).
    fn w_cubic(&self, mss: u32, elapsed_us: u64) -> u32 {
        let elapsed = ticks(elapsed_us);
        let k = u64::from(self.k);
        let change = climb(elapsed.abs_diff(k), mss);
        if elapsed >= k {
            self.w_max.saturating_add(change)
        } else {
            self.w_max.saturating_sub(change)
        }
    }

    /// §4.3: W_est grows by α segments for each window acknowledged; once it is back where the window
    /// was before the reduction, by one as Reno does.
    fn estimate_reno(&mut self, window: &Window, acked: u32) {
        let alpha = if self.w_est < self.cwnd_prior {
            ALPHA.0
        } else {
            ALPHA.1
        };
        let per = ALPHA.1 * u64::from(window.cwnd.max(1));
        let growth = alpha * u64::from(window.mss) * u64::from(acked) + self.est_remainder;
        self.est_remainder = growth % per;
        let whole = u32::try_from(growth / per).unwrap_or(MAX_CWND);
        self.w_est = self.w_est.saturating_add(whole).min(MAX_CWND);
    }

    fn pause(&mut self, now: Instant) {
        if self.since_us != 0 && self.paused_us == 0 {
            self.paused_us = now.as_us();
        }
    }

    fn resume(&mut self, now: Instant) {
        if self.paused_us != 0 {
            self.since_us += now.as_us().saturating_sub(self.paused_us);
            self.paused_us = 0;
        }
    }
}

fn low(value: u64) -> u32 {
    u32::try_from(value & u64::from(u32::MAX)).unwrap_or(0)
}

fn ticks(us: u64) -> u64 {
    us.saturating_mul(1 << TICK_SHIFT) / 1_000_000
}

/// C × distance³ in bytes: how far the function is from W_max at `distance` ticks from K.
fn climb(distance: u64, mss: u32) -> u32 {
    let distance = distance.min(MAX_DISTANCE);
    // In 1/1024 segments, so that nothing overflows and a tick still shows.
    let cubed = (distance * distance * distance) >> (2 * TICK_SHIFT);
    let bytes = (cubed * u64::from(mss) * C.0 / C.1) >> TICK_SHIFT;
    u32::try_from(bytes).unwrap_or(MAX_CWND).min(MAX_CWND)
}

/// K in ticks: the cube root of `bytes` over C (§4.2 figure 2).
fn time_to_climb(bytes: u32, mss: u32) -> u32 {
    let bytes = u64::from(bytes.min(MAX_CWND));
    let cubed = (bytes << (3 * TICK_SHIFT)) / u64::from(mss.max(1)) * C.1 / C.0;
    u32::try_from(cube_root(cubed)).unwrap_or(u32::MAX)
}

/// The largest integer whose cube is at most `value`, by Newton's method from above.
fn cube_root(value: u64) -> u64 {
    if value == 0 {
        return 0;
    }
    let mut root = 1_u64 << (value.ilog2() / 3 + 1);
    // Each step at least halves the distance: a handful for 64 bits.
    loop {
        let next = (2 * root + value / (root * root)) / 3;
        if next >= root {
            return root;
        }
        root = next;
    }
}

#[cfg(test)]
mod tests;
