//! The epoll interests in one socket, and what happens to them when it is decided which stack has the socket.

use std::sync::Arc;

use client::Shared;
use rustix::event::epoll;

use super::kick::{begin_serving, for_kernel};
use super::set::{Interest, WatchedBy};
use crate::sys;

/// Interests in one socket; read by event callbacks without a lock.
#[derive(Default)]
pub struct Watchers(Shared<Vec<Arc<Interest>>>);

impl Watchers {
    /// An epoll instance watches the socket from now on.
    pub fn add(&self, interest: &Arc<Interest>) {
        self.0.change(|list| {
            let mut list = list.map(|list| Vec::clone(list)).unwrap_or_default();
            // Those of epoll instances that are closed by now.
            list.retain(|one| !one.is_removed());
            list.push(Arc::clone(interest));
            Some(Arc::new(list))
        });
    }

    /// Whether nobody watches.
    pub fn is_empty(&self) -> bool {
        self.0.load().is_none()
    }

    fn load(&self) -> Vec<Arc<Interest>> {
        self.0.load().as_deref().cloned().unwrap_or_default()
    }

    /// It watches no more.
    pub fn remove(&self, interest: &Arc<Interest>) {
        self.0.change(|list| {
            let mut list = list.map(|list| Vec::clone(list)).unwrap_or_default();
            list.retain(|one| !Arc::ptr_eq(one, interest));
            (!list.is_empty()).then(|| Arc::new(list))
        });
    }

    /// The socket is gone for good.
    pub fn clear(&self) {
        for interest in self.0.swap(None).iter().flat_map(|list| list.iter()) {
            interest.set().remove_interest(interest);
        }
    }

    /// The socket was left to the kernel, whose epoll has the interests already.
    pub fn left_to_kernel(&self) {
        for interest in self.0.swap(None).iter().flat_map(|list| list.iter()) {
            interest.set().note_foreign(interest.fd, true);
            interest.set().remove_interest(interest);
        }
    }

    /// Events of `changed` happened. Takes no lock but the leaf of each set.
    pub fn notify(&self, changed: u32) {
        if let Some(list) = self.0.load().as_ref() {
            for interest in list.iter() {
                interest.notify(changed);
            }
        }
    }

    /// An engine serves the socket: the kernel's epoll would only report that the backing socket is
    /// not connected.
    pub fn moved_to_engine(&self) {
        for interest in self.load().iter().filter(|one| !one.is_removed()) {
            if interest.place() != WatchedBy::Engine {
                with_kernel(interest, |epoll, fd| epoll::delete(epoll, fd));
                interest.set().set_place(interest, WatchedBy::Engine);
                begin_serving(interest.set());
                interest.notify(u32::MAX);
            }
        }
    }

    /// Engine and kernel have a part in the socket: a listener, or a UDP socket on ANY.
    pub fn moved_to_both(&self) {
        for interest in self.load().iter().filter(|one| !one.is_removed()) {
            let (mask, data) = for_kernel(interest.wish(), WatchedBy::Both);
            match interest.place() {
                WatchedBy::Both => continue,
                WatchedBy::Kernel => {
                    with_kernel(interest, |epoll, fd| epoll::modify(epoll, fd, data, mask));
                }
                WatchedBy::Engine => {
                    with_kernel(interest, |epoll, fd| epoll::add(epoll, fd, data, mask));
                }
            }
            interest.set().set_place(interest, WatchedBy::Both);
            begin_serving(interest.set());
            interest.notify(u32::MAX);
        }
    }

    /// The socket is undecided again.
    pub fn moved_to_kernel(&self) {
        for interest in self.load().iter().filter(|one| !one.is_removed()) {
            let (mask, data) = for_kernel(interest.wish(), WatchedBy::Kernel);
            match interest.place() {
                WatchedBy::Kernel => continue,
                WatchedBy::Both => {
                    with_kernel(interest, |epoll, fd| epoll::modify(epoll, fd, data, mask));
                }
                WatchedBy::Engine => {
                    with_kernel(interest, |epoll, fd| epoll::add(epoll, fd, data, mask));
                }
            }
            interest.set().set_place(interest, WatchedBy::Kernel);
        }
    }
}

fn with_kernel(
    interest: &Interest,
    change: impl FnOnce(
        std::os::fd::BorrowedFd<'_>,
        std::os::fd::BorrowedFd<'_>,
    ) -> rustix::io::Result<()>,
) {
    let descriptors = (
        sys::borrow(interest.set().descriptor()),
        sys::borrow(interest.fd),
    );
    if let (Ok(epoll), Ok(fd)) = descriptors {
        // It can fail only if the program closed one of the two numbers while a duplicate lives;
        // then the kernel's part of the interest is stale, which it may be in plain Linux too.
        let _ = change(epoll, fd);
    }
}
