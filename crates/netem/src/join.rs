//! A cable between two hosts, in real time: joins two TAP descriptors by a [`Cable`] in each direction.
//!
//! Read first: the kernel's `Documentation/networking/tuntap.rst`. The descriptors carry whole
//! Ethernet frames without any header in front, so that the kernels cut and sum what they send and
//! one loss costs one real packet. Who makes the TAPs and who runs this is not decided here.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::cable::{Cable, CableCounters};
use crate::impairment::Impairment;
use nic::driver::MAX_FRAME_BYTES;

/// Frames moved from one end before the other has its turn.
const BURST: usize = 64;

/// How long frames are left to gather while there is traffic, microseconds. A sleep for each frame of
/// a gigabit would cost more than carrying it; this is how precise the cable is in time.
const GATHER_US: u64 = 50;

/// How late the kernel may wake us, nanoseconds; its own default is 50 µs.
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::new(1_000).expect("not zero");

/// What the cable does to frames; the first direction is from the first end to the second.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Settings {
    /// For each direction.
    pub impairments: [Impairment; 2],
    /// Stands for all random choices of both directions.
    pub seed: u64,
}

impl Settings {
    /// The same for both directions.
    #[must_use]
    pub fn both(impairment: Impairment, seed: u64) -> Self {
        Self {
            impairments: [impairment; 2],
            seed,
        }
    }
}

/// What others know of a running cable.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    stop: AtomicBool,
    wake: OwnedFd,
}

#[derive(Debug)]
struct State {
    settings: Settings,
    /// Set by [`Control::set`], cleared when it is in force.
    pending: bool,
    counters: [CableCounters; 2],
}

/// Changes and watches a running cable, from any thread.
#[derive(Debug, Clone)]
pub struct Control(Arc<Shared>);

impl Control {
    /// Lays a new cable: what was on the way is lost, counters and random choices start anew.
    pub fn set(&self, settings: Settings) {
        let mut state = self.state();
        state.settings = settings;
        state.pending = true;
        drop(state);
        self.wake();
    }

    /// What is in force, or will be within a moment.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.state().settings
    }

    /// What became of the frames of each direction, as of a moment ago.
    #[must_use]
    pub fn counters(&self) -> [CableCounters; 2] {
        self.state().counters
    }

    /// Ends [`Joined::run`].
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::Release);
        self.wake();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // Fails only where the counter is full, and then the other side wakes anyway.
        let _ = rustix::io::write(&self.0.wake, &1_u64.to_ne_bytes());
    }
}

/// Two ends and what lies between them.
#[derive(Debug)]
pub struct Joined {
    ends: [OwnedFd; 2],
    /// Carries frames from the end of the same index to the other one.
    cables: [Cable; 2],
    control: Control,
    start: Instant,
    buffer: Box<[u8]>,
}

