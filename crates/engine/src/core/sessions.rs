//! How programs come to an engine, fork, and go.

use super::EngineCore;
use crate::programs::session::Rings;
use crate::programs::users::{Finished, ProgramFd};
use crate::programs::{Answered, Refusal, refuse};
use crate::sockets::rows::Marks;
use hostif::control::{Reply, Welcome};
use hostif::{Region, host_hooks, sync::doorbell};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use shards::Message;
use std::sync::Arc;
use tcp::Instant;

impl EngineCore {
    /// Takes a new connection on the control socket.
    pub(crate) fn accept_session(&mut self, control: OwnedFd) {
        let Ok(credentials) = rustix::net::sockopt::socket_peercred(&control) else {
            return;
        };
        let pid = credentials.pid.as_raw_nonzero().get();
        self.programs.add(control, pid, credentials.uid.as_raw());
    }

    pub(super) fn welcome(&mut self, slot: usize, version: u16, pid: u32) -> Answered {
        let system = |errno: Errno| (errno, format!("cannot make doorbells: {errno}"));
        let lost = || (Errno::NOMEM, "the program's memory is lost".to_owned());
        let doorbell::DoorbellPair { tx, rx } = doorbell::between().map_err(system)?;
        let session = self.programs.answered(slot)?;
        let program_bell = session.user.keep(host_hooks::relocate_fd(tx));
        if session.rings.is_some() {
            // The engine before made them, and ended before the program had them.
            self.programs.exchange_bell(slot, program_bell);
        } else {
            self.make_rings(slot, program_bell, pid)?;
        }
        let session = self.programs.answered(slot)?;
        let rings = session.rings.as_ref().ok_or_else(lost)?;
        let region = self.layer.sockets.regions.find(rings.region);
        let region = region.ok_or_else(lost)?;
        let duplicate = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(system);
        let engine_bell = rings.engine_bell.as_fd();
        let descriptors = vec![duplicate(region.file())?, rx, duplicate(engine_bell)?];
        let welcome = Welcome {
            version,
            core: self.shard.core,
            steering: self.shard.steering,
            session: session.number,
            region: region.id(),
        };
        Ok((Reply::Welcome(welcome), descriptors))
    }

    fn make_rings(
        &mut self,
        slot: usize,
        program_bell: ProgramFd,
        pid: u32,
    ) -> Result<(), Refusal> {
        let system = |errno: Errno| (errno, format!("cannot make doorbells: {errno}"));
        let session = self.programs.answered(slot)?;
        let number = self.layer.sockets.regions.next_number();
        let region = Region::create(self.config.limits.region, number, session.number)
            .map_err(|error| (Errno::NOMEM, error.to_string()))?;
        let engine_bell = host_hooks::relocate_fd(doorbell::create().map_err(system)?);
        // Before the program has it, which could have it watched otherwise: see `users`.
        self.programs
            .watch_bell(slot, engine_bell.as_fd())
            .map_err(system)?;
        let session = self.programs.answered(slot)?;
        let user = Arc::clone(&session.user);
        session.rings = Some(Rings::new(&region, program_bell, user.keep(engine_bell)));
        // A forked child speaks over a channel that its parent made: only it knows its own number.
        session.pid = i32::try_from(pid).unwrap_or(session.pid);
        if self.layer.sockets.regions.insert(region, user).is_none() {
            session.rings = None;
            return refuse(Errno::NOMEM, "this engine has too many regions of programs");
        }
        self.programs.put_rings(slot);
        let now = self.layer.sockets.now();
        self.programs.wake(now, slot);
        // What a child was to hear of before it said hello.
        self.programs.tell(slot, |_| {});
        Ok(())
    }

    /// Makes a control channel to another core for the program.
    pub(super) fn pass_on(&mut self, slot: usize, core: u16) -> Answered {
        let [control, theirs] = channel()?;
        let session = self.programs.answered(slot)?;
        let (pid, uid) = (session.pid, session.user.uid);
        self.shard
            .pass_session(core, Message::Session { control, pid, uid })
            .map_err(|errno| (errno, format!("core {core} takes no program now")))?;
        Ok((Reply::Joined, vec![theirs]))
    }

    /// Makes a control channel for a child, which at once holds what the parent holds.
    pub(super) fn fork(&mut self, slot: usize) -> Answered {
        let [control, theirs] = channel()?;
        let parent = self.programs.answered(slot)?;
        let (pid, uid, held) = (parent.pid, parent.user.uid, parent.sockets.clone());
        let child = self.programs.add(control, pid, uid).ok_or((
            Errno::NFILE,
            "the engine serves too many programs".to_owned(),
        ))?;
        let session = self.programs.answered(child)?;
        for &row in &held {
            self.layer.sockets.hold(row, child);
        }
        session.sockets = held;
        Ok((
            Reply::Forked {
                session: session.number,
            },
            vec![theirs],
        ))
    }

