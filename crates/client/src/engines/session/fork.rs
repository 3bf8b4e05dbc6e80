//! fork(2): before it the engine is told, so that the child's session holds every socket of the parent
//! from the first moment; the child speaks to it when it first needs to.
//!
//! The three functions are for pthread_atfork(3). The locks of the session are held across the fork, so
//! that the child finds none locked by a thread that it does not have. Sockets keep living in the
//! parent's region, which stays mapped; rings and doorbells are the child's own. The socket's own locks
//! lie in the region and are held by session numbers, so a parent's thread in the middle of a send is
//! no trouble. vfork and posix_spawn run no handlers and need none.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::{MutexGuard, RwLockWriteGuard};

use hostif::Steering;
use hostif::control::{Reply, Request};

use crate::engines::attachment::Attachment;
use crate::engines::attachment::attach::{greet, meet};
use crate::engines::attachment::attachments::Attachments;
use crate::engines::session::Session;
use crate::engines::session::pool::Pool;
use crate::engines::session::registry::Registry;
use crate::lock::{lock, write};
use crate::private::PrivateFd;
use crate::say::say;
use rustix::io::Errno;

/// Everything held across a fork.
struct ForkGuards {
    child_channels: Vec<PrivateFd>,
    registry: MutexGuard<'static, Registry>,
    pool: MutexGuard<'static, Pool>,
    inherited_channels: MutexGuard<'static, Vec<PrivateFd>>,
    _opening: RwLockWriteGuard<'static, ()>,
}

thread_local! {
    // Of each session of the process, the last one on top. Without a destructor: a thread may end after the
    // library is torn down.
    static HELD: RefCell<ManuallyDrop<Vec<ForkGuards>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

fn take_held() -> Option<ForkGuards> {
    HELD.with(|place| place.borrow_mut().pop())
}

impl Session {
    /// Before the fork, in the thread that forks.
    pub fn fork_prepare(&'static self) {
        let opening = write(&self.opening);
        if self.attached().is_none() && !lock(&self.inherited_channels).is_empty() {
            // A child that forks before it ever spoke to the engine.
            let _ = self.attachments();
        }
        let inherited_channels = lock(&self.inherited_channels);
        let pool = lock(&self.pool);
        let registry = lock(&self.registry);
        let child_channels = match self.attached() {
            // Without sockets there is nothing to inherit: the child attaches if it ever wants to.
            Some(all) if !registry.is_empty() && !all.is_dead() => {
                let announced: Result<_, Errno> = all.iter().map(announce_child).collect();
                announced.unwrap_or_default()
            }
            _ => Vec::new(),
        };
        let held = ForkGuards {
            child_channels,
            registry,
            pool,
            inherited_channels,
            _opening: opening,
        };
        HELD.with(|place| place.borrow_mut().push(held));
    }

    /// After the fork (or its failure), in the parent: closing the child's end of the channel tells the
    /// engine when the child is gone, at once if there is none. Of several sessions the last that was prepared
    /// comes first, here and in the child.
    pub fn fork_parent(&'static self) {
        drop(take_held());
    }

    /// After the fork, in the child, whose only thread this is.
    pub fn fork_child(&'static self) {
        let Some(held) = take_held() else { return };
        let ForkGuards {
            child_channels,
            mut registry,
            mut pool,
            mut inherited_channels,
            _opening,
        } = held;
        for waker in registry.remove_all_waiters() {
            waker.close_leaked();
            // A handler of a signal may have forked, and the wait below it has the waker still: nobody closes it again.
            core::mem::forget(waker);
        }
        pool.clear();
        let parents = self.attached();
        let orphaned = child_channels.is_empty();
        *inherited_channels = child_channels;
        self.detach();
        crate::engines::inline_engine::clear();
        if let Some(all) = parents {
            all.close_leaked();
        }
        drop((registry, pool, inherited_channels));
        if orphaned {
            self.lose_all();
            crate::engines::changes::note_change();
        }
    }

    /// A child's own attachments, made when it first needs one: over the channels of its parent, or as any
    /// program that attaches.
    pub(crate) fn attach_child(&self) -> Result<&'static Attachments, Errno> {
        let mut orphaned = false;
        let attached = {
            let mut inherited_channels = lock(&self.inherited_channels);
            if let Some(all) = self.attached() {
                return Ok(all);
            }
            let channels = core::mem::take(&mut *inherited_channels);
            // All at once: a socket on any of the cores may be waited for.
            match channels.into_iter().map(greet).collect() {
                Ok(inherited) => self.adopt_all(inherited),
                Err(error) => {
                    say(&format!(
                        "the connections of the parent are lost to this process: {error}"
                    ));
                    orphaned = true;
                    None
                }
            }
            .map_or_else(
                || match meet(self.name()) {
                    Ok(attachment) => Ok(self.adopt(attachment)),
                    Err(_) => Err(Errno::CONNRESET),
                },
                Ok,
            )
        };
        if orphaned {
            self.lose_all();
            crate::engines::changes::note_change();
        }
        attached
    }

    /// Uses the attachments that a parent's channels led to; `None`: there are none.
    fn adopt_all(&self, inherited: Vec<(Attachment, Steering)>) -> Option<&'static Attachments> {
        let mut inherited = inherited.into_iter();
        let all = self.adopt(inherited.next()?);
        for (attachment, _) in inherited {
            all.add(self.keep(attachment));
        }
        Some(all)
    }

    /// Gives up all sockets of this process, whose names another engine may give to others.
    pub(crate) fn lose_all(&self) {
        // Not in the loop's head: a socket that is dropped in the loop takes the lock as well.
        let sockets = lock(&self.registry).take_sockets();
        for socket in &sockets {
            socket.lose();
        }
    }
}

/// Tells a core of the engine that a child is coming; returns the child's end of its control channel.
fn announce_child(attachment: &Attachment) -> Result<PrivateFd, Errno> {
    match attachment.control.request(&Request::Fork, &[]) {
        Ok((Reply::Forked { .. }, descriptors)) => {
            let channel = descriptors.into_iter().next().ok_or(Errno::PROTO)?;
            Ok(PrivateFd::new(channel))
        }
        Ok(_) => {
            say("the engine refused to let a child share the connections of this process");
            Err(Errno::PROTO)
        }
        // The engine is gone, which whoever next looks will say.
        Err(_) => Err(Errno::CONNRESET),
    }
}
