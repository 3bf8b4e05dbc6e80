//! The control channel: opening sockets, preparing backing sockets, memory that a program may map, reports. How programs come
//! and go is in `sessions.rs`.

use crate::core::EngineCore;
use crate::core::report;
use crate::programs::descriptors::check_backings;
use crate::programs::users::ProgramFd;
use crate::programs::{Answer, Answered, refusal, refuse, refused};
use crate::sockets::rows::{Kind, Marks};
use core::net::IpAddr;
use hostif::control::{
    Addresses, CaptureFilter, EngineAddress, Opened, QueryKind, Received, Reply, Request,
    SocketKinds, negotiate, receive_any, send,
};
use hostif::{Moderation, Region, SocketId, host_hooks};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketType};
use stack::{Protocols, Resolution};
use std::sync::Arc;
use tcp::Instant;

/// Messages answered in one poll, so that a program that asks without pause does not keep the engine
/// from its other work.
const MESSAGES_PER_TURN: usize = 16;

impl EngineCore {
    /// Answers what came over the control channel of `slot`; its end of file ends the session.
    pub(crate) fn handle_control(&mut self, now: Instant, slot: usize) {
        for _ in 0..MESSAGES_PER_TURN {
            self.programs.set_owes_answer(slot, true);
            let Some(session) = self.programs.get(slot) else {
                return;
            };
            let control = session.control.as_fd();
            let received = receive_any(control, RecvFlags::DONTWAIT);
            let answer = match received {
                Ok(received) if received.bytes.is_empty() => return self.end_session(now, slot),
                Ok(received) => self.understand(now, slot, received),
                Err(Errno::AGAIN) => {
                    self.programs.set_owes_answer(slot, false);
                    return;
                }
                Err(_) => return self.end_session(now, slot),
            };
            let (reply, descriptors) = answer.unwrap_or_else(refused);
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
            self.programs.set_owes_answer(slot, false);
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
        Some(answer.unwrap_or_else(refused))
    }

    fn understand(&mut self, now: Instant, slot: usize, received: Received) -> Answered {
        let session = self.programs.answered(slot)?;
        let keep = |fd| session.user.keep(host_hooks::relocate_fd(fd));
        let descriptors: Vec<ProgramFd> = received.descriptors.into_iter().map(keep).collect();
        // Of descriptors beside the message some were lost: no program's connections shall end for that.
        if received.is_cut {
            let text = "the engine has too many open files: raise its limit (LimitNOFILE)";
            return refuse(Errno::NFILE, text);
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
                match &request {
                    Request::Open { .. } | Request::Prepare { .. } => {
                        check_backings(&descriptors, &[SocketType::STREAM])?;
                    }
                    Request::OpenDatagram => check_backings(&descriptors, &[SocketType::DGRAM])?,
                    Request::Adopt => {
                        check_backings(&descriptors, &[SocketType::STREAM, SocketType::DGRAM])?;
                    }
                    _ => {}
                }
                self.answer(now, slot, request, descriptors)
            }
            None => refuse(
                Errno::PROTO,
                "a message that this engine does not understand",
            ),
        }
    }

