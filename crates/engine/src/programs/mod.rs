//! Attached programs: their sessions, rings, doorbells, users, and what they pass to the engine. What they ask of their
//! sockets is carried out in `socket_layer/calls.rs`.

mod attention;
pub mod descriptors;
pub mod files;
pub mod kept;
pub mod moderation;
pub(crate) mod resume;
pub mod session;
pub mod users;

use crate::device::link::SourceFile;
use crate::errno;
use crate::state::rows::{EngineRow, SessionRow};
use hostif::Completion;
use hostif::control::{Reply, send};
use kept::{Handles, ProgramTables};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use session::{Rings, Session};
use std::sync::Arc;
use tcp::Instant;
use users::{Finished, FinishedJobs, ProgramFd, Users};

/// Pieces of files that were given back, unmapped each time the loop comes by.
const PIECES_PER_ROUND: usize = 32;
/// How often a close that somebody waits for may find more to close before it is answered.
const CLOSING_ROUNDS: u8 = 4;
/// From here on, in the loop's epoll set: control channel of slot n at 2n, doorbell at 2n + 1.
pub const TAG_SESSIONS: u64 = 16;

/// In the loop's epoll set, of the control channel of a slot; that of its doorbell is the next.
pub fn tag_of(slot: usize) -> u64 {
    TAG_SESSIONS + 2 * u64::try_from(slot).unwrap_or(u64::MAX / 4)
}

/// All sessions of a core, each in a slot while it lives.
pub struct Programs {
    slots: Vec<Option<Session>>,
    /// Slots at most.
    most: usize,
    last_number: u32,
    /// Slots whose rings are looked at in every poll, each at most once.
    awake: Vec<usize>,
    /// Slots whose programs are to hear of something, each at most once.
    news: Vec<usize>,
    /// Slots whose programs broke the protocol.
    faulty: Vec<usize>,
    /// Slots whose control channel the loop has to watch from now on.
    pub new: Vec<usize>,
    /// Descriptors of ended sessions, to be taken out of the loop's watch before they are closed: their
    /// programs may hold them open.
    pub closing: Vec<ProgramFd>,
    /// Files that their programs have given back, to be unmapped little by little.
    pub retired: Vec<Arc<SourceFile>>,
    /// Windows take more memory than the mark of urgent mode: no news wait.
    pub urgent_mode: bool,
    /// Times that urgent data or urgent mode told news that the program's policy would have held back, for reports.
    pub urgent: u64,
    /// Programs that were turned away, for reports.
    pub turned_away: u64,
    /// What the loop sleeps on.
    epoll: Option<Arc<OwnedFd>>,
    /// Whose programs these are.
    users: Arc<Users>,
    /// What the rows say of them.
    pub(crate) engine: &'static mut EngineRow,
    rows: &'static mut [SessionRow],
    handles: Handles,
    /// What users' threads have done for the engine.
    pub finished: FinishedJobs,
}

impl Programs {
    /// Nobody yet; at most `most` of these users' programs.
    pub fn new(
        users: Arc<Users>,
        finished: FinishedJobs,
        most: usize,
        tables: ProgramTables,
    ) -> Self {
        Self {
            slots: Vec::new(),
            most,
            last_number: 0,
            awake: Vec::new(),
            news: Vec::new(),
            faulty: Vec::new(),
            new: Vec::new(),
            closing: Vec::new(),
            retired: Vec::new(),
            urgent_mode: false,
            urgent: 0,
            turned_away: 0,
            epoll: None,
            users,
            finished,
            engine: tables.engine,
            rows: tables.sessions,
            handles: Handles::new(tables.handles),
        }
    }

    /// Whose programs these are.
    pub(crate) fn users(&self) -> Arc<Users> {
        Arc::clone(&self.users)
    }

    /// A loop sleeps on `epoll` from now on.
    pub fn watch_by(&mut self, epoll: Arc<OwnedFd>) {
        self.epoll = Some(epoll);
    }

