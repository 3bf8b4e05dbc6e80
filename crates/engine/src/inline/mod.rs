//! An engine core inside a program, run by whichever of the program's threads waits.
//!
//! A thread that waits, or that has left a note, calls `poll`; one that sleeps `watch`es the device and
//! polls when it wakes; small sends in a row share polls (`batch`). A helper thread (`help`) answers the control
//! channels, which nobody else does, and polls where no thread of the program has for a millisecond: while the program
//! computes, its peers are answered and its timers fire. While threads poll without pause the helper only looks
//! at the clock, less and less often: each look takes a processor from somebody for some microseconds,
//! and once in a millisecond would be every hundredth round trip.
//!
//! No wake-up is lost, for three reasons. A note is found by whoever holds the poll lock (`hostif::sync::poll_lock`, modelled
//! with loom). A frame makes the device readable, which somebody waits for: the threads that watch, or
//! else the helper; while nobody sleeps so, the device need not tell, and whoever is about to sleep has it tell again.
//! And a helper that goes to sleep for longer publishes that first and then looks how long it may; a thread whose poll
//! has done something, or that stops watching, looks at that afterwards and kicks it (the order of
//! `hostif::sync::doorbell`: of the two fences one comes first, so either the helper sees what the thread has done, or
//! the thread sees that the helper sleeps); the kick comes a millisecond later. A poll in vain has set no timer, and looks without a fence.
//!
//! Who owns which descriptor, and what fork and exec do, the shim decides.

mod batch;
mod helper;
mod kept;
mod poll_lock;

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant as StdInstant};

use hostif::control::{Reply, Request};
use hostif::{PollLock, SocketId, host_hooks, sync::doorbell};
use nic::Driver;
use rustix::event::Timespec;
use rustix::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use self::batch::{Batch, Offer};
pub use self::kept::Kept;
use crate::core::{EngineCore, SmallWrite};
use crate::process::clock::{Origin, STARTED};
use crate::process::core_loop::CoreLoop;
use crate::process::latency::IdleLatency;
use crate::sockets::user_buffer::UserBuffer;
use crate::start_error::StartError;
use engine_config::Config;
use engine_config::sysctl::Sysctls;

/// As long as threads poll at least this often, the helper leaves the device to them.
const TICK_US: u64 = 1_000;
/// The same, for a timer that fires once.
const LATE: Itimerspec = Itimerspec {
    it_interval: Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    },
    it_value: Timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    },
};
const _: () = assert!(LATE.it_value.tv_nsec.unsigned_abs() == TICK_US * 1_000);
/// Polls that one thread makes because others request them, before it leaves them to the helper.
const POLLS_FOR_OTHERS: u32 = 16;

/// Polls that take a note alone, in a row at most: then one receives, too, since a program that only sends has to hear of ACKs.
const NOTES_ALONE_MAX: u32 = 16;

/// What a thread that is about to sleep waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// Nothing: there is something to do.
    Work,
    /// The device's descriptor, for so many microseconds at most.
    Device(RawFd, u64),
    /// The engine has ended.
    Ended,
}

/// See the file's head.
pub struct Inline {
    /// Who may touch `core`.
    polls: PollLock,
    /// Locked only by whoever holds `polls`. Empty once the engine has ended or was left behind.
    core: Mutex<Option<CoreLoop>>,
    origin: Origin,
    /// When a thread of the program last polled, microseconds since `origin`.
    polled_us: AtomicU64,
    batch: Batch,
    /// How many polls that take a note alone may follow the last one that received, too.
    notes_alone: AtomicU32,
    /// Threads that sleep on the device.
    watching: AtomicU32,
    /// The helper sleeps until it is kicked.
    parked: AtomicBool,
    /// Held from the start: a descriptor that the helper opened later would for a moment have a number that
    /// the program expects to get.
    latency: Option<IdleLatency>,
    kick: OwnedFd,
    /// As a kick, a millisecond later.
    late_kick: OwnedFd,
    control: OwnedFd,
    device: OwnedFd,
    ended: AtomicBool,
}

