//! The control channel: attaching, opening sockets, preparing backing sockets, forking, reports.

use crate::core::EngineCore;
use crate::core::report;
use crate::programs::descriptors::{check_backings, is_file};
use crate::programs::session::Rings;
use crate::programs::users::{Finished, ProgramFd};
use crate::programs::{Answer, refusal};
use crate::shards::Message;
use crate::sockets::rows::Kind;
use core::net::IpAddr;
use hostif::control::{
    Addresses, EngineAddress, Opened, QueryKind, Received, Reply, Request, SocketKinds, Welcome,
    negotiate, receive_any, send,
};
use hostif::{Moderation, Region, SocketId, doorbell, host_hooks};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair, sockopt};
use stack::{Protocols, Resolution};
use std::sync::Arc;
use tcp::Instant;

/// Messages answered in one turn, so that a program that asks without pause does not keep the engine
/// from its other work.
const MESSAGES_PER_TURN: usize = 16;

impl EngineCore {
    /// Takes a new connection on the control socket.
    pub(crate) fn accept_session(&mut self, control: OwnedFd) {
        let Ok(credentials) = rustix::net::sockopt::socket_peercred(&control) else {
            return;
        };
        let pid = credentials.pid.as_raw_nonzero().get();
        self.programs.add(control, pid, credentials.uid.as_raw());
    }

