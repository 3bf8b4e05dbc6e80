//! The supervisor's loop and its table: what is served, by the cookie of the program's end of the pair.
//!
//! One thread, three sources: calls that were stopped, events of our ends of pairs, events of the engine.
//! None of them makes it wait: a call that would block waits as a notification until somebody answers it,
//! and a signal takes it back. Every handler may be run again for the same call (a signal handler replays it):
//! it acts on what the table says, not on having been called, and what it cannot do twice `unheard` remembers.

mod events;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Until;
use rustix::event::epoll;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;

use crate::bell::News;
use crate::caller::Caller;
use crate::calls::addresses::Questions;
use crate::calls::holders::Holders;
use crate::datagram::Datagrams;
use crate::engine_access::EngineAccess;
use crate::filter::EPOLL_CREATE;
use crate::interest::Sets;
use crate::queue::Queue;
use crate::relay::{Phase, Relay, Step};
use crate::settings::Settings;
use crate::stopped_call::{Blocked, Call, Outcome, low_half};
use crate::sys::{self, Notification};
use crate::unheard::Unheard;

/// Bytes that are taken from a receive window at once.
const BUFFER_BYTES: usize = 128 * 1024;
/// Calls that are answered before bytes are moved again.
const CALLS_PER_TURN: usize = 16;
/// Connections that are over, whose program still may ask how they ended, or has not been seen to close.
const ENDED_MAX: usize = 1024;
/// How often calls are looked at that somebody may have given up, and time-outs.
const LOOK: Duration = Duration::from_millis(200);

/// What stands behind a program's end of a pair.
pub enum Served {
    /// A connection.
    Relay(Box<Relay>),
    /// A listener.
    Queue(Box<Queue>),
    /// A UDP socket.
    Datagrams(Box<Datagrams>),
}

impl Served {
    /// The kernel's socket that holds port and options.
    pub fn backing(&self) -> BorrowedFd<'_> {
        match self {
            Served::Relay(relay) => relay.backing.as_fd(),
            Served::Queue(queue) => queue.backing.as_fd(),
            Served::Datagrams(datagrams) => datagrams.backing.as_fd(),
        }
    }
}

/// See the file's head.
pub struct Supervisor {
    /// The descriptor on which stopped calls arrive.
    pub listener: OwnedFd,
    /// The engines.
    pub engine_access: EngineAccess,
    /// Sockets that have news.
    pub news: Arc<News>,
    /// What is served.
    pub served: HashMap<u64, Served>,
    /// Connections whose program has not got its end yet, by the cookie of their backing socket.
    pub undelivered: HashMap<u64, u64>,
    /// What calls have done whose answers did not arrive.
    pub unheard: Unheard,
    /// The descriptor that the thread which calls has connected by its call before, where it may not have heard of it.
    pub doubted: Option<RawFd>,
    /// Connections that were being made when they were looked at last.
    pub connecting: Vec<u64>,
    /// Which programs have listeners' sockets.
    pub holders: Holders,
    /// What programs have asked for addresses.
    pub questions: Questions,
    /// What a call waits for, or waited for lately.
    pub waited_for: HashSet<u64>,
    /// The programs' epoll sets.
    pub sets: Sets,
    epoll: OwnedFd,
    /// Of the programs' ends of pairs of datagram sockets, which nobody here has open: as long as somebody has one open,
    /// it is in this set.
    alive: OwnedFd,
    /// UDP sockets that the kernel serves as a whole, by their cookies.
    pub left: HashSet<u64>,
    ended: VecDeque<u64>,
    looked: Instant,
    /// The count of changes after which no listener missed an engine.
    pub changes_seen: u32,
    /// When engines that are gone were looked for last.
    pub looked_for_engines: Instant,
}

