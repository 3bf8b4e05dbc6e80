//! The thread around one engine core: when to poll, when to spin, when to sleep, and on what.
//!
//! Busy, it polls without pause and looks at control channels now and then. Idle, it spins as long
//! as `pace.rs` allows, then announces its sleep in every region, looks once more, and waits in epoll for the
//! device, the doorbells, the control channels or the next timer. See epoll(7).

use crate::core::EngineCore;
use crate::core::sessions;
use crate::device::Watch;
use crate::kernel::sharing::Shared;
use crate::process::clock::{Origin, STARTED, time_since};
use crate::process::idle_exit::IdleExit;
use crate::process::latency::IdleLatency;
use crate::process::pace::Pace;
use crate::process::sleep;
use crate::programs::Answer;
use crate::programs::session::Session;
use crate::programs::{TAG_SESSIONS, tag_of};
use crate::start_error::StartError;
use hostif::control::Request;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use tcp::Instant;

/// How often a busy engine looks at its control channels, microseconds.
const CONTROL_INTERVAL_US: u64 = 50;
/// An idle engine wakes at least this often, for housekeeping.
const MAX_SLEEP_US: u64 = 1_000_000;
/// How long an idle engine lets news wait that found a program's ring full.
const FULL_RING_SLEEP_US: u64 = 1_000;
/// Polls that did something, without a sleep between them, after which the device is not watched. To watch it no more and again costs
/// two system calls, and who answers a few dozen messages between two sleeps makes as many polls.
const WATCHED_POLLS: u32 = 64;

const TAG_LISTENER: u64 = 0;
const TAG_DRIVER: u64 = 1;
const TAG_STOP: u64 = 2;
const TAG_INBOX: u64 = 3;
const TAG_KERNEL: u64 = 4;
const TAG_FINISHED: u64 = 5;
/// A core, ready to run.
pub struct CoreLoop {
    pub(crate) core: EngineCore,
    /// The control socket, at the first core.
    listener: Option<OwnedFd>,
    /// Programs wait to be accepted until a descriptor is free.
    accept_owed: bool,
    epoll: Arc<OwnedFd>,
    origin: Origin,
    latency: Option<IdleLatency>,
    /// Present where the engine ends when nobody needs it any more.
    idle_exit: Option<IdleExit>,
    /// It also stays while a connection is in TIME-WAIT.
    keeps_time_wait: bool,
    /// Polls that did something since somebody was about to sleep.
    awake_polls: u32,
    /// Others watch the device's descriptor (see `inline`).
    is_device_detached: bool,
}

