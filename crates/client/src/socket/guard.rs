//! A lock of a socket's header, held in the name of this process's session: all threads of the process have one name.

use hostif::RegionLock;

/// A lock of a header, held.
pub struct LockGuard<'a> {
    lock: RegionLock<'a>,
    session: u32,
}

impl<'a> LockGuard<'a> {
    /// Of a lock that the session has taken.
    pub(super) fn of(lock: RegionLock<'a>, session: u32) -> Self {
        Self { lock, session }
    }

    /// Takes the lock if it is free.
    #[inline(always)]
    pub(super) fn try_take(lock: RegionLock<'a>, session: u32) -> Option<Self> {
        // Not `then_some`: a guard that is made and dropped gives back what another thread of the process holds.
        lock.try_lock(session).then(|| Self::of(lock, session))
    }
}

impl Drop for LockGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.unlock(self.session);
    }
}

#[cfg(test)]
mod tests {
    use hostif::{Layout, Region, RingEntries};

    use super::*;

    #[test]
    fn who_tries_in_vain_does_not_give_back_what_another_thread_of_the_process_holds() {
        let ring_entries = RingEntries {
            command: 2,
            send: 2,
            receive: 2,
            completion: 2,
        };
        let layout = Layout {
            ring_entries,
            socket_headers: 1,
            window_pairs: 1,
            send_window_bytes: 4096,
            receive_window_bytes: 4096,
        };
        let region = Region::create(layout, 1, 7).unwrap();
        let header = region.socket_header(0).unwrap();
        let held = LockGuard::try_take(header.receive_lock(), 7).unwrap();
        assert!(LockGuard::try_take(header.receive_lock(), 7).is_none());
        assert!(header.receive_lock().is_held_by(7));
        drop(held);
        assert!(!header.receive_lock().is_held_by(7));
    }
}
