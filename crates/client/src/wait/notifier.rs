//! One descriptor that becomes readable when an engine has news, for a program that sleeps by itself: in its own
//! epoll(7), or on this descriptor alone.
//!
//! Behind it stand the doorbells and control channels of all cores, and a bell of its own: another thread of the
//! program may take the news that the engine rang for, and then says so by [`NotifySender`]. The order of the steps is
//! that of `wait`: arm, look at the sockets, sleep, disarm, look again. While it is not armed nobody rings.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;

use crate::engines::attachment::Attachment;
use crate::engines::attachment::attachments::Attachments;
use crate::engines::session::Session;
use crate::private::PrivateFd;
use crate::sys;
use crate::wait::wait_set::announce;

/// See the file's head.
pub struct Notifier {
    session: &'static Session,
    /// Whose doorbells are in the set: replaced when the engine was lost and found again.
    all: &'static Attachments,
    set: PrivateFd,
    notify: Arc<NotifySender>,
    /// Bit n: core n is in the set.
    known: u64,
    /// Bit n: core n knows that somebody listens.
    armed: u64,
}

/// What makes a notifier's descriptor readable from another thread.
pub struct NotifySender {
    bell: PrivateFd,
    is_wanted: AtomicBool,
}

impl NotifySender {
    /// There is news, which was published before.
    pub fn notify(&self) {
        if self.is_wanted.swap(false, Ordering::SeqCst) {
            hostif::sync::doorbell::ring(self.bell.as_fd());
        }
    }
}

impl Notifier {
    /// For the engine of a session.
    ///
    /// # Errors
    /// No more descriptors; ECONNRESET: the engine is gone.
    pub fn new(session: &'static Session) -> Result<Notifier, Errno> {
        let set = PrivateFd::new(epoll::create(CreateFlags::CLOEXEC)?);
        let notify = Arc::new(NotifySender {
            bell: PrivateFd::new(hostif::sync::doorbell::create()?),
            is_wanted: AtomicBool::new(false),
        });
        epoll::add(&set, &notify.bell, EventData::new_u64(0), EventFlags::IN)?;
        Ok(Notifier {
            session,
            all: session.attachments()?,
            set,
            notify,
            known: 0,
            armed: 0,
        })
    }

    /// What becomes readable. Nothing is to be read from it.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// For who takes news in other threads.
    #[must_use]
    pub fn notify(&self) -> Arc<NotifySender> {
        Arc::clone(&self.notify)
    }

    /// From now on the engine rings. What came before is not told: look at the sockets after this and before
    /// sleeping.
    ///
    /// # Errors
    /// No memory for another core's doorbell.
    pub fn arm(&mut self) -> Result<(), Errno> {
        self.follow()?;
        self.notify.is_wanted.store(true, Ordering::SeqCst);
        announce(self.session, self.all, &mut self.armed);
        Ok(())
    }

    /// Nobody needs to ring any more. Takes what the engine has reported and notices its end.
    pub fn disarm(&mut self) {
        self.notify.is_wanted.store(false, Ordering::SeqCst);
        hostif::sync::doorbell::drain(self.notify.bell.as_fd());
        for attachment in self.all.iter() {
            let bit = 1 << attachment.core;
            if self.armed & bit == 0 {
                continue;
            }
            self.armed &= !bit;
            attachment.drain_bell();
            // Others may still sleep: what was rung for is taken on their behalf.
            let _ = attachment.sleepers.leave(&attachment.program_word);
            self.session.reap_all(attachment);
        }
    }

    /// After a sleep that the engine's end may have ended. System calls.
    pub fn look_alive(&self) {
        for attachment in self.all.iter() {
            self.session.check_engine(attachment);
        }
    }

    /// Has all cores in the set.
    fn follow(&mut self) -> Result<(), Errno> {
        let now = self.session.attachments()?;
        if !core::ptr::eq(now, self.all) {
            self.disarm();
            self.forget_all();
            self.all = now;
        }
        for attachment in self.all.iter() {
            let bit = 1 << attachment.core;
            if self.known & bit == 0 {
                for (number, wanted) in entries(attachment) {
                    let fd = sys::borrow(number);
                    epoll::add(&self.set, fd, EventData::new_u64(1), wanted)?;
                }
                self.known |= bit;
            }
        }
        Ok(())
    }

    fn forget_all(&mut self) {
        for attachment in self.all.iter() {
            for (number, _) in entries(attachment) {
                // It was not there, or goes with the set.
                let _ = epoll::delete(&self.set, sys::borrow(number));
            }
        }
        self.known = 0;
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.disarm();
    }
}

/// What the engine rings, and what tells that it is gone.
fn entries(attachment: &Attachment) -> [(i32, EventFlags); 2] {
    [
        (attachment.bell_number(), EventFlags::IN),
        (attachment.control.number(), EventFlags::empty()),
    ]
}
