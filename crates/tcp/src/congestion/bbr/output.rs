//! From the model to a window and a rate (draft-ietf-ccwg-bbr §5.6).

use super::{
    AckSample, Bbr, Flags, INFINITE, Phase, Window, initial_window, model::carried, scaled,
};
use crate::{
    congestion::{CongestionInfo, window::MAX_CWND},
    send::pacing,
};

/// BBR.StartupPacingGain, 2.77.
const STARTUP_GAIN: (u64, u64) = (277, 100);
/// BBR.PacingMarginPercent: pace a little below, so that a queue drains.
const MARGIN: (u64, u64) = (99, 100);
/// BBR.MinPipeCwnd, segments.
const MIN_PIPE_SEGMENTS: u32 = 4;
/// What an empty path is taken for before the first round trip, microseconds.
const NOMINAL_RTT_US: u64 = 1_000;

impl Bbr {
    /// BBRInitPacingRate.
    pub(super) fn start_pacing(&mut self, window: &mut Window, srtt_us: u64) {
        let rtt_us = if srtt_us == 0 {
            NOMINAL_RTT_US
        } else {
            srtt_us
        };
        let nominal = u64::from(window.cwnd) * 1_000_000 / rtt_us;
        window.pacing_rate = times(nominal, STARTUP_GAIN).max(1);
    }

    fn pacing_gain(&self) -> (u64, u64) {
        match self.phase() {
            Phase::Startup => STARTUP_GAIN,
            Phase::Drain => (1, 2),
            Phase::Down => (9, 10),
            Phase::Up => (5, 4),
            Phase::Cruise | Phase::Refill | Phase::ProbeRtt => (1, 1),
        }
    }

    fn cwnd_gain(&self) -> (u64, u64) {
        match self.phase() {
            Phase::Up => (9, 4),
            Phase::ProbeRtt => (1, 2),
            _ => (2, 1),
        }
    }

    /// Gains as Linux tells them, in 1/256.
    pub(in crate::congestion) fn info(&self) -> CongestionInfo {
        let gain = |gain| u32::try_from(times(256, gain)).unwrap_or(u32::MAX);
        CongestionInfo::Bbr {
            bandwidth: self.bw(),
            min_rtt_us: (self.min_rtt_us != INFINITE).then_some(self.min_rtt_us),
            pacing_gain: gain(self.pacing_gain()),
            cwnd_gain: gain(self.cwnd_gain()),
        }
    }

    /// BBRSetPacingRate.
    pub(super) fn set_pacing_rate(&mut self, window: &mut Window) {
        self.pace_at(window, self.pacing_gain());
    }

    /// BBRSetPacingRateWithGain.
    pub(super) fn pace_at(&mut self, window: &mut Window, gain: (u64, u64)) {
        let rate = times(times(self.bw(), gain), MARGIN);
        if rate > 0 && (self.has(Flags::FULL_BW_REACHED) || rate > window.pacing_rate) {
            window.pacing_rate = rate;
        }
    }

    /// BBRBDPMultiple; before the first round trip the initial window.
    pub(super) fn bdp(&self, window: &Window, gain: (u64, u64)) -> u32 {
        if self.min_rtt_us == INFINITE || self.max_bw() == 0 {
            return initial_window(window.mss);
        }
        let bytes = times(carried(self.bw(), u64::from(self.min_rtt_us)), gain);
        u32::try_from(bytes).unwrap_or(MAX_CWND).min(MAX_CWND)
    }

    /// BBRInflight, with BBRQuantizationBudget: room for what offload holds at both ends.
    pub(super) fn inflight(&self, window: &Window, gain: (u64, u64)) -> u32 {
        self.quantized(window, self.bdp(window, gain))
    }

    fn quantized(&self, window: &Window, bytes: u32) -> u32 {
        let budget = 3 * pacing::quantum(window.pacing_rate, window.mss);
        let bytes = bytes.max(budget).max(min_pipe(window));
        if self.phase() == Phase::Up {
            bytes.saturating_add(2 * window.mss)
        } else {
            bytes
        }
    }

    /// BBRInflightWithHeadroom.
    pub(super) fn inflight_with_headroom(&self, window: &Window) -> u32 {
        if self.inflight_hi == INFINITE {
            return INFINITE;
        }
        let headroom = scaled(self.inflight_hi, (15, 100)).max(window.mss);
        self.inflight_hi
            .saturating_sub(headroom)
            .max(min_pipe(window))
    }

    /// BBRProbeRTTCwnd.
    pub(super) fn probe_rtt_cwnd(&self, window: &Window) -> u32 {
        self.bdp(window, (1, 2)).max(min_pipe(window))
    }

    /// BBRSetCwnd.
    pub(super) fn set_cwnd(&mut self, window: &mut Window, sample: &AckSample) {
        let extra = self.extra_acked[0].max(self.extra_acked[1]);
        let most = self.quantized(
            window,
            self.bdp(window, self.cwnd_gain()).saturating_add(extra),
        );
        if self.has(Flags::FULL_BW_REACHED) {
            window.cwnd = window.cwnd.saturating_add(sample.delivered).min(most);
        } else if window.cwnd < most
            || sample.delivered_total < u64::from(initial_window(window.mss))
        {
            window.grow(sample.delivered);
        }
        window.cwnd = window.cwnd.max(min_pipe(window));
        if self.phase() == Phase::ProbeRtt {
            window.cwnd = window.cwnd.min(self.probe_rtt_cwnd(window));
        }
        // BBRBoundCwndForModel.
        let bound = match self.phase() {
            Phase::Down | Phase::Refill | Phase::Up => self.inflight_hi,
            Phase::Cruise | Phase::ProbeRtt => self.inflight_with_headroom(window),
            Phase::Startup | Phase::Drain => INFINITE,
        };
        let bound = bound.min(self.inflight_lo).max(min_pipe(window));
        window.cwnd = window.cwnd.min(bound).min(MAX_CWND);
    }
}

fn min_pipe(window: &Window) -> u32 {
    MIN_PIPE_SEGMENTS * window.mss
}

fn times(value: u64, (numerator, denominator): (u64, u64)) -> u64 {
    u64::try_from(u128::from(value) * u128::from(numerator) / u128::from(denominator))
        .unwrap_or(u64::MAX)
}
