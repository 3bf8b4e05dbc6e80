//! An engine core: one driver queue, the stack above it, the programs that it serves. `poll(now)` moves
//! everything forward once and never waits; nothing here knows which thread calls it.

pub mod control;
mod histograms;
pub mod housekeeping;
mod names;
mod notes;
pub mod report;
mod resume;
mod rings;
pub mod sessions;

use crate::process::succession::Succession;
use crate::programs::Programs;
use crate::programs::users::{FinishedJobs, Users};
use crate::socket_layer::SocketLayer;
use crate::sockets::user_buffer::UserBuffer;
use crate::start_error::StartError;
use engine_config::Config;
use engine_config::sysctl::Sysctls;
use nic::Driver;
use shards::{Message, Shard};
use stack::Histogram;
use std::sync::Arc;
use tcp::Instant;

pub use notes::SmallWrite;

/// Connections to own addresses that come to stand in one poll one after the other, each in answer to the one before: beyond
/// that they are the next poll's.
const HANDSHAKE_ROUNDS_MAX: usize = 4;

/// Brief polls in a row at most.
const BRIEF_POLLS_MAX: u32 = 16;

/// One engine core.
pub struct EngineCore {
    pub(crate) config: Config,
    pub(crate) shard: Shard,
    pub(crate) programs: Programs,
    /// The programs' sockets, the stack, the device.
    pub(crate) layer: SocketLayer,
    pub(crate) housekeeping: housekeeping::Housekeeping,
    pub(crate) sysctls: Sysctls,
    pub(crate) succession: Succession,
    /// How long polls that did something took, microseconds, as whoever calls them tells.
    pub(crate) polls: Histogram,
    has_served: bool,
    /// Polls in a row that left the rest to a later one.
    brief_polls: u32,
}

impl EngineCore {
    /// The only core of an engine, over `driver`; `secret` is random (RFC 6528 §3, RFC 6056 §3.3).
    ///
    /// # Errors
    /// [`StartError`]: the limits or addresses cannot be.
    pub fn new(
        config: Config,
        driver: Box<dyn Driver>,
        secret: [u8; 16],
        now: Instant,
    ) -> Result<Self, StartError> {
        Self::with_shard(
            config,
            Shard::single(),
            Users::direct(),
            driver,
            secret,
            now,
        )
    }

    /// As [`EngineCore::new`], in its place among several cores.
    pub(crate) fn with_shard(
        mut config: Config,
        mut shard: Shard,
        users: Arc<Users>,
        driver: Box<dyn Driver>,
        secret: [u8; 16],
        now: Instant,
    ) -> Result<Self, StartError> {
        let sysctls = Sysctls::begin(shard.core, &mut config);
        let finished =
            FinishedJobs::new().map_err(|errno| StartError::System("make an eventfd", errno))?;
        let of_users = (Arc::clone(&users), finished.sender());
        let owner = shard.take_owner();
        let (layer, tables) = SocketLayer::new(&config, owner, of_users, driver, secret, now)?;
        Ok(Self {
            layer,
            programs: Programs::new(users, finished, config.limits.sessions, tables),
            shard,
            housekeeping: housekeeping::Housekeeping::default(),
            sysctls,
            succession: Succession::default(),
            polls: Histogram::default(),
            has_served: false,
            brief_polls: 0,
            config,
        })
    }

    /// Moves everything forward once. Returns how much there was to do; 0: nothing. A thread may pass its buffer for what
    /// arrives on one socket.
    #[inline(never)]
    pub fn poll(&mut self, now: Instant, user_buffer: Option<&mut UserBuffer<'_, '_>>) -> usize {
        self.layer.set_now(now);
        let received = self.receive(now, user_buffer);
        received + self.take_finished(now) + self.take_notes(now)
    }

    /// As [`EngineCore::poll`], where nobody sleeps whom another thread would have to wake. A poll that brings the thread its bytes and
    /// nothing else is brief: timers, rings and news are a later one's, soon.
    #[inline(always)]
    pub(crate) fn poll_alone(
        &mut self,
        now: Instant,
        user_buffer: &mut UserBuffer<'_, '_>,
    ) -> usize {
        self.layer.set_now(now);
        let received = self.receive(now, Some(user_buffer));
        if user_buffer.has_all()
            && let Some(row) = user_buffer.row()
            && !self.layer.stack.wants_transmit()
            && self.may_be_brief(row)
        {
            self.has_served = true;
            return received;
        }
        received + self.take_finished(now) + self.take_notes(now)
    }

