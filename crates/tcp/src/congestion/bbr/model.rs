//! What BBR believes about the path: bandwidth, and bounds on both bandwidth and flight from loss and
//! from marks (draft-ietf-ccwg-bbr §5.5); whether the pipe is full (§5.3.1).

use super::{AckSample, BETA, Bbr, Flags, INFINITE, INFINITE_BW, Phase, Window, scaled};
use crate::congestion::RateSample;

/// BBR.LossThresh, 2 %, as a divisor.
const LOSS_DIVISOR: u32 = 50;
/// BBR.StartupFullLossCnt.
const FULL_LOSS_SEGMENTS: u32 = 6;
/// Rounds without a quarter more bandwidth that mean the pipe is full.
const FULL_BW_ROUNDS: u8 = 3;
/// Rounds with half of everything marked that mean the same.
const FULL_ECN_ROUNDS: u8 = 2;
/// EcnFactor: how much of the marked share comes off the flight.
const ECN_FACTOR_DIVISOR: u64 = 3;
/// One in the unit of `ecn_alpha`.
const ALPHA_ONE: u64 = 1_024;
/// Rounds of BBR.ExtraAckedFilterLen, half of it: two halves are kept.
const EXTRA_ACKED_ROUNDS: u32 = 5;

impl Bbr {
    /// BBR.max_bw.
    pub(super) fn max_bw(&self) -> u64 {
        self.max_bw[0].max(self.max_bw[1])
    }

    /// BBR.bw: BBRBoundBWForModel.
    pub(super) fn bw(&self) -> u64 {
        self.max_bw().min(self.bw_lo)
    }

    /// BBRUpdateLatestDeliverySignals.
    pub(super) fn update_latest_signals(&mut self, sample: &AckSample) {
        self.set(Flags::LOSS_ROUND_START, false);
        self.delivered_in_round = self.delivered_in_round.saturating_add(sample.delivered);
        self.lost_in_round = self.lost_in_round.saturating_add(sample.lost);
        self.ece_in_round = self.ece_in_round.saturating_add(sample.ece);
        if let Some(rate) = sample.rate {
            self.bw_latest = self.bw_latest.max(rate.rate);
            self.inflight_latest = self.inflight_latest.max(rate.delivered);
            if rate.prior_delivered >= self.loss_round_delivered {
                self.loss_round_delivered = sample.delivered_total;
                self.set(Flags::LOSS_ROUND_START, true);
            }
        }
    }

    /// BBRAdvanceLatestDeliverySignals.
    pub(super) fn advance_latest_signals(&mut self, sample: &AckSample) {
        if self.has(Flags::LOSS_ROUND_START) {
            let rate = sample.rate.unwrap_or_default();
            self.bw_latest = rate.rate;
            self.inflight_latest = rate.delivered;
            self.delivered_in_round = 0;
            self.lost_in_round = 0;
            self.ece_in_round = 0;
        }
    }

    /// BBRUpdateCongestionSignals.
    pub(super) fn update_congestion_signals(&mut self, window: &Window, sample: &AckSample) {
        self.update_round(sample);
        if let Some(rate) = sample.rate
            && rate.rate > 0
            && (rate.rate >= self.max_bw() || !rate.app_limited)
        {
            self.max_bw[1] = self.max_bw[1].max(rate.rate);
        }
        if sample.ece > 0 {
            self.set(Flags::ECE_IN_ROUND, true);
        }
        if !self.has(Flags::LOSS_ROUND_START) {
            return;
        }
        self.update_ecn_alpha();
        // A round that lost no more than the model bears anyway is no reason to give way.
        let sent = self.delivered_in_round.saturating_add(self.lost_in_round);
        let is_lossy = self.lost_in_round > sent / LOSS_DIVISOR;
        self.set(Flags::LOSS_IN_ROUND, is_lossy);
        if !self.is_probing_bw() {
            self.adapt_lower_bounds(window);
        }
        self.set(Flags::LOSS_IN_ROUND | Flags::ECE_IN_ROUND, false);
    }

    /// BBRUpdateRound.
    fn update_round(&mut self, sample: &AckSample) {
        let round_start = sample
            .rate
            .is_some_and(|rate| rate.prior_delivered >= self.next_round_delivered);
        self.set(Flags::ROUND_START, round_start);
        if round_start {
            self.start_round(sample.delivered_total);
            self.round_count = self.round_count.wrapping_add(1);
            self.rounds_since_probe = self.rounds_since_probe.saturating_add(1);
        }
    }

    /// The marked share of a round, averaged over sixteen (RFC 8257 §3.3 has the same).
    fn update_ecn_alpha(&mut self) {
        let share =
            u64::from(self.ece_in_round) * ALPHA_ONE / u64::from(self.delivered_in_round.max(1));
        let alpha = (15 * u64::from(self.ecn_alpha) + share.min(ALPHA_ONE)).div_ceil(16);
        self.ecn_alpha = u16::try_from(alpha).unwrap_or(u16::MAX);
        if share == 0 && self.ecn_alpha == 1 {
            self.ecn_alpha = 0;
        }
    }

