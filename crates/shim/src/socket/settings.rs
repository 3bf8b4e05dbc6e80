//! What calls on data read of a socket: whether they block, how long they wait, and for how much.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{NONBLOCKING, OWES_OPTIONS, SHARED, Socket};
use crate::{process, sys};

/// In place of a timeout: it is over before it begins.
pub const AT_ONCE_US: u64 = u64::MAX;

/// In `known_blocking`.
const KNOWN_OFF: u32 = 1;
const KNOWN_ON: u32 = 2;
const KNOWN: u32 = 3;

impl Socket {
    /// Another process has the open file, or may have it.
    pub fn set_shared(&self) {
        self.made_after.store(SHARED, Ordering::Relaxed);
    }

    /// Whether another process may have the open file.
    pub fn is_shared(&self) -> bool {
        self.made_after.load(Ordering::Relaxed) != process::departures()
    }

    /// Whether it is known that O_NONBLOCK is not set, of a socket on which the kernel does not listen.
    #[inline]
    pub fn is_known_blocking(&self) -> bool {
        self.known_blocking.load(Ordering::Acquire) & KNOWN == KNOWN_OFF && !self.is_shared()
    }

    /// O_NONBLOCK. Asked only when a call would block. The kernel is asked once, and again when the program changes it: a
    /// system call would be a tenth of a round trip. Where another process may have the open file, and change it too, it is
    /// always asked.
    pub fn is_nonblocking(&self, fd: RawFd) -> Result<bool, Errno> {
        if self.kernel_listens() {
            let stream = self.borrow_stream();
            let stream = stream.as_ref();
            return Ok(stream.is_some_and(|stream| stream.is_marked(NONBLOCKING)));
        }
        let seen = self.known_blocking.load(Ordering::Acquire);
        let may_know = !self.is_shared();
        if may_know && seen & KNOWN != 0 {
            return Ok(seen & KNOWN == KNOWN_ON);
        }
        let on = rustix::fs::fcntl_getfl(sys::borrow(fd)?)?.contains(OFlags::NONBLOCK);
        if may_know {
            let known = seen & !KNOWN | if on { KNOWN_ON } else { KNOWN_OFF };
            let (set, get) = (Ordering::AcqRel, Ordering::Relaxed);
            // Where it has changed meanwhile the kernel is asked again.
            let _ = self.known_blocking.compare_exchange(seen, known, set, get);
        }
        Ok(on)
    }

    /// A new socket, which nobody else has yet: its O_NONBLOCK is known.
    pub fn set_made_nonblocking(&self, on: bool) {
        let known = if on { KNOWN_ON } else { KNOWN_OFF };
        self.known_blocking.store(known, Ordering::Release);
    }

    /// The program has changed O_NONBLOCK.
    pub fn forget_blocking(&self) {
        let next = |seen: u32| Some((seen & !KNOWN).wrapping_add(KNOWN + 1));
        let (set, get) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = self.known_blocking.fetch_update(set, get, next);
    }

    /// Before anybody asks the backing socket of an accepted connection for an option, here or in another process: it gets
    /// what it has from its listener, which most connections end without.
    pub fn pay_options(&self, fd: RawFd) {
        if self.has(OWES_OPTIONS)
            && self.flags.fetch_and(!OWES_OPTIONS, Ordering::AcqRel) & OWES_OPTIONS != 0
        {
            self.log.replay(fd);
        }
    }

    /// The O_NONBLOCK that the program set on a listener whose backing socket hides it.
    pub fn set_hidden_nonblocking(&self, on: bool) {
        if let Some(stream) = self.stream() {
            stream.mark(NONBLOCKING, on);
        }
    }

    /// SO_RCVLOWAT.
    pub fn low_water(&self) -> u32 {
        self.receive_low_water.load(Ordering::Relaxed)
    }

    /// Sets SO_RCVLOWAT.
    pub fn set_low_water(&self, bytes: u32) {
        self.receive_low_water
            .store(bytes.max(1), Ordering::Relaxed);
    }

    /// Sets SO_RCVBUF.
    pub fn set_receive_limit(&self, bytes: u32) {
        self.receive_limit.store(bytes.max(1), Ordering::Relaxed);
    }

    /// SO_RCVTIMEO.
    pub fn receive_timeout(&self) -> Option<Duration> {
        timeout(&self.receive_timeout_us)
    }

    /// SO_SNDTIMEO.
    pub fn send_timeout(&self) -> Option<Duration> {
        timeout(&self.send_timeout_us)
    }

    /// Sets SO_RCVTIMEO; 0 is none.
    pub fn set_receive_timeout_us(&self, timeout_us: u64) {
        self.receive_timeout_us.store(timeout_us, Ordering::Relaxed);
    }

    /// Sets SO_SNDTIMEO; 0 is none.
    pub fn set_send_timeout_us(&self, timeout_us: u64) {
        self.send_timeout_us.store(timeout_us, Ordering::Relaxed);
    }
}

fn timeout(us: &AtomicU64) -> Option<Duration> {
    match us.load(Ordering::Relaxed) {
        0 => None,
        AT_ONCE_US => Some(Duration::ZERO),
        us => Some(Duration::from_micros(us)),
    }
}
