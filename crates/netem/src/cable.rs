//! One direction of a cable as a value: frames in with a time, frames out with a time, and nothing
//! read from clock or system in between. The same seed and the same calls give the same trace.
//!
//! Read first: tc-netem(8), for what each impairment means. The order of things is that of a line:
//! a frame waits in a bounded queue for its turn at the line's rate, and what can happen to it on
//! the way (loss, a flipped bit, a copy, delay) happens behind the queue. Each impairment draws
//! from a random stream of its own, once per frame, so that adding one leaves the others' choices
//! as they were.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::ecn;
use crate::impairment::Impairment;
use crate::pool::{FramePool, PooledFrame};
use nic::driver::MAX_FRAME_BYTES;

/// Frames that can be on the way at once; more are dropped as if the queue were full.
pub const IN_FLIGHT_MAX: usize = 65_536;
/// What one buffer is made for; longer frames make it grow.
const USUAL_FRAME_BYTES: usize = 2048;

/// What became of the frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CableCounters {
    /// Frames pushed.
    pub offered: u64,
    /// Frames popped.
    pub delivered: u64,
    /// Lost one by one.
    pub lost: u64,
    /// Lost in a burst.
    pub burst_lost: u64,
    /// Dropped because the queue was full, or too long for any link.
    pub overflowed: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// With a bit flipped.
    pub corrupted: u64,
    /// Held back.
    pub reordered: u64,
    /// Marked "congestion experienced".
    #[serde(default)]
    pub marked: u64,
}

/// One direction of a cable.
#[derive(Debug)]
pub struct Cable {
    impairment: Impairment,
    streams: Streams,
    in_burst: bool,
    /// When the line has sent all that waits for it.
    line_free_ns: u64,
    /// When each frame that waits for the line leaves it; kept where frames are counted.
    leaving_ns: VecDeque<u64>,
    /// When the last frame that keeps its order arrives.
    last_due_ns: u64,
    order: u64,
    flying: BinaryHeap<Reverse<(u64, u64, PooledFrame)>>,
    pool: FramePool,
    counters: CableCounters,
}

impl Cable {
    /// A cable that does `impairment` to frames, with the choices that `seed` stands for.
    #[must_use]
    pub fn new(impairment: Impairment, seed: u64) -> Self {
        Self {
            impairment,
            streams: Streams::new(seed),
            in_burst: false,
            line_free_ns: 0,
            leaving_ns: VecDeque::new(),
            last_due_ns: 0,
            order: 0,
            flying: BinaryHeap::new(),
            pool: FramePool::new(USUAL_FRAME_BYTES, IN_FLIGHT_MAX),
            counters: CableCounters::default(),
        }
    }

    /// Puts a frame on the cable at `now_us`, which never goes back.
    pub fn push(&mut self, now_us: u64, frame: &[u8]) {
        self.counters.offered += 1;
        let choice = self.streams.draw(&self.impairment, self.in_burst);
        self.in_burst = choice.in_burst;
        let Some(turn) = self.enqueue(now_us.saturating_mul(1000), frame.len()) else {
            self.counters.overflowed += 1;
            return;
        };
        if choice.in_burst {
            self.counters.burst_lost += 1;
            return;
        }
        if choice.lost {
            self.counters.lost += 1;
            return;
        }
        let due_ns = self.due(turn.sent_ns, &choice);
        self.fly(due_ns, frame, turn.mark, choice.corrupt_bit);
        if choice.duplicated {
            self.counters.duplicated += 1;
            self.fly(due_ns, frame, turn.mark, None);
        }
    }

    /// The next frame that has arrived by `now_us`; give it back when done with it.
    pub fn pop(&mut self, now_us: u64) -> Option<PooledFrame> {
        if self.next_event_us()? > now_us {
            return None;
        }
        let Reverse((_, _, frame)) = self.flying.pop()?;
        self.counters.delivered += 1;
        Some(frame)
    }

    /// Takes the buffer of a popped frame back, so that no new one is needed.
    pub fn give_back(&mut self, frame: PooledFrame) {
        self.pool.give_back(frame);
    }

    /// When the next frame arrives, if one is on the way.
    #[must_use]
    pub fn next_event_us(&self) -> Option<u64> {
        self.flying
            .peek()
            .map(|Reverse((due_ns, _, _))| due_ns.div_ceil(1000))
    }

    /// What became of the frames so far.
    #[must_use]
    pub fn counters(&self) -> CableCounters {
        self.counters
    }

