//! Small sends on one socket that come one right after the other share a poll, and so a frame.
//!
//! A frame is a system call of some two microseconds, however little is in it. The first sends after a wait
//! leave at once, each with a poll of its own. A program that goes on sending on the same socket, without a wait
//! and with little time between, has its notes held back until there are [`HELD_MAX`] of them, until the first
//! has waited for [`GAP_US`], or until it calls for anything else. One that stops in the middle and computes is
//! served by the helper, which looks every [`GUARD_US`] meanwhile. On different sockets a frame is no longer
//! shared, and what waits only waits.
//!
//! No note is forgotten: whoever holds one back says so and then looks whether the helper is on guard, and a helper
//! that leaves its guard says so and then looks whether a note is held (the order of `hostif::sync::doorbell`). A
//! poll takes back what is said before it looks at the rings, by a swap: the note of whoever says so later is
//! another poll's.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// Sends in a row that leave at once.
const ROW_MIN: u32 = 4;
/// Notes that are held back at most.
const HELD_MAX: u32 = 16;
/// Longer between two sends and they are no row; so long the first waits, as long as others follow.
const GAP_US: u64 = 20;
/// How often the helper looks while notes are held back.
const GUARD_US: u64 = 100;
/// How long after the last one it leaves its guard.
const LINGER_US: u64 = 1_000;

/// What becomes of a note.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Offer {
    /// It is the first since a thread has waited, and polled: it is sent at once.
    First,
    /// It is sent at once, with all that were held back.
    Send,
    /// It waits; the helper is on guard.
    Wait,
    /// It waits, and the helper has to be kicked.
    Kick,
}

/// See the file's head.
#[derive(Default)]
pub(super) struct Batch {
    /// Sends in a row since a thread has last waited, and their socket.
    row: AtomicU32,
    socket: AtomicU64,
    /// Notes that wait.
    held: AtomicU32,
    /// When the first of them came, and the last, microseconds.
    since_us: AtomicU64,
    last_us: AtomicU64,
    /// The helper looks every now and then.
    guarded: AtomicBool,
}

impl Batch {
    /// A thread waits.
    pub(super) fn on_wait(&self) {
        if self.row.load(Ordering::Relaxed) != 0 {
            self.row.store(0, Ordering::Relaxed);
        }
    }

