//! An attached process: its control channel, its rings, the sockets it holds.

use crate::device::link::SourceFile;
use crate::programs::moderation::{Due, Moderator};
use crate::programs::users::{ProgramFd, User};
use crate::state::rows::Held;
use hostif::header::Calls;
use hostif::id::{IdMap, IdSet};
use hostif::{
    Command, Completion, Consumed, Consumer, Corrupt, Producer, PushError, Region, SleepWord,
    SocketId, Written, sync::doorbell,
};
use rustix::fd::{AsFd as _, OwnedFd};
use std::collections::VecDeque;
use std::sync::Arc;
use tcp::Instant;

/// Backing sockets that one process may have prepared at a time.
pub const BACKINGS_MAX: usize = 1_024;
/// Files that one process may share at a time.
pub(super) const FILES_MAX: usize = 64;

/// What a look at a session's rings may find.
#[derive(Clone, Copy, Debug, Default)]
pub struct Left {
    /// Commands.
    pub commands: bool,
    /// Notes of bytes written.
    pub written: bool,
    /// Notes of bytes consumed.
    pub consumed: bool,
    /// Something taken before waits, or completions do.
    pub is_owed: bool,
}

impl Left {
    /// Whether it would find nothing.
    #[inline]
    pub fn is_nothing(self) -> bool {
        !(self.commands | self.written | self.consumed | self.is_owed)
    }
}

/// Rings and doorbells of an attached process.
pub struct Rings {
    /// The region's number.
    pub region: u32,
    /// Commands.
    pub commands: Consumer<Command>,
    /// Notes of bytes written.
    pub written: Consumer<Written>,
    /// Notes of bytes consumed.
    pub consumed: Consumer<Consumed>,
    completions: Producer<Completion>,
    /// Says that the engine sleeps.
    pub engine_word: SleepWord,
    program_word: SleepWord,
    /// The program watches it.
    program_bell: ProgramFd,
    /// Rung by the program.
    pub engine_bell: ProgramFd,
    /// Times that the program was rung.
    rung: u64,
}

impl Rings {
    /// The engine's ends of a fresh region.
    pub fn new(region: &Region, program_bell: ProgramFd, engine_bell: ProgramFd) -> Self {
        Self {
            region: region.id(),
            commands: region.command_consumer(),
            written: region.send_consumer(),
            consumed: region.receive_consumer(),
            completions: region.completion_producer(),
            engine_word: region.engine_sleep_word(),
            program_word: region.program_sleep_word(),
            program_bell,
            engine_bell,
            rung: 0,
        }
    }

    /// The ends of a region that an engine before this one has used.
    pub fn resume(region: &Region, program_bell: ProgramFd, engine_bell: ProgramFd) -> Self {
        let rings = region.resume();
        Self {
            region: region.id(),
            commands: rings.commands,
            written: rings.written,
            consumed: rings.consumed,
            completions: rings.completions,
            engine_word: region.engine_sleep_word(),
            program_word: region.program_sleep_word(),
            program_bell,
            engine_bell,
            rung: 0,
        }
    }

    /// The program has another doorbell.
    pub(super) fn exchange_bell(&mut self, bell: ProgramFd) {
        self.program_bell = bell;
    }

    /// The numbers of the doorbells: the program's, the engine's.
    pub(super) fn bells(&self) -> (Held, Held) {
        (Held::of(&*self.program_bell), Held::of(&*self.engine_bell))
    }

    /// Completions and events that the program was told so far.
    pub fn told(&self) -> u64 {
        self.completions.tail()
    }

    /// The program may sleep, and the engine that should have rung it is gone: perhaps between taking its word and ringing.
    pub fn ring_anew(&self) {
        self.program_word.take_up();
        doorbell::ring(self.program_bell.as_fd());
    }
}

/// What a process was told of a socket. One entry for each row of the table, which bounds it.
#[derive(Clone, Copy, Default)]
struct Notice {
    /// Which socket in its row; 0: none.
    generation: u32,
    /// Its event waits for the ring.
    is_queued: bool,
    /// One past where in the ring its last event was put; 0: there was none.
    after: u64,
}

