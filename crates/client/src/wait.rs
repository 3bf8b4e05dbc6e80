//! Blocking: spin a little, publish that we sleep, look once more, sleep in ppoll(2) (`parties`).
//!
//! Signals end a wait with EINTR; what they mean is the caller's affair.

use std::time::{Duration, Instant};

use rustix::fd::RawFd;
use rustix::io::Errno;

use crate::crank::{self, Lender, Spun};
use crate::lanes;
use crate::lock::lock;
use crate::parties::Parties;
use crate::quiet;
use crate::receive::Loan;
use crate::registry::Registry;
use crate::session::Session;
use crate::socket::TcpSocket;
use crate::sys;

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

/// What a wait is for.
pub struct Until<'a> {
    /// When to give up.
    pub deadline: Option<Instant>,
    /// Whether it is there. Must not sleep.
    pub ready: &'a mut dyn FnMut() -> bool,
    /// Called when spinning was in vain, before `ready` is asked for the last time before the sleep.
    pub before_sleep: &'a mut dyn FnMut(),
}

/// How a thread sleeps.
pub struct Sleep<'a> {
    /// Descriptors of the caller.
    pub kernel: &'a mut [libc::pollfd],
    /// Signal mask.
    pub mask: SignalMask<'a>,
    /// When to give up.
    pub deadline: Option<Instant>,
    /// Whether a signal's handler and a cancellation end it (`quiet.rs`).
    pub is_interruptible: bool,
    /// Lends its buffer while it takes turns of an engine inside this process.
    pub(crate) lender: Option<&'a dyn Lender>,
}

impl Sleep<'_> {
    /// One ppoll(2) on these descriptors, for so long at most.
    pub(crate) fn poll(&self, fds: &mut [libc::pollfd], timeout: Duration) -> Result<usize, Errno> {
        if self.is_interruptible {
            quiet::sleep(fds, timeout, self.mask)
        } else {
            sys::ppoll(fds, Some(timeout), self.mask)
        }
    }
}

/// Sleeps until the descriptor has one of these events (poll(2)); EINTR where a handler of a signal waits.
pub fn wait_for_descriptor(fd: RawFd, events: i16) -> Result<(), Errno> {
    let entry = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    while quiet::sleep(&mut [entry], RECHECK, None)? == 0 {}
    Ok(())
}

/// Looks at the lanes of neighbours between two turns of the engine: as long as one or two turns take.
const LOOKS: u32 = 32;
/// A lost wake-up would be our bug; look again this often so that it costs latency and not a hang. Also
/// bounds how long an engine that died without closing its channel (stopped, say) goes unnoticed.
pub const RECHECK: Duration = Duration::from_secs(10);

/// How often a thread looks that has no bell, for want of a descriptor.
const GLANCE: Duration = Duration::from_millis(10);