    /// The process is gone (or broke the protocol): what it wrote last counts, its locks are freed, its
    /// sockets close as the kernel would close them.
    pub(crate) fn end_session(&mut self, now: Instant, slot: usize) {
        self.drain_rings_finally(now, slot);
        let Some(session) = self.programs.get(slot) else {
            return;
        };
        let (number, held) = (session.number, session.sockets.clone());
        // Whoever breaks the protocol has nothing left, whatever descriptors it keeps.
        let is_faulty = session.is_faulty;
        self.layer.link.captures.end(number);
        let mut last = Vec::new();
        for row in held {
            self.layer.release_locks(row, number);
            if self.layer.sockets.holders(row) == [slot] {
                last.push(row);
            } else {
                self.layer.sockets.set_mark(row, Marks::SHARED, true);
                self.release_hold(now, slot, row, None);
            }
        }
        // They are orphans before nobody holds them: an engine that goes on in between closes what nobody holds.
        let sockets = &mut self.layer.sockets;
        let fresh = last.iter().copied();
        let fresh: Vec<u32> = fresh
            .filter(|row| !sockets.has(*row, Marks::ORPHAN))
            .collect();
        let closed = match is_faulty {
            true => fresh,
            false => self.layer.orphans.begin(now, sockets, &fresh),
        };
        for row in last {
            self.release_hold(now, slot, row, None);
        }
        if let Some(region) = self.programs.remove(slot) {
            self.layer.sockets.regions.end_session(region);
        }
        self.layer.close_all(now, closed);
        let layer = &mut self.layer;
        layer
            .byte_channels
            .forget_regions(&layer.sockets, &mut layer.link);
    }

    /// Who waits for a close is about to bind the port again, which the engine's duplicates of the listener would hold: of one that
    /// a program had too that has ended since, and of one that may have descriptors elsewhere. Whether something is being closed.
    fn close_for_the_gone(&mut self, now: Instant) -> bool {
        let gone = self.programs.gone();
        for &slot in &gone {
            self.handle_control(now, slot);
        }
        self.layer.orphans.close_duplicates(&mut self.layer.sockets) || !gone.is_empty()
    }

    /// Acts on what users' threads have finished.
    #[inline]
    pub(crate) fn take_finished(&mut self, now: Instant) -> usize {
        match self.programs.finished.is_empty() {
            true => 0,
            false => self.take_all_finished(now),
        }
    }

    #[inline(never)]
    fn take_all_finished(&mut self, now: Instant) -> usize {
        let mut work = 0;
        while let Some(finished) = self.programs.finished.take() {
            work += 1;
            match finished {
                Finished::Closed {
                    session,
                    token,
                    rounds,
                } => {
                    let has_closed = rounds > 0 && self.close_for_the_gone(now);
                    match self.programs.slot_of(session) {
                        Some(slot) if has_closed => {
                            self.programs.await_closing(slot, token, rounds - 1)
                        }
                        Some(slot) => self.programs.end_closing(slot, token),
                        None => {}
                    }
                }
                Finished::Named {
                    session,
                    socket,
                    name,
                } => self.on_named(now, session, socket, name),
                Finished::Left { port } => self.layer.holders.name_udp(&self.layer.stack, port),
                Finished::Freed { region, pair } => {
                    self.layer.sockets.regions.on_freed(region, pair)
                }
            }
        }
        work
    }

    /// Ends the sessions whose programs broke the protocol.
    pub(crate) fn drop_faulty(&mut self, now: Instant) {
        for slot in self.programs.take_faulty() {
            self.end_session(now, slot);
        }
    }
}

/// Accepts a control connection; `None`: there is none.
///
/// # Errors
/// There is one, but no descriptor or memory for it now.
pub fn accept(listener: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Errno> {
    match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(control) => Ok(Some(host_hooks::relocate_fd(control))),
        Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => Err(errno),
        Err(_) => Ok(None),
    }
}

/// The engine's end of a control channel and the program's. The engine makes both, so that it alone has its own.
fn channel() -> Result<[OwnedFd; 2], Refusal> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let pair = socketpair(family, kind, SocketFlags::CLOEXEC, None)
        .map_err(|errno| (errno, "cannot make a control channel".to_owned()))?;
    Ok([host_hooks::relocate_fd(pair.0), pair.1])
}