impl Inline {
    /// An engine with one core over `driver`, to which programs come by the `listener`.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        config: Config,
        listener: OwnedFd,
        driver: Box<dyn Driver>,
    ) -> Result<Self, StartError> {
        let system = |what| move |errno| StartError::System(what, errno);
        let mut secret = [0; 16];
        rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())
            .map_err(system("get random numbers"))?;
        let latency = config.hold_idle_latency.then(IdleLatency::hold).flatten();
        let config = Config {
            hold_idle_latency: false,
            ..config
        };
        let origin = Origin::now();
        let mut core = EngineCore::new(config, driver, secret, STARTED)?;
        // Their descriptors would be the program's.
        core.sysctls = Sysctls::default();
        let mut core = CoreLoop::new(core, Some(host_hooks::relocate_fd(listener)), origin)?;
        let kick = doorbell::create().map_err(system("make an eventfd"))?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let late_kick =
            timerfd_create(TimerfdClockId::Monotonic, flags).map_err(system("make a timer"))?;
        let [control, device] = core
            .detach_device()
            .map_err(system("wait for the device"))?
            .map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 0).map(host_hooks::relocate_fd));
        Ok(Self {
            polls: PollLock::default(),
            control: control.map_err(system("duplicate a descriptor"))?,
            device: device.map_err(system("duplicate a descriptor"))?,
            core: Mutex::new(Some(core)),
            origin,
            polled_us: AtomicU64::new(0),
            batch: Batch::default(),
            notes_alone: AtomicU32::new(0),
            watching: AtomicU32::new(0),
            parked: AtomicBool::new(false),
            latency,
            kick: host_hooks::relocate_fd(kick),
            late_kick: host_hooks::relocate_fd(late_kick),
            ended: AtomicBool::new(false),
        })
    }

    fn now_us(&self) -> u64 {
        self.origin.elapsed_us()
    }

    /// Runs `work` on the core if the poll lock is free, and then polls as often as others request. `None`: it is not free,
    /// or the engine has ended.
    #[inline(always)]
    fn try_run<T>(&self, work: impl FnOnce(&mut CoreLoop) -> Result<T, StartError>) -> Option<T> {
        if !self.polls.try_take() {
            return None;
        }
        self.run_held(work)
    }

    /// As `try_run`, with the poll lock taken.
    #[inline(always)]
    fn run_held<T>(&self, work: impl FnOnce(&mut CoreLoop) -> Result<T, StartError>) -> Option<T> {
        let unwound = EndsByPanic(self);
        let result = self.run(work);
        core::mem::forget(unwound);
        if self.polls.let_go() {
            self.poll_for_others();
        }
        result
    }

    /// Others have requested polls while this thread held the lock, or wait for it; it is free again.
    #[inline(never)]
    fn poll_for_others(&self) {
        for _ in 0..POLLS_FOR_OTHERS {
            if !self.polls.leave_to_waiters() || !self.polls.try_take() {
                return;
            }
            self.run(|core| self.poll_core(core, None));
            if !self.polls.let_go() {
                return;
            }
        }
        // They request faster than one thread can poll: the helper polls as well.
        doorbell::ring(self.kick.as_fd());
    }

    /// Runs `work` with the poll lock held.
    #[inline(always)]
    fn run<T>(&self, work: impl FnOnce(&mut CoreLoop) -> Result<T, StartError>) -> Option<T> {
        let mut place = self.place();
        match work(place.as_mut()?) {
            Ok(result) => Some(result),
            Err(_) => {
                self.end(&mut place);
                None
            }
        }
    }

    fn place(&self) -> MutexGuard<'_, Option<CoreLoop>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The programs see their control channels hang up, as when any engine dies.
    fn end(&self, place: &mut Option<CoreLoop>) {
        self.ended.store(true, Ordering::Release);
        *place = None;
    }

    /// After anything that changes how long the helper may sleep: it looks in a millisecond, and as often as it does while threads poll. By
    /// then a thread that has answered sleeps again; a helper that came at once would want its processor and its poll lock.
    fn rouse(&self) {
        fence(Ordering::SeqCst);
        if self.parked.load(Ordering::Relaxed) && self.parked.swap(false, Ordering::AcqRel) {
            // A timer of this kind that exists can be set.
            let _ = timerfd_settime(&self.late_kick, TimerfdTimerFlags::empty(), &LATE);
        }
    }

    /// Polls the core: when that was, and whether there was anything to do.
    #[inline(always)]
    fn poll_core(
        &self,
        core: &mut CoreLoop,
        user_buffer: Option<&mut UserBuffer<'_, '_>>,
    ) -> Result<(tcp::Instant, bool), StartError> {
        self.poll_core_by(core, |core, now, sleeps| match user_buffer {
            Some(user_buffer) if !sleeps => core.poll_alone(now, user_buffer),
            user_buffer => core.poll(now, user_buffer),
        })
    }

    /// As `poll_core`; `poll` gets the moment, and whether anybody may sleep on the device.
    #[inline(always)]
    fn poll_core_by(
        &self,
        core: &mut CoreLoop,
        poll: impl FnOnce(&mut EngineCore, tcp::Instant, bool) -> usize,
    ) -> Result<(tcp::Instant, bool), StartError> {
        self.batch.on_poll();
        let now = core.now();
        self.notes_alone.store(NOTES_ALONE_MAX, Ordering::Relaxed);
        let sleeps = self.has_sleepers();
        let worked = core.poll_by(|core| poll(core, now, sleeps))?;
        if worked && !sleeps {
            core.on_awake()?;
        }
        Ok((now, worked))
    }

    /// As `poll_core`, of one note that is in no ring and nothing else. `None` in it: nothing was done; else whether there is
    /// anything for the helper.
    #[inline]
    fn poll_note(
        &self,
        core: &mut CoreLoop,
        note: &SmallWrite,
    ) -> Result<Option<bool>, StartError> {
        let now = core.now();
        let sleeps = self.has_sleepers();
        let mut is_taken = true;
        let worked = core.poll_by(|core| {
            let work = core.poll_note(now, note, !sleeps);
            is_taken = work.is_some();
            work.unwrap_or(0)
        })?;
        if !is_taken {
            return Ok(None);
        }
        if worked && !sleeps {
            core.on_awake()?;
        }
        Ok(Some(worked))
    }

    /// Polls for a note that is in no ring. False: it has to go by the ring. Nobody's request is answered by this, and none must be
    /// left: what was left before the note comes first. It is no poll of which the helper is to know, since nothing is received.
    #[inline]
    fn try_poll_note(&self, note: &SmallWrite) -> bool {
        if !self.takes_notes_alone() || !self.polls.try_take_unrequested() {
            return false;
        }
        let polled = self.run_held(|core| self.poll_note(core, note)).flatten();
        if polled == Some(true) {
            self.rouse();
        }
        polled.is_some()
    }

    /// Whether a poll has received not long ago: then this one need not.
    fn takes_notes_alone(&self) -> bool {
        let left = self.notes_alone.load(Ordering::Relaxed);
        if left > 0 {
            self.notes_alone.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// Whether a thread or the helper may sleep on the device.
    fn has_sleepers(&self) -> bool {
        self.watching.load(Ordering::SeqCst) > 0 || self.parked.load(Ordering::SeqCst)
    }

    /// Polls for a thread, which may pass its buffer. False: another thread polls.
    #[inline(always)]
    fn try_poll(&self, user_buffer: Option<&mut UserBuffer<'_, '_>>) -> bool {
        self.try_poll_by(|core| self.poll_core(core, user_buffer))
    }

    #[inline(always)]
    fn try_poll_by(
        &self,
        poll: impl FnOnce(&mut CoreLoop) -> Result<(tcp::Instant, bool), StartError>,
    ) -> bool {
        let polled = self.try_run(poll);
        if let Some(polled) = polled {
            self.on_polled(polled);
        }
        polled.is_some()
    }

    /// A thread has polled: when that was, and whether there was anything to do.
    #[inline]
    fn on_polled(&self, (now, worked): (tcp::Instant, bool)) {
        self.polled_us.store(now.as_us(), Ordering::Relaxed);
        // A poll that found nothing has set no timer; if it misses a helper that has just parked, the next does not.
        if worked || self.parked.load(Ordering::Relaxed) {
            self.rouse();
        }
    }

    /// A thread waits: polls, unless another thread does, and may pass its buffer for what arrives on one socket. False:
    /// another thread polls.
    #[inline(always)]
    pub fn poll(&self, user_buffer: Option<&mut UserBuffer<'_, '_>>) -> bool {
        self.batch.on_wait();
        self.try_poll(user_buffer)
    }

    /// As `poll`, for a thread that waits for datagrams on that socket of the session.
    pub fn poll_for_datagrams(&self, socket: (u32, SocketId)) -> bool {
        self.batch.on_wait();
        self.try_poll_by(|core| {
            self.poll_core_by(core, |core, now, sleeps| match sleeps {
                true => core.poll(now, None),
                false => core.poll_for_datagrams(now, socket),
            })
        })
    }

    /// A note was left: polls, or knows that another thread polls and finds it. `small`: a note of a few bytes to be sent
    /// on that socket, which may share a poll with others that follow at once. False: the engine has ended.
    pub fn notify(&self, small: Option<SocketId>) -> bool {
        if self.ended.load(Ordering::Acquire) {
            return false;
        }
        let offer = small.map_or(Offer::Send, |socket| self.offer(socket));
        self.heed(offer);
        true
    }

    /// As `notify`, of a few bytes of which no note was left yet. Where it has to go by the session's ring, `push` puts it there.
    /// False, with nothing done: it could not, or the engine has ended.
    pub fn write_small(&self, note: &SmallWrite, push: &dyn Fn() -> bool) -> bool {
        if self.ended.load(Ordering::Acquire) {
            return false;
        }
        let offer = self.offer(note.socket);
        // The thread has just received, and will again; that it does in between would find nothing.
        if offer == Offer::First && self.try_poll_note(note) {
            return true;
        }
        if !push() {
            return false;
        }
        self.heed(offer);
        true
    }

    #[inline]
    fn offer(&self, socket: SocketId) -> Offer {
        let polled_us = self.polled_us.load(Ordering::Relaxed);
        let now_us = || self.now_us();
        self.batch.offer(socket.to_bits(), polled_us, now_us)
    }

    /// A note lies in a ring.
    #[inline(never)]
    fn heed(&self, offer: Offer) {
        match offer {
            Offer::First | Offer::Send => {
                self.polls.request();
                self.try_poll(None);
            }
            Offer::Kick => doorbell::ring(self.kick.as_fd()),
            Offer::Wait => {}
        }
    }

    /// A thread makes any other call: the small sends that were held back leave.
    pub fn flush_small(&self) {
        if self.batch.holds() {
            self.notify(None);
        }
    }

    /// Answers a request of a session of the program's. `None`: the
    /// engine has ended, or knows no such session.
    pub fn ask(
        &self,
        session: u32,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> Option<(Reply, Vec<OwnedFd>)> {
        let mut asked = Some((request, descriptors));
        let answer = self.run_surely(|core| {
            let asked = asked.take();
            Ok(asked.and_then(|(request, descriptors)| {
                core.ask(core.now(), session, request, descriptors)
            }))
        })?;
        self.rouse();
        answer
    }

    /// The program has no number left: the engine closes the descriptors that it can spare. Whether there were any.
    pub fn spare_descriptors(&self) -> bool {
        self.run_surely(|core| Ok(core.core.layer.sockets.spare_backings()))
            .unwrap_or(false)
    }

    /// A thread is about to sleep. Unless there is work it counts as watching until it says otherwise.
    pub fn watch(&self) -> Watched {
        self.watching.fetch_add(1, Ordering::SeqCst);
        match self.run_surely(|core| core.prepare_watch(core.now())) {
            Some(Some(longest_us)) => Watched::Device(self.device.as_raw_fd(), longest_us),
            Some(None) => {
                self.unwatch();
                Watched::Work
            }
            None => Watched::Ended,
        }
    }

    /// The thread sleeps no longer.
    pub fn unwatch(&self) {
        self.watching.fetch_sub(1, Ordering::SeqCst);
        self.rouse();
    }

    /// The memory file with the engine's tables, for [`crate::reset_left`]; `None`: the engine has ended.
    pub fn state_file(&self) -> Option<OwnedFd> {
        let duplicate = |core: &mut CoreLoop| {
            let file = &core.core.layer.state_file;
            Ok(rustix::io::fcntl_dupfd_cloexec(file, 0).ok())
        };
        self.run_surely(duplicate)?
    }

    /// Takes the poll lock for good or until the value is dropped: across a fork, an exec, an exit. `None`: the
    /// engine has ended, or the poll lock was not free within `patience`. A thread that crashes in the middle of
    /// a poll, and ends the process from its signal handler, waits for itself.
    pub fn keep(&self, patience: Duration) -> Option<Kept<'_>> {
        let start = StdInstant::now();
        let _waiting = self.polls.wait();
        while !self.ended.load(Ordering::Acquire) && start.elapsed() <= patience {
            if self.polls.try_take_for_work() {
                return Some(Kept { engine: self });
            }
            rustix::thread::sched_yield();
        }
        None
    }
}

/// A poll that panics is the engine's last: a core in the middle of one is not used again. Dropped only then.
struct EndsByPanic<'a>(&'a Inline);

impl Drop for EndsByPanic<'_> {
    fn drop(&mut self) {
        self.0.end(&mut self.0.place());
        let _ = self.0.polls.let_go();
    }
}

#[cfg(test)]
mod tests;
