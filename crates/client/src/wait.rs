//! Blocking: spin a little, publish that we sleep, look once more, sleep in ppoll(2) (`wait_set`).
//!
//! Signals end a wait with EINTR; what they mean is the caller's affair.

use std::time::{Duration, Instant};

use rustix::fd::RawFd;
use rustix::io::Errno;

use crate::byte_channels;
use crate::inline_engine::{self, DirectReceive, Spun};
use crate::lock::lock;
use crate::receive::UserBuffer;
use crate::registry::Registry;
use crate::session::Session;
use crate::signal_deferral;
use crate::socket::TcpSocket;
use crate::sys;
use crate::wait_set::WaitSet;

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
    /// Whether a signal's handler and a cancellation end it (`signal_deferral.rs`).
    pub is_interruptible: bool,
    /// Lends its buffer while it takes turns of an engine inside this process.
    pub(crate) direct_receive: Option<&'a dyn DirectReceive>,
}

impl Sleep<'_> {
    /// One ppoll(2) on these descriptors, for so long at most.
    pub(crate) fn poll(&self, fds: &mut [libc::pollfd], timeout: Duration) -> Result<usize, Errno> {
        if self.is_interruptible {
            signal_deferral::sleep(fds, timeout, self.mask)
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
    while signal_deferral::sleep(&mut [entry], RECHECK, None)? == 0 {}
    Ok(())
}

/// Looks at the byte channels of neighbours between two turns of the engine: as long as one or two turns take.
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

/// As [`wait_on`], for the socket of a user_buffer: what arrives may already lie in its buffer afterwards, which `until` has
/// to take for news ([`UserBuffer::placed`]).
pub fn wait_to_receive(
    sessions: &[&Session],
    user_buffer: &UserBuffer<'_, '_>,
    until: Until<'_>,
) -> Result<Woken, Errno> {
    let direct_receive: &dyn DirectReceive = user_buffer;
    wait_lending(
        sessions,
        &[user_buffer.socket()],
        &mut [],
        None,
        until,
        Some(direct_receive),
    )
}

fn wait_lending(
    sessions: &[&Session],
    sockets: &[&TcpSocket],
    kernel: &mut [libc::pollfd],
    mask: SignalMask<'_>,
    until: Until<'_>,
    direct_receive: Option<&dyn DirectReceive>,
) -> Result<Woken, Errno> {
    let Until {
        deadline,
        ready,
        before_sleep,
    } = until;
    inline_engine::flush_small();
    if look(sockets, ready) {
        return Ok(Woken::Ready);
    }
    let mut wait_set = WaitSet::of(sessions);
    if wait_set.is_empty() {
        before_sleep();
        if ready() {
            return Ok(Woken::Ready);
        }
        let mut sleep = Sleep {
            kernel,
            mask,
            deadline,
            is_interruptible: true,
            direct_receive: None,
        };
        return wait_for_kernel(&mut sleep, RECHECK, ready);
    }
    if spin(&wait_set, sockets, (mask, direct_receive), ready) {
        return Ok(Woken::Ready);
    }
    before_sleep();
    let waker = match wait_set.take_waker() {
        Ok(waker) => waker,
        // poll(2) needs no descriptor: without one for the bell it looks again and again.
        Err(_) => {
            let mut sleep = Sleep {
                kernel,
                mask,
                deadline,
                is_interruptible: true,
                direct_receive: None,
            };
            return wait_for_kernel(&mut sleep, GLANCE, &mut || {
                wait_set.reap_those_free();
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
        direct_receive,
    };
    // What is told of once has to be asked for anew before each sleep.
    let result = wait_set.sleep(&waker, sleep, &mut || {
        sockets
            .iter()
            .for_each(|socket| socket.await_byte_channel());
        ready()
    });
    if wait_set.is_abandoned() {
        // The child has emptied the registry, and its parent's bells are closed.
        core::mem::forget(waker);
        return result;
    }
    change_waiters(sockets, |registry, id| registry.remove_waiter(id, &waker));
    wait_set.return_waker(waker);
    result
}

/// Of each of the sockets' parts, in its own session's registry.
fn change_waiters(sockets: &[&TcpSocket], change: impl Fn(&mut Registry, hostif::SocketId)) {
    for part in sockets.iter().flat_map(|socket| socket.parts()) {
        change(&mut lock(&part.session().registry), part.id());
    }
}

fn spin(
    wait_set: &WaitSet<'_>,
    sockets: &[&TcpSocket],
    (mask, direct_receive): (SignalMask<'_>, Option<&dyn DirectReceive>),
    ready: &mut dyn FnMut() -> bool,
) -> bool {
    let Some(session) = wait_set.first() else {
        return false;
    };
    if let Some(inline_engine) = inline_engine::current() {
        // What is not reaped here waits in the ring for who sleeps: those look there once more.
        let has_byte_channels = sockets
            .iter()
            .any(|socket| socket.meet_byte_channels().is_some());
        let looks = if has_byte_channels { LOOKS } else { 0 };
        let spun = inline_engine::spin(
            inline_engine,
            session.inline_engine_budget,
            mask,
            direct_receive,
            |looked| {
                if looked {
                    return look(sockets, ready)
                        || (wait_set.reap_those_free() && look(sockets, ready));
                }
                // Between two turns only what comes past the engine can have come.
                (0..looks).any(|_| {
                    core::hint::spin_loop();
                    look(sockets, ready)
                })
            },
        );
        return spun == Spun::Over;
    }
    if session.spin.is_zero() {
        return false;
    }
    let start = Instant::now();
    while start.elapsed() < session.spin {
        if ready() || (wait_set.reap_those_free() && ready()) {
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
        byte_channels::look(ready)
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
        let news = signal_deferral::sleep(sleep.kernel, timeout, sleep.mask)?;
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
