//! The sleep of a thread: with every engine that it may hear from, on the doorbells of each of their cores.
//!
//! The poll set of a sleeping thread: of each core of each engine that the process is attached to the doorbell
//! (leaders only, see `threads::wait_leaders`) and the control channel for its hang-up; the thread's own waker; and
//! descriptors of the caller.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hostif::ENGINES_MAX;
use rustix::fd::RawFd;
use rustix::io::Errno;

use crate::engines::attachment::Attachment;
use crate::engines::attachment::attachments::Attachments;
use crate::engines::inline_engine::{self, Watch};
use crate::engines::session::Session;
use crate::lock::lock;
use crate::threads::waker::Waker;
use crate::wait::sleep::{RECHECK, Sleep, Woken};

/// The library's own entries in a poll set for each thread: its waker, the device that it watches.
const OF_THREAD: usize = 2;
/// The number of an entry that is left out.
const NONE: RawFd = -1;
/// The library's own entries in a poll set for each core.
const OF_CORE: usize = 2;
/// Poll sets up to this size lie on the stack.
const SMALL: usize = 16;

/// An engine that a thread may hear from while it sleeps.
#[derive(Clone, Copy)]
struct EngineWait<'a> {
    session: &'a Session,
    all: &'static Attachments,
    /// Bit n: the thread counts among the sleepers of core n.
    entered: u64,
    /// It polls the doorbells.
    leads: bool,
}

impl<'a> EngineWait<'a> {
    fn new(session: &'a Session, all: &'static Attachments) -> EngineWait<'a> {
        EngineWait {
            session,
            all,
            entered: 0,
            leads: false,
        }
    }

    /// The cores that the thread sleeps on.
    fn cores(&self) -> impl Iterator<Item = &'static Attachment> + use<> {
        let entered = self.entered;
        self.all
            .iter()
            .filter(move |one| entered & (1 << one.core) != 0)
    }

    fn reap(&self) {
        for attachment in self.all.iter() {
            self.session.reap_all(attachment);
        }
    }
}

/// Says to every core, new ones too, that somebody is about to sleep who wants to hear of it, and takes what is there
/// already. Bit n of `entered`: core n has counted the thread.
pub(super) fn announce(session: &Session, all: &Attachments, entered: &mut u64) {
    for attachment in all.iter() {
        let bit = 1 << attachment.core;
        if *entered & bit == 0 {
            *entered |= bit;
            attachment.sleepers.enter(&attachment.program_word);
        } else {
            attachment.program_word.announce();
        }
        session.reap_all(attachment);
    }
}

/// All of them, in the order of the sessions.
pub struct WaitSet<'a>([Option<EngineWait<'a>>; ENGINES_MAX]);

impl<'a> WaitSet<'a> {
    /// Those of the sessions that have something to hear from: a forked child that has no socket, or whose
    /// engine is gone, does without.
    pub fn of(sessions: &[&'a Session]) -> WaitSet<'a> {
        let mut wait_set = WaitSet([None; ENGINES_MAX]);
        for (place, session) in wait_set.0.iter_mut().zip(sessions) {
            *place = session
                .attachments_to_wait_on()
                .map(|all| EngineWait::new(session, all));
        }
        wait_set
    }

    /// A single one.
    pub fn only(session: &'a Session, all: &'static Attachments) -> WaitSet<'a> {
        let mut wait_set = WaitSet([None; ENGINES_MAX]);
        wait_set.0[0] = Some(EngineWait::new(session, all));
        wait_set
    }

    fn iter(&self) -> impl Iterator<Item = &EngineWait<'a>> {
        self.0.iter().flatten()
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut EngineWait<'a>> {
        self.0.iter_mut().flatten()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The first session.
    pub fn first(&self) -> Option<&'a Session> {
        self.iter().next().map(|engine_wait| engine_wait.session)
    }

    /// A waker for this thread's wait.
    pub fn take_waker(&self) -> Result<Arc<Waker>, Errno> {
        match self.iter().next() {
            Some(engine_wait) => engine_wait.all.take_waker(),
            None => Waker::new(),
        }
    }

    /// Gives it back.
    pub fn return_waker(&self, waker: Arc<Waker>) {
        if let Some(engine_wait) = self.iter().next() {
            engine_wait.all.return_waker(waker);
        }
    }

    /// Whether this process was forked since, by the handler of a signal.
    pub fn is_abandoned(&self) -> bool {
        self.iter()
            .any(|engine_wait| engine_wait.all.is_abandoned())
    }

    /// Takes what the engines have reported, where no other thread is at it. Whether there was anything.
    pub fn reap_those_free(&self) -> bool {
        let mut any = false;
        for engine_wait in self.iter() {
            for attachment in engine_wait.all.iter() {
                any |= engine_wait.session.reap_if_free(attachment);
            }
        }
        any
    }

    fn reap(&self) {
        self.iter().for_each(EngineWait::reap);
    }

