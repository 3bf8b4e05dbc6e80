//! PROBE_BW (draft-ietf-ccwg-bbr §5.3.3): give way, cruise, refill the pipe, probe for more.

use super::{AckPhase, AckSample, BETA, Bbr, Flags, INFINITE, Phase, Window, scaled};

/// A probe comes at least every two to three seconds, microseconds.
const WAIT_MIN_US: u32 = 2_000_000;
const WAIT_SPREAD_US: u64 = 1_000_000;
/// ... or when Reno would have grown back, in rounds.
const RENO_ROUNDS_MAX: u32 = 63;
/// Doublings of the slope while probing upwards.
const PROBE_UP_ROUNDS_MAX: u8 = 30;

impl Bbr {
    /// BBREnterProbeBW.
    pub(super) fn enter_probe_bw(&mut self, sample: &AckSample) {
        self.start_down(sample);
    }

    /// BBRStartProbeBW_DOWN.
    pub(super) fn start_down(&mut self, sample: &AckSample) {
        self.reset_congestion_signals();
        self.probe_up_per = INFINITE;
        self.pick_probe_wait(sample);
        self.cycle_stamp_us = sample.now.as_us();
        self.expect_acks(AckPhase::Stopping);
        self.start_round(sample.delivered_total);
        self.enter(Phase::Down);
    }

    pub(super) fn start_cruise(&mut self) {
        self.enter(Phase::Cruise);
    }

    /// BBRStartProbeBW_REFILL.
    fn start_refill(&mut self, sample: &AckSample) {
        self.reset_lower_bounds();
        self.probe_up_rounds = 0;
        self.probe_up_acked = 0;
        self.expect_acks(AckPhase::Refilling);
        self.start_round(sample.delivered_total);
        self.enter(Phase::Refill);
    }

    /// BBRStartProbeBW_UP.
    fn start_up(&mut self, window: &Window, sample: &AckSample) {
        self.expect_acks(AckPhase::Starting);
        self.start_round(sample.delivered_total);
        self.reset_full_bw();
        self.full_bw = sample.rate.map_or(0, |rate| rate.rate);
        self.enter(Phase::Up);
        self.raise_slope(window);
    }

    /// BBRUpdateProbeBWCyclePhase.
    pub(super) fn update_cycle(&mut self, window: &Window, sample: &AckSample) {
        if !self.has(Flags::FULL_BW_REACHED) {
            return;
        }
        self.adapt_upper_bounds(window, sample);
        match self.phase() {
            Phase::Down
                if !self.try_probe(window, sample) && self.is_time_to_cruise(window, sample) =>
            {
                self.start_cruise();
            }
            Phase::Cruise => {
                self.try_probe(window, sample);
            }
            Phase::Refill if self.has(Flags::ROUND_START) => {
                self.set(Flags::BW_PROBE_SAMPLES, true);
                self.start_up(window, sample);
            }
            Phase::Up if self.is_time_to_go_down(window, sample) => self.start_down(sample),
            _ => {}
        }
    }

    /// BBRIsTimeToProbeBW.
    fn try_probe(&mut self, window: &Window, sample: &AckSample) -> bool {
        let elapsed_us = sample.now.as_us().saturating_sub(self.cycle_stamp_us);
        // Reno adds a segment a round: after as many rounds as the window has segments it is back.
        let reno_rounds = (self.target_inflight(window) / window.mss).min(RENO_ROUNDS_MAX);
        let due = elapsed_us > u64::from(self.bw_probe_wait_us)
            || u32::from(self.rounds_since_probe) >= reno_rounds;
        if due {
            self.start_refill(sample);
        }
        due
    }

    /// BBRPickProbeWait. There is no randomness here: the low digits of what was delivered and of the time
    /// spread flows as well.
    fn pick_probe_wait(&mut self, sample: &AckSample) {
        let mut mixed = sample.now.as_us() ^ sample.delivered_total.rotate_left(32);
        mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^= mixed >> 33;
        self.rounds_since_probe = u8::from(mixed & 1 == 1);
        let spread = u32::try_from((mixed >> 1) % WAIT_SPREAD_US).unwrap_or(0);
        self.bw_probe_wait_us = WAIT_MIN_US + spread;
    }