impl CoreLoop {
    /// A loop around `core`; programs come to the first core's `listener`. `origin` is when the core's
    /// time was 1 µs.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn new(
        mut core: EngineCore,
        listener: Option<OwnedFd>,
        origin: Origin,
    ) -> Result<Self, StartError> {
        let system = |what| move |errno| StartError::System(what, errno);
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("make an epoll instance"))?;
        let epoll = Arc::new(hostif::host_hooks::relocate_fd(epoll));
        core.programs.watch_by(Arc::clone(&epoll));
        let watch = |fd: Option<BorrowedFd<'_>>, tag: u64, flags: EventFlags| match fd {
            Some(fd) => epoll::add(&epoll, fd, EventData::new_u64(tag), flags)
                .map_err(system("watch a descriptor")),
            None => Ok(()),
        };
        // Edge-triggered: a program that cannot be accepted for want of descriptors must not keep the
        // engine awake.
        let (listening, edge) = (listener.as_ref(), EventFlags::IN | EventFlags::ET);
        watch(listening.map(OwnedFd::as_fd), TAG_LISTENER, edge)?;
        watch(core.layer.link.driver.wait_fd(), TAG_DRIVER, EventFlags::IN)?;
        watch(core.shard.bell(), TAG_INBOX, EventFlags::IN)?;
        watch(
            Some(core.programs.finished.bell()),
            TAG_FINISHED,
            EventFlags::IN,
        )?;
        let kernel = core.layer.shared.as_ref().map(Shared::news_fd);
        watch(kernel, TAG_KERNEL, EventFlags::IN)?;
        core.programs
            .watch_bells()
            .map_err(system("watch a descriptor"))?;
        let patience = core.config.until_idle_s.map(tcp::Duration::from_secs);
        Ok(Self {
            listener,
            accept_owed: false,
            epoll,
            origin,
            latency: None,
            idle_exit: patience.map(|patience| IdleExit::new(patience, STARTED)),
            keeps_time_wait: false,
            awake_polls: 0,
            is_device_detached: false,
            core,
        })
    }

    /// Of a loop that others run (see `inline`): the descriptor that becomes readable for everything but
    /// the device, and the device's.
    ///
    /// # Errors
    /// The device cannot be waited for.
    pub(crate) fn detach_device(&mut self) -> Result<[BorrowedFd<'_>; 2], Errno> {
        self.is_device_detached = true;
        let device = self
            .core
            .layer
            .link
            .driver
            .wait_fd()
            .ok_or(Errno::OPNOTSUPP)?;
        epoll::delete(&self.epoll, device)?;
        Ok([self.epoll.as_fd(), device])
    }

    /// Makes a loop that was taken apart whole again, to be `run` until nobody needs it any more.
    ///
    /// # Errors
    /// The device cannot be watched.
    pub(crate) fn attach_device(&mut self, patience: tcp::Duration) -> Result<(), Errno> {
        let now = self.now();
        self.idle_exit = Some(IdleExit::new(patience, now));
        self.keeps_time_wait = true;
        self.core.succession.is_left_behind = true;
        self.is_device_detached = false;
        self.watch_driver()
    }

    /// Whether another poll would send more, at once.
    fn has_more(&self) -> bool {
        self.core.layer.has_backlog() && self.core.layer.link.driver.wait_deadline_us().is_none()
    }

    /// Whether the polls so far have left something to do to another, which has to come before anybody sleeps.
    fn owes_poll(&self) -> bool {
        self.has_more() || self.core.owes_whole_poll()
    }

    /// Polls the core once. Whether there was something to do.
    ///
    /// # Errors
    /// [`StartError::Device`].
    pub(crate) fn poll(&mut self, now: Instant) -> Result<bool, StartError> {
        self.poll_by(|core| core.poll(now, None))
    }

    /// As `poll`, in a way of the caller's, which says how much there was to do.
    ///
    /// # Errors
    /// [`StartError::Device`].
    #[inline]
    pub(crate) fn poll_by(
        &mut self,
        poll: impl FnOnce(&mut EngineCore) -> usize,
    ) -> Result<bool, StartError> {
        let work = poll(&mut self.core);
        match self.core.failure() {
            Some(error) => Err(StartError::Device(error)),
            None => Ok(work > 0 || self.has_more()),
        }
    }

    /// After a poll that did something, where nobody sleeps on the device's descriptor.
    ///
    /// # Errors
    /// [`StartError::Device`].
    pub(crate) fn on_awake(&mut self) -> Result<(), StartError> {
        self.awake_polls = self.awake_polls.saturating_add(1);
        if self.awake_polls == WATCHED_POLLS {
            let device = &mut self.core.layer.link.driver;
            device.stop_watch().map_err(StartError::Device)?;
        }
        Ok(())
    }

    /// Somebody is about to sleep. False: there are frames already.
    fn watch_device(&mut self) -> Result<bool, StartError> {
        self.awake_polls = 0;
        let link = &mut self.core.layer.link;
        let ready = link.driver.prepare_wait();
        ready.or_else(|error| {
            link.device.on_failure(error);
            // The device is looked at before anybody sleeps.
            let failure = link.device.failure.take();
            failure.map_or(Ok(false), |error| Err(StartError::Device(error)))
        })
    }

    /// As `EngineCore::answer_session`.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        session: u32,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> Option<Answer> {
        self.core.layer.sockets.set_now(now);
        let answer = self.core.answer_session(now, session, request, descriptors);
        self.follow_sessions(now);
        answer
    }

    /// Looks after everything but the data: control channels, memory that can go back.
    ///
    /// # Errors
    /// A system call that cannot fail failed.
    pub(crate) fn attend(&mut self, now: Instant) -> Result<(), StartError> {
        self.core.keep_house(now);
        self.wait(now, 0, true).map(drop)
    }

    /// For whoever is going to wait for the device: how long at most; `None`: there is something to do.
    ///
    /// # Errors
    /// [`StartError::Device`].
    pub(crate) fn prepare_watch(&mut self, now: Instant) -> Result<Option<u64>, StartError> {
        let has_work = self.owes_poll() || self.core.programs.awake().any(Session::has_work);
        if has_work || !self.watch_device()? {
            return Ok(None);
        }
        let longest = self.sleep_us(now, MAX_SLEEP_US);
        Ok((longest > 0).then_some(longest))
    }

    /// How long nothing is to be done by the clock, microseconds: `longest` at most.
    fn sleep_us(&self, now: Instant, longest: u64) -> u64 {
        let timer = self.core.next_deadline();
        let timer = timer.map_or(longest, |deadline| deadline.since(now).as_us());
        let device = self.core.layer.link.driver.wait_deadline_us();
        timer.min(device.unwrap_or(longest)).min(longest)
    }

    /// Whether a connection, a TIME-WAIT, a datagram whose neighbour is asked for, or another process needs this core.
    pub(crate) fn is_needed(&self, own_pid: i32) -> bool {
        let of_others = |session: &Session| session.pid != own_pid;
        self.core.layer.stack.is_in_use(true) || self.core.programs.iter().any(of_others)
    }

    pub(crate) fn now(&self) -> Instant {
        time_since(self.origin)
    }

    /// Runs until one of `stops` becomes readable, or, at the first core, nobody needs the engine (see
    /// [`crate::Config::until_idle_s`]).
    ///
    /// # Errors
    /// [`StartError::Device`], or a system call that cannot fail failed.
    pub fn run(mut self, stops: [BorrowedFd<'_>; 2]) -> Result<(), StartError> {
        for stop in stops {
            let tag = EventData::new_u64(TAG_STOP);
            epoll::add(&self.epoll, stop, tag, EventFlags::IN)
                .map_err(|errno| StartError::System("watch for the end", errno))?;
        }
        let mut pace = Pace::new(self.core.config.spin_us);
        let mut control_at = self.now();
        // When the last poll began, if it did something.
        let mut began = None;
        loop {
            let now = self.now();
            if let Some(began) = began {
                let took_us = u32::try_from(now.since(began).as_us());
                self.core.polls.add(took_us.unwrap_or(u32::MAX));
            }
            pace.on_poll(now);
            let worked = self.core.poll(now, None) > 0;
            began = worked.then_some(now);
            pace.on_done(now, worked, self.core.has_served());
            if let Some(error) = self.core.failure() {
                return Err(StartError::Device(error));
            }
            if worked {
                self.on_awake()?;
            }
            let is_idle = !worked && !pace.may_spin(now) && !self.core.layer.has_backlog();
            if is_idle || now >= control_at {
                self.core.keep_house(now);
                self.core.programs.let_doze(now);
                let timeout_us = if is_idle { self.prepare_sleep(now)? } else { 0 };
                if self.wait(now, timeout_us, is_idle)? {
                    return self.take_leave();
                }
                if is_idle && self.is_deserted() || self.gives_way() {
                    return Ok(());
                }
                pace.on_waited();
                control_at = self.now() + tcp::Duration::from_us(CONTROL_INTERVAL_US);
            } else {
                core::hint::spin_loop();
            }
        }
    }

    /// Announces sleep everywhere; returns how long it may last, 0 when there is work after all.
    pub(crate) fn prepare_sleep(&mut self, now: Instant) -> Result<u64, StartError> {
        let mut has_work = self.owes_poll();
        for session in self.core.programs.awake() {
            if let Some(rings) = &session.rings {
                rings.engine_word.announce();
                has_work |= session.has_work();
            }
        }
        // Who broke the protocol is let go at once.
        has_work |= self.core.programs.has_faulty();
        if has_work || !self.watch_device()? {
            return Ok(0);
        }
        let longest = if self.core.programs.has_waiting_news() {
            FULL_RING_SLEEP_US
        } else {
            MAX_SLEEP_US
        };
        Ok(self.sleep_us(now, longest))
    }

    /// The device's descriptor wakes the loop.
    fn watch_driver(&self) -> Result<(), Errno> {
        let Some(device) = self.core.layer.link.driver.wait_fd() else {
            return Ok(());
        };
        let tag = EventData::new_u64(TAG_DRIVER);
        epoll::add(&self.epoll, device, tag, EventFlags::IN)
    }

    /// The device has gone, or another has taken its place: its descriptor is watched no more, or again.
    fn follow_device(&self, watch: Watch) {
        let device = self.core.layer.link.driver.wait_fd();
        let Some(device) = device.filter(|_| !self.is_device_detached) else {
            return;
        };
        // A descriptor that is closed was watched no more, one that stayed the same still is.
        let _ = match watch {
            Watch::End => epoll::delete(&self.epoll, device),
            Watch::Begin => self.watch_driver(),
        };
    }

    /// Waits for events and acts on those of the control channels. `true`: the end was asked for.
    pub(crate) fn wait(
        &mut self,
        now: Instant,
        timeout_us: u64,
        has_announced: bool,
    ) -> Result<bool, StartError> {
        let mut events = [epoll::Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }; 64];
        if let Some(watch) = self.core.layer.link.device.watch.take() {
            self.follow_device(watch);
        }
        let count = match sleep::until_event(&self.epoll, &mut events, timeout_us) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(errno) => return Err(StartError::System("wait for events", errno)),
        };
        if has_announced {
            for session in self.core.programs.awake() {
                if let Some(rings) = &session.rings {
                    rings.engine_word.withdraw();
                }
            }
        }
        let mut ends = false;
        for event in &events[..count] {
            match event.data.u64() {
                TAG_LISTENER => self.accept_programs(),
                TAG_INBOX => self.core.take_messages(now),
                TAG_KERNEL => self.core.layer.follow_kernel(now),
                TAG_DRIVER => {}
                TAG_FINISHED => drop(self.core.take_finished(now)),
                TAG_STOP => ends = true,
                tag => self.handle_session_event(now, tag - TAG_SESSIONS),
            }
        }
        self.core.drop_faulty(now);
        if self.accept_owed {
            self.accept_programs();
        }
        self.follow_sessions(now);
        Ok(ends)
    }

    fn accept_programs(&mut self) {
        let Some(listener) = &self.listener else {
            return;
        };
        loop {
            match sessions::accept(listener.as_fd()) {
                Ok(Some(control)) => {
                    if let Some(idle_exit) = &mut self.idle_exit {
                        idle_exit.welcome(control.as_fd());
                    }
                    self.core.accept_session(control);
                }
                Ok(None) => {
                    self.accept_owed = false;
                    return;
                }
                Err(errno) => {
                    if !std::mem::replace(&mut self.accept_owed, true) {
                        tracing::warn!("programs wait to attach: {errno}; raise `ulimit -n`");
                    }
                    return;
                }
            }
        }
    }

    /// Nobody is left for whom the engine was started, and nothing that they left to be sent. Only the
    /// first core decides; the others tell it whether they are needed.
    fn is_deserted(&mut self) -> bool {
        let now = self.now();
        let core = &self.core;
        let is_first = self.listener.is_some();
        let keeps_time_wait = self.keeps_time_wait;
        self.idle_exit.as_mut().is_some_and(|idle_exit| {
            let gone = idle_exit.are_gone(now, || {
                let is_used = core.programs.iter().next().is_some()
                    || core.layer.stack.is_in_use(keeps_time_wait);
                core.shard.publish_use(is_used);
                is_used || core.shard.others_are_used()
            });
            gone && is_first
        })
    }

    fn handle_session_event(&mut self, now: Instant, tag: u64) {
        let Ok(slot) = usize::try_from(tag / 2) else {
            return;
        };
        // A doorbell is watched edge-triggered and never read: its program shares the open file and
        // could make a read of ours block.
        if slot >= self.core.programs.slots() {
            return;
        }
        if tag.is_multiple_of(2) {
            self.core.handle_control(now, slot);
        } else {
            self.core.programs.wake(now, slot);
        }
    }

    /// Follows the coming and going of sessions. What cannot be watched is its program's loss alone.
    fn follow_sessions(&mut self, now: Instant) {
        let core = &mut self.core;
        for fd in core.programs.closing.drain(..) {
            // It may never have been watched.
            let _ = epoll::delete(&self.epoll, &*fd);
        }
        let watch = |fd: BorrowedFd<'_>, tag: u64, flags: EventFlags| {
            epoll::add(&self.epoll, fd, EventData::new_u64(tag), flags)
        };
        let mut unwatched = Vec::new();
        for slot in std::mem::take(&mut core.programs.new) {
            if let Some(session) = core.programs.get(slot) {
                let watched = rustix::io::ioctl_fionbio(&*session.control, true)
                    .and_then(|()| watch(session.control.as_fd(), tag_of(slot), EventFlags::IN));
                // In the list twice when a slot changed hands meanwhile.
                if !matches!(watched, Ok(()) | Err(Errno::EXIST)) {
                    unwatched.push(slot);
                }
            }
        }
        for slot in unwatched {
            core.end_session(now, slot);
        }
        let attached = core.programs.iter().any(|session| session.rings.is_some());
        if attached != self.latency.is_some() {
            self.latency = (attached && core.config.hold_idle_latency)
                .then(IdleLatency::hold)
                .flatten();
        }
    }
}
