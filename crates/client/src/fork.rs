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

use hostif::control::{Reply, Request};
use rustix::fd::AsFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::attach::{dial, greet};
use crate::attachment::Attachment;
use crate::lock::{lock, write};
use crate::pool::Pool;
use crate::private::PrivateFd;
use crate::registry::Registry;
use crate::session::Session;
use crate::sys;
use rustix::io::Errno;

/// What a forked child has of its parent's session.
#[derive(Default)]
pub struct Heritage {
    /// The control channel that the engine knows as the child's; used up by the first attach.
    channel: Option<PrivateFd>,
}

/// Everything held across a fork.
struct Held {
    child_channel: Option<PrivateFd>,
    registry: MutexGuard<'static, Registry>,
    pool: MutexGuard<'static, Pool>,
    heritage: MutexGuard<'static, Heritage>,
    _opening: RwLockWriteGuard<'static, ()>,
}

thread_local! {
    // Without a destructor: a thread may end after the library is torn down.
    static HELD: RefCell<ManuallyDrop<Option<Held>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
}

fn take_held() -> Option<Held> {
    HELD.with(|place| place.borrow_mut().take())
}

impl Session {
    /// Before the fork, in the thread that forks.
    pub fn fork_prepare(&'static self) {
        let opening = write(&self.opening);
        if self.attached().is_none() && lock(&self.heritage).channel.is_some() {
            // A child that forks before it ever spoke to the engine.
            let _ = self.attachment();
        }
        let heritage = lock(&self.heritage);
        let pool = lock(&self.pool);
        let registry = lock(&self.registry);
        let child_channel = match self.attached() {
            // Without sockets there is nothing to inherit: the child attaches if it ever wants to.
            Some(attachment) if !registry.is_empty() && !attachment.is_dead() => {
                announce_child(attachment).ok()
            }
            _ => None,
        };
        let held = Held {
            child_channel,
            registry,
            pool,
            heritage,
            _opening: opening,
        };
        HELD.with(|place| place.borrow_mut().replace(held));
    }

    /// After the fork (or its failure), in the parent: closing the child's end of the channel tells the
    /// engine when the child is gone, at once if there is none.
    pub fn fork_parent(&'static self) {
        drop(take_held());
    }

    /// After the fork, in the child, whose only thread this is.
    pub fn fork_child(&'static self) {
        let Some(held) = take_held() else { return };
        let Held {
            child_channel,
            mut registry,
            mut pool,
            mut heritage,
            _opening,
        } = held;
        for waker in registry.remove_all_waiters() {
            waker.close_leaked();
        }
        pool.clear();
        let parents = self.attached();
        let orphaned = child_channel.is_none();
        heritage.channel = child_channel;
        self.detach();
        if let Some(attachment) = parents {
            attachment.close_leaked();
        }
        drop((registry, pool, heritage));
        if orphaned {
            self.lose_all();
        }
    }

    /// A child's own attachment, made when it first needs one: over the channel of its parent, or as any
    /// program that attaches.
    pub(crate) fn attach_child(&self) -> Result<&'static Attachment, Errno> {
        let mut orphaned = false;
        let attached = {
            let mut heritage = lock(&self.heritage);
            if let Some(attachment) = self.attached() {
                return Ok(attachment);
            }
            let inherited = heritage.channel.take().map(greet);
            if let Some(Err(error)) = &inherited {
                sys::say(&format!(
                    "the connections of the parent are lost to this process: {error}"
                ));
                orphaned = true;
            }
            match inherited {
                Some(Ok(attachment)) => Ok(self.adopt(attachment)),
                _ => match dial(self.name()).and_then(greet) {
                    Ok(attachment) => Ok(self.adopt(attachment)),
                    Err(_) => Err(Errno::CONNRESET),
                },
            }
        };
        if orphaned {
            self.lose_all();
        }
        attached
    }

    fn lose_all(&self) {
        // Not in the loop's head: a socket that is dropped in the loop takes the lock as well.
        let sockets = lock(&self.registry).sockets();
        for socket in sockets {
            socket.lose();
        }
    }
}

/// Tells the engine that a child is coming; returns the child's end of its control channel.
fn announce_child(attachment: &Attachment) -> Result<PrivateFd, Errno> {
    let (ours, engines) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let (ours, engines) = (PrivateFd::new(ours), PrivateFd::new(engines));
    match attachment
        .control
        .request(&Request::Fork, &[engines.as_fd()])
    {
        Ok((Reply::Forked { .. }, _)) => Ok(ours),
        Ok(_) => {
            sys::say("the engine refused to let a child share the connections of this process");
            Err(Errno::PROTO)
        }
        // The engine is gone, which whoever next looks will say.
        Err(_) => Err(Errno::CONNRESET),
    }
}