    /// A frame's turn on the line, or `None` if the queue has no room for it.
    fn enqueue(&mut self, now_ns: u64, len: usize) -> Option<Turn> {
        if len > MAX_FRAME_BYTES {
            return None;
        }
        let Some(rate_bps) = self.impairment.rate_bps else {
            return Some(Turn {
                sent_ns: now_ns,
                mark: false,
            });
        };
        let rate_bps = u128::from(rate_bps.max(1));
        let waiting_ns = u128::from(self.line_free_ns.saturating_sub(now_ns));
        let waiting_bytes = waiting_ns * rate_bps / 8_000_000_000;
        // An idle line always takes one frame, however small the queue.
        let full = waiting_bytes + len as u128 > u128::from(self.impairment.queue_bytes);
        if waiting_ns > 0 && (full || self.frames_waiting(now_ns)) {
            return None;
        }
        let line_ns = (len as u128 * 8_000_000_000).div_ceil(rate_bps);
        let line_ns = u64::try_from(line_ns).unwrap_or(u64::MAX);
        self.line_free_ns = self.line_free_ns.max(now_ns).saturating_add(line_ns);
        if self.impairment.queue_frames.is_some() {
            self.leaving_ns.push_back(self.line_free_ns);
        }
        let threshold = self.impairment.ecn_bytes.map(u128::from);
        Some(Turn {
            sent_ns: self.line_free_ns,
            mark: threshold.is_some_and(|bytes| waiting_bytes > bytes),
        })
    }

    /// Whether as many frames wait for the line as may.
    fn frames_waiting(&mut self, now_ns: u64) -> bool {
        let Some(most) = self.impairment.queue_frames else {
            return false;
        };
        while self.leaving_ns.front().is_some_and(|at| *at <= now_ns) {
            self.leaving_ns.pop_front();
        }
        let most = usize::try_from(most).unwrap_or(IN_FLIGHT_MAX);
        self.leaving_ns.len() >= most.min(IN_FLIGHT_MAX)
    }

    /// When a frame arrives that left at `sent_ns`.
    fn due(&mut self, sent_ns: u64, choice: &Choice) -> u64 {
        let delay_ns = self.impairment.delay_us.saturating_mul(1000);
        let jitter_ns = self.impairment.jitter_us.saturating_mul(1000);
        // `jitter` is drawn from twice the range: the lower half makes the delay shorter.
        let range = jitter_ns.saturating_mul(2).saturating_add(1);
        let delay_ns = delay_ns
            .saturating_add(choice.jitter % range)
            .saturating_sub(jitter_ns);
        let due_ns = sent_ns.saturating_add(delay_ns).max(self.last_due_ns);
        if choice.reordered {
            self.counters.reordered += 1;
            return due_ns.saturating_add(self.impairment.reorder_us.saturating_mul(1000));
        }
        self.last_due_ns = due_ns;
        due_ns
    }

    fn fly(&mut self, due_ns: u64, bytes: &[u8], mark: bool, corrupt_bit: Option<u64>) {
        let Some(mut frame) = self.pool.take() else {
            self.counters.overflowed += 1;
            return;
        };
        frame.extend_from_slice(bytes);
        if mark && ecn::mark(&mut frame) {
            self.counters.marked += 1;
        }
        if let Some(bit) = corrupt_bit
            && let Some(at) = bit.checked_rem(bytes.len() as u64 * 8)
        {
            let index = usize::try_from(at / 8).expect("invariant: below the frame's length");
            frame[index] ^= 1 << (at % 8);
            self.counters.corrupted += 1;
        }
        self.flying.push(Reverse((due_ns, self.order, frame)));
        self.order += 1;
    }
}

/// What the queue and the line do with one frame.
struct Turn {
    /// When its last bit leaves.
    sent_ns: u64,
    /// The queue was long enough to say so.
    mark: bool,
}

/// What happens to one frame.
struct Choice {
    lost: bool,
    in_burst: bool,
    jitter: u64,
    reordered: bool,
    duplicated: bool,
    corrupt_bit: Option<u64>,
}

#[derive(Debug)]
struct Streams {
    loss: Random,
    burst: Random,
    jitter: Random,
    reorder: Random,
    duplicate: Random,
    corrupt: Random,
    bit: Random,
}

impl Streams {
    fn new(seed: u64) -> Self {
        let mut seeds = Random(seed);
        let mut stream = || Random(seeds.next());
        Self {
            loss: stream(),
            burst: stream(),
            jitter: stream(),
            reorder: stream(),
            duplicate: stream(),
            corrupt: stream(),
            bit: stream(),
        }
    }

    fn draw(&mut self, impairment: &Impairment, in_burst: bool) -> Choice {
        // Two states (Gilbert 1960): a burst begins with one probability and ends with another,
        // which makes its length geometric with the mean asked for.
        let turn = self.burst.chance();
        let in_burst = if in_burst {
            turn >= 1.0 / impairment.burst_length.max(1.0)
        } else {
            turn < impairment.burst
        };
        let bit = self.bit.next();
        Choice {
            lost: self.loss.chance() < impairment.loss,
            in_burst,
            jitter: self.jitter.next(),
            reordered: self.reorder.chance() < impairment.reorder,
            duplicated: self.duplicate.chance() < impairment.duplicate,
            corrupt_bit: (self.corrupt.chance() < impairment.corrupt).then_some(bit),
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): any seed is a good one.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Evenly from 0 (included) to 1 (not included).
    fn chance(&mut self) -> f64 {
        const STEPS: f64 = 9_007_199_254_740_992.0; // 2^53
        (self.next() >> 11) as f64 / STEPS
    }
}

#[cfg(test)]
mod tests;