    /// As [`EngineCore::poll_alone`], for a thread that waits for datagrams on a socket of its session and looks at that socket itself: a poll that
    /// brings nothing but some of those is brief.
    #[inline(always)]
    pub(crate) fn poll_for_datagrams(
        &mut self,
        now: Instant,
        (session, socket): (u32, hostif::SocketId),
    ) -> usize {
        self.layer.set_now(now);
        let received = self.receive(now, None);
        if received > 0
            && !self.layer.stack.wants_transmit()
            && let Some((slot, _)) = self.programs.numbered(session)
            && let Some(row) = self.layer.sockets.held_by(socket, slot)
            && self.may_be_brief(row)
        {
            self.has_served = true;
            return received;
        }
        received + self.take_finished(now) + self.take_notes(now)
    }

    /// As [`EngineCore::poll`] in which nothing was there but one note of a thread of this process, which is in no ring: bytes of a
    /// socket that its session alone holds, directly behind those that are known. `None`, with nothing done: it is not so,
    /// and the note has to go by the ring. Where the thread `is_alone`, as in [`EngineCore::poll_alone`], it is brief.
    pub(crate) fn poll_note(
        &mut self,
        now: Instant,
        note: &SmallWrite,
        is_alone: bool,
    ) -> Option<usize> {
        self.layer.set_now(now);
        let row = self.row_of_note(now, note)?;
        let (start, end) = (note.start, note.end);
        if is_alone && self.may_be_brief(row) {
            let sent = self.layer.write_and_transmit(now, row, start, end)?;
            self.has_served = true;
            return Some(1 + sent);
        }
        self.layer.write_next(now, row, start, end)?;
        Some(self.finish_poll(now, 1))
    }

    /// Whether a poll has left something to a whole one, which has to come before anybody sleeps.
    pub(crate) fn owes_whole_poll(&self) -> bool {
        self.brief_polls > 0
    }

    /// Whether what has happened concerns the socket in `row` alone, of the only program, and the last whole poll was not long ago.
    #[inline]
    fn may_be_brief(&mut self, row: u32) -> bool {
        self.brief_polls += 1;
        self.brief_polls <= BRIEF_POLLS_MAX
            && self.programs.is_only_one_awake()
            && self.layer.concerns_at_most(row)
    }

    /// What programs have left, and what it leads to. Returns how much there was to do.
    #[inline]
    fn take_notes(&mut self, now: Instant) -> usize {
        let served = self.drain_awake(now);
        self.finish_poll(now, served)
    }

    /// What received frames and notes, `served` of them, lead to. Returns how much there was to do.
    #[inline]
    fn finish_poll(&mut self, now: Instant, mut served: usize) -> usize {
        self.brief_polls = 0;
        self.layer.sockets.dirty.forget_rare();
        let (work, more_served) = self.poll_layer(now);
        served += more_served;
        self.has_served = served > 0 || !self.layer.sockets.dirty.is_empty();
        self.flush(now);
        if !self.layer.link.captures.is_empty() {
            self.layer.link.captures.flush();
        }
        work + served
    }

    #[inline(always)]
    fn receive(&mut self, now: Instant, user_buffer: Option<&mut UserBuffer<'_, '_>>) -> usize {
        let Self {
            shard,
            config,
            programs,
            ..
        } = self;
        let see = |frame: &[u8]| shard.pass_frame(frame, &config.addresses);
        let slot_of = |session: u32| {
            let slot = programs.slot_of(session)?;
            let session = programs.get(slot)?;
            (!session.is_faulty).then_some(slot)
        };
        let lent = user_buffer.map(|user_buffer| (user_buffer, &slot_of as &dyn Fn(u32) -> _));
        self.layer.receive(now, see, lent)
            + self.layer.follow_neighbours(now)
            + self.layer.receive_own(now)
    }

