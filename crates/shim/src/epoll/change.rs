//! epoll_ctl(2): which interests go to the kernel's epoll, which to the set, which to both.

use std::os::fd::RawFd;
use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::Watchers;
use super::kick::{begin_serving, for_kernel};
use super::set::{EXCLUSIVE, Interest, Refused, Set, Watched, WatchedBy};
use crate::fd_table::file::File;
use crate::outcome::Switched;
use crate::socket::Socket;
use crate::{fd_table::descriptors, sys};
use switch::readiness::Phase;

impl Watched for File {
    fn events(&self) -> u32 {
        match (self.socket(), self.epoll()) {
            (Some(socket), _) => {
                let stream = socket.borrow_stream();
                stream.as_ref().map_or(0, |stream| socket.events(stream))
            }
            (None, Some(epoll)) => epoll.set().own_events(),
            (None, None) => 0,
        }
    }

    fn hint(&self) -> u32 {
        self.epoll()
            .map_or_else(|| self.events(), |epoll| epoll.set().own_hint())
    }

    fn is_listener(&self) -> bool {
        let stream = self.socket().and_then(|socket| socket.stream());
        stream.is_some_and(|stream| stream.phase() == Phase::Listening)
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
    let file = descriptors::lookup(fd);
    let Some((file, watchers)) = file.as_ref().and_then(|file| Some((file, watchers(file)?)))
    else {
        match op {
            libc::EPOLL_CTL_ADD => set.note_foreign(fd, true),
            libc::EPOLL_CTL_DEL => set.note_foreign(fd, false),
            _ => {}
        }
        return Ok(None);
    };
    let target: Arc<dyn Watched> = Arc::<File>::clone(file);
    match (op, file.socket(), file.epoll()) {
        (libc::EPOLL_CTL_ADD, Some(socket), _) => {
            add(set, fd, socket, target, wish.ok_or(Errno::FAULT)?)?;
        }
        (libc::EPOLL_CTL_ADD, None, Some(inner)) => {
            nest(set, fd, inner.set(), target, wish.ok_or(Errno::FAULT)?)?;
        }
        (libc::EPOLL_CTL_MOD, ..) => modify(set, fd, &target, wish.ok_or(Errno::FAULT)?)?,
        (libc::EPOLL_CTL_DEL, ..) => remove(set, fd, watchers, &target)?,
        _ => return Err(Errno::INVAL),
    }
    Ok(Some(0))
}

/// Who watches a file whose events are not the kernel's alone.
fn watchers(file: &File) -> Option<&Watchers> {
    match (file.socket(), file.epoll()) {
        (Some(socket), _) => Some(&socket.watchers),
        (None, Some(epoll)) => Some(&epoll.set().outer),
        (None, None) => None,
    }
}

/// Adds an epoll instance to another one. The kernel is asked first: it knows of loops and of too many levels. Its epoll
/// stays enough until the inner one has something that the kernel cannot watch.
fn nest(
    set: &'static Set,
    fd: RawFd,
    inner: &'static Set,
    target: Arc<dyn Watched>,
    wish: (u32, u64),
) -> Result<(), Errno> {
    let (mask, data) = for_kernel(wish, WatchedBy::Kernel);
    epoll::add(sys::borrow(set.descriptor())?, sys::borrow(fd)?, data, mask)?;
    let interest = set.add(fd, target, wish, WatchedBy::Kernel)?;
    inner.outer.add(&interest);
    if inner.served() > 0 {
        inner.outer.moved_to_both();
    }
    Ok(())
}

fn add(
    set: &'static Set,
    fd: RawFd,
    socket: &Socket,
    target: Arc<dyn Watched>,
    wish: (u32, u64),
) -> Result<(), Errno> {
    let place = match (socket.borrow_stream().is_some(), socket.is_on_both()) {
        (false, _) => WatchedBy::Kernel,
        (true, false) => WatchedBy::Engine,
        (true, true) => WatchedBy::Both,
    };
    if place != WatchedBy::Engine {
        let (mask, data) = for_kernel(wish, place);
        epoll::add(sys::borrow(set.descriptor())?, sys::borrow(fd)?, data, mask)?;
    }
    let interest = set.add(fd, target, wish, place)?;
    socket.watchers.add(&interest);
    if let Some(stream) = socket.stream() {
        super::observe(&stream, &socket.watchers);
        // Another thread may have decided the socket between the question and the entry in the list.
        if socket.is_on_both() {
            socket.watchers.moved_to_both();
        } else {
            socket.watchers.moved_to_engine();
        }
    }
    if place != WatchedBy::Kernel {
        begin_serving(set);
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
    if interest.place() != WatchedBy::Engine {
        let (mask, data) = for_kernel(wish, interest.place());
        epoll::modify(sys::borrow(set.descriptor())?, sys::borrow(fd)?, data, mask)?;
    }
    set.modify(fd, target, wish)?.notify(u32::MAX);
    Ok(())
}

fn remove(
    set: &'static Set,
    fd: RawFd,
    watchers: &Watchers,
    target: &Arc<dyn Watched>,
) -> Result<(), Errno> {
    let interest = set.remove(fd, target)?;
    watchers.remove(&interest);
    if interest.place() != WatchedBy::Engine {
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