    /// Sleeps with a waker that is registered wherever it has to be.
    pub fn sleep(
        &mut self,
        waker: &Arc<Waker>,
        mut sleep: Sleep<'_>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Result<Woken, Errno> {
        for engine_wait in self.iter_mut() {
            engine_wait.leads = engine_wait.all.leaders.enter(waker);
        }
        let result = loop {
            // It does not say by whom; to poll a bell that others poll too only costs them a look.
            let promoted = waker.take_promotion();
            waker.on_awake();
            for engine_wait in self.iter_mut() {
                engine_wait.leads |= promoted;
                announce(
                    engine_wait.session,
                    engine_wait.all,
                    &mut engine_wait.entered,
                );
            }
            if ready() {
                break Ok(Woken::Ready);
            }
            if !waker.may_sleep() {
                continue;
            }
            let polled = self.poll_watching(waker, &mut sleep);
            if self.is_abandoned() {
                // A handler has forked, and this is the child: the rings are not its own.
                return Err(Errno::INTR);
            }
            match polled {
                Ok(None) => {}
                Ok(Some(Woken::Kernel)) => break Ok(Woken::Kernel),
                // The end of the wait may have come together with what was waited for.
                ended => {
                    self.reap();
                    break if ready() {
                        Ok(Woken::Ready)
                    } else {
                        ended.map(|woken| woken.unwrap_or(Woken::TimedOut))
                    };
                }
            }
        };
        waker.on_awake();
        for engine_wait in self.iter() {
            engine_wait.all.leaders.leave(waker);
            for attachment in engine_wait.cores() {
                if attachment.sleepers.leave(&attachment.program_word) {
                    engine_wait.session.reap_all(attachment);
                }
            }
        }
        result
    }

    /// As `poll_once`; a thread that leads also watches the device of an engine inside this process.
    fn poll_watching(&self, waker: &Waker, sleep: &mut Sleep<'_>) -> Result<Option<Woken>, Errno> {
        let leads = self.iter().any(|engine_wait| engine_wait.leads);
        let Some(inline_engine) = inline_engine::current().filter(|_| leads) else {
            return self.poll_once(waker, sleep, None);
        };
        let watch = inline_engine::watch(inline_engine);
        let device = match watch {
            // A glance without sleeping: however much there is to do, signals and the deadline are seen.
            Watch::Work => (NONE, Duration::ZERO),
            Watch::Device(fd, longest) => (fd, longest),
            Watch::Nothing => return self.poll_once(waker, sleep, None),
        };
        let result = self.poll_once(waker, sleep, Some(device));
        // What the poll brings is reaped by this thread right after it, which then also wakes the others:
        // nobody has to ring meanwhile.
        for engine_wait in self.iter() {
            for attachment in engine_wait.all.iter() {
                attachment.program_word.withdraw();
            }
        }
        inline_engine::poll(inline_engine, sleep.direct_receive);
        if watch != Watch::Work {
            inline_engine.unwatch();
        }
        result
    }

    /// One ppoll on the cores that the thread has entered; `None` to look again.
    fn poll_once(
        &self,
        waker: &Waker,
        sleep: &mut Sleep<'_>,
        device: Option<(RawFd, Duration)>,
    ) -> Result<Option<Woken>, Errno> {
        let cores = || {
            self.iter()
                .flat_map(|engine_wait| engine_wait.cores().map(move |core| (engine_wait, core)))
        };
        let count = sleep.kernel.len();
        let total = count + OF_THREAD + OF_CORE * cores().count();
        let mut small = [libc::pollfd {
            fd: -1,
            events: 0,
            revents: 0,
        }; SMALL];
        let mut large = Vec::new();
        let fds = if total <= SMALL {
            &mut small[..total]
        } else {
            large.resize(total, small[0]);
            &mut large[..]
        };
        fds[..count].copy_from_slice(sleep.kernel);
        // A negative number is left out. A dead engine's descriptors would be ready for ever.
        let entry = |wanted, fd, events| libc::pollfd {
            fd: if wanted { fd } else { NONE },
            events,
            revents: 0,
        };
        fds[count] = entry(true, waker.number(), libc::POLLIN);
        let (device, longest) = device.unwrap_or((NONE, RECHECK));
        fds[count + 1] = entry(true, device, libc::POLLIN);
        let (_, own) = fds.split_at_mut(count + OF_THREAD);
        for (pair, (engine_wait, attachment)) in own.chunks_exact_mut(OF_CORE).zip(cores()) {
            let alive = !attachment.is_dead();
            pair[0] = entry(
                engine_wait.leads && alive,
                attachment.bell_number(),
                libc::POLLIN,
            );
            pair[1] = entry(alive, attachment.control.number(), 0);
        }

        let left = sleep
            .deadline
            .map(|moment| moment.saturating_duration_since(Instant::now()));
        let longest = longest.min(RECHECK);
        let timeout = left.map_or(longest, |left| left.min(longest));
        let news = sleep.poll(fds, timeout)?;
        if fds[count].revents != 0 {
            waker.silence();
        }
        let (_, own) = fds.split_at(count + OF_THREAD);
        for (pair, (engine_wait, attachment)) in own.chunks_exact(OF_CORE).zip(cores()) {
            if pair[0].revents != 0 {
                attachment.drain_bell();
            }
            if pair[1].revents != 0 {
                engine_wait.session.check_engine(attachment);
            }
        }
        let own = fds[count..].iter().filter(|fd| fd.revents != 0).count();
        sleep.kernel.copy_from_slice(&fds[..count]);
        if news > own {
            return Ok(Some(Woken::Kernel));
        }
        let over = sleep
            .deadline
            .is_some_and(|moment| Instant::now() >= moment);
        Ok((news == 0 && over).then_some(Woken::TimedOut))
    }
}

impl Session {
    /// The attachments; a forked child that has no socket, or whose engine is gone, does without.
    fn attachments_to_wait_on(&self) -> Option<&'static Attachments> {
        match self.attached() {
            None if lock(&self.registry).is_empty() => None,
            None => self.attachments().ok(),
            attached => attached,
        }
    }
}
