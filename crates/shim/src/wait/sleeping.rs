//! Threads that sleep until an engine, the kernel or the clock has news; meanwhile they look for engines that are gone.

use std::time::Instant;

use client::{Awaited, Until, UserBuffer, Woken};
use rustix::io::Errno;

use switch::attached;
use switch::stream::Stream;

use crate::wait::lost_engines;
use crate::wait::sleep::{Deadline, SignalMask};

/// Takes what the engines have reported, without sleeping.
pub fn reap() {
    lost_engines::look();
    for session in attached::sessions() {
        session.reap();
    }
}

/// Sleeps until `news` holds, a descriptor of `kernel` is ready, or the deadline is over. `news` is
/// asked again after each event of the `streams`. EINTR after a signal handler ran.
pub fn sleep(
    streams: &[&Stream],
    kernel: &mut [libc::pollfd],
    mask: SignalMask<'_>,
    deadline: Deadline,
    news: &mut dyn FnMut() -> bool,
) -> Result<(), Errno> {
    sleep_noted(streams, kernel, (mask, deadline), news, &mut || {})
}

/// As `sleep`; `before_sleep` is called when spinning is over, if it was in vain, and before `news` is asked the last
/// time.
pub fn sleep_noted(
    streams: &[&Stream],
    kernel: &mut [libc::pollfd],
    (mask, deadline): (SignalMask<'_>, Deadline),
    news: &mut dyn FnMut() -> bool,
    before_sleep: &mut dyn FnMut(),
) -> Result<(), Errno> {
    let deadline = match deadline {
        Deadline::Never => None,
        Deadline::At(moment) => Some(moment),
        Deadline::Now => return crate::sys::poll_now(kernel).map(drop),
    };
    let sessions = attached::sessions();
    if sessions.is_empty() {
        return Err(Errno::NETDOWN);
    }
    loop {
        lost_engines::look();
        let (changes, due) = (client::changes(), lost_engines::due());
        let until = Until {
            deadline: due.into_iter().chain(deadline).min(),
            // An engine is gone, or there again: the thread sleeps on other bells then.
            ready: &mut || news() || client::changes() != changes,
            before_sleep,
        };
        let woken = match streams {
            [stream] if let Some(socket) = stream.only_udp() => {
                client::wait_for_datagrams(sessions, socket, kernel, mask, until)?
            }
            [stream] if stream.is_single() => {
                client::wait_on(sessions, &[stream.first()], kernel, mask, until)?
            }
            _ => {
                let parts = streams.iter().flat_map(|one| one.parts());
                let sockets: Vec<&dyn Awaited> = parts.map(|part| part as _).collect();
                client::wait_on(sessions, &sockets, kernel, mask, until)?
            }
        };
        let is_over = deadline.is_some_and(|moment| Instant::now() >= moment);
        if woken == Woken::Kernel || is_over || news() {
            return Ok(());
        }
    }
}

/// As `sleep`, for a thread that waits for bytes on the stream of the user buffer.
pub fn sleep_with_buffer(
    user_buffer: &UserBuffer<'_, '_>,
    deadline: Deadline,
    news: &mut dyn FnMut() -> bool,
) -> Result<(), Errno> {
    let deadline = match deadline {
        Deadline::Never => None,
        Deadline::At(moment) => Some(moment),
        Deadline::Now => return Ok(()),
    };
    let sessions = attached::sessions();
    if sessions.is_empty() {
        return Err(Errno::NETDOWN);
    }
    let until = Until {
        deadline,
        ready: news,
        before_sleep: &mut || {},
    };
    client::wait_to_receive(sessions, user_buffer, until).map(drop)
}