    /// A note of a small send on `socket` was left. `polled_us`: when a thread has last polled; `now_us`: the clock.
    #[inline(always)]
    pub(super) fn offer(&self, socket: u64, polled_us: u64, now_us: impl FnOnce() -> u64) -> Offer {
        let is_next = self.socket.load(Ordering::Relaxed) == socket;
        let row = if is_next {
            self.row.load(Ordering::Relaxed).saturating_add(1)
        } else {
            self.socket.store(socket, Ordering::Relaxed);
            1
        };
        self.row.store(row, Ordering::Relaxed);
        if row <= ROW_MIN {
            return if row == 1 && !self.holds() {
                Offer::First
            } else {
                Offer::Send
            };
        }
        let now_us = now_us();
        let before_us = polled_us.max(self.last_us.load(Ordering::Relaxed));
        self.last_us.store(now_us, Ordering::Relaxed);
        if now_us.saturating_sub(before_us) > GAP_US {
            self.row.store(1, Ordering::Relaxed);
            return Offer::Send;
        }
        let held = self.held.load(Ordering::Relaxed);
        let first_us = self.since_us.load(Ordering::Relaxed);
        if held + 1 >= HELD_MAX || held > 0 && now_us.saturating_sub(first_us) > GAP_US {
            return Offer::Send;
        }
        if held == 0 {
            self.since_us.store(now_us, Ordering::Relaxed);
        }
        self.held.store(held + 1, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.guarded.load(Ordering::Relaxed) || self.guarded.swap(true, Ordering::AcqRel) {
            Offer::Wait
        } else {
            Offer::Kick
        }
    }

    /// Whether a note waits.
    pub(super) fn holds(&self) -> bool {
        self.held.load(Ordering::Relaxed) != 0
    }

    /// A poll begins that will find all notes there are.
    pub(super) fn on_poll(&self) {
        if self.holds() {
            self.held.swap(0, Ordering::AcqRel);
        }
    }

    /// For the helper: whether notes have waited for long enough.
    pub(super) fn is_overdue(&self, now_us: u64) -> bool {
        let first_us = self.since_us.load(Ordering::Relaxed);
        self.holds() && now_us.saturating_sub(first_us) > GAP_US
    }

    /// For the helper, before it sleeps: how long at most, while it is on guard.
    pub(super) fn guard_us(&self, now_us: u64) -> Option<u64> {
        if !self.guarded.load(Ordering::Acquire) {
            return None;
        }
        let last_us = self.last_us.load(Ordering::Relaxed);
        if now_us.saturating_sub(last_us) > LINGER_US {
            self.guarded.store(false, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if !self.holds() {
                return None;
            }
            self.guarded.store(true, Ordering::Relaxed);
        }
        Some(GUARD_US)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKET: u64 = 7;

    /// Offers a note at each of the times and says what becomes of it.
    fn offers(batch: &Batch, times_us: &[u64]) -> Vec<Offer> {
        let offer = |&us: &u64| {
            let offer = batch.offer(SOCKET, 0, || us);
            if matches!(offer, Offer::First | Offer::Send) {
                batch.on_poll();
            }
            offer
        };
        times_us.iter().map(offer).collect()
    }

    #[test]
    fn the_first_sends_after_a_wait_leave_at_once() {
        let batch = Batch::default();
        for _ in 0..3 {
            let expected = [Offer::First, Offer::Send, Offer::Send, Offer::Send];
            assert_eq!(offers(&batch, &[1000; 4]), expected);
            batch.on_wait();
        }
        assert!(!batch.holds());
    }

    #[test]
    fn those_that_follow_close_behind_leave_together() {
        let batch = Batch::default();
        batch.last_us.store(1000, Ordering::Relaxed);
        offers(&batch, &[1000; 4]);
        let expected = [[Offer::Wait; 15].as_slice(), &[Offer::Send]].concat();
        let first = offers(&batch, &[1001; 16]);
        assert_eq!(first[0], Offer::Kick);
        assert_eq!(first[1..], expected[1..]);
        assert_eq!(
            offers(&batch, &[1002; 16]),
            expected,
            "the helper is on guard"
        );
        assert!(!batch.holds());
    }

    #[test]
    fn the_first_of_them_waits_no_longer_than_a_gap() {
        let batch = Batch::default();
        batch.last_us.store(1000, Ordering::Relaxed);
        let taken = offers(&batch, &[1000, 1000, 1000, 1000, 1001, 1011, 1021, 1022]);
        assert_eq!(
            taken[4..],
            [Offer::Kick, Offer::Wait, Offer::Wait, Offer::Send]
        );
    }

    #[test]
    fn sends_with_time_between_leave_at_once() {
        let batch = Batch::default();
        let times: Vec<u64> = (1..30).map(|n| n * 50).collect();
        let expected = [[Offer::First].as_slice(), &[Offer::Send; 28]].concat();
        assert_eq!(offers(&batch, &times), expected);
        // Also after a row: what was held back leaves with it.
        offers(&batch, &[1450; 5]);
        assert!(batch.holds());
        assert_eq!(offers(&batch, &[1471]), [Offer::Send]);
    }

    #[test]
    fn sends_on_different_sockets_leave_at_once() {
        let batch = Batch::default();
        batch.last_us.store(1000, Ordering::Relaxed);
        let both = (0..40).map(|n| batch.offer(n % 2, 1000, || 1000));
        assert!(both.into_iter().all(|offer| offer == Offer::First));
        offers(&batch, &[1000; 5]);
        assert!(batch.holds());
        assert_eq!(
            batch.offer(8, 1000, || 1000),
            Offer::Send,
            "with what is held back"
        );
    }

    #[test]
    fn the_helper_sends_what_its_program_has_left_and_leaves_its_guard_later() {
        let batch = Batch::default();
        assert_eq!(batch.guard_us(1000), None);
        batch.last_us.store(1000, Ordering::Relaxed);
        offers(&batch, &[1000; 5]);
        assert!(!batch.is_overdue(1020));
        assert!(batch.is_overdue(1021));
        assert_eq!(batch.guard_us(1021), Some(GUARD_US));
        assert_eq!(batch.guard_us(9000), Some(GUARD_US), "a note waits");
        batch.on_poll();
        assert!(!batch.is_overdue(9000));
        assert_eq!(batch.guard_us(2000), Some(GUARD_US));
        assert_eq!(batch.guard_us(2001), None);
        batch.on_wait();
        batch.last_us.store(3000, Ordering::Relaxed);
        assert_eq!(offers(&batch, &[3000; 5])[4], Offer::Kick);
    }
}
