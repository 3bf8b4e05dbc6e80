//! Slow start, congestion avoidance and the multiplicative decrease (RFC 5681), initial window 10
//! (RFC 6928). Which segments are lost is `recovery`'s business.

use zerocopy::{FromZeros, Immutable, KnownLayout};

/// Initial window for segments of `mss` bytes (RFC 6928 §2).
pub fn initial_window(mss: u32) -> u32 {
    (10 * mss).min((2 * mss).max(14_600))
}

/// Congestion window and slow-start threshold, bytes.
#[derive(Clone, Copy, Debug, Default, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Reno {
    pub cwnd: u32,
    pub ssthresh: u32,
    /// Bytes acknowledged since the last increase in congestion avoidance (RFC 3465 §2.1).
    acknowledged: u32,
    reserved: u32,
}

/// No window grows beyond this; it keeps the arithmetic in 32 bits.
const MAX_CWND: u32 = 1 << 30;

impl Reno {
    pub fn start(&mut self, mss: u32, syn_lost: bool) {
        // RFC 6928 §2: a lost SYN starts the connection with one segment.
        self.cwnd = if syn_lost { mss } else { initial_window(mss) };
        self.ssthresh = u32::MAX;
        self.acknowledged = 0;
    }

    /// RFC 5681 §3.1, counting bytes (RFC 3465) so that one ACK for 64 KiB opens as much as many.
    pub fn on_acknowledged(&mut self, bytes: u32, mss: u32) {
        if self.cwnd < self.ssthresh {
            self.cwnd = self.cwnd.saturating_add(bytes).min(MAX_CWND);
            return;
        }
        self.acknowledged = self.acknowledged.saturating_add(bytes);
        while self.acknowledged >= self.cwnd {
            self.acknowledged -= self.cwnd;
            self.cwnd = self.cwnd.saturating_add(mss).min(MAX_CWND);
        }
    }

    /// RFC 5681 §3.1 equation (4), then §3.2 step 2.
    pub fn on_loss(&mut self, flight: u64, mss: u32) {
        self.ssthresh = half_flight(flight, mss);
        self.cwnd = self.ssthresh;
        self.acknowledged = 0;
    }

    /// RFC 5681 §3.1: the loss window is one segment; the threshold is halved once per episode.
    pub fn on_timeout(&mut self, flight: u64, mss: u32, first: bool) {
        if first {
            self.ssthresh = half_flight(flight, mss);
        }
        self.cwnd = mss;
        self.acknowledged = 0;
    }

    /// RFC 5681 §4.1: after idling for a retransmission timeout, begin with the restart window.
    pub fn on_idle(&mut self, mss: u32) {
        self.cwnd = self.cwnd.min(initial_window(mss));
    }
}

fn half_flight(flight: u64, mss: u32) -> u32 {
    u32::try_from(flight / 2).unwrap_or(MAX_CWND).max(2 * mss)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_window_is_ten_segments_up_to_the_limit_of_the_rfc() {
        assert_eq!(initial_window(1_460), 14_600);
        assert_eq!(initial_window(536), 5_360);
        assert_eq!(initial_window(9_000), 18_000);
    }

    #[test]
    fn slow_start_doubles_and_avoidance_adds_one_segment_per_window() {
        let mut reno = Reno::default();
        reno.start(1_000, false);
        let before = reno.cwnd;
        reno.on_acknowledged(before, 1_000);
        assert_eq!(reno.cwnd, 2 * before);
        reno.on_loss(u64::from(reno.cwnd), 1_000);
        assert_eq!(reno.cwnd, before);
        reno.on_acknowledged(before, 1_000);
        assert_eq!(reno.cwnd, before + 1_000);
    }

    #[test]
    fn a_second_timeout_keeps_the_threshold() {
        let mut reno = Reno::default();
        reno.start(1_000, false);
        reno.on_timeout(40_000, 1_000, true);
        reno.on_timeout(1_000, 1_000, false);
        assert_eq!((reno.cwnd, reno.ssthresh), (1_000, 20_000));
    }
}