impl Supervisor {
    /// Of the programs whose calls arrive at `listener`.
    pub fn new(listener: OwnedFd, settings: Settings) -> Result<Supervisor, Errno> {
        sys::wake_in_step(listener.as_fd());
        Ok(Supervisor {
            listener,
            engine_access: EngineAccess::new(settings),
            news: Arc::default(),
            served: HashMap::new(),
            undelivered: HashMap::new(),
            unheard: Unheard::default(),
            doubted: None,
            connecting: Vec::new(),
            holders: Holders::default(),
            questions: Questions::default(),
            waited_for: HashSet::new(),
            sets: Sets::default(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            left: HashSet::new(),
            alive: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            ended: VecDeque::new(),
            looked: Instant::now(),
            changes_seen: client::changes(),
            looked_for_engines: Instant::now(),
        })
    }

    /// Serves until no program is left and all connections have ended.
    pub fn run(&mut self) {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut programs_left = true;
        loop {
            let flags = self.sleep(programs_left);
            if flags.contains(PollFlags::IN) {
                self.answer_calls();
            }
            if programs_left && flags.intersects(PollFlags::HUP | PollFlags::ERR) {
                programs_left = false;
                self.drop_undelivered();
                self.reap();
            }
            self.take_events();
            // As many as there are now: what rings again is polled next after the calls.
            for _ in 0..self.news.len() {
                let Some(key) = self.news.take() else { break };
                self.poll(key, &mut buffer);
            }
            self.look_after_waiting();
            self.look_for_engines();
            if !programs_left && !self.is_anything_open() {
                return;
            }
        }
    }

    /// Sleeps until there is something to do; what the calls' descriptor says.
    fn sleep(&mut self, programs_left: bool) -> PollFlags {
        let has_datagrams = || {
            let mut served = self.served.values();
            served.any(|served| matches!(served, Served::Datagrams(_)))
        };
        let is_missing = client::changes() != self.changes_seen;
        let looks = is_missing || !self.waited_for.is_empty() || has_datagrams();
        let longest = looks.then_some(LOOK);
        let listener = if programs_left {
            self.listener.as_raw_fd()
        } else {
            -1
        };
        let entry = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut set = [entry(listener), entry(self.epoll.as_raw_fd())];
        match self.engine_access.sessions() {
            [] => set[0].revents = wait_without_engine(&self.listener, &self.epoll, longest),
            sessions => {
                let deadline = longest.map(|longest| Instant::now() + longest);
                let news = Arc::clone(&self.news);
                let mut ready = || !news.is_empty();
                let until = Until {
                    deadline,
                    ready: &mut ready,
                    before_sleep: &mut || {},
                };
                // Interrupted or not: everything is looked at again.
                let _ = client::wait_on(sessions, &[], &mut set, None, until);
                if set[0].revents == 0 {
                    set[0].revents = glance(listener);
                }
            }
        }
        PollFlags::from_bits_retain(set[0].revents.cast_unsigned())
    }

    fn is_anything_open(&self) -> bool {
        self.served.values().any(|served| match served {
            Served::Relay(relay) => relay.phase != Phase::Over,
            Served::Queue(_) | Served::Datagrams(_) => true,
        })
    }

    fn answer_calls(&mut self) {
        for _ in 0..CALLS_PER_TURN {
            match sys::receive(self.listener.as_fd()) {
                Ok(notification) => self.answer(notification),
                // The one that was announced is gone.
                Err(_) => return,
            }
            if glance(self.listener.as_raw_fd()) & libc::POLLIN == 0 {
                return;
            }
        }
    }

    fn answer(&mut self, notification: Notification) {
        let Notification {
            id,
            tid,
            number,
            arguments,
        } = notification;
        let call = Call {
            id,
            caller: Caller { tid },
            // The kernel takes the low half too.
            fd: RawFd::from_ne_bytes(low_half(arguments[0])),
            arguments,
        };
        // What the program has closed before is closed: nobody is accepted there, and it holds no port.
        self.take_events();
        self.doubted = self.unheard.take_doubted(tid);
        let outcome = match self.unheard.take(&call, number) {
            Some(answer) => answer.map(Outcome::Return),
            None => self.carry_out(&call, number),
        };
        let answer = match outcome {
            Ok(Outcome::Continue) => None,
            Ok(Outcome::Return(value)) => Some(Ok(value)),
            Ok(Outcome::Later) => return,
            Err(error) => Some(Err(error)),
        };
        let told = self.tell(id, call.caller, answer);
        match answer {
            Some(answer) if told.is_err() && number == libc::SYS_connect => {
                self.keep_answer(&call, answer);
            }
            Some(_) if number == libc::SYS_connect => self.unheard.doubt_connect(tid, call.fd),
            Some(answer) if told.is_err() => self.unheard.keep(&call, number, answer),
            _ => {}
        }
    }

    fn carry_out(&mut self, call: &Call, number: i64) -> Result<Outcome, Errno> {
        match number {
            libc::SYS_connect => self.connect(call),
            libc::SYS_bind => self.bind(call),
            libc::SYS_listen => self.listen(call),
            libc::SYS_accept => self.accept(call, 0),
            libc::SYS_accept4 => self.accept(call, i32::from_ne_bytes(low_half(call.arguments[3]))),
            libc::SYS_getsockname => self.name(call, true),
            libc::SYS_getpeername => self.name(call, false),
            libc::SYS_setsockopt => self.set_option(call),
            libc::SYS_getsockopt => self.option(call),
            libc::SYS_shutdown => self.shutdown(call),
            libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_sendmmsg
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_recvmmsg => self.message(call, number),
            libc::SYS_ioctl => self.ioctl(call),
            number if [libc::SYS_epoll_create1, EPOLL_CREATE].contains(&number) => {
                self.sets.forget();
                Ok(Outcome::Continue)
            }
            _ => Ok(Outcome::Continue),
        }
    }

    /// Answers a call. Where it is gone, a signal took it back, and it will come again or not.
    pub fn reply(&self, id: u64, answer: Option<Result<i64, Errno>>) {
        let _ = sys::answer(self.listener.as_fd(), id, answer);
    }

    fn poll(&mut self, key: u64, buffer: &mut [u8]) {
        let step = match self.served.get_mut(&key) {
            Some(Served::Relay(relay)) => {
                let step = relay.poll(buffer);
                if !relay.blocked.is_empty() {
                    self.serve_blocked_stream(key);
                }
                step
            }
            Some(Served::Queue(_)) => {
                self.serve_queue(key);
                return;
            }
            Some(Served::Datagrams(_)) => self.poll_datagrams(key, buffer),
            None => return,
        };
        match step {
            Step::Idle => {}
            Step::More => self.ring(key),
            Step::Decided => self.conclude(key),
            Step::Gone => {
                drop(self.let_go(key));
                return;
            }
        }
        let is_over = matches!(self.served.get(&key), Some(Served::Relay(relay)) if relay.phase == Phase::Over);
        if is_over && !self.ended.contains(&key) {
            self.ended.push_back(key);
            if self.ended.len() > ENDED_MAX
                && let Some(oldest) = self.ended.pop_front()
            {
                drop(self.let_go(oldest));
            }
        }
    }

    /// Takes out of the table what no process has open any more. Calls of other threads that wait there end: what is closed gets
    /// no news, and nobody looks at their time.
    pub fn let_go(&mut self, key: u64) -> Option<Served> {
        let mut served = self.served.remove(&key)?;
        let closed = |blocked: Blocked| {
            let answer = blocked.given_up().map_err(|_| Errno::BADF);
            (blocked.call.id, answer)
        };
        let ended: Vec<(u64, Result<i64, Errno>)> = match &mut served {
            Served::Queue(queue) => {
                let waiting = queue.take_waiting().into_iter();
                waiting.map(|id| (id, Err(Errno::INVAL))).collect()
            }
            Served::Relay(relay) => {
                let waiting = relay.waiting.drain(..);
                let connects = waiting.map(|waiting| (waiting.id, Err(Errno::BADF)));
                connects
                    .chain(relay.blocked.drain(..).map(closed))
                    .collect()
            }
            Served::Datagrams(datagrams) => datagrams.blocked.drain(..).map(closed).collect(),
        };
        for (id, answer) in ended {
            self.reply(id, Some(answer));
        }
        Some(served)
    }

    fn ring(&self, key: u64) {
        match self.served.get(&key) {
            Some(Served::Relay(relay)) => relay.bell.ring(),
            Some(Served::Datagrams(datagrams)) => datagrams.bell.ring(),
            _ => {}
        }
    }

    /// Now and then: time-outs, and calls that somebody has given up.
    fn look_after_waiting(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.looked) < LOOK {
            return;
        }
        self.looked = now;
        self.reap();
        let listener = self.listener.as_fd();
        let waits = |id| sys::waits(listener, id);
        let served = &mut self.served;
        let mut lapsed = Vec::new();
        let mut abandoned = Vec::new();
        self.waited_for.retain(|key| match served.get_mut(key) {
            Some(Served::Relay(relay)) => {
                relay.waiting.retain(|waiting| {
                    if waiting.deadline.is_some_and(|deadline| deadline <= now) {
                        let _ = sys::answer(listener, waiting.id, Some(Err(waiting.late)));
                        return false;
                    }
                    waits(waiting.id)
                });
                // Its poll looks at the time, and at which calls still wait.
                if !relay.blocked.is_empty() {
                    relay.bell.ring();
                }
                !relay.waiting.is_empty() || !relay.blocked.is_empty()
            }
            Some(Served::Queue(queue)) => {
                for waiting in queue.expired(now) {
                    let _ = sys::answer(listener, waiting.id, Some(Err(waiting.late)));
                }
                queue.prune(waits);
                if queue.is_abandoned() {
                    abandoned.push(*key);
                }
                queue.has_waiting()
            }
            Some(Served::Datagrams(datagrams)) => {
                datagrams.bell.ring();
                datagrams.blocked.retain(|blocked| {
                    let is_late = blocked.deadline.is_some_and(|deadline| deadline <= now);
                    let answer = Some(blocked.given_up());
                    if is_late && sys::answer(listener, blocked.call.id, answer).is_ok() {
                        return false;
                    }
                    let still = waits(blocked.call.id);
                    if !still {
                        lapsed.push(*blocked);
                    }
                    still
                });
                !datagrams.blocked.is_empty()
            }
            None => false,
        });
        for blocked in &lapsed {
            self.unheard.lapse(blocked);
        }
        for key in abandoned {
            self.abandon_queue(key);
        }
    }
}

/// What poll says of a descriptor now.
fn glance(fd: RawFd) -> i16 {
    if fd < 0 {
        return 0;
    }
    sys::poll_now(fd)
}

fn wait_without_engine(listener: &OwnedFd, epoll: &OwnedFd, longest: Option<Duration>) -> i16 {
    let mut set = [
        PollFd::new(listener, PollFlags::IN),
        PollFd::new(epoll, PollFlags::IN),
    ];
    let longest = longest.and_then(|longest| Timespec::try_from(longest).ok());
    let _ = poll(&mut set, longest.as_ref());
    i16::from_ne_bytes(set[0].revents().bits().to_ne_bytes())
}
