//! BBR, version 3 (draft-ietf-ccwg-bbr): a model of the path, its bandwidth and its shortest round trip,
//! decides how fast segments leave and how many may be in flight.
//!
//! This file holds the variables and the order of things on an ACK; `model` learns, `cycle` and
//! `probe_rtt` decide what to try next, `output` turns the model into window and rate. Names are those of
//! the draft; docs/rfc.md says what departs from it.

mod cycle;
mod model;
mod output;
mod probe_rtt;

use super::{
    AckSample, Cause, CongestionEvent, Controller, Window, initial_window, window::scaled,
};
use crate::time::Instant;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// No bound known.
const INFINITE: u32 = u32::MAX;
/// No bandwidth bound known.
const INFINITE_BW: u64 = u64::MAX;
/// BBR.Beta.
const BETA: (u64, u64) = (7, 10);

bitflags::bitflags! {
    /// Yes-or-no variables.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Flags: u16 {
        const FULL_BW_NOW = 1;
        const FULL_BW_REACHED = 1 << 1;
        const LOSS_IN_ROUND = 1 << 2;
        const ROUND_START = 1 << 3;
        const LOSS_ROUND_START = 1 << 4;
        const BW_PROBE_SAMPLES = 1 << 5;
        const IDLE_RESTART = 1 << 6;
        const PROBE_RTT_ROUND_DONE = 1 << 7;
        const PROBE_RTT_EXPIRED = 1 << 8;
        /// A window was saved before PROBE_RTT or a timeout.
        const CWND_SAVED = 1 << 9;
        const ECE_IN_ROUND = 1 << 10;
    }
}

/// BBR.state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    Startup = 0,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

/// BBR.ack_phase: what the ACKs of now say about the last probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum AckPhase {
    Init = 0,
    Refilling,
    Starting,
    Feedback,
    Stopping,
}

/// The variables of BBR: bytes, bytes per second, microseconds.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Bbr {
    /// MaxBwFilter: the best of the last probing cycle and of this one.
    max_bw: [u64; 2],
    /// BBR.bw_shortterm.
    bw_lo: u64,
    bw_latest: u64,
    full_bw: u64,
    next_round_delivered: u64,
    loss_round_delivered: u64,
    cycle_stamp_us: u64,
    min_rtt_stamp_us: u64,
    probe_rtt_min_stamp_us: u64,
    /// 0: not waiting.
    probe_rtt_done_us: u64,
    extra_acked_start_us: u64,
    extra_acked_delivered: u64,
    undo_bw_lo: u64,
    extra_acked: [u32; 2],
    extra_acked_round: u32,
    min_rtt_us: u32,
    probe_rtt_min_us: u32,
    bw_probe_wait_us: u32,
    inflight_latest: u32,
    /// BBR.inflight_shortterm and BBR.inflight_longterm.
    inflight_lo: u32,
    inflight_hi: u32,
    undo_inflight_lo: u32,
    undo_inflight_hi: u32,
    prior_cwnd: u32,
    /// Bytes acknowledged for one more segment of `inflight_hi`.
    probe_up_per: u32,
    probe_up_acked: u32,
    round_count: u32,
    /// Of the current loss round.
    lost_in_round: u32,
    delivered_in_round: u32,
    ece_in_round: u32,
    flags: u16,
    /// Share of marked bytes, in 1/1024.
    ecn_alpha: u16,
    phase: u8,
    ack_phase: u8,
    full_bw_count: u8,
    rounds_since_probe: u8,
    probe_up_rounds: u8,
    full_ecn_count: u8,
    reserved: [u8; 6],
}

impl Controller for Bbr {
    fn start(&mut self, window: &mut Window, now: Instant, srtt_us: u64) {
        let now_us = now.as_us();
        self.bw_lo = INFINITE_BW;
        self.inflight_lo = INFINITE;
        self.inflight_hi = INFINITE;
        self.undo_bw_lo = INFINITE_BW;
        self.undo_inflight_lo = INFINITE;
        self.undo_inflight_hi = INFINITE;
        self.min_rtt_us = match u32::try_from(srtt_us) {
            Ok(0) | Err(_) => INFINITE,
            Ok(us) => us,
        };
        self.probe_rtt_min_us = self.min_rtt_us;
        self.min_rtt_stamp_us = now_us;
        self.probe_rtt_min_stamp_us = now_us;
        self.extra_acked_start_us = now_us;
        self.probe_up_per = INFINITE;
        // A threshold of another algorithm says nothing here.
        window.ssthresh = u32::MAX;
        self.start_pacing(window, srtt_us);
        self.enter_startup();
    }

    /// BBRUpdateOnACK.
    fn on_ack(&mut self, window: &mut Window, sample: &AckSample) {
        self.update_latest_signals(sample);
        self.update_congestion_signals(window, sample);
        self.update_ack_aggregation(window, sample);
        self.check_full_bw_reached(sample);
        self.check_startup_done(window, sample);
        if self.phase() == Phase::Drain && sample.in_flight <= self.inflight(window, (1, 1)) {
            self.enter_probe_bw(sample);
        }
        self.update_cycle(window, sample);
        self.update_min_rtt(sample);
        self.check_probe_rtt(window, sample);
        self.advance_latest_signals(sample);
        self.set_pacing_rate(window);
        self.set_cwnd(window, sample);
    }