    /// Watches the doorbell of a slot, if there is a loop.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn watch_bell(&self, slot: usize, bell: BorrowedFd<'_>) -> Result<(), Errno> {
        let Some(epoll) = &self.epoll else {
            return Ok(());
        };
        let data = EventData::new_u64(tag_of(slot) + 1);
        epoll::add(&**epoll, bell, data, EventFlags::IN | EventFlags::ET)
    }

    /// Slots that were ever used.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The session in a slot.
    pub fn get(&self, slot: usize) -> Option<&Session> {
        self.slots.get(slot)?.as_ref()
    }

    /// The session in a slot.
    pub fn get_mut(&mut self, slot: usize) -> Option<&mut Session> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// The session in a slot, for an answer over its control channel.
    ///
    /// # Errors
    /// It has ended.
    pub fn answered(&mut self, slot: usize) -> Result<&mut Session, Refusal> {
        self.get_mut(slot).ok_or((Errno::BADF, String::new()))
    }

    /// All sessions.
    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.slots.iter().flatten()
    }

    /// The slot of the session with that number.
    pub fn slot_of(&self, session: u32) -> Option<usize> {
        let is_it = |one: &Option<Session>| one.as_ref().is_some_and(|one| one.number == session);
        self.slots.iter().position(is_it)
    }

    /// The session with that number, and its slot.
    #[inline(always)]
    pub fn numbered(&mut self, session: u32) -> Option<(usize, &mut Session)> {
        let sessions = self.slots.iter_mut().enumerate();
        sessions
            .filter_map(|(slot, one)| Some((slot, one.as_mut()?)))
            .find(|(_, one)| one.number == session)
    }

    /// The rings of a session that keeps to the protocol.
    pub fn rings_of(&mut self, slot: usize) -> Option<&mut Rings> {
        self.get_mut(slot)
            .filter(|session| !session.is_faulty)?
            .rings
            .as_mut()
    }

    /// A process of user `uid` has come, and is to speak by `control`. Its slot; `None`: it was refused and told why.
    pub fn add(&mut self, control: OwnedFd, pid: i32, uid: u32) -> Option<usize> {
        let user = match self.users.user(uid) {
            Ok(user) => user,
            Err(error) => {
                let text = format!("the engine cannot start a thread for user {uid}: {error}");
                tracing::warn!("{text}");
                turn_away(control.as_fd(), Errno::AGAIN, text);
                return None;
            }
        };
        if !self.has_capacity_for_user(uid) {
            let text = format!(
                "user {uid} has its share of the engine's sessions already: end programs, or raise it (`shunt engine --user-share`)"
            );
            tracing::warn!("{text}");
            turn_away(user.keep(control).as_fd(), Errno::NFILE, text);
            self.turned_away += 1;
            return None;
        }
        let slot = match self.slots.iter().position(Option::is_none) {
            Some(slot) => slot,
            None if self.slots.len() < self.most => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => {
                let text = format!(
                    "the engine serves {} programs already: raise its limit",
                    self.slots.len()
                );
                turn_away(user.keep(control).as_fd(), Errno::NFILE, text);
                self.turned_away += 1;
                return None;
            }
        };
        self.last_number = self.next_number();
        self.slots[slot] = Some(Session::new(self.last_number, pid, user, control));
        self.put_row(slot);
        self.new.push(slot);
        Some(slot)
    }

    /// One user has a share of all sessions at most, so that no user keeps the others out; root and who runs the engine
    /// could do worse anyway.
    fn has_capacity_for_user(&self, uid: u32) -> bool {
        let held = self.iter().filter(|session| session.user.uid == uid);
        uid == 0
            || uid == rustix::process::geteuid().as_raw()
            || held.count() < self.users.share_of(self.most)
    }

    fn next_number(&self) -> u32 {
        let mut number = self.last_number;
        loop {
            number = if number >= hostif::sync::lock::MAX_SESSION {
                1
            } else {
                number + 1
            };
            if self.slot_of(number).is_none() {
                return number;
            }
        }
    }

    /// The session in a slot has ended. Returns the number of its region, if it had one.
    pub fn remove(&mut self, slot: usize) -> Option<u32> {
        self.forget(slot);
        self.clear_rows(slot);
        let session = self.slots.get_mut(slot)?.take()?;
        self.closing.push(session.control);
        self.retired.extend(session.files.into_values());
        let rings = session.rings?;
        self.closing.push(rings.engine_bell);
        Some(rings.region)
    }

    /// A session no longer needs a backing socket or a file that it names by a handle.
    pub fn drop_handle(&mut self, slot: usize, handle: u32) {
        self.forget_handle(slot, handle);
        if let Some(session) = self.get_mut(slot) {
            session.backings.remove(&handle);
            let file = session.files.remove(&handle);
            self.retired.extend(file);
        }
    }

    /// The session broke the protocol: nothing more is taken from it, and it is dropped by the loop.
    pub fn fault(&mut self, slot: usize, what: &str) {
        if let Some(session) = self.get_mut(slot) {
            tracing::warn!(pid = session.pid, "dropping a program that sent {what}");
            if !core::mem::replace(&mut session.is_faulty, true) {
                self.faulty.push(slot);
            }
        }
    }

    /// Whether a session is to be dropped.
    pub fn has_faulty(&self) -> bool {
        !self.faulty.is_empty()
    }

    /// The slots of the sessions that are to be dropped.
    pub fn take_faulty(&mut self) -> Vec<usize> {
        core::mem::take(&mut self.faulty)
    }

    /// The command with that token was carried out; 0: nobody waits for that.
    pub fn done(&mut self, slot: usize, token: u32, outcome: Result<u64, Errno>) {
        if token == 0 {
            return;
        }
        let (errno, value) = match outcome {
            Ok(value) => (0, value),
            Err(errno) => (errno::code(errno), 0),
        };
        self.tell(slot, |session| {
            session.complete(Completion::Done {
                token,
                errno,
                value,
            });
        });
    }

    /// A command has closed what it had to: who waits for that hears of it when the descriptors are closed as well.
    pub fn closed(&mut self, slot: usize, token: u32) {
        if token == 0 || !self.put_closing(slot, token) {
            return self.done(slot, token, Ok(0));
        }
        self.await_closing(slot, token, CLOSING_ROUNDS);
    }

    /// [`Finished::Closed`] comes when the user's thread has closed what it was given.
    pub fn await_closing(&self, slot: usize, token: u32, rounds: u8) {
        let Some(session) = self.get(slot) else {
            return;
        };
        let (number, sender) = (session.number, self.finished.sender());
        session.user.run(move || {
            sender.tell(Finished::Closed {
                session: number,
                token,
                rounds,
            });
        });
    }

    /// The sessions whose programs have ended, of which the loop may not have heard yet.
    pub fn gone(&self) -> Vec<usize> {
        let slots: Vec<usize> = (0..self.slots())
            .filter(|slot| self.get(*slot).is_some())
            .collect();
        let controls = slots.iter().filter_map(|slot| self.get(*slot));
        let mut polled: Vec<PollFd<'_>> = controls
            .map(|session| PollFd::new(&*session.control, PollFlags::empty()))
            .collect();
        // Where it fails, the loop hears of them all the same.
        let _ = poll(&mut polled, Some(&Timespec::default()));
        let is_gone = |(_, one): &(&usize, &PollFd<'_>)| one.revents().contains(PollFlags::HUP);
        let gone = slots.iter().zip(&polled).filter(is_gone);
        gone.map(|(slot, _)| *slot).collect()
    }

    /// Unmapping a large file at once would keep everybody waiting for milliseconds.
    pub fn unmap_retired(&mut self) {
        if let Some(file) = self.retired.last()
            && file.let_go(PIECES_PER_ROUND)
        {
            self.retired.pop();
        }
    }

    /// When a sleeping program is to be rung.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.told().filter_map(Session::ring_deadline).min()
    }

    /// Whether news wait for space in a program's ring. It does not ring when it makes space, so the ring
    /// has to be looked at again after a while.
    pub fn has_waiting_news(&self) -> bool {
        self.told().any(Session::has_backlog)
    }
}

/// What goes back over a control channel, with the descriptors that go with it.
pub type Answer = (Reply, Vec<OwnedFd>);

/// Why a request is refused: what the program's call fails with, and a sentence for whoever runs it.
pub type Refusal = (Errno, String);

/// What comes of a request.
pub type Answered = Result<Answer, Refusal>;

/// A request is refused.
pub fn refuse<T>(errno: Errno, text: &str) -> Result<T, Refusal> {
    Err((errno, text.to_owned()))
}

/// What a refused program hears.
pub fn refused((errno, text): Refusal) -> Answer {
    (refusal(errno, text), Vec::new())
}

/// The answer that says no.
pub fn refusal(errno: Errno, text: String) -> Reply {
    Reply::Refused {
        errno: errno::code(errno),
        text,
    }
}

fn turn_away(control: BorrowedFd<'_>, errno: Errno, text: String) {
    let _ = send(control, &refusal(errno, text).encode(), &[]);
}