impl Session {
    /// As [`wait_on`] for this session alone, with nobody to be told before the sleep.
    pub fn wait(
        &self,
        sockets: &[&TcpSocket],
        kernel: &mut [libc::pollfd],
        mask: SignalMask<'_>,
        deadline: Option<Instant>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Result<Woken, Errno> {
        let until = Until {
            deadline,
            ready,
            before_sleep: &mut || {},
        };
        wait_on(&[self], sockets, kernel, mask, until)
    }
}

/// Waits until `ready` holds, a descriptor of `kernel` has news, or the deadline passes; EINTR if a
/// signal handler ran. `ready` is asked again after every event of the `sockets` (of others it may
/// be) and must not sleep. Several threads may wait at once, for the same sockets too. The sessions, no more
/// than [`hostif::ENGINES_MAX`], are those whose news may matter.
pub fn wait_on(
    sessions: &[&Session],
    sockets: &[&TcpSocket],
    kernel: &mut [libc::pollfd],
    mask: SignalMask<'_>,
    until: Until<'_>,
) -> Result<Woken, Errno> {
    wait_lending(sessions, sockets, kernel, mask, until, None)
}

/// As [`wait_on`], for the socket of a loan: what arrives may already lie in its buffer afterwards, which `until` has
/// to take for news ([`Loan::placed`]).
pub fn wait_to_receive(
    sessions: &[&Session],
    loan: &Loan<'_, '_>,
    until: Until<'_>,
) -> Result<Woken, Errno> {
    let lender: &dyn Lender = loan;
    wait_lending(
        sessions,
        &[loan.socket()],
        &mut [],
        None,
        until,
        Some(lender),
    )
}

fn wait_lending(
    sessions: &[&Session],
    sockets: &[&TcpSocket],
    kernel: &mut [libc::pollfd],
    mask: SignalMask<'_>,
    until: Until<'_>,
    lender: Option<&dyn Lender>,
) -> Result<Woken, Errno> {
    let Until {
        deadline,
        ready,
        before_sleep,
    } = until;
    crank::catch_up();
    if look(sockets, ready) {
        return Ok(Woken::Ready);
    }
    let mut parties = Parties::of(sessions);
    if parties.is_empty() {
        before_sleep();
        if ready() {
            return Ok(Woken::Ready);
        }
        let mut sleep = Sleep {
            kernel,
            mask,
            deadline,
            is_interruptible: true,
            lender: None,
        };
        return wait_for_kernel(&mut sleep, RECHECK, ready);
    }
    if spin(&parties, sockets, (mask, lender), ready) {
        return Ok(Woken::Ready);
    }
    before_sleep();
    let waker = match parties.take_waker() {
        Ok(waker) => waker,
        // poll(2) needs no descriptor: without one for the bell it looks again and again.
        Err(_) => {
            let mut sleep = Sleep {
                kernel,
                mask,
                deadline,
                is_interruptible: true,
                lender: None,
            };
            return wait_for_kernel(&mut sleep, GLANCE, &mut || {
                parties.reap_those_free();
                ready()
            });
        }
    };
    change_waiters(sockets, |registry, id| registry.add_waiter(id, &waker));
    let sleep = Sleep {
        kernel,
        mask,
        deadline,
        is_interruptible: true,
        lender,
    };
    // What is told of once has to be asked for anew before each sleep.
    let result = parties.sleep(&waker, sleep, &mut || {
        sockets.iter().for_each(|socket| socket.await_lane());
        ready()
    });
    if parties.is_abandoned() {
        // The child has emptied the registry, and its parent's bells are closed.
        core::mem::forget(waker);
        return result;
    }
    change_waiters(sockets, |registry, id| registry.remove_waiter(id, &waker));
    parties.return_waker(waker);
    result
}

/// Of each of the sockets' parts, in its own session's registry.
fn change_waiters(sockets: &[&TcpSocket], change: impl Fn(&mut Registry, hostif::SocketId)) {
    for part in sockets.iter().flat_map(|socket| socket.parts()) {
        change(&mut lock(&part.session().registry), part.id());
    }
}

fn spin(
    parties: &Parties<'_>,
    sockets: &[&TcpSocket],
    (mask, lender): (SignalMask<'_>, Option<&dyn Lender>),
    ready: &mut dyn FnMut() -> bool,
) -> bool {
    let Some(session) = parties.first() else {
        return false;
    };
    if let Some(crank) = crank::current() {
        // What is not reaped here waits in the ring for who sleeps: those look there once more.
        let has_lanes = sockets.iter().any(|socket| socket.meet_lanes().is_some());
        let looks = if has_lanes { LOOKS } else { 0 };
        let spun = crank::spin(crank, session.crank_budget, mask, lender, |looked| {
            if looked {
                return look(sockets, ready) || (parties.reap_those_free() && look(sockets, ready));
            }
            // Between two turns only what comes past the engine can have come.
            (0..looks).any(|_| {
                core::hint::spin_loop();
                look(sockets, ready)
            })
        });
        return spun == Spun::Over;
    }
    if session.spin.is_zero() {
        return false;
    }
    let start = Instant::now();
    while start.elapsed() < session.spin {
        if ready() || (parties.reap_those_free() && ready()) {
            return true;
        }
        core::hint::spin_loop();
    }
    false
}

/// Looks whether the wait is over, to look again before a sleep. A wait for no sockets in particular is told of them
/// by their observers, which ask for that when they look.
fn look(sockets: &[&TcpSocket], ready: &mut dyn FnMut() -> bool) -> bool {
    if sockets.is_empty() {
        ready()
    } else {
        lanes::look(ready)
    }
}

/// A wait in which no engine wakes the thread.
fn wait_for_kernel(
    sleep: &mut Sleep<'_>,
    longest: Duration,
    ready: &mut dyn FnMut() -> bool,
) -> Result<Woken, Errno> {
    loop {
        let left = sleep
            .deadline
            .map(|moment| moment.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(longest, |left| left.min(longest));
        let news = quiet::sleep(sleep.kernel, timeout, sleep.mask)?;
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