    /// BBRAdaptLowerBoundsFromCongestion, with marks beside loss.
    fn adapt_lower_bounds(&mut self, window: &Window) {
        if !self
            .flags()
            .intersects(Flags::LOSS_IN_ROUND | Flags::ECE_IN_ROUND)
        {
            return;
        }
        if self.inflight_lo == INFINITE {
            self.inflight_lo = window.cwnd;
        }
        let mut bound = self.inflight_lo;
        if self.has(Flags::ECE_IN_ROUND) {
            let cut = u64::from(self.inflight_lo) * u64::from(self.ecn_alpha)
                / (ALPHA_ONE * ECN_FACTOR_DIVISOR);
            bound = self.inflight_lo - u32::try_from(cut).unwrap_or(0).min(self.inflight_lo);
        }
        if self.has(Flags::LOSS_IN_ROUND) {
            if self.bw_lo == INFINITE_BW {
                self.bw_lo = self.max_bw();
            }
            self.bw_lo = self.bw_latest.max(self.bw_lo / BETA.1 * BETA.0);
            bound = bound.min(self.inflight_latest.max(scaled(self.inflight_lo, BETA)));
        }
        self.inflight_lo = bound;
    }

    /// BBRResetShortTermModel.
    pub(super) fn reset_lower_bounds(&mut self) {
        self.bw_lo = INFINITE_BW;
        self.inflight_lo = INFINITE;
    }

    /// BBRResetCongestionSignals.
    pub(super) fn reset_congestion_signals(&mut self) {
        self.set(Flags::LOSS_IN_ROUND | Flags::ECE_IN_ROUND, false);
        self.bw_latest = 0;
        self.inflight_latest = 0;
    }

    /// BBRUpdateACKAggregation: how much more than the model's bandwidth ACKs release at once.
    pub(super) fn update_ack_aggregation(&mut self, window: &Window, sample: &AckSample) {
        let now_us = sample.now.as_us();
        let interval_us = now_us.saturating_sub(self.extra_acked_start_us);
        let expected = carried(self.bw(), interval_us);
        let mut expected = expected;
        if self.extra_acked_delivered <= expected {
            self.extra_acked_delivered = 0;
            self.extra_acked_start_us = now_us;
            expected = 0;
        }
        self.extra_acked_delivered += u64::from(sample.delivered);
        let extra = u32::try_from(self.extra_acked_delivered - expected)
            .unwrap_or(INFINITE)
            .min(window.cwnd);
        // Two halves of the filter's length; before the pipe is full one round is all.
        let length = if self.has(Flags::FULL_BW_REACHED) {
            EXTRA_ACKED_ROUNDS
        } else {
            1
        };
        if self.round_count.wrapping_sub(self.extra_acked_round) >= length {
            self.extra_acked_round = self.round_count;
            self.extra_acked = [self.extra_acked[1], 0];
        }
        self.extra_acked[1] = self.extra_acked[1].max(extra);
    }

    /// BBRResetFullBW.
    pub(super) fn reset_full_bw(&mut self) {
        self.full_bw = 0;
        self.full_bw_count = 0;
        self.set(Flags::FULL_BW_NOW, false);
    }

    /// BBRCheckFullBWReached.
    pub(super) fn check_full_bw_reached(&mut self, sample: &AckSample) {
        let Some(rate) = sample.rate else { return };
        if self.has(Flags::FULL_BW_NOW) || rate.app_limited {
            return;
        }
        if rate.rate >= self.full_bw + self.full_bw / 4 {
            self.reset_full_bw();
            self.full_bw = rate.rate;
            return;
        }
        if !self.has(Flags::ROUND_START) {
            return;
        }
        self.full_bw_count += 1;
        if self.full_bw_count >= FULL_BW_ROUNDS {
            self.set(Flags::FULL_BW_NOW | Flags::FULL_BW_REACHED, true);
        }
    }

    /// BBRCheckStartupDone, with BBRCheckStartupHighLoss.
    pub(super) fn check_startup_done(&mut self, window: &Window, sample: &AckSample) {
        if self.phase() != Phase::Startup {
            return;
        }
        if self.has(Flags::LOSS_ROUND_START) && !self.has(Flags::FULL_BW_REACHED) {
            let total = self.lost_in_round.saturating_add(self.delivered_in_round);
            let lossy = sample.in_recovery
                && self.lost_in_round >= FULL_LOSS_SEGMENTS * window.mss
                && self.lost_in_round > total / LOSS_DIVISOR;
            let marked = self.ece_in_round > 0 && self.ece_in_round >= self.delivered_in_round / 2;
            self.full_ecn_count = if marked { self.full_ecn_count + 1 } else { 0 };
            if lossy || self.full_ecn_count >= FULL_ECN_ROUNDS {
                self.set(Flags::FULL_BW_REACHED, true);
                self.inflight_hi = self.bdp(window, (1, 1)).max(self.inflight_latest);
            }
        }
        if self.has(Flags::FULL_BW_REACHED) {
            self.enter(Phase::Drain);
        }
    }

    /// IsInflightTooHigh, of the segment that the sample is of.
    pub(super) fn is_inflight_too_high(rate: &RateSample) -> bool {
        rate.lost > rate.tx_in_flight / LOSS_DIVISOR
    }

    /// Half of what arrived in the round so far is marked.
    pub(super) fn is_marked_too_much(&self, sample: &AckSample) -> bool {
        sample.ece > 0 && self.ece_in_round >= self.delivered_in_round / 2
    }
}

/// Bytes that a path of `bw` bytes per second carries in `us`.
pub(super) fn carried(bw: u64, us: u64) -> u64 {
    // At 100 Gbit/s half a day fits 128 bits with ease and 64 do not.
    u64::try_from(u128::from(bw) * u128::from(us) / 1_000_000).unwrap_or(u64::MAX)
}
