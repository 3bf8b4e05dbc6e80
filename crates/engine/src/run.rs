//! The thread around an engine core: when to poll, when to spin, when to sleep, and on what.
//!
//! Busy, it polls without pause and looks at control channels now and then. Idle, it spins for
//! `spin_us`, then announces its sleep in every region, looks once more, and waits in epoll for the
//! device, the doorbells, the control channels or the next timer. See epoll(7).

use crate::config::Config;
use crate::control;
use crate::core::EngineCore;
use crate::latency::IdleLatency;
use crate::state::StateError;
use nic::Driver;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::time::{Duration as StdDuration, Instant as StdInstant};
use tcp::Instant;

/// How often a busy engine looks at its control channels, microseconds.
const CONTROL_INTERVAL_US: u64 = 50;
/// An idle engine wakes at least this often, for housekeeping.
const MAX_SLEEP_US: u64 = 1_000_000;

const TAG_LISTENER: u64 = 0;
const TAG_DRIVER: u64 = 1;
const TAG_STOP: u64 = 2;
/// From here on: control channel of slot n at 2n, doorbell at 2n + 1.
const TAG_SESSIONS: u64 = 16;

/// Why an engine did not start, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No memory for the tables.
    #[error(transparent)]
    State(#[from] StateError),
    /// The stack refused an address, a route or a size.
    #[error("the configuration is refused: {0}")]
    Stack(#[from] stack::Error),
    /// The control socket's name is taken.
    #[error("an engine already answers at {0}: stop it, or choose another name with --name")]
    AlreadyRunning(String),
    /// A system call failed.
    #[error("cannot {0}: {1}")]
    System(&'static str, Errno),
    /// The device is gone or failed.
    #[error("the device failed: {0}")]
    Device(std::io::Error),
}

/// An engine with its control socket, ready to run.
pub struct Engine {
    core: EngineCore,
    listener: OwnedFd,
    epoll: OwnedFd,
    origin: StdInstant,
    latency: Option<IdleLatency>,
}

/// Runs an engine until `stop` becomes readable.
///
/// # Errors
/// [`StartError`]: it could not start, or its device failed.
pub fn run(
    config: Config,
    driver: Box<dyn Driver>,
    stop: BorrowedFd<'_>,
) -> Result<(), StartError> {
    Engine::start(config, driver)?.run(stop)
}

impl Engine {
    /// Opens the control socket and prepares everything; programs may connect from now on.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(config: Config, driver: Box<dyn Driver>) -> Result<Self, StartError> {
        let system = |what| move |errno| StartError::System(what, errno);
        let listener = hostif::control::listen(&config.name).map_err(|errno| match errno {
            Errno::ADDRINUSE => StartError::AlreadyRunning(config.name.clone()),
            errno => StartError::System("open the control socket", errno),
        })?;
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("make an epoll instance"))?;
        let mut secret = [0; 16];
        rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())
            .map_err(system("get random numbers"))?;
        let watch = |fd: BorrowedFd<'_>, tag: u64| {
            epoll::add(&epoll, fd, EventData::new_u64(tag), EventFlags::IN)
                .map_err(system("watch a descriptor"))
        };
        watch(listener.as_fd(), TAG_LISTENER)?;
        if let Some(fd) = driver.wait_fd() {
            watch(fd, TAG_DRIVER)?;
        }
        let core = EngineCore::new(config, driver, secret, Instant::from_us(1))?;
        Ok(Self {
            core,
            listener,
            epoll,
            origin: StdInstant::now(),
            latency: None,
        })
    }

    fn now(&self) -> Instant {
        let us = u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX);
        Instant::from_us(us.saturating_add(1))
    }

    /// Runs until `stop` becomes readable.
    ///
    /// # Errors
    /// [`StartError::Device`], or a system call that cannot fail failed.
    pub fn run(mut self, stop: BorrowedFd<'_>) -> Result<(), StartError> {
        let watched = epoll::add(
            &self.epoll,
            stop,
            EventData::new_u64(TAG_STOP),
            EventFlags::IN,
        );
        watched.map_err(|errno| StartError::System("watch for the end", errno))?;
        let mut busy_until = self.now();
        let mut control_at = self.now();
        loop {
            let now = self.now();
            if self.core.poll(now) > 0 {
                busy_until = now + tcp::Duration::from_us(self.core.config.spin_us);
            }
            if let Some(error) = self.core.failure() {
                return Err(StartError::Device(error));
            }
            let is_idle = now >= busy_until && !self.core.has_backlog();
            if is_idle || now >= control_at {
                self.core.keep_house(now);
                let timeout_us = if is_idle { self.prepare_sleep(now)? } else { 0 };
                if self.wait(now, timeout_us, is_idle)? {
                    return Ok(());
                }
                control_at = self.now() + tcp::Duration::from_us(CONTROL_INTERVAL_US);
            } else {
                core::hint::spin_loop();
            }
        }
    }

    /// Announces sleep everywhere; returns how long it may last, 0 when there is work after all.
    fn prepare_sleep(&mut self, now: Instant) -> Result<u64, StartError> {
        let mut has_work = false;
        for session in self.core.sessions.iter().flatten() {
            if let Some(rings) = &session.rings {
                rings.engine_word.announce();
                has_work |= rings.has_work() && !session.is_faulty;
            }
        }
        if has_work
            || !self
                .core
                .link
                .driver
                .prepare_wait()
                .map_err(StartError::Device)?
        {
            return Ok(0);
        }
        let timer = self
            .core
            .next_deadline()
            .map_or(MAX_SLEEP_US, |deadline| deadline.since(now).as_us());
        let device = self
            .core
            .link
            .driver
            .wait_deadline_us()
            .unwrap_or(MAX_SLEEP_US);
        Ok(timer.min(device).min(MAX_SLEEP_US))
    }

    /// Waits for events and acts on those of the control channels. `true`: the end was asked for.
    fn wait(
        &mut self,
        now: Instant,
        timeout_us: u64,
        has_announced: bool,
    ) -> Result<bool, StartError> {
        let mut events = [epoll::Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }; 64];
        let timeout = StdDuration::from_micros(timeout_us);
        let timeout = rustix::fs::Timespec::try_from(timeout).ok();
        let count = match epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(errno) => return Err(StartError::System("wait for events", errno)),
        };
        if has_announced {
            for session in self.core.sessions.iter().flatten() {
                if let Some(rings) = &session.rings {
                    rings.engine_word.withdraw();
                }
            }
        }
        let mut ends = false;
        for event in &events[..count] {
            match event.data.u64() {
                TAG_LISTENER => {
                    while let Some(control) = control::accept(self.listener.as_fd()) {
                        self.core.accept_session(control);
                    }
                }
                TAG_DRIVER => {}
                TAG_STOP => ends = true,
                tag => self.handle_session_event(now, tag - TAG_SESSIONS),
            }
        }
        self.drop_faulty(now);
        self.watch_new()?;
        Ok(ends)
    }

    fn handle_session_event(&mut self, now: Instant, tag: u64) {
        let Ok(slot) = usize::try_from(tag / 2) else {
            return;
        };
        if tag.is_multiple_of(2) {
            if slot < self.core.sessions.len() {
                self.core.handle_control(now, slot);
            }
        } else if let Some(rings) = self.core.rings_of(slot) {
            hostif::doorbell::drain(rings.engine_bell.as_fd());
        }
    }

    fn drop_faulty(&mut self, now: Instant) {
        for slot in 0..self.core.sessions.len() {
            if self.core.sessions[slot]
                .as_ref()
                .is_some_and(|session| session.is_faulty)
            {
                self.core.end_session(now, slot);
            }
        }
    }

    fn watch_new(&mut self) -> Result<(), StartError> {
        let core = &mut self.core;
        let watch = |fd: BorrowedFd<'_>, tag: u64| {
            epoll::add(&self.epoll, fd, EventData::new_u64(tag), EventFlags::IN)
                .map_err(|errno| StartError::System("watch a program", errno))
        };
        let tag = |slot: usize| TAG_SESSIONS + 2 * u64::try_from(slot).unwrap_or(u64::MAX / 4);
        for slot in core.new_sessions.drain(..) {
            if let Some(session) = &core.sessions[slot] {
                rustix::io::ioctl_fionbio(&session.control, true)
                    .map_err(|errno| StartError::System("set up a control channel", errno))?;
                watch(session.control.as_fd(), tag(slot))?;
            }
        }
        for slot in core.new_bells.drain(..) {
            if let Some(rings) = core.sessions[slot]
                .as_ref()
                .and_then(|session| session.rings.as_ref())
            {
                watch(rings.engine_bell.as_fd(), tag(slot) + 1)?;
            }
        }
        let attached = core
            .sessions
            .iter()
            .flatten()
            .any(|session| session.rings.is_some());
        if attached != self.latency.is_some() {
            self.latency = (attached && core.config.hold_idle_latency)
                .then(IdleLatency::hold)
                .flatten();
        }
        Ok(())
    }
}
