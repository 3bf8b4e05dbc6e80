//! PROBE_RTT (draft-ietf-ccwg-bbr §5.3.4): now and then drain the queue, to see the round trip without it.

use super::{AckPhase, AckSample, Bbr, Flags, Phase, Window};

/// BBR.ProbeRTTInterval, BBR.MinRTTFilterLen, BBR.ProbeRTTDuration, microseconds.
const INTERVAL_US: u64 = 5_000_000;
const FILTER_US: u64 = 10_000_000;
const DURATION_US: u64 = 200_000;

impl Bbr {
    /// BBRUpdateMinRTT.
    pub(super) fn update_min_rtt(&mut self, sample: &AckSample) {
        let now_us = sample.now.as_us();
        let expired = now_us > self.probe_rtt_min_stamp_us + INTERVAL_US;
        self.set(Flags::PROBE_RTT_EXPIRED, expired);
        if let Some(rtt) = sample.rtt {
            let rtt_us = u32::try_from(rtt.as_us().max(1)).unwrap_or(u32::MAX - 1);
            if rtt_us < self.probe_rtt_min_us || expired {
                self.probe_rtt_min_us = rtt_us;
                self.probe_rtt_min_stamp_us = now_us;
            }
        }
        if self.probe_rtt_min_us < self.min_rtt_us || now_us > self.min_rtt_stamp_us + FILTER_US {
            self.min_rtt_us = self.probe_rtt_min_us;
            self.min_rtt_stamp_us = self.probe_rtt_min_stamp_us;
        }
    }

    /// BBRCheckProbeRTT.
    pub(super) fn check_probe_rtt(&mut self, window: &mut Window, sample: &AckSample) {
        if self.phase() != Phase::ProbeRtt
            && self.has(Flags::PROBE_RTT_EXPIRED)
            && !self.has(Flags::IDLE_RESTART)
        {
            self.save_cwnd(window);
            self.enter(Phase::ProbeRtt);
            self.probe_rtt_done_us = 0;
            self.expect_acks(AckPhase::Stopping);
            self.start_round(sample.delivered_total);
        }
        if self.phase() == Phase::ProbeRtt {
            self.handle_probe_rtt(window, sample);
        }
        if sample.delivered > 0 {
            self.set(Flags::IDLE_RESTART, false);
        }
    }

    /// BBRHandleProbeRTT.
    fn handle_probe_rtt(&mut self, window: &mut Window, sample: &AckSample) {
        let now_us = sample.now.as_us();
        if self.probe_rtt_done_us == 0 {
            if sample.in_flight <= self.probe_rtt_cwnd(window) {
                self.probe_rtt_done_us = now_us + DURATION_US;
                self.set(Flags::PROBE_RTT_ROUND_DONE, false);
                self.start_round(sample.delivered_total);
            }
            return;
        }
        if self.has(Flags::ROUND_START) {
            self.set(Flags::PROBE_RTT_ROUND_DONE, true);
        }
        if self.has(Flags::PROBE_RTT_ROUND_DONE) && now_us > self.probe_rtt_done_us {
            self.probe_rtt_min_stamp_us = now_us;
            self.restore_cwnd(window);
            self.exit_probe_rtt();
            if self.in_probe_bw() {
                self.start_down(sample);
                self.start_cruise();
            }
        }
    }

    /// BBRCheckProbeRTTDone, when sending begins again after silence.
    pub(super) fn check_probe_rtt_done(&mut self, window: &mut Window, now_us: u64) {
        if self.probe_rtt_done_us != 0 && now_us > self.probe_rtt_done_us {
            self.probe_rtt_min_stamp_us = now_us;
            self.restore_cwnd(window);
            self.exit_probe_rtt();
        }
    }

    /// BBRExitProbeRTT.
    fn exit_probe_rtt(&mut self) {
        self.reset_lower_bounds();
        if self.has(Flags::FULL_BW_REACHED) {
            self.start_cruise();
        } else {
            self.enter_startup();
        }
    }
}
