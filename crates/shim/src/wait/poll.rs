//! poll(2) and ppoll(2) over kernel descriptors and accelerated sockets; `select` comes here too.
//!
//! The kernel gets a copy of the array in which the numbers that are not its business are negative,
//! which it ignores: so the two halves meet again by index.

use std::os::fd::RawFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::Resource;

use crate::epoll::set::Set;
use crate::fd_table::descriptors;
use crate::fd_table::file::File;
use crate::outcome::Switched;
use crate::sys;
use crate::wait::sleep::{Deadline, SignalMask};
use crate::wait::sleeping;
use switch::readiness::{ALWAYS, IN, RDNORM};
use switch::stream::Stream;

/// So many are looked at without asking for the limit.
const ALWAYS_ALLOWED: libc::nfds_t = 1_024;

/// Whether the switch serves any of the numbers. Async-signal-safe.
pub fn concerns(fds: &[libc::pollfd]) -> bool {
    fds.iter().any(|fd| descriptors::is_tracked(fd.fd))
}

/// Whether poll(2) refuses so many without a look at them: more than the process may have open.
pub fn are_too_many(len: libc::nfds_t) -> bool {
    let limit = || rustix::process::getrlimit(Resource::Nofile).current;
    len > ALWAYS_ALLOWED && limit().is_some_and(|limit| len > limit)
}

/// poll(2).
pub fn poll(fds: &mut [libc::pollfd], deadline: Deadline, mask: SignalMask<'_>) -> Switched<i32> {
    let mut targets: Vec<Target> = fds
        .iter()
        .enumerate()
        .filter_map(|(index, fd)| Target::of(index, fd))
        .collect();
    if targets.is_empty() {
        return Ok(None);
    }
    let mut kernel: Vec<libc::pollfd> = fds.to_vec();
    for target in &targets {
        if !target.in_kernel {
            kernel[target.index].fd = -1;
        } else if target.stream.is_some() {
            // Whether there is room to send is the engine's to say.
            kernel[target.index].events &= !SENDABLE;
        }
    }
    let files: Vec<_> = targets
        .iter()
        .map(|target| Arc::clone(&target.file))
        .collect();
    let _open: Vec<_> = files.iter().map(|file| file.sleeper()).collect();
    loop {
        sleeping::reap();
        let any = targets.iter().any(|target| target.due() != 0);
        let deadline = if any { Deadline::Now } else { deadline };
        if any || deadline == Deadline::Now {
            // With a zero timeout the mask matters not: nothing sleeps.
            sys::poll_now(&mut kernel)?;
        } else {
            sleep(&targets, &mut kernel, deadline, mask)?;
            targets.iter_mut().for_each(Target::look_again);
            // What the kernel has belongs into the same answer.
            if targets.iter().any(|target| target.due() != 0) {
                sys::poll_now(&mut kernel)?;
            }
        }
        let count = merge(fds, &kernel, &targets);
        if count > 0 || deadline.is_over() {
            return Ok(Some(count));
        }
    }
}

fn sleep(
    targets: &[Target],
    kernel: &mut Vec<libc::pollfd>,
    deadline: Deadline,
    mask: SignalMask<'_>,
) -> Result<(), Errno> {
    let streams = targets.iter().filter_map(|one| one.stream.as_deref());
    let streams: Vec<&Stream> = streams.collect();
    // Epoll instances inside the poll ring their own bells.
    let bells: Vec<_> = targets
        .iter()
        .filter_map(|target| target.set)
        .map(|set| set.waker.sleeping().map(|bell| (set, bell)))
        .collect::<Result<_, _>>()?;
    let own = kernel.len();
    kernel.extend(bells.iter().map(|(_, (_, ring))| sys::poll_in(*ring)));
    let mut news = || {
        let is_news = |target: &Target| target.due() != 0 || target.is_replaced();
        targets.iter().any(is_news)
    };
    let result = sleeping::sleep(&streams, kernel, mask, deadline, &mut news);
    for ((set, _), ring) in bells.iter().zip(&kernel[own..]) {
        if ring.revents != 0 {
            set.waker.silence();
        }
    }
    kernel.truncate(own);
    result
}

fn merge(fds: &mut [libc::pollfd], kernel: &[libc::pollfd], targets: &[Target]) -> i32 {
    for (fd, kernel) in fds.iter_mut().zip(kernel) {
        fd.revents = kernel.revents;
    }
    for target in targets {
        let due = i16::try_from(target.due()).unwrap_or(i16::MAX);
        fds[target.index].revents |= due;
    }
    let count = fds.iter().filter(|fd| fd.revents != 0).count();
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// POLLOUT and POLLWRNORM.
const SENDABLE: i16 = libc::POLLOUT | libc::POLLWRNORM;

/// One number that the kernel cannot answer for alone.
struct Target {
    index: usize,
    /// What the program asked for.
    wish: u32,
    file: Arc<File>,
    stream: Option<Arc<Stream>>,
    set: Option<&'static Set>,
    /// Whether the kernel has a part in the answer.
    in_kernel: bool,
}

impl Target {
    fn of(index: usize, fd: &libc::pollfd) -> Option<Target> {
        let file = descriptors::lookup(fd.fd)?;
        let wish = u32::from(fd.events.cast_unsigned());
        if let Some(epoll) = file.epoll() {
            let set = Some(epoll.set()).filter(|set| set.served() > 0)?;
            return Some(Target {
                index,
                wish,
                file,
                stream: None,
                set: Some(set),
                in_kernel: true,
            });
        }
        let socket = file.socket()?;
        let stream = Some(socket.stream()?);
        let in_kernel = socket.is_on_both();
        Some(Target {
            index,
            wish,
            file,
            stream,
            set: None,
            in_kernel,
        })
    }

    /// Whether another engine serves it now than when it was looked at.
    fn is_replaced(&self) -> bool {
        let socket = self.file.socket().filter(|socket| socket.is_datagram());
        let stream = self.stream.as_ref();
        socket.is_some_and(|socket| stream.is_some_and(|stream| !socket.is_on(stream)))
    }

    fn look_again(&mut self) {
        if self.is_replaced() {
            let stream = self.file.socket().and_then(crate::socket::Socket::stream);
            self.stream = stream.or(self.stream.take());
        }
    }

    fn due(&self) -> u32 {
        let events = match (&self.stream, self.set) {
            (Some(stream), _) => self.file.socket().map_or(0, |socket| socket.events(stream)),
            (None, Some(set)) if set.has_ready() => IN | RDNORM,
            _ => 0,
        };
        events & (self.wish | ALWAYS)
    }
}

/// A number to wait for, as poll takes it.
pub fn entry(fd: RawFd, events: u32) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: i16::try_from(events).unwrap_or(0),
        revents: 0,
    }
}