    /// BBRTargetInflight.
    fn target_inflight(&self, window: &Window) -> u32 {
        self.bdp(window, (1, 1)).min(window.cwnd)
    }

    /// BBRIsTimeToCruise.
    fn is_time_to_cruise(&self, window: &Window, sample: &AckSample) -> bool {
        sample.in_flight <= self.inflight_with_headroom(window)
            && sample.in_flight <= self.inflight(window, (1, 1))
    }

    /// BBRIsTimeToGoDown.
    fn is_time_to_go_down(&mut self, window: &Window, sample: &AckSample) -> bool {
        if sample.cwnd_limited && window.cwnd >= self.inflight_hi {
            self.reset_full_bw();
            self.full_bw = sample.rate.map_or(0, |rate| rate.rate);
            return false;
        }
        self.has(Flags::FULL_BW_NOW)
    }

    /// BBRAdaptLongTermModel.
    fn adapt_upper_bounds(&mut self, window: &Window, sample: &AckSample) {
        let round_start = self.has(Flags::ROUND_START);
        if self.ack_phase() == AckPhase::Starting && round_start {
            self.expect_acks(AckPhase::Feedback);
        }
        let app_limited = sample.rate.is_some_and(|rate| rate.app_limited);
        if self.ack_phase() == AckPhase::Stopping && round_start {
            self.set(Flags::BW_PROBE_SAMPLES, false);
            self.expect_acks(AckPhase::Init);
            if self.in_probe_bw() && !app_limited && self.max_bw[1] > 0 {
                // BBRAdvanceMaxBwFilter.
                self.max_bw = [self.max_bw[1], 0];
            }
        }
        let Some(rate) = sample.rate else { return };
        if Self::is_inflight_too_high(&rate) || self.is_marked_too_much(sample) {
            if self.has(Flags::BW_PROBE_SAMPLES) {
                self.on_inflight_too_high(window, sample, rate.tx_in_flight, app_limited);
            }
            return;
        }
        if self.inflight_hi == INFINITE {
            return;
        }
        self.inflight_hi = self.inflight_hi.max(rate.tx_in_flight);
        if self.phase() == Phase::Up {
            self.probe_upward(window, sample);
        }
    }

    /// BBRHandleInflightTooHigh.
    fn on_inflight_too_high(
        &mut self,
        window: &Window,
        sample: &AckSample,
        tx_in_flight: u32,
        app_limited: bool,
    ) {
        self.set(Flags::BW_PROBE_SAMPLES, false);
        if !app_limited {
            self.inflight_hi = tx_in_flight.max(scaled(self.target_inflight(window), BETA));
        }
        if self.phase() == Phase::Up {
            self.start_down(sample);
        }
    }

    /// BBRProbeInflightLongtermUpward.
    fn probe_upward(&mut self, window: &Window, sample: &AckSample) {
        if !sample.cwnd_limited || window.cwnd < self.inflight_hi {
            return;
        }
        self.probe_up_acked = self.probe_up_acked.saturating_add(sample.delivered);
        if self.probe_up_acked >= self.probe_up_per {
            let segments = self.probe_up_acked / self.probe_up_per;
            self.probe_up_acked %= self.probe_up_per;
            self.inflight_hi = self
                .inflight_hi
                .saturating_add(segments.saturating_mul(window.mss))
                .min(INFINITE - 1);
        }
        if self.has(Flags::ROUND_START) {
            self.raise_slope(window);
        }
    }

    /// BBRRaiseInflightLongtermSlope: one segment more in the first round, then twice as many each.
    fn raise_slope(&mut self, window: &Window) {
        let segments = 1_u32 << self.probe_up_rounds.min(PROBE_UP_ROUNDS_MAX);
        self.probe_up_rounds = (self.probe_up_rounds + 1).min(PROBE_UP_ROUNDS_MAX);
        self.probe_up_per = (window.cwnd / segments).max(window.mss);
    }
}
