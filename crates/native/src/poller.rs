//! Which of many sockets are ready, at the price of those that are: the engine names each socket of which there is
//! news, and only named ones are looked at. Level-triggered, as epoll(7) is by default.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use client::{Errno, Notifier, NotifySender, Observer, Readiness, Socket};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::engine::{Engine, generation};
use crate::error::from_errno;
use crate::poll::Pollable;

/// A lost ring would be our bug: look again this often, so that it costs latency and no hang.
const RECHECK: Duration = Duration::from_secs(10);

/// A socket that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Under which it was added.
    pub token: u64,
    /// What holds.
    pub ready: Readiness,
}

/// A set of sockets of one engine. Used by one thread at a time. What it sleeps on is its maker's: a child of fork(2) has to
/// make its own.
pub struct Poller {
    engine: Engine,
    members: HashMap<u64, Member>,
    /// Tokens of sockets that may be ready, each once.
    candidates: VecDeque<u64>,
    news: Arc<News>,
    notifier: Notifier,
    is_armed: bool,
    /// Of the process that made it.
    generation: u32,
}

struct Member {
    socket: Arc<dyn Socket>,
    interest: Readiness,
    reporter: Arc<Reporter>,
    /// Its name among the observers of the socket, of which other sets have others.
    observer: u64,
}

/// What the engine has named since the last look. Bounded: each member stands there once at most.
struct News {
    tokens: Mutex<Vec<u64>>,
    notify: Arc<NotifySender>,
}

impl News {
    fn tokens(&self) -> MutexGuard<'_, Vec<u64>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hears of one member.
struct Reporter {
    token: u64,
    /// It is among the news or the candidates.
    is_queued: AtomicBool,
    news: Arc<News>,
}

impl Observer for Reporter {
    fn on_ready(&self) {
        if !self.is_queued.swap(true, Ordering::SeqCst) {
            self.news.tokens().push(self.token);
        }
        self.news.notify.notify();
    }
}

impl Poller {
    /// An empty set.
    ///
    /// # Errors
    /// EMFILE; ECONNRESET: the engine is gone.
    pub fn new(engine: Engine) -> io::Result<Poller> {
        let notifier = Notifier::new(engine.session()).map_err(from_errno)?;
        let notify = notifier.notify();
        Ok(Poller {
            engine,
            members: HashMap::new(),
            candidates: VecDeque::new(),
            news: Arc::new(News {
                tokens: Mutex::new(Vec::new()),
                notify,
            }),
            notifier,
            is_armed: false,
            generation: generation(),
        })
    }

    /// Adds a socket under a token; errors and the end are told whatever the interest is. One that is closed leaves the
    /// set by itself.
    ///
    /// # Errors
    /// EEXIST: the token is in use; EINVAL: the socket is on another engine.
    pub fn add(
        &mut self,
        socket: &dyn Pollable,
        token: u64,
        interest: Readiness,
    ) -> io::Result<()> {
        static OBSERVERS: AtomicU64 = AtomicU64::new(1);
        let socket = socket.share_engine_socket();
        let known = self.members.get(&token);
        if known.is_some_and(|member| !member.socket.core().is_closed()) {
            return Err(from_errno(Errno::EXIST));
        }
        if !core::ptr::eq(socket.core().session(), self.engine.session()) {
            return Err(from_errno(Errno::INVAL));
        }
        let reporter = Arc::new(Reporter {
            token,
            is_queued: AtomicBool::new(true),
            news: Arc::clone(&self.news),
        });
        let observer = OBSERVERS.fetch_add(1, Ordering::Relaxed);
        socket.observe(observer, Arc::<Reporter>::clone(&reporter));
        let member = Member {
            socket,
            interest,
            reporter,
            observer,
        };
        self.members.insert(token, member);
        // What happened before is not told.
        self.candidates.push_back(token);
        Ok(())
    }

    /// Changes the interest in a socket.
    ///
    /// # Errors
    /// ENOENT: no such token.
    pub fn modify(&mut self, token: u64, interest: Readiness) -> io::Result<()> {
        let member = self.members.get_mut(&token);
        let member = member.ok_or_else(|| from_errno(Errno::NOENT))?;
        member.interest = interest;
        if !member.reporter.is_queued.swap(true, Ordering::SeqCst) {
            self.candidates.push_back(token);
        }
        Ok(())
    }