    fn answer(
        &mut self,
        now: Instant,
        slot: usize,
        request: Request,
        descriptors: Vec<ProgramFd>,
    ) -> Answered {
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
                self.succession.refuse_newcomers()?;
                let version = negotiate(min_version, max_version)
                    .map_err(|error| (Errno::PROTO, error.to_string()))?;
                self.welcome(slot, version, pid)
            }
            Request::Open { .. } => self.open(slot, Kind::Fresh, descriptors),
            Request::OpenDatagram => self.open(slot, Kind::FreshDatagram, descriptors),
            Request::Adopt => self.adopt(slot, descriptors),
            Request::Share { socket } => self.share(slot, socket),
            Request::ShareFile => self.programs.share_file(slot, descriptors),
            Request::Prepare { count } => {
                self.programs.answered(slot)?;
                let first = self
                    .programs
                    .keep_backings(slot, descriptors)
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
            Request::Yield => self.yield_to_successor(now),
            Request::Capture(filter) => self.capture(slot, filter),
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

    /// A stream of frames, for those who could take them from the device as well.
    fn capture(&mut self, slot: usize, filter: CaptureFilter) -> Answered {
        let session = self.programs.answered(slot)?;
        if !session.user.is_trusted() {
            let text = "only root and the user who runs the engine may see its frames";
            return refuse(Errno::PERM, text);
        }
        let started = self.layer.link.captures.start(session.number, filter);
        let reader = started.map_err(|errno| match errno {
            Errno::BUSY => (
                errno,
                "too many captures of this engine: end one".to_owned(),
            ),
            errno => (errno, format!("the engine's system call failed: {errno}")),
        })?;
        Ok((Reply::Capture, vec![reader]))
    }

    /// The end of a socket's pair on which a session that holds it says what it wants to hear.
    fn signals_of(&mut self, slot: usize, socket: SocketId) -> Answered {
        let row = self.layer.sockets.held_by(socket, slot);
        let row = row.ok_or((Errno::BADF, "not a socket of this program".to_owned()))?;
        let user = &self.programs.answered(slot)?.user;
        let end = self.layer.sockets.signals_of(row, user)?;
        Ok((Reply::Signals, vec![end]))
    }

    /// The memory that shows programs which sockets receive on which port.
    fn map_holders(&mut self) -> Answered {
        let layer = &mut self.layer;
        let file = layer.holders.map(&layer.stack, &layer.sockets)?;
        Ok((Reply::Holders, vec![file]))
    }

    /// The memory behind a slot, for a session that holds a socket with one there.
    fn map_channel_region(&mut self, slot: usize, channel_region: u32) -> Answered {
        let rows = self.programs.answered(slot)?.sockets.iter().copied();
        let layer = &mut self.layer;
        layer
            .byte_channels
            .region_file(&mut layer.sockets, rows, channel_region)
            .map(|file| (Reply::ChannelRegion { channel_region }, vec![file]))
            .map_err(|errno| (errno, "no memory for this program".to_owned()))
    }

    /// The session has a descriptor: it holds the socket behind it from now on.
    fn adopt(&mut self, slot: usize, descriptors: Vec<ProgramFd>) -> Answered {
        let session = self.programs.answered(slot)?;
        self.layer
            .orphans
            .adopt(&mut self.layer.sockets, (slot, session), descriptors)
    }

    /// The session's sockets, or one of them, may be open elsewhere from now on.
    fn share(&mut self, slot: usize, socket: Option<SocketId>) -> Answered {
        let session = self.programs.answered(slot)?;
        let rows: Vec<u32> = match socket {
            // A stale name is a socket that was closed meanwhile.
            Some(id) => self.layer.sockets.held_by(id, slot).into_iter().collect(),
            None => session.sockets.iter().copied().collect(),
        };
        for row in rows {
            self.layer.sockets.set_mark(row, Marks::SHARED, true);
        }
        Ok((Reply::Shared, Vec::new()))
    }

    fn moderate(&mut self, slot: usize, policy: Moderation) -> Answered {
        let session = self
            .programs
            .get_mut(slot)
            .filter(|_| policy.is_possible())
            .ok_or((Errno::INVAL, "no such policy of notifications".to_owned()))?;
        session.moderator.set(policy);
        self.programs.put_policy(slot, policy);
        Ok((Reply::Moderated, Vec::new()))
    }

    fn open(&mut self, slot: usize, kind: Kind, descriptors: Vec<ProgramFd>) -> Answered {
        let session = self.programs.answered(slot)?;
        let region = session
            .rings
            .as_ref()
            .ok_or((Errno::NOTCONN, "say hello first".to_owned()))?
            .region;
        let (sockets, mut opened) = (&mut self.layer.sockets, Vec::new());
        let mut backings: Vec<_> = descriptors.into_iter().map(Some).collect();
        if backings.is_empty() && session.user.is_direct() {
            // The program around this engine has no number left.
            backings.push(None);
        }
        for backing in backings {
            let Some(row) = sockets.create(region, kind) else {
                let text = "the engine's socket table is full, or this user or program has its share of it: close \
                    sockets, or raise the limits or the share (`shunt engine --user-share`)"
                    .to_owned();
                if opened.is_empty() {
                    return Err((Errno::NFILE, text));
                }
                break;
            };
            sockets.hold(row, slot);
            if let Some(backing) = backing {
                sockets.set_backing(row, backing);
            }
            session.sockets.insert(row);
            let socket = sockets.id(row).ok_or((Errno::NFILE, String::new()))?;
            let header = sockets.row(row).header;
            opened.push(Opened { socket, header });
        }
        Ok((Reply::Opened(opened), Vec::new()))
    }

    fn map_region(&mut self, slot: usize, region: u32) -> Answered {
        let session = self.programs.answered(slot)?;
        let is_there = |&row: &u32| self.layer.sockets.row(row).region == region;
        if !session.sockets.iter().any(is_there) {
            return refuse(Errno::ACCESS, "this program holds no socket in that region");
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
        let routes = self.layer.stack.routes();
        let default_routes = routes.filter(|route| route.prefix_len == 0);
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
        let interfaces = self.layer.stack.interfaces();
        let of_links =
            interfaces.filter(|(_, interface, _)| interface.resolution != Resolution::Loopback);
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
}