    /// What connections, timers and files have to do. Who connects to an own address hears of it when the other end stands too:
    /// of two connections made one after the other, each on a core of its own, the first can be accepted first.
    #[inline]
    fn poll_layer(&mut self, now: Instant) -> (usize, usize) {
        if self.layer.sockets.established.is_empty() {
            return self.layer.poll(now);
        }
        self.poll_layer_in_rounds(now)
    }

    #[inline(never)]
    fn poll_layer_in_rounds(&mut self, now: Instant) -> (usize, usize) {
        let mut done = (0, 0);
        for _ in 0..HANDSHAKE_ROUNDS_MAX {
            let stand_anew = !self.layer.sockets.established.is_empty();
            let (work, served) = self.layer.poll(now);
            done = (done.0 + work, done.1 + served);
            if !stand_anew {
                break;
            }
            done.0 += self.layer.receive_own(now);
        }
        done
    }

    /// Whether the last `poll` did anything for a program or a connection: what the stack answers by itself, and
    /// frames that are nobody's, lead to nothing more.
    pub(crate) fn has_served(&self) -> bool {
        self.has_served
    }

    /// Acts on what another core has left for this one.
    pub(crate) fn take_messages(&mut self, now: Instant) {
        while let Some(message) = self.shard.take() {
            match message {
                Message::Session { control, pid, uid } => {
                    self.programs.add(control, pid, uid);
                }
                Message::Frame { bytes, len } => {
                    let checksum = stack::RxChecksum::Unknown;
                    self.layer.receive_frame(now, &bytes[..len], checksum);
                }
                Message::Packet(packet) => {
                    self.layer
                        .receive_frame(now, packet.frame(), packet.checksum);
                    self.shard.give_back(packet);
                }
            }
        }
        self.layer.send_replies();
    }

    /// Takes what awake programs have left. Returns how much that was.
    fn drain_awake(&mut self, now: Instant) -> usize {
        let (mut work, mut at) = (0, 0);
        while let Some(slot) = self.programs.awake_slot(at) {
            let done = self.drain_rings(now, slot);
            if done > 0 {
                self.programs.on_worked(now, slot);
            }
            work += done;
            at += 1;
        }
        work
    }

    /// Tells the holders of every socket that has changed.
    #[inline]
    fn flush(&mut self, now: Instant) {
        if !self.layer.sockets.dirty.is_empty() {
            self.note_changes();
        }
        self.programs.flush(now);
        if !self.layer.sockets.signalled.is_empty() {
            self.send_signals();
        }
    }

    fn note_changes(&mut self) {
        while let Some(row) = self.layer.sockets.dirty.pop() {
            let Some(id) = self.layer.sockets.id(row) else {
                continue;
            };
            let is_urgent = core::mem::take(&mut self.layer.sockets.companion(row).is_urgent);
            for at in 0..self.layer.sockets.holders(row).len() {
                let slot = self.layer.sockets.holders(row)[at];
                if !is_urgent && self.programs.knows_of(slot, id) {
                    continue;
                }
                self.programs.tell(slot, |session| {
                    session.notify(id);
                    if is_urgent {
                        session.moderator.on_urgent();
                    }
                });
            }
        }
    }

    #[inline(never)]
    fn send_signals(&mut self) {
        // A handler finds everything in its place.
        for at in 0..self.layer.sockets.signalled.len() {
            let row = self.layer.sockets.signalled[at];
            self.layer.sockets.signal(row);
        }
        self.layer.sockets.signalled.clear();
    }

    /// The session broke the protocol. Returns `work`.
    pub(crate) fn fault(&mut self, slot: usize, work: usize, what: &str) -> usize {
        self.programs.fault(slot, what);
        work
    }

    /// Why the driver can serve no longer.
    pub fn failure(&mut self) -> Option<std::io::Error> {
        self.layer.link.device.failure.take()
    }

    /// When `poll` has something to do by the clock.
    pub fn next_deadline(&self) -> Option<Instant> {
        let rings = self.programs.next_deadline().into_iter();
        rings.chain(self.layer.next_deadline()).min()
    }
}
