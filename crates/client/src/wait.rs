//! Blocking: spin a little, publish that we sleep, look once more, sleep in ppoll(2).
//!
//! The poll set of a sleeping thread: of each engine core that the process is attached to the doorbell
//! (leaders only, see `sleeping`) and the control channel for its hang-up; the thread's own waker; and
//! descriptors of the caller. Signals end a wait
//! with EINTR; what they mean is the caller's affair.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fd::RawFd;
use rustix::io::Errno;

use crate::attachments::Attachments;
use crate::crank::{self, Watch};
use crate::lock::lock;
use crate::session::Session;
use crate::socket::TcpSocket;
use crate::sys;
use crate::waker::Waker;

/// A signal mask for the length of a sleep, as ppoll(2) takes it.
pub type SignalMask<'a> = Option<&'a libc::sigset_t>;

/// Why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// The condition holds.
    Ready,
    /// A descriptor of the caller has news (`revents` is set).
    Kernel,
    /// The deadline has passed.
    TimedOut,
}

/// How a thread sleeps.
pub struct Sleep<'a> {
    /// Descriptors of the caller.
    pub kernel: &'a mut [libc::pollfd],
    /// Signal mask.
    pub mask: SignalMask<'a>,
    /// When to give up.
    pub deadline: Option<Instant>,
}

/// The library's own entries in a poll set for each thread: its waker, the device that it watches.
const OF_THREAD: usize = 2;
/// The number of an entry that is left out.
const NONE: RawFd = -1;
/// The library's own entries in a poll set for each core.
const OF_CORE: usize = 2;
/// Poll sets up to this size lie on the stack.
const SMALL: usize = 16;
/// A lost wake-up would be our bug; look again this often so that it costs latency and not a hang. Also
/// bounds how long an engine that died without closing its channel (stopped, say) goes unnoticed.
const RECHECK: Duration = Duration::from_secs(10);

impl Session {
    /// Waits until `ready` holds, a descriptor of `kernel` has news, or the deadline passes; EINTR if a
    /// signal handler ran. `ready` is asked again after every event of the `sockets` (of others it may
    /// be) and must not sleep. Several threads may wait at once, for the same sockets too.
    pub fn wait(
        &self,
        sockets: &[&TcpSocket],
        kernel: &mut [libc::pollfd],
        mask: SignalMask<'_>,
        deadline: Option<Instant>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Result<Woken, Errno> {
        if ready() {
            return Ok(Woken::Ready);
        }
        let Some(all) = self.attachments_to_wait_on() else {
            return wait_for_kernel(
                &mut Sleep {
                    kernel,
                    mask,
                    deadline,
                },
                ready,
            );
        };
        if self.spin(all, ready) {
            return Ok(Woken::Ready);
        }
        let waker = all.take_waker()?;
        self.change_waiters(sockets, |registry, id| registry.add_waiter(id, &waker));
        let sleep = Sleep {
            kernel,
            mask,
            deadline,
        };
        let result = self.sleep(all, &waker, sleep, ready);
        self.change_waiters(sockets, |registry, id| registry.remove_waiter(id, &waker));
        all.return_waker(waker);
        result
    }

    /// The attachments; a forked child that has no socket, or whose engine is gone, does without.
    fn attachments_to_wait_on(&self) -> Option<&'static Attachments> {
        match self.attached() {
            None if lock(&self.registry).is_empty() => None,
            None => self.attachments().ok(),
            attached => attached,
        }
    }

    fn change_waiters(
        &self,
        sockets: &[&TcpSocket],
        change: impl Fn(&mut crate::registry::Registry, hostif::SocketId),
    ) {
        if !sockets.is_empty() {
            let mut registry = lock(&self.registry);
            for id in sockets.iter().flat_map(|socket| socket.ids()) {
                change(&mut registry, id);
            }
        }
    }

    fn spin(&self, all: &Attachments, ready: &mut dyn FnMut() -> bool) -> bool {
        if let Some(crank) = crank::current() {
            return crank::spin(crank, self.crank_budget, &mut || {
                for attachment in all.iter() {
                    self.reap_if_free(attachment);
                }
                ready()
            });
        }
        if self.spin.is_zero() {
            return false;
        }
        let start = Instant::now();
        while start.elapsed() < self.spin {
            for attachment in all.iter() {
                self.reap_if_free(attachment);
            }
            if ready() {
                return true;
            }
            core::hint::spin_loop();
        }
        false
    }

    /// Sleeps with a waker that is registered wherever it has to be.
    pub(crate) fn sleep(
        &self,
        all: &Attachments,
        waker: &Arc<Waker>,
        mut sleep: Sleep<'_>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Result<Woken, Errno> {
        let mut leads = all.sleeping.enter(waker);
        // Bit n: this thread counts among the sleepers of core n.
        let mut entered = 0_u64;
        let result = loop {
            leads |= waker.take_promotion();
            waker.on_awake();
            for attachment in all.iter() {
                let bit = 1 << attachment.core;
                if entered & bit == 0 {
                    entered |= bit;
                    attachment.sleepers.enter(&attachment.program_word);
                } else {
                    attachment.program_word.announce();
                }
                self.reap_all(attachment);
            }
            if ready() {
                break Ok(Woken::Ready);
            }
            if !waker.may_sleep() {
                continue;
            }
            match self.poll_watching(all, entered, waker, &mut sleep, leads) {
                Ok(None) => {}
                Ok(Some(Woken::Kernel)) => break Ok(Woken::Kernel),
                // The end of the wait may have come together with what was waited for.
                ended => {
                    for attachment in all.iter() {
                        self.reap_all(attachment);
                    }
                    break if ready() {
                        Ok(Woken::Ready)
                    } else {
                        ended.map(|woken| woken.unwrap_or(Woken::TimedOut))
                    };
                }
            }
        };
        waker.on_awake();
        all.sleeping.leave(waker);
        for attachment in all.iter().filter(|one| entered & (1 << one.core) != 0) {
            if attachment.sleepers.leave(&attachment.program_word) {
                self.reap_all(attachment);
            }
        }
        result
    }

