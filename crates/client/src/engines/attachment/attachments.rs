//! What a process shares with its engine as a whole: one [`Attachment`] for each core that it uses, made
//! when the first socket needs it, and the threads that sleep on all of them. Replaced as a whole in a
//! forked child and when the engine was lost, so it holds nothing of a socket.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use hostif::control::Addresses;
use hostif::{CORES_MAX, Holders, Steering};
use rustix::io::Errno;

use crate::engines::attachment::Attachment;
use crate::lock::{lock, try_lock};
use crate::sys::StaticSlot;
use crate::threads::wait_leaders::WaitLeaders;
use crate::threads::waker::Waker;

/// See the file's head.
pub struct Attachments {
    /// How the engine spreads connections over its cores.
    pub steering: Steering,
    /// The first core, which every process is attached to.
    pub main: &'static Attachment,
    by_core: [StaticSlot<Attachment>; CORES_MAX as usize],
    /// Bit n: there is an attachment to core n.
    attached: AtomicU64,
    /// Who of the sleeping threads polls the doorbells.
    pub leaders: WaitLeaders,
    wakers: Mutex<Vec<Arc<Waker>>>,
    dead: AtomicBool,
    /// This is a forked child, and these are its parent's.
    abandoned: AtomicBool,
    /// Which core the next connection goes to; see `steering`.
    pub turn: OnceLock<AtomicU32>,
    /// The ends that the engine's sockets have; `None`: it does not show them.
    pub holders: OnceLock<Option<Holders>>,
    /// The engine's addresses when a connection was first placed; see `steering`.
    pub addresses: OnceLock<Addresses>,
}

impl Attachments {
    /// With the attachment to the first core.
    pub fn new(main: &'static Attachment, steering: Steering) -> Attachments {
        let all = Attachments {
            steering,
            main,
            by_core: [const { StaticSlot::empty() }; CORES_MAX as usize],
            attached: AtomicU64::new(0),
            leaders: WaitLeaders::default(),
            wakers: Mutex::default(),
            dead: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            turn: OnceLock::new(),
            holders: OnceLock::new(),
            addresses: OnceLock::new(),
        };
        all.add(main);
        all
    }

    /// One more core. Threads that sleep wake up to sleep on it too.
    pub fn add(&self, attachment: &'static Attachment) {
        self.by_core[usize::from(attachment.core)].set(Some(attachment));
        self.attached
            .fetch_or(1 << attachment.core, Ordering::AcqRel);
        if self.is_dead() {
            attachment.set_dead();
        }
        self.leaders.wake_all();
    }

    /// The attachment to a core, if there is one.
    pub fn to_core(&self, core: u16) -> Option<&'static Attachment> {
        self.by_core.get(usize::from(core))?.current()
    }

    /// All of them, the first core's first.
    pub fn iter(&self) -> impl Iterator<Item = &'static Attachment> {
        let mut left = self.attached.load(Ordering::Acquire);
        core::iter::from_fn(move || {
            let core = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            self.by_core.get(usize::try_from(core).ok()?)?.current()
        })
    }

    /// Whether this is one of them.
    pub fn has(&self, attachment: &Attachment) -> bool {
        self.to_core(attachment.core)
            .is_some_and(|ours| core::ptr::eq(ours, attachment))
    }

    /// Whether the engine is gone.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Notes that the engine is gone, with all its cores; true for the first to do so.
    pub fn set_dead(&self) -> bool {
        let is_first = !self.dead.swap(true, Ordering::AcqRel);
        for attachment in self.iter() {
            attachment.set_dead();
        }
        is_first
    }

    /// A waker for this thread's wait.
    pub fn take_waker(&self) -> Result<Arc<Waker>, Errno> {
        match lock(&self.wakers).pop() {
            Some(waker) => Ok(waker),
            None => Waker::new(),
        }
    }

    /// Gives it back.
    pub fn return_waker(&self, waker: Arc<Waker>) {
        waker.on_awake();
        lock(&self.wakers).push(waker);
    }

    /// Whether this process was forked since it took hold of these, by the handler of a signal: nothing of them is
    /// to be touched any more, for their rings are the parent's.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// In a forked child: all descriptors here are the parent's too, and the value is never used again.
    pub fn close_leaked(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
        for attachment in self.iter() {
            attachment.close_leaked();
        }
        // A thread of the parent may hold the lock for ever, here; then its bells stay until exec.
        for waker in try_lock(&self.wakers)
            .iter_mut()
            .flat_map(|wakers| wakers.drain(..))
        {
            waker.close_leaked();
            // Its number is closed; dropping it would close that of somebody else.
            core::mem::forget(waker);
        }
    }
}
