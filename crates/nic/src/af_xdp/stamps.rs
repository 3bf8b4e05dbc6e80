//! The time that the XDP program leaves before a frame (`program::stamp`), as time since 1970.

use rustix::time::{ClockId, clock_gettime};

use super::program::{STAMP, STAMP_BYTES};
use super::sys::{CHUNK_BYTES, Umem};

/// Pairs of reads of the two clocks, of which the closest counts.
const TRIES: usize = 16;

/// Reads stamps.
pub(super) struct Stamps {
    /// CLOCK_REALTIME less CLOCK_MONOTONIC.
    offset_ns: u64,
}

impl Stamps {
    pub(super) fn new() -> Self {
        let tries = (0..TRIES).map(|_| {
            let [before, real, after] =
                [ClockId::Monotonic, ClockId::Realtime, ClockId::Monotonic].map(time_ns);
            let middle = before + (after - before) / 2;
            (after - before, real.saturating_sub(middle))
        });
        Self {
            offset_ns: tries.min().map_or(0, |(_, offset_ns)| offset_ns),
        }
    }

    /// Takes the stamp of a frame that begins there, in nanoseconds since 1970; `None`: the device's driver leaves no place for one. A
    /// stamp is taken once: what is left of an earlier frame of the same chunk is none of this one's.
    pub(super) fn take(&self, umem: &mut Umem, frame_at: u64) -> Option<u64> {
        let before = u64::from(STAMP_BYTES);
        let is_within = frame_at % CHUNK_BYTES as u64 >= before;
        let at = frame_at.checked_sub(before).filter(|_| is_within)?;
        let bytes = umem.bytes_mut(at, usize::from(STAMP_BYTES))?;
        let (name, time) = bytes.split_first_chunk_mut::<8>()?;
        if u64::from_ne_bytes(std::mem::take(name)) != STAMP {
            return None;
        }
        let time = u64::from_ne_bytes(*time.first_chunk()?);
        Some(time.saturating_add(self.offset_ns))
    }
}

fn time_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}