    /// As `poll_once`; a thread that leads also watches the device of an engine inside this process.
    fn poll_watching(
        &self,
        all: &Attachments,
        entered: u64,
        waker: &Waker,
        sleep: &mut Sleep<'_>,
        leads: bool,
    ) -> Result<Option<Woken>, Errno> {
        let Some(crank) = crank::current().filter(|_| leads) else {
            return self.poll_once(all, entered, waker, sleep, leads, None);
        };
        let watch = crank::watch(crank);
        let device = match watch {
            // A glance without sleeping: however much there is to do, signals and the deadline are seen.
            Watch::Turn => (NONE, Duration::ZERO),
            Watch::Device(fd, longest) => (fd, longest),
            Watch::Nothing => return self.poll_once(all, entered, waker, sleep, leads, None),
        };
        let result = self.poll_once(all, entered, waker, sleep, leads, Some(device));
        // What the turn brings is reaped by this thread right after it, which then also wakes the others:
        // nobody has to ring meanwhile.
        for attachment in all.iter() {
            attachment.program_word.withdraw();
        }
        crank::turn(crank);
        if watch != Watch::Turn {
            crank.unwatch();
        }
        result
    }

    /// One ppoll on the cores whose bits are set in `entered`; `None` to look again.
    fn poll_once(
        &self,
        all: &Attachments,
        entered: u64,
        waker: &Waker,
        sleep: &mut Sleep<'_>,
        leads: bool,
        device: Option<(RawFd, Duration)>,
    ) -> Result<Option<Woken>, Errno> {
        let cores = || all.iter().filter(|one| entered & (1 << one.core) != 0);
        let count = sleep.kernel.len();
        let total = count + OF_THREAD + OF_CORE * cores().count();
        let mut small = [libc::pollfd {
            fd: -1,
            events: 0,
            revents: 0,
        }; SMALL];
        let mut large = Vec::new();
        let fds = if total <= SMALL {
            &mut small[..total]
        } else {
            large.resize(total, small[0]);
            &mut large[..]
        };
        fds[..count].copy_from_slice(sleep.kernel);
        // A negative number is left out. A dead engine's descriptors would be ready for ever.
        let entry = |wanted, fd, events| libc::pollfd {
            fd: if wanted { fd } else { NONE },
            events,
            revents: 0,
        };
        fds[count] = entry(true, waker.number(), libc::POLLIN);
        let (device, longest) = device.unwrap_or((NONE, RECHECK));
        fds[count + 1] = entry(true, device, libc::POLLIN);
        let (_, own) = fds.split_at_mut(count + OF_THREAD);
        for (pair, attachment) in own.chunks_exact_mut(OF_CORE).zip(cores()) {
            let alive = !attachment.is_dead();
            pair[0] = entry(leads && alive, attachment.bell_number(), libc::POLLIN);
            pair[1] = entry(alive, attachment.control.number(), 0);
        }

        let left = sleep
            .deadline
            .map(|moment| moment.saturating_duration_since(Instant::now()));
        let longest = longest.min(RECHECK);
        let timeout = left.map_or(longest, |left| left.min(longest));
        let news = sys::ppoll(fds, Some(timeout), sleep.mask)?;
        let (_, own) = fds.split_at(count + OF_THREAD);
        for (pair, attachment) in own.chunks_exact(OF_CORE).zip(cores()) {
            if pair[0].revents != 0 {
                attachment.drain_bell();
            }
            if pair[1].revents != 0 {
                self.check_engine(attachment);
            }
        }
        let own = fds[count..].iter().filter(|fd| fd.revents != 0).count();
        sleep.kernel.copy_from_slice(&fds[..count]);
        if news > own {
            return Ok(Some(Woken::Kernel));
        }
        let over = sleep
            .deadline
            .is_some_and(|moment| Instant::now() >= moment);
        Ok((news == 0 && over).then_some(Woken::TimedOut))
    }
}

/// A wait where no engine has anything to say.
fn wait_for_kernel(sleep: &mut Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> Result<Woken, Errno> {
    loop {
        let left = sleep
            .deadline
            .map(|moment| moment.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(RECHECK, |left| left.min(RECHECK));
        let news = sys::ppoll(sleep.kernel, Some(timeout), sleep.mask)?;
        if news > 0 {
            return Ok(Woken::Kernel);
        }
        if ready() {
            return Ok(Woken::Ready);
        }
        if sleep
            .deadline
            .is_some_and(|moment| Instant::now() >= moment)
        {
            return Ok(Woken::TimedOut);
        }
    }
}