    /// Takes a socket out.
    ///
    /// # Errors
    /// ENOENT: no such token.
    pub fn remove(&mut self, token: u64) -> io::Result<()> {
        let member = self.members.remove(&token);
        let member = member.ok_or_else(|| from_errno(Errno::NOENT))?;
        member.socket.forget(member.observer);
        self.candidates.retain(|one| *one != token);
        Ok(())
    }

    /// How many sockets are in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Puts sockets that are ready into `events` and returns how many. Makes no system call.
    pub fn poll(&mut self, events: &mut [Event]) -> usize {
        self.engine.session().reap();
        let ready = self.look(events);
        if ready == 0 {
            // One system call in every 64 of such calls.
            self.engine.session().look_alive();
        }
        ready
    }

    fn look(&mut self, events: &mut [Event]) -> usize {
        self.candidates.extend(self.news.tokens().drain(..));
        let mut ready = 0;
        for _ in 0..self.candidates.len() {
            let Some(place) = events.get_mut(ready) else {
                break;
            };
            let Some(token) = self.candidates.pop_front() else {
                break;
            };
            let Some(member) = self.members.get(&token) else {
                continue;
            };
            if member.socket.core().is_closed() {
                self.members.remove(&token);
                continue;
            }
            // Before the look: what changes after it is named again.
            member.reporter.is_queued.store(false, Ordering::SeqCst);
            let wanted = member.interest | Readiness::ERR | Readiness::HUP;
            let holds = member.socket.readiness() & wanted;
            if holds.is_empty() {
                continue;
            }
            *place = Event {
                token,
                ready: holds,
            };
            ready += 1;
            if !member.reporter.is_queued.swap(true, Ordering::SeqCst) {
                self.candidates.push_back(token);
            }
        }
        ready
    }

    /// As [`Self::poll`], and sleeps where nothing is ready: until something is, or the timeout has passed. `None`:
    /// for ever.
    ///
    /// # Errors
    /// EINTR: a signal handler ran; EBADF: the set was made before a fork.
    pub fn wait(&mut self, events: &mut [Event], timeout: Option<Duration>) -> io::Result<usize> {
        self.check_maker()?;
        let ready = self.poll(events);
        if ready > 0 || timeout == Some(Duration::ZERO) || events.is_empty() {
            return Ok(ready);
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            self.arm()?;
            let ready = self.look(events);
            if ready > 0 {
                self.disarm();
                return Ok(ready);
            }
            let left = deadline.map(|moment| moment.saturating_duration_since(Instant::now()));
            let slept = self.sleep(left.map_or(RECHECK, |left| left.min(RECHECK)));
            self.disarm();
            let ready = self.look(events);
            if ready > 0 {
                return Ok(ready);
            }
            slept?;
            if left == Some(Duration::ZERO) {
                return Ok(0);
            }
        }
    }

    fn sleep(&self, longest: Duration) -> io::Result<()> {
        let descriptor = self.notifier.descriptor();
        let mut fds = [PollFd::new(&descriptor, PollFlags::IN)];
        let longest = Timespec::try_from(longest).map_err(|_| from_errno(Errno::INVAL))?;
        rustix::event::poll(&mut fds, Some(&longest))?;
        Ok(())
    }

    /// For a program that sleeps in an epoll(7) of its own with [`Self::as_fd`] in it: from now on the engine rings.
    /// Call [`Self::poll`] once more before sleeping, and [`Self::disarm`] after it.
    ///
    /// # Errors
    /// ENOMEM, ENOSPC (epoll(7)); ECONNRESET: the engine is gone; EBADF: the set was made before a fork.
    pub fn arm(&mut self) -> io::Result<()> {
        self.check_maker()?;
        self.is_armed = true;
        self.notifier.arm().map_err(from_errno)
    }

    /// Its descriptors are the parent's too, who would be woken or kept from it.
    fn check_maker(&self) -> io::Result<()> {
        if self.generation == generation() {
            Ok(())
        } else {
            Err(from_errno(Errno::BADF))
        }
    }

    /// The program is awake: nobody needs to ring, and the descriptor is not readable any more unless the engine
    /// is gone.
    pub fn disarm(&mut self) {
        if self.is_armed {
            self.is_armed = false;
            self.notifier.disarm();
            self.notifier.look_alive();
        }
    }
}

impl AsFd for Poller {
    /// Readable while the set is armed and there is news. Nothing is to be read from it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notifier.descriptor()
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        for member in self.members.values() {
            member.socket.forget(member.observer);
        }
    }
}