/// A process.
pub struct Session {
    /// Names the holder of a lock; never 0.
    pub number: u32,
    /// Process number at the time of attaching.
    pub pid: i32,
    /// User, from the kernel.
    pub user: Arc<User>,
    /// The control channel; its end of file is the end of the process.
    pub control: ProgramFd,
    /// Rings, once the process has said hello.
    pub rings: Option<Rings>,
    /// Prepared backing sockets by handle.
    pub backings: IdMap<u32, ProgramFd>,
    /// Files to send from by handle; what is under way keeps its file by itself.
    pub files: IdMap<u32, Arc<SourceFile>>,
    /// A note that another holder of the socket has to precede; its ring waits with it.
    pub early: Option<Written>,
    /// A command that waits for the name of a backing socket; those behind it wait as well.
    pub unnamed: Option<Command>,
    pub(super) next_handle: u32,
    /// Rows of the sockets it holds.
    pub sockets: IdSet<u32>,
    /// Calls on sockets that it held, by their programs' word.
    pub past_calls: Calls,
    /// Completions that did not fit; meanwhile commands wait in their ring.
    completions: VecDeque<Completion>,
    /// Sockets whose event did not fit, without duplicates.
    events: VecDeque<SocketId>,
    /// By row, as far as there was any.
    notices: Vec<Notice>,
    /// When it is rung.
    pub moderator: Moderator,
    /// Events that were put into its ring.
    told: u64,
    /// Completions are in the ring since it was rung last.
    is_to_ring: bool,
    /// It broke the protocol and is to be dropped.
    pub is_faulty: bool,
    /// In the lists of `attention`.
    pub is_awake: bool,
    /// As there.
    pub has_news: bool,
    /// When it last had something to do.
    pub worked_at: Instant,
}

impl Session {
    /// A process that has connected.
    pub fn new(number: u32, pid: i32, user: Arc<User>, control: OwnedFd) -> Self {
        let control = user.keep(control);
        Self::over(number, pid, user, control)
    }

    /// The same, whose channel is counted already.
    pub(super) fn over(number: u32, pid: i32, user: Arc<User>, control: ProgramFd) -> Self {
        Self {
            number,
            pid,
            control,
            user,
            rings: None,
            backings: IdMap::default(),
            files: IdMap::default(),
            early: None,
            unnamed: None,
            next_handle: 1,
            sockets: IdSet::default(),
            past_calls: Calls::default(),
            completions: VecDeque::new(),
            events: VecDeque::new(),
            notices: Vec::new(),
            moderator: Moderator::default(),
            told: 0,
            is_to_ring: false,
            is_faulty: false,
            is_awake: false,
            has_news: false,
            worked_at: Instant::ZERO,
        }
    }

    /// The next handle of its descriptors.
    pub(super) fn take_handle(&mut self) -> u32 {
        let handle = self.next_handle;
        self.next_handle = handle.wrapping_add(1).max(1);
        handle
    }

    /// Says that a command is done.
    pub fn complete(&mut self, completion: Completion) {
        self.completions.push_back(completion);
    }

    /// Says that the header of a socket has changed.
    pub fn notify(&mut self, socket: SocketId) {
        let notice = notice_of(&mut self.notices, socket);
        if !std::mem::replace(&mut notice.is_queued, true) {
            self.events.push_back(socket);
        }
    }

    /// Whether [`Session::notify`] and a flush would come to nothing: an event of the socket lies in the ring that the program has
    /// not taken, nothing else is to be told, and nobody sleeps.
    pub(super) fn knows_of(&self, socket: SocketId) -> bool {
        let row = crate::sockets::rows::at(socket.row());
        let (Some(rings), Some(notice)) = (&self.rings, self.notices.get(row)) else {
            return false;
        };
        if self.has_backlog() || notice.generation != socket.generation || !self.moderator.rests() {
            return false;
        }
        // As in `flush`: the header is written before the look at the ring, and before that at who sleeps.
        core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
        let waits = |position| !rings.completions.is_taken(position);
        notice.after.checked_sub(1).is_some_and(waits) && !rings.program_word.is_announced()
    }

    /// Forgets a socket that is gone.
    pub fn forget(&mut self, socket: SocketId) {
        let known = self.notices.get_mut(crate::sockets::rows::at(socket.row()));
        let Some(notice) = known.filter(|one| one.generation == socket.generation) else {
            return;
        };
        if std::mem::take(notice).is_queued {
            self.events.retain(|queued| *queued != socket);
        }
    }

    /// Whether completions or events wait for space in the ring. A forked child that has not said hello
    /// has no ring; what waits for it waits without haste.
    pub fn has_backlog(&self) -> bool {
        self.rings.is_some()
            && (self.is_to_ring || !(self.completions.is_empty() && self.events.is_empty()))
    }

