//! What one process shares with one engine core under one session number: rings, doorbells, the sleepers,
//! the commands under way. Replaced in a forked child, so it holds nothing of a socket.

pub mod attach;
pub(crate) mod attachments;
pub(crate) mod calls;
pub(crate) mod control;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Mutex;

use hostif::descriptor::Descriptor;
use hostif::{
    Command, Completion, Consumed, Consumer, Producer, PushError, Region, SleepWord, Sleepers,
    SocketId, Written,
};
use rustix::fd::{AsFd, AsRawFd, RawFd};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::engines::attachment::calls::Calls;
use crate::engines::attachment::control::Control;
use crate::engines::inline_engine::{self, Held};
use crate::private::PrivateFd;
use crate::threads::signal_deferral::SignalDeferral;

/// Less than this in one send may wait for the next.
pub(crate) const SMALL_BYTES: usize = 4096;

/// How often a producer yields to an engine that has not emptied a ring before it naps.
const YIELDS: u32 = 64;
const NAP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000,
};
/// How long a data call waits for free space in a ring before it says would-block: 64 yields and this many
/// naps are a few milliseconds, far beyond what an engine that runs needs.
const NAPS: u32 = 20;
/// Calls that find nothing between two looks at whether the engine lives.
const IDLE_CALLS_PER_CHECK: u32 = 64;

/// See the file's head.
pub struct Attachment {
    /// The engine core.
    pub core: u16,
    /// Number under which locks are held.
    pub session: u32,
    /// The session's own region.
    pub region: Region,
    /// The control channel.
    pub control: Control,
    /// Commands, to the engine.
    pub commands: Producer<Command>,
    /// Written positions, to the engine.
    pub sends: Producer<Written>,
    /// Consumed positions, to the engine.
    pub receives: Producer<Consumed>,
    /// Completions and events, from the engine.
    pub completions: Mutex<Consumer<Completion>>,
    /// Held from taking completions until everybody is told of them; see `reap`. Before `completions`.
    pub telling: Mutex<()>,
    /// Commands whose completion a thread awaits.
    pub calls: Calls,
    /// Held while a question is asked and its answer read.
    pub asking: Mutex<()>,
    /// Threads that sleep.
    pub sleepers: Sleepers,
    /// The word in the region that tells the engine that they sleep.
    pub program_word: SleepWord,
    program_bell: PrivateFd,
    engine_word: SleepWord,
    engine_bell: PrivateFd,
    dead: AtomicBool,
    idle_calls: AtomicU32,
}

impl Attachment {
    /// Of a region that was just handed over.
    pub fn new(
        control: Control,
        core: u16,
        session: u32,
        region: Region,
        program_bell: PrivateFd,
        engine_bell: PrivateFd,
    ) -> Attachment {
        Attachment {
            core,
            session,
            commands: region.command_producer(),
            sends: region.send_producer(),
            receives: region.receive_producer(),
            completions: Mutex::new(region.completion_consumer()),
            telling: Mutex::new(()),
            calls: Calls::default(),
            asking: Mutex::default(),
            sleepers: Sleepers::default(),
            program_word: region.program_sleep_word(),
            engine_word: region.engine_sleep_word(),
            region,
            control,
            program_bell,
            engine_bell,
            dead: AtomicBool::new(false),
            idle_calls: AtomicU32::new(0),
        }
    }

    /// Whether the engine is gone.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Notes that the engine is gone; true for the first to do so.
    pub fn set_dead(&self) -> bool {
        !self.dead.swap(true, Ordering::AcqRel)
    }

    /// For calls that find nothing to do: whether this one should look if the engine lives, since a
    /// program that never sleeps would not notice otherwise.
    pub fn should_check(&self) -> bool {
        self.idle_calls.fetch_add(1, Ordering::Relaxed) % IDLE_CALLS_PER_CHECK
            == IDLE_CALLS_PER_CHECK - 1
    }

    /// Tells the engine of a note: one inside this process runs at once, another is rung if it sleeps.
    pub fn ring_engine(&self) {
        if inline_engine::notify() {
            return;
        }
        if self.engine_word.must_ring() {
            hostif::sync::doorbell::ring(self.engine_bell.as_fd());
        }
    }

    /// As `ring_engine`, of a note of a few bytes to be sent on that socket.
    pub fn ring_engine_small(&self, socket: SocketId) {
        if inline_engine::notify_small(socket) {
            return;
        }
        self.ring_engine();
    }

    /// Tells the engine of a few bytes that were written, without a wait for space in the ring. False: there is none.
    #[inline(always)]
    pub fn tell_written(&self, note: &Written, _held: Held) -> bool {
        let push = || self.sends.push(note).is_ok();
        if let Some(inline_engine) = inline_engine::current() {
            let socket = (self.session, note.socket);
            if inline_engine.write_small(socket, note.start, note.end, &push) {
                return true;
            }
        }
        let is_pushed = push();
        if is_pushed {
            self.ring_engine();
        }
        is_pushed
    }

    /// As `tell_written`, of a datagram.
    pub fn tell_of_datagram(&self, note: &Written) -> bool {
        let _deferral = SignalDeferral::begin();
        self.tell_written(note, SignalDeferral::held())
    }

    /// The number of the doorbell that the engine rings.
    pub fn bell_number(&self) -> RawFd {
        self.program_bell.as_raw_fd()
    }

    /// Takes the engine's rings so far.
    pub fn drain_bell(&self) {
        hostif::sync::doorbell::drain_program(self.program_bell.as_fd());
    }

    /// Waits a moment for free space in a ring; EAGAIN when the engine does not empty it.
    pub fn await_capacity<T: Descriptor>(&self, ring: &Producer<T>) -> Result<(), Errno> {
        let mut tries = 0;
        loop {
            match ring.pending() {
                Ok(pending) if pending < ring.capacity() => return Ok(()),
                Ok(_) => self.pause(&mut tries)?,
                Err(_) => return Err(Errno::CONNRESET),
            }
            if tries > YIELDS + NAPS {
                return Err(Errno::AGAIN);
            }
        }
    }

    /// Places a descriptor, waiting for free space as long as the engine lives. Does not ring.
    pub fn push<T: Descriptor>(&self, ring: &Producer<T>, item: &T) -> Result<(), Errno> {
        let mut tries = 0;
        loop {
            match ring.push(item) {
                Ok(_) => return Ok(()),
                Err(PushError::Full) => self.pause(&mut tries)?,
                Err(_) => return Err(Errno::CONNRESET),
            }
        }
    }

    fn pause(&self, tries: &mut u32) -> Result<(), Errno> {
        self.ring_engine();
        *tries += 1;
        if *tries < YIELDS {
            rustix::thread::sched_yield();
            return Ok(());
        }
        if self.is_dead() || self.control.is_hung_up() {
            return Err(Errno::CONNRESET);
        }
        let _ = rustix::thread::nanosleep(&NAP);
        Ok(())
    }

    /// In a forked child: all descriptors here are the parent's too, and the value is never used again.
    pub fn close_leaked(&self) {
        self.control.close_leaked();
        self.program_bell.close_leaked();
        self.engine_bell.close_leaked();
    }
}
