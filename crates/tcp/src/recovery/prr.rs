//! Proportional rate reduction (RFC 9937): how much leaves during fast recovery, so that the window
//! arrives at ssthresh in the course of one round trip and neither stalls nor bursts.

use zerocopy::{FromZeros, Immutable, KnownLayout};

/// The variables of RFC 9937 §6, bytes.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Prr {
    /// prr_delivered.
    delivered: u64,
    /// prr_out.
    out: u64,
    /// RecoverFS.
    flight: u64,
}

/// What an ACK did, as PRR sees it. Bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrrAck {
    /// DeliveredData.
    pub delivered: u64,
    pub in_flight: u64,
    pub ssthresh: u64,
    pub mss: u64,
    /// SafeACK: SND.UNA moved and no further loss was found.
    pub is_safe: bool,
}

impl Prr {
    /// RFC 9937 §6: recovery begins with `flight` in the network.
    pub fn begin(flight: u64) -> Self {
        Self {
            delivered: 0,
            out: 0,
            flight: flight.max(1),
        }
    }

    /// RecoverFS.
    pub const fn flight(&self) -> u64 {
        self.flight
    }

    pub fn on_sent(&mut self, bytes: u64) {
        self.out += bytes;
    }

    /// The congestion window after an ACK; `None`: it delivered nothing, so nothing changes.
    pub fn on_ack(&mut self, ack: &PrrAck) -> Option<u64> {
        if ack.delivered == 0 {
            return None;
        }
        self.delivered += ack.delivered;
        let mut allowed = if ack.in_flight > ack.ssthresh {
            // In proportion to what arrives, and up to whole segments as Linux counts: a part of one would
            // wait, and in a small window nothing would follow the retransmission to tell that it was lost.
            self.delivered
                .saturating_mul(ack.ssthresh)
                .div_ceil(self.flight.max(1))
                .next_multiple_of(ack.mss.max(1))
                .saturating_sub(self.out)
        } else {
            // PRR-CRB, and PRR-SSRB while recovery goes well.
            let conserving = self.delivered.saturating_sub(self.out).max(ack.delivered);
            let bound = conserving + if ack.is_safe { ack.mss } else { 0 };
            bound.min(ack.ssthresh - ack.in_flight)
        };
        if self.out == 0 {
            // The fast retransmit goes out in any case.
            allowed = allowed.max(ack.mss);
        }
        Some(ack.in_flight + allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1_000;

    fn ack(delivered: u64, in_flight: u64, is_safe: bool) -> PrrAck {
        PrrAck {
            delivered,
            in_flight,
            ssthresh: 10_000,
            mss: MSS,
            is_safe,
        }
    }

    /// Sends as much as the window allows and returns how much.
    fn send(prr: &mut Prr, cwnd: u64, in_flight: &mut u64) -> u64 {
        let bytes = cwnd.saturating_sub(*in_flight) / MSS * MSS;
        prr.on_sent(bytes);
        *in_flight += bytes;
        bytes
    }

    #[test]
    fn half_leaves_of_what_arrives_while_more_than_ssthresh_is_in_flight() {
        // 20 segments, one lost, ssthresh 10: the fast retransmit, then one segment for every second ACK.
        let mut prr = Prr::begin(20 * MSS);
        let mut in_flight = 18 * MSS;
        let mut sent = Vec::new();
        for _ in 0..8 {
            let cwnd = prr.on_ack(&ack(MSS, in_flight, false)).unwrap();
            sent.push(send(&mut prr, cwnd, &mut in_flight));
            in_flight -= MSS;
        }
        assert_eq!(sent, [1_000, 0, 1_000, 0, 1_000, 0, 1_000, 0]);
    }

    #[test]
    fn after_heavy_loss_it_catches_up_by_one_segment_for_each_good_ack() {
        let mut prr = Prr::begin(20 * MSS);
        let mut in_flight = 2 * MSS;
        let cwnd = prr.on_ack(&ack(MSS, in_flight, false)).unwrap();
        assert_eq!(send(&mut prr, cwnd, &mut in_flight), MSS, "PRR-CRB");
        in_flight -= MSS;
        let cwnd = prr.on_ack(&ack(MSS, in_flight, true)).unwrap();
        assert_eq!(send(&mut prr, cwnd, &mut in_flight), 2 * MSS, "PRR-SSRB");
    }

    #[test]
    fn it_never_climbs_past_ssthresh() {
        let mut prr = Prr::begin(20 * MSS);
        prr.on_sent(MSS);
        assert_eq!(prr.on_ack(&ack(15 * MSS, 9_500, true)), Some(10_000));
    }

    #[test]
    fn the_fast_retransmit_leaves_even_when_nothing_else_may() {
        let mut prr = Prr::begin(20 * MSS);
        assert_eq!(prr.on_ack(&ack(1, 10_000, false)), Some(11_000));
        prr.on_sent(MSS);
        assert_eq!(prr.on_ack(&ack(1, 10_000, false)), Some(10_000));
        assert_eq!(prr.on_ack(&ack(0, 10_000, false)), None);
    }
}
