//! An engine core: one driver queue, the stack above it, the programs that it serves. `poll(now)` moves
//! everything forward once and never waits; nothing here knows which thread calls it.

pub mod control;
pub mod housekeeping;
mod names;
mod notes;
pub mod report;
mod resume;
mod rings;
pub mod sessions;

use crate::config::Config;
use crate::process::succession::Succession;
use crate::programs::Programs;
use crate::programs::users::{FinishedJobs, Users};
use crate::shards::{Message, Shard};
use crate::socket_layer::SocketLayer;
use crate::sockets::user_buffer::UserBuffer;
use crate::start_error::StartError;
use crate::sysctl::Sysctls;
use nic::Driver;
use std::sync::Arc;
use tcp::Instant;

/// Connections to own addresses that come to stand in one poll one after the other, each in answer to the one before: beyond
/// that they are the next poll's.
const HANDSHAKE_ROUNDS_MAX: usize = 4;

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
    has_served: bool,
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
            has_served: false,
            config,
        })
    }

    /// Moves everything forward once. Returns how much there was to do; 0: nothing. A thread may pass its buffer for what
    /// arrives on one socket.
    pub fn poll(&mut self, now: Instant, user_buffer: Option<&mut UserBuffer<'_, '_>>) -> usize {
        self.layer.set_now(now);
        let received = self.receive(now, user_buffer);
        received + self.take_finished(now) + self.take_notes(now)
    }

    /// As [`EngineCore::poll`] in which the device had nothing, for whoever has left a note just after a poll.
    pub(crate) fn poll_notes(&mut self, now: Instant) -> usize {
        self.layer.set_now(now);
        self.take_notes(now)
    }

    /// What programs have left, and what it leads to. Returns how much there was to do.
    fn take_notes(&mut self, now: Instant) -> usize {
        let mut served = self.drain_awake(now);
        let (work, more_served) = self.poll_layer(now);
        served += more_served;
        self.has_served = served > 0 || !self.layer.sockets.dirty.is_empty();
        self.flush(now);
        if !self.layer.link.captures.is_empty() {
            self.layer.link.captures.flush();
        }
        work + served
    }

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
    fn poll_layer(&mut self, now: Instant) -> (usize, usize) {
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
    fn flush(&mut self, now: Instant) {
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
        self.programs.flush(now);
        if self.layer.sockets.signalled.is_empty() {
            return;
        }
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
