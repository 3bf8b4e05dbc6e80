//! The variables that every algorithm has: window, threshold, and both as they were before the last
//! reduction, in case that was for nothing.

use super::initial_window;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// No window grows beyond this; it keeps the arithmetic in 32 bits.
pub(crate) const MAX_CWND: u32 = 1 << 30;

/// What all algorithms share. Bytes, but for the rate.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Window {
    pub cwnd: u32,
    /// `u32::MAX` before the first congestion.
    pub ssthresh: u32,
    /// Payload of a full segment.
    pub mss: u32,
    /// Acknowledged since the last increase in congestion avoidance (RFC 3465 §2.1).
    pub acknowledged: u32,
    prior_cwnd: u32,
    /// 0: nothing to restore.
    prior_ssthresh: u32,
    /// Bytes per second; 0: not paced.
    pub pacing_rate: u64,
}

impl Window {
    /// RFC 6928 §2: a lost SYN starts the connection with one segment.
    pub fn initial(mss: u32, syn_lost: bool) -> Self {
        Self {
            cwnd: if syn_lost { mss } else { initial_window(mss) },
            ssthresh: u32::MAX,
            mss: mss.max(1),
            acknowledged: 0,
            prior_cwnd: 0,
            prior_ssthresh: 0,
            pacing_rate: 0,
        }
    }

    pub const fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// No congestion was ever met.
    pub const fn in_first_slow_start(&self) -> bool {
        self.ssthresh == u32::MAX
    }

    pub fn grow(&mut self, bytes: u32) {
        self.cwnd = self.cwnd.saturating_add(bytes).min(MAX_CWND);
    }

    /// RFC 5681 §3.1, counting bytes (RFC 3465 §2.3 with L = what was acknowledged). Returns what is
    /// left of `bytes` once the threshold is reached: a stretch ACK does not jump over it.
    pub fn slow_start(&mut self, bytes: u32) -> u32 {
        let room = self.ssthresh.saturating_sub(self.cwnd);
        let used = bytes.min(room);
        self.grow(used);
        bytes - used
    }

    /// One segment more for every `per` bytes acknowledged.
    pub fn avoid(&mut self, bytes: u32, per: u32) {
        let per = per.max(self.mss).max(1);
        let acknowledged = self.acknowledged.saturating_add(bytes);
        // One ACK for many windows counts as often as they fit.
        self.grow((acknowledged / per).saturating_mul(self.mss));
        self.acknowledged = acknowledged % per;
    }

    /// The multiplicative decrease: both to `bytes`, two segments at least (RFC 5681 §3.1 equation 4).
    pub fn reduce_to(&mut self, bytes: u32) {
        self.ssthresh = bytes.min(MAX_CWND).max(2 * self.mss);
        self.cwnd = self.ssthresh;
        self.acknowledged = 0;
    }

    /// RFC 5681 §3.1: after a timeout, one segment.
    pub fn collapse(&mut self) {
        self.cwnd = self.mss;
        self.acknowledged = 0;
    }

    /// RFC 5681 §4.1: after idling for a retransmission timeout, begin with the restart window.
    pub fn restart(&mut self) {
        self.cwnd = self.cwnd.min(initial_window(self.mss));
    }

    /// Before a reduction.
    pub fn remember(&mut self) {
        self.prior_cwnd = self.cwnd;
        self.prior_ssthresh = self.ssthresh;
    }

    /// After a reduction that was for nothing; growth since then stays.
    /// Returns whether there was something to restore.
    pub fn restore(&mut self) -> bool {
        if self.prior_ssthresh == 0 {
            return false;
        }
        self.cwnd = self.cwnd.max(self.prior_cwnd);
        self.ssthresh = self.ssthresh.max(self.prior_ssthresh);
        self.prior_ssthresh = 0;
        true
    }
}

/// `bytes` times a fraction that is at most one.
pub(crate) fn scaled(bytes: u32, (numerator, denominator): (u64, u64)) -> u32 {
    u32::try_from(u64::from(bytes) * numerator / denominator).unwrap_or(bytes)
}