    /// Answers what came over the control channel of `slot`; its end of file ends the session.
    pub(crate) fn handle_control(&mut self, now: Instant, slot: usize) {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(session) = self.programs.get(slot) else {
                return;
            };
            let answer = match receive_any(session.control.as_fd(), RecvFlags::DONTWAIT) {
                Ok(received) if received.bytes.is_empty() => return self.end_session(now, slot),
                Ok(received) => self.understand(now, slot, received),
                Err(Errno::AGAIN) => return,
                Err(_) => return self.end_session(now, slot),
            };
            let (reply, descriptors) =
                answer.unwrap_or_else(|(errno, text)| (refusal(errno, text), Vec::new()));
            // They are closed a moment after the program has its answer, and goes on.
            let descriptors: Vec<OwnedFd> = descriptors
                .into_iter()
                .map(host_hooks::relocate_fd)
                .collect();
            let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(OwnedFd::as_fd).collect();
            let Some(session) = self.programs.get(slot) else {
                return;
            };
            let control = session.control.as_fd();
            let sent = match send(control, &reply.encode(), &borrowed) {
                // Too many descriptors are on their way to programs that do not fetch them: of this request alone
                // nothing comes.
                Err(Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) if !borrowed.is_empty() => {
                    let text = "the engine can pass no descriptor now: try again".to_owned();
                    send(control, &refusal(Errno::NFILE, text).encode(), &[])
                }
                sent => sent,
            };
            if sent.is_err() {
                return self.end_session(now, slot);
            }
        }
    }

    /// Answers a request that came by no channel, of a program around this engine, whose library made the
    /// descriptors and needs no check; `None`: there is no such session.
    pub(crate) fn answer_session(
        &mut self,
        now: Instant,
        session: u32,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> Option<Answer> {
        let slot = self.programs.slot_of(session)?;
        let user = Arc::clone(&self.programs.get(slot)?.user);
        let descriptors = descriptors.into_iter().map(|fd| user.keep(fd)).collect();
        let answer = self.answer(now, slot, request, descriptors);
        Some(answer.unwrap_or_else(|(errno, text)| (refusal(errno, text), Vec::new())))
    }

    fn understand(
        &mut self,
        now: Instant,
        slot: usize,
        received: Received,
    ) -> Result<Answer, (Errno, String)> {
        let session = self.programs.answered(slot)?;
        let keep = |fd| session.user.keep(host_hooks::relocate_fd(fd));
        let descriptors: Vec<ProgramFd> = received.descriptors.into_iter().map(keep).collect();
        // Of descriptors beside the message some were lost: no program's connections shall end for that.
        if received.is_cut {
            let text = "the engine has too many open files: raise its limit (LimitNOFILE)";
            return Err((Errno::NFILE, text.to_owned()));
        }
        if !descriptors.is_empty() {
            session
                .user
                .check_limit()
                .map_err(|text| (Errno::NFILE, text))?;
        }
        let request = Request::decode(&received.bytes)
            .ok()
            .filter(|request| request.descriptors() == descriptors.len());
        match request {
            Some(request) => {
                let brings_backings = match &request {
                    Request::Open { .. } | Request::Adopt => true,
                    Request::Prepare { .. } => !is_file(&descriptors),
                    _ => false,
                };
                if brings_backings {
                    check_backings(&descriptors)?;
                }
                self.answer(now, slot, request, descriptors)
            }
            None => Err((
                Errno::PROTO,
                "a message that this engine does not understand".to_owned(),
            )),
        }
    }

    fn answer(
        &mut self,
        now: Instant,
        slot: usize,
        request: Request,
        descriptors: Vec<ProgramFd>,
    ) -> Result<Answer, (Errno, String)> {
        let system = |errno: Errno| (errno, format!("the engine's system call failed: {errno}"));
        // What the program has let go of by its rings before it asked is no longer held.
        if matches!(
            request,
            Request::Adopt | Request::Share { .. } | Request::Fork
        ) {
            self.drain_rings(now, slot);
        }
        match request {
            Request::Hello {
                min_version,
                max_version,
                pid,
            } => {
                let version = negotiate(min_version, max_version)
                    .map_err(|error| (Errno::PROTO, error.to_string()))?;
                self.welcome(slot, version, pid)
            }
            Request::Open { .. } => self.open(slot, descriptors),
            Request::Adopt => self.adopt(slot, descriptors),
            Request::Share { socket } => self.share(slot, socket),
            Request::Prepare { count: 1 } if is_file(&descriptors) => {
                self.programs.share_file(slot, descriptors)
            }
            Request::Prepare { count } => {
                let session = self.programs.answered(slot)?;
                let first = session
                    .keep_backings(descriptors)
                    .ok_or((Errno::MFILE, "too many prepared backing sockets".to_owned()))?;
                Ok((Reply::Prepared { first, count }, Vec::new()))
            }
            Request::Fork => self.fork(slot),
            Request::Join { core } => self.pass_on(slot, core),
            Request::MapRegion { region } => self.map_region(slot, region),
            Request::MapArea { channel_region } => self.map_channel_region(slot, channel_region),
            Request::MapHolders => self.map_holders(),
            Request::Signals { socket } => self.signals_of(slot, socket),
            Request::Moderate(policy) => self.moderate(slot, policy),
            Request::Addresses => Ok((self.addresses(), Vec::new())),
            Request::Query { kind } => {
                let json = match kind {
                    QueryKind::Sockets => report::sockets(self),
                    QueryKind::Sessions => report::sessions(self),
                    QueryKind::Interfaces => report::interfaces(self),
                    _ => report::status(self),
                };
                let file = report::to_file(&json).map_err(system)?;
                Ok((Reply::Report, vec![file]))
            }
        }
    }

    /// The end of a socket's pair on which a session that holds it says what it wants to hear.
    fn signals_of(&mut self, slot: usize, socket: SocketId) -> Result<Answer, (Errno, String)> {
        let row = self.layer.sockets.held_by(socket, slot);
        let row = row.ok_or((Errno::BADF, "not a socket of this program".to_owned()))?;
        let user = &self.programs.answered(slot)?.user;
        let end = self.layer.sockets.signals_of(row, user)?;
        Ok((Reply::Signals, vec![end]))
    }

    /// What is shown of who hears on which port.
    fn map_holders(&mut self) -> Result<Answer, (Errno, String)> {
        let file = self
            .layer
            .holders
            .map(&self.layer.stack, &self.layer.sockets)?;
        Ok((Reply::Holders, vec![file]))
    }

    /// The memory behind a slot, for a session that holds a socket with one there.
    fn map_channel_region(
        &mut self,
        slot: usize,
        channel_region: u32,
    ) -> Result<Answer, (Errno, String)> {
        let rows = self.programs.answered(slot)?.sockets.iter().copied();
        self.layer
            .byte_channels
            .region_file(&mut self.layer.sockets, rows, channel_region)
            .map(|file| (Reply::ChannelRegion { channel_region }, vec![file]))
            .map_err(|errno| (errno, "no memory for this program".to_owned()))
    }

    /// The session has a descriptor: it holds the socket behind it from now on.
    fn adopt(
        &mut self,
        slot: usize,
        descriptors: Vec<ProgramFd>,
    ) -> Result<Answer, (Errno, String)> {
        let session = self.programs.answered(slot)?;
        self.layer
            .orphans
            .adopt(&mut self.layer.sockets, (slot, session), descriptors)
    }

    /// The session's sockets, or one of them, may be open elsewhere from now on.
    fn share(&mut self, slot: usize, socket: Option<SocketId>) -> Result<Answer, (Errno, String)> {
        let session = self.programs.answered(slot)?;
        let rows: Vec<u32> = match socket {
            // A stale name is a socket that was closed meanwhile.
            Some(id) => self.layer.sockets.held_by(id, slot).into_iter().collect(),
            None => session.sockets.iter().copied().collect(),
        };
        for row in rows {
            self.layer.sockets.companion(row).is_shared = true;
        }
        Ok((Reply::Shared, Vec::new()))
    }

    fn moderate(&mut self, slot: usize, policy: Moderation) -> Result<Answer, (Errno, String)> {
        let session = self
            .programs
            .get_mut(slot)
            .filter(|_| policy.is_possible())
            .ok_or((Errno::INVAL, "no such policy of notifications".to_owned()))?;
        session.moderator.set(policy);
        Ok((Reply::Moderated, Vec::new()))
    }

    fn welcome(&mut self, slot: usize, version: u16, pid: u32) -> Result<Answer, (Errno, String)> {
        let session = self.programs.answered(slot)?;
        if session.rings.is_some() {
            return Err((Errno::ISCONN, "this program is attached already".to_owned()));
        }
        let number = self.layer.sockets.regions.next_number();
        let region = Region::create(self.config.limits.region, number, session.number)
            .map_err(|error| (Errno::NOMEM, error.to_string()))?;
        let system = |errno: Errno| (errno, format!("cannot make doorbells: {errno}"));
        let doorbell::Bell { tx, rx } = doorbell::between().map_err(system)?;
        let engine_bell = host_hooks::relocate_fd(doorbell::create().map_err(system)?);
        // Before the program has it, which could have it watched otherwise: see `users`.
        self.programs
            .watch_bell(slot, engine_bell.as_fd())
            .map_err(system)?;
        let file = region.file();
        let duplicate = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(system);
        let descriptors = vec![duplicate(file)?, rx, duplicate(engine_bell.as_fd())?];
        let session = self.programs.answered(slot)?;
        let user = Arc::clone(&session.user);
        let (program_bell, engine_bell) = (
            user.keep(host_hooks::relocate_fd(tx)),
            user.keep(engine_bell),
        );
        session.rings = Some(Rings::new(&region, program_bell, engine_bell));
        // A forked child speaks over a channel that its parent made: only it knows its own number.
        session.pid = i32::try_from(pid).unwrap_or(session.pid);
        let welcome = Welcome {
            version,
            core: self.shard.core,
            steering: self.shard.steering,
            session: session.number,
            region: number,
        };
        self.layer.sockets.regions.insert(region, user);
        let now = self.layer.sockets.now();
        self.programs.wake(now, slot);
        // What a child was to hear of before it said hello.
        self.programs.tell(slot, |_| {});
        Ok((Reply::Welcome(welcome), descriptors))
    }

    fn open(
        &mut self,
        slot: usize,
        descriptors: Vec<ProgramFd>,
    ) -> Result<Answer, (Errno, String)> {
        let session = self.programs.answered(slot)?;
        let region = session
            .rings
            .as_ref()
            .ok_or((Errno::NOTCONN, "say hello first".to_owned()))?
            .region;
        let mut opened = Vec::new();
        for backing in descriptors {
            let kind = match sockopt::socket_type(&*backing) {
                Ok(SocketType::DGRAM) => Kind::FreshDatagram,
                _ => Kind::Fresh,
            };
            let Some(row) = self.layer.sockets.create(region, kind) else {
                let text = "the engine's socket table is full: close sockets or raise its limits"
                    .to_owned();
                if opened.is_empty() {
                    return Err((Errno::NFILE, text));
                }
                break;
            };
            let companion = self.layer.sockets.companion(row);
            companion.holders.push(slot);
            self.layer.sockets.set_backing(row, backing);
            session.sockets.insert(row);
            let socket = self
                .layer
                .sockets
                .id(row)
                .ok_or((Errno::NFILE, String::new()))?;
            opened.push(Opened {
                socket,
                header: self.layer.sockets.row(row).header,
            });
        }
        Ok((Reply::Opened(opened), Vec::new()))
    }

    /// Makes a control channel to another core for the program.
    fn pass_on(&mut self, slot: usize, core: u16) -> Result<Answer, (Errno, String)> {
        let [control, theirs] = channel()?;
        let session = self.programs.answered(slot)?;
        let (pid, uid) = (session.pid, session.user.uid);
        self.shard
            .pass_session(core, Message::Session { control, pid, uid })
            .map_err(|errno| (errno, format!("core {core} takes no program now")))?;
        Ok((Reply::Joined, vec![theirs]))
    }

    /// Makes a control channel for a child, which at once holds what the parent holds.
    fn fork(&mut self, slot: usize) -> Result<Answer, (Errno, String)> {
        let [control, theirs] = channel()?;
        let parent = self.programs.answered(slot)?;
        let (pid, uid, held) = (parent.pid, parent.user.uid, parent.sockets.clone());
        let child = self.programs.add(control, pid, uid).ok_or((
            Errno::NFILE,
            "the engine serves too many programs".to_owned(),
        ))?;
        let session = self.programs.answered(child)?;
        for &row in &held {
            self.layer.sockets.companion(row).holders.push(child);
        }
        session.sockets = held;
        Ok((
            Reply::Forked {
                session: session.number,
            },
            vec![theirs],
        ))
    }

    fn map_region(&mut self, slot: usize, region: u32) -> Result<Answer, (Errno, String)> {
        let session = self.programs.answered(slot)?;
        if !session
            .sockets
            .iter()
            .any(|&row| self.layer.sockets.row(row).region == region)
        {
            return Err((
                Errno::ACCESS,
                "this program holds no socket in that region".to_owned(),
            ));
        }
        let file = self.layer.sockets.regions.find(region).map(Region::file);
        let file = file.ok_or((Errno::NOENT, "no such region".to_owned()))?;
        let copy = rustix::io::fcntl_dupfd_cloexec(file, 0)
            .map_err(|errno| (errno, "cannot duplicate the region's file".to_owned()))?;
        Ok((Reply::Region { region }, vec![copy]))
    }

    /// One of each family: as configured, or as a router has announced itself.
    pub(crate) fn gateways(&self) -> Vec<IpAddr> {
        let mut gateways = self.config.gateways.clone();
        let default_routes = self
            .layer
            .stack
            .routes()
            .filter(|route| route.prefix_len == 0);
        for gateway in default_routes.filter_map(|route| route.gateway) {
            let is_same_family = |other: &IpAddr| other.is_ipv4() == gateway.is_ipv4();
            if !gateways.iter().any(is_same_family) {
                gateways.push(gateway);
            }
        }
        gateways
    }

    fn addresses(&self) -> Reply {
        let mtu_bytes = self.layer.link.driver.caps().mtu;
        // What the stack has rather than what was configured: link-local addresses are its own making.
        let of_links = self
            .layer
            .stack
            .interfaces()
            .filter(|(_, interface, _)| interface.resolution != Resolution::Loopback);
        let own = of_links
            .flat_map(|(_, _, addresses)| addresses)
            .map(|own| EngineAddress {
                address: own.address,
                prefix_len: own.prefix_len,
                mtu_bytes,
            });
        let spoken = self.config.protocols;
        let mut kinds = SocketKinds::empty();
        kinds.set(SocketKinds::STREAM, spoken.contains(Protocols::TCP));
        kinds.set(SocketKinds::DATAGRAM, spoken.contains(Protocols::UDP));
        Reply::Addresses(Addresses {
            addresses: own.collect(),
            gateways: self.gateways(),
            scope_id: self.config.interface_index,
            kinds,
            sharing: self.layer.sharing(),
        })
    }

    /// The process is gone (or broke the protocol): its last words count, its locks are freed, its
    /// sockets close as the kernel would close them.
    pub(crate) fn end_session(&mut self, now: Instant, slot: usize) {
        self.drain_rings_finally(now, slot);
        let Some(session) = self.programs.get(slot) else {
            return;
        };
        let (number, held) = (session.number, session.sockets.clone());
        // Whoever breaks the protocol has nothing left, whatever descriptors it keeps.
        let is_faulty = session.is_faulty;
        let mut unheld = Vec::new();
        for row in held {
            self.layer.release_locks(row, number);
            self.release_hold(now, slot, row, None);
            if !self.layer.sockets.holders(row).is_empty() {
                self.layer.sockets.companion(row).is_shared = true;
            } else if is_faulty {
                self.layer.close(now, row);
            } else {
                unheld.push(row);
            }
        }
        if let Some(region) = self.programs.remove(slot) {
            self.layer.sockets.regions.end_session(region);
        }
        self.layer.let_orphan(now, unheld);
    }

    /// Acts on what users' threads have done.
    pub(crate) fn take_finished(&mut self, now: Instant) -> usize {
        let mut work = 0;
        while let Some(finished) = self.programs.desk.take() {
            work += 1;
            match finished {
                Finished::Closed { session, token } => {
                    if let Some(slot) = self.programs.slot_of(session) {
                        self.programs.done(slot, token, Ok(0));
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
fn channel() -> Result<[OwnedFd; 2], (Errno, String)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let pair = socketpair(family, kind, SocketFlags::CLOEXEC, None)
        .map_err(|errno| (errno, "cannot make a control channel".to_owned()))?;
    Ok([host_hooks::relocate_fd(pair.0), pair.1])
}