    /// Loss and marks enter the model through the samples; there is no reduction of its own.
    fn on_congestion_event(&mut self, window: &mut Window, event: &CongestionEvent) {
        if event.cause == Cause::Loss {
            self.save_for_undo();
            self.save_cwnd(window);
        }
    }

    fn on_recovery_exit(&mut self, window: &mut Window, _now: Instant) {
        self.restore_cwnd(window);
    }

    /// BBROnEnterRTO.
    fn on_timeout(&mut self, window: &mut Window, _event: &CongestionEvent, first: bool) {
        if first {
            self.save_for_undo();
            self.save_cwnd(window);
        }
        // Nothing is known to be in flight any more.
        window.cwnd = window.mss;
    }

    /// BBRHandleSpuriousLossDetection.
    fn undo(&mut self, window: &mut Window, _now: Instant) {
        self.set(Flags::LOSS_IN_ROUND, false);
        self.full_bw = 0;
        self.full_bw_count = 0;
        self.set(Flags::FULL_BW_NOW, false);
        self.bw_lo = self.bw_lo.max(self.undo_bw_lo);
        self.inflight_lo = self.inflight_lo.max(self.undo_inflight_lo);
        self.inflight_hi = self.inflight_hi.max(self.undo_inflight_hi);
        window.restore();
        window.ssthresh = u32::MAX;
    }

    /// BBRHandleRestartFromIdle: the model stands, so the window does too; the pace begins at what the
    /// path is known to carry.
    fn on_idle(&mut self, window: &mut Window, now: Instant, _long: bool) {
        self.set(Flags::IDLE_RESTART, true);
        self.extra_acked_start_us = now.as_us();
        self.extra_acked_delivered = 0;
        if self.in_probe_bw() {
            self.pace_at(window, (1, 1));
        } else if self.phase() == Phase::ProbeRtt {
            self.check_probe_rtt_done(window, now.as_us());
        }
    }

    fn owns_recovery(&self) -> bool {
        true
    }
}

impl Bbr {
    fn flags(&self) -> Flags {
        Flags::from_bits_truncate(self.flags)
    }

    fn has(&self, flag: Flags) -> bool {
        self.flags().contains(flag)
    }

    fn set(&mut self, flag: Flags, on: bool) {
        let mut flags = self.flags();
        flags.set(flag, on);
        self.flags = flags.bits();
    }

    fn phase(&self) -> Phase {
        match self.phase {
            0 => Phase::Startup,
            1 => Phase::Drain,
            2 => Phase::Down,
            3 => Phase::Cruise,
            4 => Phase::Refill,
            5 => Phase::Up,
            _ => Phase::ProbeRtt,
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase as u8;
    }

    fn ack_phase(&self) -> AckPhase {
        match self.ack_phase {
            0 => AckPhase::Init,
            1 => AckPhase::Refilling,
            2 => AckPhase::Starting,
            3 => AckPhase::Feedback,
            _ => AckPhase::Stopping,
        }
    }

    fn expect_acks(&mut self, phase: AckPhase) {
        self.ack_phase = phase as u8;
    }

    fn in_probe_bw(&self) -> bool {
        matches!(
            self.phase(),
            Phase::Down | Phase::Cruise | Phase::Refill | Phase::Up
        )
    }

    /// BBRIsProbingBW: the phases that look for more than the model has.
    fn is_probing_bw(&self) -> bool {
        matches!(self.phase(), Phase::Startup | Phase::Refill | Phase::Up)
    }

    fn enter_startup(&mut self) {
        self.enter(Phase::Startup);
    }

    /// BBRStartRound.
    fn start_round(&mut self, delivered: u64) {
        self.next_round_delivered = delivered;
    }

    fn save_for_undo(&mut self) {
        self.undo_bw_lo = self.bw_lo;
        self.undo_inflight_lo = self.inflight_lo;
        self.undo_inflight_hi = self.inflight_hi;
    }

    /// BBRSaveCwnd: during recovery and PROBE_RTT the window may already be small.
    fn save_cwnd(&mut self, window: &Window) {
        self.prior_cwnd = if self.has(Flags::CWND_SAVED) {
            self.prior_cwnd.max(window.cwnd)
        } else {
            window.cwnd
        };
        self.set(Flags::CWND_SAVED, true);
    }

    /// BBRRestoreCwnd.
    fn restore_cwnd(&mut self, window: &mut Window) {
        if self.has(Flags::CWND_SAVED) {
            window.cwnd = window.cwnd.max(self.prior_cwnd);
            self.set(Flags::CWND_SAVED, false);
        }
    }
}

#[cfg(test)]
mod tests;
