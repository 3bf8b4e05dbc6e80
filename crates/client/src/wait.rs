//! Blocking: spin a little, publish that we sleep, look once more, sleep in ppoll(2) (`wait_set`).
//!
//! Signals end a wait with EINTR; what they mean the caller decides. Of sockets a wait knows what [`Awaited`] says.

pub(crate) mod call;
pub(crate) mod look;
pub(crate) mod notifier;
pub(crate) mod sleep;
pub(crate) mod spin;
pub(crate) mod wait_set;

use std::time::{Duration, Instant};

use hostif::SocketId;
use rustix::io::Errno;

use crate::engines::budget::Budget;
use crate::engines::inline_engine::{self, DirectReceive};
use crate::engines::session::Session;
use crate::engines::session::registry::Registry;
use crate::lock::lock;
use crate::threads::signal_deferral::SignalMask;
use crate::wait::sleep::{RECHECK, Sleep, Woken, wait_for_kernel};
use crate::wait::spin::Spun;
use crate::wait::wait_set::WaitSet;

/// A socket, as far as a thread that waits for it has to know it.
pub trait Awaited {
    /// Visits the sockets of engines behind it, each with the session whose registry knows it.
    fn visit_parts(&self, visit: &mut dyn FnMut(&Session, SocketId));

    /// Whether bytes may come to it past the engine, so that a thread that spins looks more often than the engine polls.
    fn hears_past_engine(&self) -> bool;

    /// What comes next is to be told of, however it comes: what is told once only is asked for again. Before the last look
    /// at what is there.
    fn request_news(&self);
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

/// Looks at what comes past the engine between two polls of the engine: as long as one or two polls take.
const LOOKS: u32 = 32;
/// How often a thread looks that has no bell, for want of a descriptor.
const GLANCE: Duration = Duration::from_millis(10);

impl Session {
    /// As [`wait_on`] for this session alone, with nobody to be told before the sleep.
    pub fn wait(
        &self,
        sockets: &[&dyn Awaited],
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
    sockets: &[&dyn Awaited],
    kernel: &mut [libc::pollfd],
    mask: SignalMask<'_>,
    until: Until<'_>,
) -> Result<Woken, Errno> {
    wait_with_buffer(sessions, sockets, kernel, mask, until, None)
}

/// As [`wait_on`]; the engine may place what arrives in the thread's buffer.
pub(crate) fn wait_with_buffer(
    sessions: &[&Session],
    sockets: &[&dyn Awaited],
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
    let mut sleep = Sleep {
        kernel,
        mask,
        deadline,
        is_interruptible: true,
        direct_receive,
    };
    let mut wait_set = WaitSet::of(sessions);
    if wait_set.is_empty() {
        before_sleep();
        if ready() {
            return Ok(Woken::Ready);
        }
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
            return wait_for_kernel(&mut sleep, GLANCE, &mut || {
                wait_set.reap_those_free();
                ready()
            });
        }
    };
    change_waiters(sockets, |registry, id| registry.add_waiter(id, &waker));
    // What is told of once has to be asked for anew before each sleep.
    let result = wait_set.sleep(&waker, sleep, &mut || {
        sockets.iter().for_each(|socket| socket.request_news());
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
fn change_waiters(sockets: &[&dyn Awaited], change: impl Fn(&mut Registry, SocketId)) {
    for socket in sockets {
        socket.visit_parts(&mut |session, id| change(&mut lock(&session.registry), id));
    }
}

fn spin(
    wait_set: &WaitSet<'_>,
    sockets: &[&dyn Awaited],
    (mask, direct_receive): (SignalMask<'_>, Option<&dyn DirectReceive>),
    ready: &mut dyn FnMut() -> bool,
) -> bool {
    let Some(session) = wait_set.first() else {
        return false;
    };
    // What comes past the engine needs no processor for it.
    let any_past_engine = sockets.iter().any(|socket| socket.hears_past_engine());
    let looks = if any_past_engine { LOOKS } else { 0 };
    let inline_engine = inline_engine::current();
    let budget = if inline_engine.is_some() || any_past_engine {
        session.poll_budget
    } else {
        Budget::Fixed(session.spin)
    };
    let poll = || {
        if let Some(inline_engine) = inline_engine {
            inline_engine::poll(inline_engine, direct_receive);
        }
    };
    let spun = spin::spin(poll, budget, mask, |looked| {
        if looked {
            // What is not reaped here waits in the ring for who sleeps: those look there once more.
            return look(sockets, ready) || (wait_set.reap_those_free() && look(sockets, ready));
        }
        // Between two polls only what comes past the engine can have come.
        (0..looks).any(|_| {
            core::hint::spin_loop();
            look(sockets, ready)
        })
    });
    spun == Spun::Over
}

/// Looks whether the wait is over, to be looked at again before a sleep. A wait for no sockets in particular is told of them
/// by their observers, which ask for that when they look.
fn look(sockets: &[&dyn Awaited], ready: &mut dyn FnMut() -> bool) -> bool {
    if sockets.is_empty() {
        ready()
    } else {
        look::look(ready)
    }
}
