//! The users whose programs an engine serves: how many of the engine's descriptors each may take, and a thread for each
//! that makes the calls which one of its programs could make wait.
//!
//! A descriptor that a program has passed, or holds as well, is not harmless to close, nor to ask: a socket with
//! SO_LINGER sleeps in close(2), what the program does with the same open file under a lock of the kernel may touch
//! memory whose pages never come (userfaultfd(2), FUSE), and whoever needs that lock sleeps until then. So an engine
//! leaves such calls to the thread of the program's user, where they keep nobody waiting but that user's own programs. See
//! docs/decisions/0054-a-thread-for-each-user.md.

mod finished;
#[cfg(test)]
mod tests;

use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use engine_config::USER_SHARE_PERCENT;
pub use finished::{Finished, FinishedJobs, FinishedSender};
use rustix::fd::OwnedFd;
use rustix::process::{Resource, getrlimit};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// An engine inside a program takes an eighth of what its users may have for what it can spare.
const ENOUGH_DIVISOR: usize = 8;

/// What a user's thread does.
type Job = Box<dyn FnOnce() + Send>;

/// All users of an engine, of all its cores.
pub struct Users {
    known: Mutex<HashMap<u32, Arc<User>>>,
    /// Descriptors that the engine may have open.
    limit: usize,
    /// Of which, and of sessions, sockets and memory, one user may have so much.
    share_percent: u8,
    has_threads: bool,
}

impl Users {
    /// The users of an engine that is a process of its own, each with a thread. To be made once its limit of descriptors is set.
    pub fn with_threads(share_percent: u8) -> Arc<Self> {
        Arc::new(Self::new(share_percent, true))
    }

    /// The users of an engine inside a program: every call is made at once, by the engine's thread. The descriptors are the
    /// program's own, which needs them for its own connections.
    pub fn direct() -> Arc<Self> {
        Arc::new(Self::new(USER_SHARE_PERCENT, false))
    }

    fn new(share_percent: u8, has_threads: bool) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self {
            known: Mutex::default(),
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            share_percent,
            has_threads,
        }
    }

    /// What one user, who is neither root nor runs the engine, may have of so many: at least one.
    pub fn share_of(&self, all: usize) -> usize {
        let share = all.saturating_mul(usize::from(self.share_percent));
        share.div_ceil(100).max(1)
    }

    /// As [`Self::share_of`], of bytes.
    pub fn share_of_bytes(&self, all: u64) -> u64 {
        (all / 100).saturating_mul(u64::from(self.share_percent))
    }

    /// A user by number.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn user(&self, uid: u32) -> std::io::Result<Arc<User>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever has left something to a thread that waits is still known: the limit holds for that, too.
        known.retain(|_, user| Arc::strong_count(user) > 1 || user.held() > 0);
        if let Some(user) = known.get(&uid) {
            return Ok(Arc::clone(user));
        }
        let limit = if is_trusted(uid) {
            self.limit / 8 * 7
        } else {
            self.share_of(self.limit)
        };
        let user = Arc::new(User::new(uid, limit, self.has_threads)?);
        known.insert(uid, Arc::clone(&user));
        Ok(user)
    }
}

/// A user.
pub struct User {
    /// Its number.
    pub uid: u32,
    /// Descriptors that its programs may make the engine hold.
    limit: usize,
    held: Arc<AtomicUsize>,
    /// See [`Self::holds_enough`].
    enough: AtomicUsize,
    was_told: AtomicBool,
    thread: Option<Sender<Job>>,
}

impl User {
    fn new(uid: u32, limit: usize, has_thread: bool) -> std::io::Result<Self> {
        Ok(Self {
            uid,
            limit,
            held: Arc::default(),
            enough: AtomicUsize::new(limit / ENOUGH_DIVISOR),
            was_told: AtomicBool::new(false),
            thread: has_thread.then(|| start(uid)).transpose()?,
        })
    }

    /// Root, or who runs the engine: they can do to it what they like anyway.
    pub fn is_trusted(&self) -> bool {
        is_trusted(self.uid)
    }

    /// Whether the engine's own thread may make calls that its programs can keep waiting: root's, and those of who runs
    /// the engine, could stop it in simpler ways.
    pub fn is_asked_here(&self) -> bool {
        self.is_direct() || self.is_trusted()
    }

    /// Descriptors that the engine holds for its programs now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Keeps a descriptor that one of its programs has passed, or has as well.
    pub fn keep(self: &Arc<Self>, fd: OwnedFd) -> ProgramFd {
        self.held.fetch_add(1, Ordering::Relaxed);
        ProgramFd {
            fd: Some(fd),
            user: Arc::clone(self),
        }
    }

    /// Whether its programs keep to the limit.
    ///
    /// # Errors
    /// They do not: the sentence for the program. The log has it once, until it was kept again for a while.
    pub fn check_limit(&self) -> Result<(), String> {
        let held = self.held();
        if held <= self.limit {
            if held < self.limit / 2 {
                self.was_told.store(false, Ordering::Relaxed);
            }
            return Ok(());
        }
        let text = format!(
            "user {} has {} of the engine's descriptors already, which is its share: raise the limit (LimitNOFILE, \
             `ulimit -n`) or the share (`shunt engine --user-share`)",
            self.uid, self.limit
        );
        if !self.was_told.swap(true, Ordering::Relaxed) {
            tracing::warn!("{text}");
        }
        Err(text)
    }

    /// Whether an engine inside a program holds so many already that the duplicate of a connection's backing socket is let go of as
    /// soon as the connection stands: who hands that descriptor on is the only one who misses it.
    pub fn holds_enough(&self) -> bool {
        self.is_direct() && self.held() > self.enough.load(Ordering::Relaxed)
    }

    /// The program has no number left: from now on it holds none that it can spare.
    pub fn spare_all(&self) {
        self.enough.store(0, Ordering::Relaxed);
    }

    /// Whether calls for it are made at once, on the thread that asks for them.
    pub fn is_direct(&self) -> bool {
        self.thread.is_none()
    }

    /// Does something that one of its programs could make wait, after all that was asked before.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        match &self.thread {
            // The thread ends after this value.
            Some(thread) => drop(thread.send(Box::new(job))),
            None => job(),
        }
    }
}

/// See [`User::is_trusted`].
fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// A thread that ends when nobody can ask it for anything any more.
fn start(uid: u32) -> std::io::Result<Sender<Job>> {
    let (sender, receiver): (Sender<Job>, Receiver<Job>) = channel();
    let work = move || {
        for job in receiver {
            job();
        }
    };
    std::thread::Builder::new()
        .name(format!("shunt-user-{uid}"))
        .stack_size(128 * 1024)
        .spawn(work)?;
    Ok(sender)
}

/// A descriptor of a program's, closed by its user's thread.
pub struct ProgramFd {
    /// Gone only while it is dropped.
    fd: Option<OwnedFd>,
    user: Arc<User>,
}

impl ProgramFd {
    /// Whose program has it as well.
    pub fn user(&self) -> &Arc<User> {
        &self.user
    }

    /// Closes it, on the user's own thread.
    pub fn close_here(mut self) {
        drop(self.fd.take());
        self.user.held.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deref for ProgramFd {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        self.fd
            .as_ref()
            .expect("invariant: it is there until it is dropped")
    }
}

impl core::fmt::Debug for ProgramFd {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "{:?} of user {}", self.fd, self.user.uid)
    }
}

impl Drop for ProgramFd {
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else {
            return;
        };
        let held = Arc::clone(&self.user.held);
        self.user.run(move || {
            drop(fd);
            held.fetch_sub(1, Ordering::Relaxed);
        });
    }
}
