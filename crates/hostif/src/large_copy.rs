//! Large copies into memory that another processor has read since: with ordinary stores, or with those that do not fetch what they overwrite.
//!
//! An ordinary store has the line brought first from the cache that has it. Where the processors share no cache that takes several times as long as
//! the copy; where they do, on some processors, it is the faster way. A virtual machine's host moves its processors at any time, so both ways are
//! timed again and again.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::window::Window;

/// Less is copied with ordinary stores: it may well be read out of the cache at once.
const LARGE_BYTES: usize = 16 << 10;
/// Copies by each way that are timed; the fastest counts, since a processor may be taken away in any.
const TIMED: u32 = 4;
/// Large copies after which they are timed again.
const PERIOD: u32 = 1024;

/// Large copies of a process into such memory, and how long they took.
#[derive(Debug)]
pub struct LargeCopies {
    count: AtomicU32,
    /// Picoseconds a byte: the fastest that were timed.
    ordinary_ps: AtomicU32,
    past_cache_ps: AtomicU32,
}

impl LargeCopies {
    /// None yet: they begin with ordinary stores.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            count: AtomicU32::new(0),
            ordinary_ps: AtomicU32::new(0),
            past_cache_ps: AtomicU32::new(0),
        }
    }

    /// As [`Window::copy_in`], in the way that takes less time here and now.
    pub fn copy_in(
        &self,
        window: &Window<'_>,
        offset: u64,
        data: &[u8],
        now_ns: impl Fn() -> u64,
    ) -> usize {
        if data.len() < LARGE_BYTES {
            return window.copy_in(offset, data);
        }
        let count = self.count.fetch_add(1, Relaxed) % PERIOD;
        let (is_past, fastest_ps) = match count {
            0..TIMED => (false, Some(&self.ordinary_ps)),
            TIMED.. if count < 2 * TIMED => (true, Some(&self.past_cache_ps)),
            _ => (self.is_past_faster(), None),
        };
        let began_ns = fastest_ps.map(|_| now_ns());
        let copied = match is_past {
            true => window.copy_in_past_cache(offset, data),
            false => window.copy_in(offset, data),
        };
        if let Some((fastest_ps, began_ns)) = fastest_ps.zip(began_ns) {
            let ps = now_ns().saturating_sub(began_ns) * 1000 / data.len() as u64;
            let ps = u32::try_from(ps).unwrap_or(u32::MAX);
            match count % TIMED {
                0 => fastest_ps.store(ps, Relaxed),
                _ => drop(fastest_ps.fetch_min(ps, Relaxed)),
            }
        }
        copied
    }

    /// Half as fast again at least: what was not left in a cache takes its reader longer.
    fn is_past_faster(&self) -> bool {
        let past_cache_ps = u64::from(self.past_cache_ps.load(Relaxed));
        past_cache_ps * 3 / 2 < u64::from(self.ordinary_ps.load(Relaxed))
    }
}

impl Default for LargeCopies {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;
    use crate::Region;

    const SEND_WINDOW_BYTES: u32 = 64 << 10;

    /// So many copies, of which the timed ones take so long by each way.
    fn copy(copies: &LargeCopies, count: u32, ordinary_ns: u64, past_cache_ns: u64) {
        let region = Region::small(SEND_WINDOW_BYTES);
        let (span, _) = region.window_pair(1).unwrap();
        let window = region.window(span).unwrap();
        let (calls, now) = (Cell::new(0_u64), Cell::new(0));
        let clock = || {
            // Each timed copy asks twice.
            let copy = calls.replace(calls.get() + 1) / 2 % u64::from(2 * TIMED);
            let is_end = calls.get().is_multiple_of(2);
            let took = match copy < u64::from(TIMED) {
                true => ordinary_ns,
                false => past_cache_ns,
            };
            now.set(now.get() + if is_end { took } else { 0 });
            now.get()
        };
        for number in 0..count {
            let first = usize::try_from(number).unwrap();
            let data: Vec<u8> = (first..first + LARGE_BYTES + 17)
                .map(|at| at.to_le_bytes()[0])
                .collect();
            let offset = u64::from(number) * 12_345;
            assert_eq!(copies.copy_in(&window, offset, &data, clock), data.len());
            let mut found = vec![0; data.len()];
            window.copy_out(offset, &mut found);
            assert!(found == data, "copy {number}");
        }
    }

    #[test]
    fn stores_go_past_the_cache_where_that_is_half_as_fast_again_and_no_longer() {
        let copies = LargeCopies::new();
        assert!(!copies.is_past_faster());
        copy(&copies, PERIOD, 16_000, 2_000);
        assert!(copies.is_past_faster());
        copy(&copies, PERIOD, 2_500, 2_000);
        assert!(!copies.is_past_faster());
        copy(&copies, PERIOD, 4_000, 2_000);
        assert!(copies.is_past_faster());
    }

    #[test]
    fn small_copies_are_neither_timed_nor_counted() {
        let copies = LargeCopies::new();
        let region = Region::small(SEND_WINDOW_BYTES);
        let (span, _) = region.window_pair(1).unwrap();
        let window = region.window(span).unwrap();
        let never = || -> u64 { panic!("asked for the time") };
        assert_eq!(copies.copy_in(&window, 5, &[7; 100], never), 100);
        assert_eq!(copies.count.load(Relaxed), 0);
    }
}
