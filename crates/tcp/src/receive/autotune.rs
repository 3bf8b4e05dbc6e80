//! Receive window autotuning ("dynamic right-sizing", Fisk and Feng 2001; `tcp_rcv_space_adjust` of Linux): how
//! much of the receive window is offered follows what the program consumes in a round trip.
//!
//! A connection begins with little, so that a peer cannot fill memory that nobody reads; a program that
//! reads as fast as data comes is soon offered as much as the path can use. What is offered never
//! shrinks. `SO_RCVBUF` fixes it instead. The caller bounds all connections together by the `ceiling`.

use crate::{
    connection::Connection,
    receive::receiver::Receiver,
    recovery::rtt::{CLOCK_TICK, INITIAL_RTO},
    time::{Duration, Instant},
};
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// Room for segments that are on their way when the offer is made, in full segments.
const SPARE_SEGMENTS: u64 = 16;
/// No echo makes a round longer than this: it is the peer's word.
const LONGEST_ROUND: Duration = Duration::from_secs(4);

/// One measurement after another, each at least a round trip long.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Autotune {
    /// Bytes that are offered, of the window's capacity.
    pub offered: u32,
    /// Bytes that the program took in the best round so far.
    pub taken: u32,
    /// When the round began, microseconds, and what was consumed then; both modulo 2^32.
    began: u32,
    consumed: u32,
}

impl Connection {
    /// The program has consumed; no offer is raised above `ceiling`.
    #[inline]
    pub(crate) fn tune_receive_window(&mut self, now: Instant, ceiling: u32) {
        let now_us = low(now.as_us());
        let elapsed = now_us.wrapping_sub(self.rcv.tuning.began);
        if u64::from(elapsed) < self.receive_round_trip_us() {
            return;
        }
        self.end_tuning_round(now_us, ceiling);
    }

    #[cold]
    fn end_tuning_round(&mut self, now_us: u32, ceiling: u32) {
        let rcv = &mut self.rcv;
        let taken = low(rcv.consumed).wrapping_sub(rcv.tuning.consumed);
        (rcv.tuning.began, rcv.tuning.consumed) = (now_us, low(rcv.consumed));
        if taken <= rcv.tuning.taken {
            return;
        }
        let wanted = wanted(rcv, taken);
        rcv.tuning.taken = taken;
        let most = rcv.capacity.min(ceiling);
        rcv.tuning.offered = rcv.tuning.offered.max(wanted.min(most));
    }

    /// How long it takes until the peer acts on what we tell it. Who only receives measured that in the
    /// handshake, and the path may have become slower since: what the last segment echoed says more
    /// (RFC 7323 §4.1), if less exactly, by a tick of the clock and the time in which the peer was silent.
    #[inline]
    fn receive_round_trip_us(&self) -> u64 {
        let measured_us = self.rtt.srtt_us();
        if !self.rcv.timestamps {
            return measured_us.unwrap_or(INITIAL_RTO.as_us());
        }
        let clock = self.timestamp_clock(self.timers.last_received);
        let elapsed_ms = u64::from(clock.wrapping_sub(self.rcv.ts_echo));
        let echoed_us = (elapsed_ms * 1_000).saturating_sub(CLOCK_TICK.as_us());
        echoed_us
            .min(LONGEST_ROUND.as_us())
            .max(measured_us.unwrap_or(0))
    }
}

/// What was taken is on its way once more while this offer travels: twice that. A flow that grows will have
/// grown by then, so its growth counts twice too.
fn wanted(rcv: &Receiver, taken: u32) -> u32 {
    let segment = u64::from(rcv.segment_payload);
    let steady = 2 * u64::from(taken) + SPARE_SEGMENTS * segment;
    let before = u64::from(rcv.tuning.taken).max(segment);
    let growth = steady * (u64::from(taken) - u64::from(rcv.tuning.taken)) / before;
    u32::try_from(steady + 2 * growth.min(steady)).unwrap_or(u32::MAX)
}

fn low(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
