//! Puts a [`Cable`] on each direction of any driver, in real time: `Impaired<AfPacket>` is a bad
//! link to the real network, `Impaired<WireEnd>` a bad link between two engines.
//!
//! A cable carries frames, not large segments: those are cut before it, and their checksums
//! finished, so that one loss costs one segment and a flipped bit is noticed. That costs time; this
//! is for tests and the lab, not for speed.

use std::io;
use std::time::Instant;

use crate::cable::{Cable, CableCounters};
use crate::impairment::Impairment;
use crate::pool::PooledFrame;
use nic::driver::{Caps, Counters, Driver, LARGE_SEGMENT_BYTES, RxChecksum, RxFrame, TxFrame};
use nic::forward_driver;
use nic::offload::{self, Finisher};

const BUSY_RETRY_US: u64 = 100;
/// Frames taken from the inner driver at a time; the rest waits there.
const ROUND: usize = 64;
/// Rounds before sleeping; what a faster sender adds then keeps us awake.
const ROUNDS_MAX: usize = 16;

/// A driver behind two impaired cables.
pub struct Impaired<D> {
    inner: D,
    caps: Caps,
    receive: Cable,
    transmit: Cable,
    /// A frame that left the transmit cable and found the inner driver busy.
    waiting: Option<PooledFrame>,
    finisher: Finisher,
    start: Instant,
    counters: Counters,
}

impl<D: Driver> Impaired<D> {
    /// `inner` behind a cable that does `receive` to what arrives and one that does `transmit` to
    /// what leaves, with the choices that `seed` stands for.
    pub fn new(inner: D, receive: Impairment, transmit: Impairment, seed: u64) -> Self {
        let caps = Caps {
            tx_checksum: true,
            rx_checksum: false,
            tso_max_bytes: LARGE_SEGMENT_BYTES,
            gro: false,
            ..inner.caps().clone()
        };
        Self {
            inner,
            caps,
            receive: Cable::new(receive, seed),
            transmit: Cable::new(transmit, !seed),
            waiting: None,
            finisher: Finisher::new(),
            start: Instant::now(),
            counters: Counters::default(),
        }
    }

    /// The driver behind the cables.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// What the receiving and the transmitting cable did.
    pub fn cable_counters(&self) -> [CableCounters; 2] {
        [self.receive.counters(), self.transmit.counters()]
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// From the inner driver onto the receiving cable; returns how many frames arrived.
    fn take_in(&mut self, budget: usize) -> io::Result<usize> {
        let now_us = self.now_us();
        let (receive, finisher) = (&mut self.receive, &mut self.finisher);
        self.inner
            .rx_burst(budget, &mut |frame| put(receive, finisher, now_us, &frame))
    }

    /// From the transmitting cable to the inner driver, as far as time and the driver allow.
    fn let_out(&mut self) -> io::Result<()> {
        let now_us = self.now_us();
        while let Some(frame) = self.waiting.take().or_else(|| self.transmit.pop(now_us)) {
            if self.inner.tx_burst(&[TxFrame::plain(&frame)])? == 0 {
                self.waiting = Some(frame);
                break;
            }
            self.transmit.give_back(frame);
        }
        Ok(())
    }
}

/// Puts a received frame on the cable as it would have come over a real one.
fn put(cable: &mut Cable, finisher: &mut Finisher, now_us: u64, frame: &RxFrame<'_>) {
    if let Some(size) = frame.segment_size
        && finisher
            .unmerge(frame.bytes, size, &mut |bytes| cable.push(now_us, bytes))
            .is_ok()
    {
        return;
    }
    let checksum = match frame.checksum {
        RxChecksum::Partial => offload::locate_checksum(frame.bytes),
        _ => None,
    };
    let frame = TxFrame {
        checksum,
        ..TxFrame::plain(frame.bytes)
    };
    // Cannot fail: the field was just found inside the frame.
    let _ = finisher.finish(&frame, &mut |bytes| cable.push(now_us, bytes));
}

impl<D: Driver> Driver for Impaired<D> {
    forward_driver!(this => this.inner;
        flush_tx, wait_fd, stop_watch, listen_to, poll_local_peer, has_peer_news, attend, mode, complaints);

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        self.let_out()?;
        self.take_in(budget.max(ROUND))?;
        let now_us = self.now_us();
        let mut received = 0;
        while received < budget {
            let Some(frame) = self.receive.pop(now_us) else {
                break;
            };
            let (checksum, segment_size) = (RxChecksum::Unknown, None);
            sink(RxFrame {
                bytes: &frame,
                checksum,
                segment_size,
                arrived_at_ns: None,
            });
            received += 1;
            self.counters.rx_frames += 1;
            self.counters.rx_bytes += frame.len() as u64;
            self.receive.give_back(frame);
        }
        Ok(received)
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        let now_us = self.now_us();
        for frame in frames {
            let transmit = &mut self.transmit;
            match self
                .finisher
                .finish(frame, &mut |bytes| transmit.push(now_us, bytes))
            {
                Ok(_) => {
                    self.counters.tx_frames += 1;
                    self.counters.tx_bytes += frame.frame_len() as u64;
                }
                Err(_) => self.counters.tx_dropped += 1,
            }
        }
        self.let_out()?;
        Ok(frames.len())
    }

    fn prepare_wait(&mut self) -> io::Result<bool> {
        self.let_out()?;
        for _ in 0..ROUNDS_MAX {
            if self.take_in(ROUND)? == 0 {
                break;
            }
        }
        let ready = self
            .receive
            .next_event_us()
            .is_some_and(|at| at <= self.now_us());
        Ok(!ready && self.inner.prepare_wait()?)
    }

    fn wait_deadline_us(&self) -> Option<u64> {
        let now_us = self.now_us();
        let from_now = |at: u64| at.saturating_sub(now_us);
        let arrival = self.receive.next_event_us().map(from_now);
        let departure = self.transmit.next_event_us().map(from_now);
        let retry = self.waiting.as_ref().map(|_| BUSY_RETRY_US);
        [arrival, departure, retry, self.inner.wait_deadline_us()]
            .into_iter()
            .flatten()
            .min()
    }

    fn counters(&self) -> Counters {
        let lost = |cable: CableCounters| cable.lost + cable.burst_lost + cable.overflowed;
        let inner = self.inner.counters();
        Counters {
            rx_dropped: inner.rx_dropped + lost(self.receive.counters()),
            tx_dropped: self.counters.tx_dropped
                + inner.tx_dropped
                + lost(self.transmit.counters()),
            tx_busy: inner.tx_busy,
            ..self.counters
        }
    }
}

#[cfg(test)]
mod tests;
