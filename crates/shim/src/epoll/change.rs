//! epoll_ctl(2): which interests go to the kernel's epoll, which to the set, which to both.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::set::{EXCLUSIVE, Interest, Place, Refused, Set, Watched};
use crate::file::File;
use crate::outcome::Switched;
use crate::readiness::{OUT, WRNORM};
use crate::socket::Socket;
use crate::{descriptors, sys};

/// Data of the event that makes threads leave libc's own epoll_wait; no program uses these bytes.
pub const KICK: u64 = u64::from_ne_bytes(*b"\xf5shuntk\xfa");

/// How long a kick waits for the threads to leave. They are runnable; this only has to outlast an
/// overloaded machine.
const KICK_LIMIT: Duration = Duration::from_secs(1);

impl Watched for File {
    fn events(&self) -> u32 {
        let Some(socket) = self.socket() else {
            return 0;
        };
        let stream = socket.borrow_stream();
        stream.as_ref().map_or(0, |stream| socket.events(stream))
    }
}

/// epoll_ctl(2). `wish` is the program's mask and data, absent for a null pointer.
pub fn control(epfd: RawFd, op: i32, fd: RawFd, wish: Option<(u32, u64)>) -> Switched<i32> {
    let epoll = descriptors::lookup(epfd);
    let Some(set) = epoll
        .as_ref()
        .and_then(|file| file.epoll())
        .map(super::Instance::set)
    else {
        return Ok(None);
    };
    set.set_descriptor(epfd);
    let Some(file) = descriptors::lookup(fd).filter(|file| file.socket().is_some()) else {
        match op {
            libc::EPOLL_CTL_ADD => set.note_foreign(fd, true),
            libc::EPOLL_CTL_DEL => set.note_foreign(fd, false),
            _ => {}
        }
        return Ok(None);
    };
    let Some(socket) = file.socket() else {
        return Ok(None);
    };
    let target: Arc<dyn Watched> = Arc::<File>::clone(&file);
    match op {
        libc::EPOLL_CTL_ADD => add(set, fd, socket, target, wish.ok_or(Errno::FAULT)?)?,
        libc::EPOLL_CTL_MOD => modify(set, fd, &target, wish.ok_or(Errno::FAULT)?)?,
        libc::EPOLL_CTL_DEL => remove(set, fd, socket, &target)?,
        _ => return Err(Errno::INVAL),
    }
    Ok(Some(0))
}

fn add(
    set: &'static Set,
    fd: RawFd,
    socket: &Socket,
    target: Arc<dyn Watched>,
    wish: (u32, u64),
) -> Result<(), Errno> {
    let place = match (socket.borrow_stream().is_some(), socket.is_on_both()) {
        (false, _) => Place::Kernel,
        (true, false) => Place::Engine,
        (true, true) => Place::Both,
    };
    if place != Place::Engine {
        let (mask, data) = for_kernel(wish, place);
        epoll::add(sys::borrow(set.descriptor())?, sys::borrow(fd)?, data, mask)?;
    }
    let interest = set.add(fd, target, wish, place)?;
    socket.watchers.add(&interest);
    if let Some(stream) = socket.stream() {
        stream.observe(Arc::clone(&socket.watchers));
        // Another thread may have decided the socket between the question and the entry in the list.
        if socket.is_on_both() {
            socket.watchers.moved_to_both();
        } else {
            socket.watchers.moved_to_engine();
        }
    }
    if place != Place::Kernel {
        kick(set);
        interest.notify(u32::MAX);
    }
    Ok(())
}

fn modify(
    set: &'static Set,
    fd: RawFd,
    target: &Arc<dyn Watched>,
    wish: (u32, u64),
) -> Result<(), Errno> {
    let interest = set.find(fd, target).ok_or(Refused::NotThere)?;
    if (wish.0 | interest.wish().0) & EXCLUSIVE != 0 {
        return Err(Errno::INVAL);
    }
    if interest.place() != Place::Engine {
        let (mask, data) = for_kernel(wish, interest.place());
        epoll::modify(sys::borrow(set.descriptor())?, sys::borrow(fd)?, data, mask)?;
    }
    set.modify(fd, target, wish)?.notify(u32::MAX);
    Ok(())
}

fn remove(
    set: &'static Set,
    fd: RawFd,
    socket: &Socket,
    target: &Arc<dyn Watched>,
) -> Result<(), Errno> {
    let interest = set.remove(fd, target)?;
    socket.watchers.remove(&interest);
    if interest.place() != Place::Engine {
        epoll::delete(sys::borrow(set.descriptor())?, sys::borrow(fd)?)?;
    }
    Ok(())
}

/// The engine's part of an interest was reported and is spent: the kernel's part as well.
pub fn spend_in_kernel(interest: &Interest) {
    let descriptors = (
        sys::borrow(interest.set().descriptor()),
        sys::borrow(interest.fd),
    );
    if let (Ok(epoll), Ok(fd)) = descriptors {
        // Fails only where the program closed one of the numbers, and then nothing is reported.
        let _ = epoll::modify(
            epoll,
            fd,
            EventData::new_u64(interest.wish().1),
            EventFlags::empty(),
        );
    }
}

/// Makes threads leave libc's own epoll_wait, which they entered while the kernel could watch all:
/// an event of ours appears in the kernel's epoll until they are gone.
pub fn kick(set: &'static Set) {
    if set.plain_waiters.load(Ordering::SeqCst) == 0 {
        return;
    }
    let Ok(ring) = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) else {
        return;
    };
    let Ok(epoll) = sys::borrow(set.descriptor()) else {
        return;
    };
    if epoll::add(epoll, &ring, EventData::new_u64(KICK), EventFlags::IN).is_err() {
        return;
    }
    let end = Instant::now() + KICK_LIMIT;
    while set.plain_waiters.load(Ordering::SeqCst) != 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_micros(20));
    }
    // A thread that was cancelled inside libc's call never counted itself out.
    set.plain_waiters.store(0, Ordering::SeqCst);
    let _ = epoll::delete(epoll, &ring);
}

/// What the kernel's epoll is to watch for: whether there is room to send is the engine's to say.
pub fn for_kernel((mask, data): (u32, u64), place: Place) -> (EventFlags, EventData) {
    let mask = if place == Place::Both {
        mask & !(OUT | WRNORM)
    } else {
        mask
    };
    (EventFlags::from_bits_retain(mask), EventData::new_u64(data))
}