    /// When it has to be rung for what is in its ring already.
    pub fn ring_deadline(&self) -> Option<Instant> {
        self.moderator.deadline()
    }

    /// Events that were put into its ring, and how often it was rung.
    pub fn notifications(&self) -> [u64; 2] {
        [self.told, self.rings.as_ref().map_or(0, |rings| rings.rung)]
    }

    /// Whether its commands are taken: none waits for an answer, and the program fetches its completions, so that what
    /// it makes the engine hold is bounded.
    pub fn takes_commands(&self) -> bool {
        self.unnamed.is_none() && self.completions.is_empty()
    }

    /// Puts the completions into the ring, as far as it has space; `flush` rings. Commands whose completions are there are
    /// done with: an engine that goes on after a crash does not see them again.
    ///
    /// # Errors
    /// The program has written an impossible index.
    pub fn push_completions(&mut self) -> Result<(), Corrupt> {
        let Some(rings) = &mut self.rings else {
            return Ok(());
        };
        while let Some(completion) = self.completions.front() {
            match rings.completions.push(completion) {
                Ok(_) => {}
                Err(PushError::Corrupt(corrupt)) => return Err(corrupt),
                Err(_) => break,
            }
            self.moderator.on_completion();
            self.is_to_ring = true;
            self.completions.pop_front();
        }
        if self.completions.is_empty() && self.unnamed.is_none() {
            rings.commands.release();
        }
        Ok(())
    }

    /// Whether the program has left something to do that can be done.
    pub fn has_work(&self) -> bool {
        !self.is_faulty
            && self.rings.as_ref().is_some_and(|rings| {
                (rings.commands.has_next() && self.takes_commands())
                    || (rings.written.has_next() && self.early.is_none())
                    || rings.consumed.has_next()
            })
    }

    /// In which of its rings it has left something, and whether what it left before waits for something else.
    #[inline]
    pub fn left(&self) -> Left {
        let Some(rings) = &self.rings else {
            return Left {
                is_owed: self.early.is_some(),
                ..Left::default()
            };
        };
        Left {
            commands: rings.commands.has_next(),
            written: rings.written.has_next(),
            consumed: rings.consumed.has_next(),
            is_owed: self.has_backlog() || self.early.is_some(),
        }
    }

    /// Moves what waits into the ring, as far as it goes, and rings a sleeping program. What is left
    /// afterwards waits until the program has taken something. Why it was to be rung, if it was.
    ///
    /// # Errors
    /// The program has written an impossible index.
    pub fn flush(&mut self, now: Instant, urgent_mode: bool) -> Result<Option<Due>, Corrupt> {
        self.push_completions()?;
        self.is_to_ring = false;
        let Some(rings) = &mut self.rings else {
            return Ok(None);
        };
        let moderator = &mut self.moderator;
        while self.completions.is_empty()
            && let Some(&socket) = self.events.front()
        {
            // One event that the program has not taken yet says all there is to say: the header it
            // will read is already written. The fence orders that header before the look at the ring.
            core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
            let notice = notice_of(&mut self.notices, socket);
            let waits = notice.after.checked_sub(1);
            if waits.is_some_and(|position| !rings.completions.is_taken(position)) {
                moderator.on_repeated_event(now);
            } else {
                let position = match rings.completions.push(&Completion::Event { socket }) {
                    Ok(position) => position,
                    Err(PushError::Corrupt(corrupt)) => return Err(corrupt),
                    Err(_) => {
                        moderator.on_full();
                        break;
                    }
                };
                notice.after = position + 1;
                moderator.on_event(now);
                self.told += 1;
            }
            self.events.pop_front();
            notice.is_queued = false;
        }
        let due = moderator.take_due(now, urgent_mode);
        if due.is_some() && rings.program_word.must_ring() {
            doorbell::ring(rings.program_bell.as_fd());
            rings.rung += 1;
        }
        Ok(due)
    }
}

/// What was told of a socket, or will be.
fn notice_of(notices: &mut Vec<Notice>, socket: SocketId) -> &mut Notice {
    let row = crate::sockets::rows::at(socket.row());
    if notices.len() <= row {
        notices.resize(row + 1, Notice::default());
    }
    let notice = &mut notices[row];
    if notice.generation != socket.generation {
        *notice = Notice {
            generation: socket.generation,
            ..Notice::default()
        };
    }
    notice
}