impl Joined {
    /// Joins two TAP descriptors (`IFF_TAP | IFF_NO_PI`, non-blocking).
    ///
    /// # Errors
    /// No eventfd can be made.
    pub fn new(ends: [OwnedFd; 2], settings: Settings) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let shared = Shared {
            state: Mutex::new(State {
                settings,
                pending: false,
                counters: Default::default(),
            }),
            stop: AtomicBool::new(false),
            wake: eventfd(0, flags)?,
        };
        Ok(Self {
            ends,
            cables: lay(&settings),
            control: Control(Arc::new(shared)),
            start: Instant::now(),
            buffer: vec![0; MAX_FRAME_BYTES].into_boxed_slice(),
        })
    }

    /// To change and watch the cable while it runs.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Carries frames until [`Control::stop`]. It belongs on a thread of its own.
    ///
    /// # Errors
    /// A descriptor is no TAP, or its interface is gone.
    pub fn run(&mut self) -> io::Result<()> {
        // Without it (an old kernel, a sandbox) wake-ups come up to 50 µs late and nothing else.
        let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS));
        while !self.control.0.stop.load(Ordering::Acquire) {
            self.publish();
            let mut taken = [0; 2];
            for (from, taken) in taken.iter_mut().enumerate() {
                *taken = self.take_in(from)?;
            }
            for from in 0..2 {
                self.let_out(from)?;
            }
            match taken {
                [0, 0] => self.sleep(true)?,
                [there, back] if there.max(back) < BURST => self.sleep(false)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// From an end onto its cable; says how many frames came.
    fn take_in(&mut self, from: usize) -> io::Result<usize> {
        let now_us = self.now_us();
        for taken in 0..BURST {
            match rustix::io::read(&self.ends[from], &mut self.buffer[..]) {
                Ok(len) => self.cables[from].push(now_us, &self.buffer[..len]),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(taken),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(BURST)
    }

    /// From a cable to the other end, as far as time allows.
    fn let_out(&mut self, from: usize) -> io::Result<()> {
        let now_us = self.now_us();
        for _ in 0..BURST {
            let Some(frame) = self.cables[from].pop(now_us) else {
                break;
            };
            let result = rustix::io::write(&self.ends[1 - from], &frame);
            self.cables[from].give_back(frame);
            match result {
                // An interface that is down (EIO), a frame too short to be one (EINVAL) and a kernel
                // without memory drop the frame, as a line would.
                Ok(_)
                | Err(Errno::IO | Errno::INVAL | Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Takes over what [`Control::set`] said, and shows what was counted.
    fn publish(&mut self) {
        let mut state = self.control.state();
        if std::mem::take(&mut state.pending) {
            self.cables = lay(&state.settings);
        }
        state.counters = self.cables.each_ref().map(Cable::counters);
    }

    /// Until one is due or somebody calls; and until a frame comes, if the ends are `quiet`, or some
    /// may have.
    fn sleep(&mut self, quiet: bool) -> io::Result<()> {
        let due_us = self.cables.iter().filter_map(Cable::next_event_us).min();
        let now_us = self.now_us();
        let wait_us = due_us.map(|due| match due.saturating_sub(now_us) {
            0 => 0,
            wait => wait.max(GATHER_US),
        });
        let timeout = if quiet {
            wait_us.map(timespec_us)
        } else {
            Some(timespec_us(wait_us.unwrap_or(GATHER_US).min(GATHER_US)))
        };
        let ends = if quiet {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        let wake = self.control.0.wake.as_fd();
        let mut fds = [
            PollFd::new(&self.ends[0], ends),
            PollFd::new(&self.ends[1], ends),
            PollFd::new(&wake, PollFlags::IN),
        ];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if fds[2].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(wake, &mut [0_u8; 8]);
        }
        Ok(())
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

fn lay(settings: &Settings) -> [Cable; 2] {
    let [there, back] = settings.impairments;
    [
        Cable::new(there, settings.seed),
        Cable::new(back, !settings.seed),
    ]
}

fn timespec_us(us: u64) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(us / 1_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(us % 1_000_000 * 1_000).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    /// A socket pair keeps frames apart as a TAP does: our side, and the cable's.
    fn end() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    fn receive(fd: &OwnedFd) -> Vec<u8> {
        let mut buffer = [0; 64];
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        poll(&mut fds, Some(&timespec_us(10_000_000))).unwrap();
        let len = rustix::io::read(fd, &mut buffer).unwrap();
        buffer[..len].to_vec()
    }

    #[test]
    fn frames_cross_both_ways_and_settings_change_while_it_runs() {
        let ((a, cable_a), (b, cable_b)) = (end(), end());
        let plain = Settings::both(Impairment::default(), 1);
        let mut joined = Joined::new([cable_a, cable_b], plain).unwrap();
        let control = joined.control();
        let runner = thread::spawn(move || joined.run());

        rustix::io::write(&a, b"there").unwrap();
        assert_eq!(receive(&b), b"there");
        rustix::io::write(&b, b"back").unwrap();
        assert_eq!(receive(&a), b"back");

        let lossy = "loss=100%".parse().unwrap();
        control.set(Settings {
            impairments: [lossy, Impairment::default()],
            seed: 2,
        });
        // The way back proves that the change was seen before anything is sent into the loss.
        while control.counters()[1].delivered > 0 {
            thread::yield_now();
        }
        rustix::io::write(&a, b"lost").unwrap();
        rustix::io::write(&b, b"kept").unwrap();
        assert_eq!(receive(&a), b"kept");
        while control.counters()[0].lost == 0 {
            thread::yield_now();
        }
        assert_eq!(control.counters()[0].delivered, 0);

        control.stop();
        runner.join().unwrap().unwrap();
    }
}
