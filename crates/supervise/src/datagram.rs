//! UDP sockets. The program's descriptor becomes one end of a pair of Unix datagram sockets, as a connection's becomes
//! one of a pair of streams: read, write, poll and close on it need no supervisor. Calls that carry an address or
//! control messages are stopped (`receive`, `send`), and answered with the same pair behind them.
//!
//! | on the pair | on the socket |
//! |---|---|
//! | a datagram of the program's | one to the connected peer |
//! | a datagram of ours | one that arrived; a file with it (SCM_RIGHTS) holds the sender's name and the control messages |
//! | the program's end has no peer (ENOTCONN) | nor has the socket |
//! | our end lets go with a datagram unread: an error of the other end (`unix_dgram_disconnected`) | an ICMP error |
//!
//! A pair of datagram sockets does not tell when one end is closed. But an epoll set holds an interest as long as the
//! file is open somewhere: which sockets still are is read from /proc (`supervisor::reap`).

mod calls;
mod closed;
mod cork;
mod filter;
pub mod message;
mod open;
mod options;
mod receive;
mod send;
mod sys;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use client::address::{self, Family, Name};
use client::engines::EngineIndex;
use client::route::Owner;
use client::{Control, Heard, HeardBy, Outgoing, Readiness, Received, Socket, UdpSocket};
use hostif::Transport;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrAny,
    SocketAddrUnix, SocketFlags, SocketType, socketpair, sockopt,
};
use switch::backing;

use self::filter::DuplicateFilter;
use crate::bell::NewsBell;
use crate::pair::{name_after, raise_send_buffer, set_nonblocking};
use crate::relay::Step;
use crate::stopped_call::Blocked;

use cork::Corked;
pub use options::Options;
pub use receive::Facts;

/// Datagrams that are moved in one poll each way.
const PIECES: usize = 16;
/// Send buffer of the program's end: twice of it less 32 bytes is the longest datagram that is taken
/// (`unix_dgram_sendmsg`), which so is one byte more than UDP takes over IPv4, and not more.
const PROGRAMS_BYTES: usize = (65_507 + 1 + 32) / 2;
/// Files with facts about senders that are kept to be used again.
const FACTS_MAX: usize = 64;
/// Whom the socket is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Nobody.
    None,
    /// Somebody the engine reaches.
    Engine,
    /// Somebody on this host: each datagram goes by the stack on which the peer is at that moment.
    Both,
    /// Somebody the kernel reaches.
    Kernel,
}

/// Both ends, before the program has its own.
pub struct DatagramPair {
    /// The program's, connected to nobody.
    pub programs: OwnedFd,
    ours: OwnedFd,
    programs_name: SocketAddrAny,
    own_name: SocketAddrAny,
    /// The number that names the program's end.
    pub cookie: u64,
}

impl DatagramPair {
    /// A pair in the place of a socket, whose program's end blocks or not.
    pub fn new(backing: BorrowedFd<'_>, nonblocking: bool) -> Result<DatagramPair, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (programs, ours) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        raise_send_buffer(ours.as_fd())?;
        sockopt::set_socket_send_buffer_size(&programs, PROGRAMS_BYTES)?;
        let unnamed = SocketAddrUnix::new_unnamed();
        // Names of the kernel's choice; only the other end is let through while it is connected.
        rustix::net::bind(&ours, &unnamed)?;
        let name = name_after(backing).unwrap_or_else(|| unnamed.clone());
        rustix::net::bind(&programs, &name).or_else(|_| rustix::net::bind(&programs, &unnamed))?;
        rustix::net::connect_unspec(&programs)?;
        set_nonblocking(programs.as_fd(), nonblocking)?;
        Ok(DatagramPair {
            programs_name: rustix::net::getsockname(&programs)?,
            own_name: rustix::net::getsockname(&ours)?,
            cookie: crate::sys::cookie(&programs)?,
            programs,
            ours,
        })
    }
}

/// See the file's head.
pub struct Datagrams {
    /// The engine's socket.
    pub socket: Arc<UdpSocket>,
    /// Its engine.
    pub place: EngineIndex,
    /// The kernel's socket that holds port and options.
    pub backing: OwnedFd,
    /// Of the backing socket.
    pub family: Family,
    /// Which stack has the address that it is bound to.
    pub owner: Owner,
    /// Where its peer is, if it has one.
    pub peer: Peer,
    /// What the engine and the relay act on.
    pub options: Options,
    /// What keeps the backing socket from hearing what the engine hears too, unless the program has put a filter of its own in its
    /// place.
    pub duplicates: Option<DuplicateFilter>,
    /// What SO_ERROR tells.
    pub error: Option<Errno>,
    /// When it came to the engine.
    pub served_since: Instant,
    /// By which stack it has received from which peer.
    pub heard: Heard,
    /// What no engine reaches is refused, and not left to the kernel.
    pub engine_only: bool,
    /// Shut down for reading, for writing.
    pub is_shut: bool,
    pub is_mute: bool,
    /// Rung where it has to be polled again.
    pub bell: Arc<NewsBell>,
    /// Calls that wait.
    pub blocked: Vec<Blocked>,
    ours: OwnedFd,
    programs_name: SocketAddrAny,
    own_name: SocketAddrAny,
    facts: HashMap<Facts, OwnedFd>,
    /// A datagram that is being put together.
    corked: Option<Corked>,
}

impl Datagrams {
    /// Of a bound socket and a pair; and the program's end.
    pub fn new(
        (socket, place): (Arc<UdpSocket>, EngineIndex),
        (backing, family): (OwnedFd, Family),
        owner: Owner,
        options: Options,
        pair: DatagramPair,
        bell: Arc<NewsBell>,
    ) -> (Datagrams, OwnedFd) {
        let datagrams = Datagrams {
            socket,
            place,
            backing,
            family,
            owner,
            peer: Peer::None,
            options,
            duplicates: None,
            error: None,
            served_since: Instant::now(),
            heard: Heard::default(),
            engine_only: false,
            is_shut: false,
            is_mute: false,
            bell,
            blocked: Vec::new(),
            ours: pair.ours,
            programs_name: pair.programs_name,
            own_name: pair.own_name,
            facts: HashMap::new(),
            corked: None,
        };
        (datagrams, pair.programs)
    }

    /// The port of the peer, if that is on this host.
    pub fn port_on_this_host(&self) -> Option<u16> {
        let peer = self.socket.peer_address()?;
        let local = self.socket.local_address();
        let is_here = peer.ip().is_loopback() || local.is_some_and(|local| local.ip() == peer.ip());
        (is_here && self.is_engines_peer()).then_some(peer.port())
    }

    /// Its own port.
    pub fn local_port(&self) -> Option<u16> {
        self.socket.local_address().map(|local| local.port())
    }

    /// Whether any process has the program's end open: its name is there as long.
    pub fn is_open(&self) -> bool {
        rustix::net::connect(&self.ours, &self.programs_name) != Err(Errno::CONNREFUSED)
    }

    /// Our end.
    pub fn ours(&self) -> BorrowedFd<'_> {
        self.ours.as_fd()
    }

    /// Lets the program's end write, or not any more.
    pub fn link(&self, programs: BorrowedFd<'_>, on: bool) -> Result<(), Errno> {
        if on {
            rustix::net::connect(programs, &self.own_name)
        } else {
            rustix::net::connect_unspec(programs)
        }
    }

    /// Whether the engine has the peer.
    pub fn is_engines_peer(&self) -> bool {
        matches!(self.peer, Peer::Engine | Peer::Both)
    }

    /// The stack that has the peer now.
    fn stack_of_peer(&self) -> Peer {
        let is_held = |to| self.socket.session().holds(Transport::Udp, to);
        match self.peer {
            Peer::Both if self.socket.peer_address().is_some_and(is_held) => Peer::Engine,
            Peer::Both => Peer::Kernel,
            peer => peer,
        }
    }

    /// Whether what arrives at the backing socket is the program's.
    pub fn kernel_receives(&self) -> bool {
        match self.peer {
            Peer::None => self.owner == Owner::Any,
            Peer::Engine => false,
            Peer::Both | Peer::Kernel => true,
        }
    }

    /// Moves what can be moved.
    pub fn poll(&mut self, buffer: &mut [u8]) -> Step {
        let more_up = self.move_up(buffer);
        let more_down = self.move_down(buffer);
        if let Some(error) = self.socket.take_error() {
            self.move_up(buffer);
            self.raise(error);
        }
        if more_up || more_down {
            Step::More
        } else {
            Step::Idle
        }
    }

    /// From the program to its peer. True: there may be more.
    pub fn move_up(&mut self, buffer: &mut [u8]) -> bool {
        for _ in 0..PIECES {
            let has_capacity = self.socket.readiness().contains(Readiness::OUT);
            if self.is_engines_peer() && !has_capacity {
                return false;
            }
            let Some(len) = take_sent(self.ours.as_fd(), &self.own_name, buffer) else {
                return false;
            };
            let payload = &buffer[..len];
            match self.stack_of_peer() {
                Peer::Engine if self.corked.is_some() || self.options.is_corked => {
                    if let Err(error) = self.append(payload, 0) {
                        self.raise(error);
                    }
                }
                Peer::Engine => self.push_plain(payload),
                Peer::Kernel => {
                    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                    if let Err(error) = rustix::net::send(&self.backing, payload, flags) {
                        self.raise(error);
                    }
                }
                Peer::None | Peer::Both => {}
            }
        }
        true
    }

    fn push_plain(&mut self, payload: &[u8]) {
        let segment_bytes = self.options.segment_bytes;
        let outgoing = Outgoing {
            segment_bytes: if payload.len() > usize::from(segment_bytes) {
                segment_bytes
            } else {
                0
            },
            ..Outgoing::default()
        };
        let parts = [IoSlice::new(payload)];
        let send = || self.socket.sender()?.push(&outgoing, &parts);
        // An error of before comes first, as in a call; the datagram goes all the same.
        let sent = send().or_else(|error| {
            self.error = Some(error);
            send()
        });
        if let Err(error) = sent {
            self.raise(error);
        }
    }

    /// From the stacks to the program. True: there may be more.
    fn move_down(&mut self, buffer: &mut [u8]) -> bool {
        self.take_from_engine(buffer) | (self.kernel_receives() && self.take_from_kernel(buffer))
    }

    fn take_from_engine(&mut self, buffer: &mut [u8]) -> bool {
        let socket = Arc::clone(&self.socket);
        for _ in 0..PIECES {
            let Ok(Some(mut receiver)) = socket.receiver() else {
                return false;
            };
            let Ok(Some(delivered)) = receiver.next(&mut [IoSliceMut::new(buffer)], true) else {
                return false;
            };
            if self.peer != Peer::Kernel {
                self.note(delivered.record.source, HeardBy::Engine(self.place));
                let facts = self.facts_of(&delivered.record);
                if !self.deliver(facts, &buffer[..delivered.copied]) {
                    return false;
                }
            }
            let _ = receiver.next(&mut [], false);
        }
        true
    }

    fn take_from_kernel(&mut self, buffer: &mut [u8]) -> bool {
        for _ in 0..PIECES {
            let peeked = sys::receive(self.backing.as_fd(), buffer, libc::MSG_PEEK);
            let message = match peeked {
                Ok(message) => message,
                Err(Errno::AGAIN) => return false,
                Err(error) => {
                    self.raise(error);
                    return true;
                }
            };
            if let Ok(Name::Ip(peer)) = address::parse(&message.name, self.family) {
                self.note(peer, HeardBy::Kernel);
            }
            let facts = Facts::new(&message.name, &message.control);
            if !self.deliver(facts, &buffer[..message.len]) {
                return false;
            }
            let _ = sys::receive(self.backing.as_fd(), &mut [], 0);
        }
        true
    }

    /// Somebody was heard by a stack, where there is more than one.
    fn note(&self, peer: SocketAddr, stack: HeardBy) {
        if self.owner == Owner::Any && self.peer == Peer::None {
            self.heard.note(peer, stack);
        }
    }

    fn facts_of(&self, record: &Received) -> Facts {
        let name = address::emit_scoped(record.source, self.family);
        let mut control = Control::new(usize::MAX);
        let local = self.socket.local_address();
        let spoken_to = match local.map(|local| local.ip()) {
            Some(std::net::IpAddr::V4(v4)) if !v4.is_unspecified() => v4,
            _ => match record.destination {
                std::net::IpAddr::V4(v4) => v4,
                std::net::IpAddr::V6(_) => std::net::Ipv4Addr::UNSPECIFIED,
            },
        };
        let port = local.map_or(0, |local| local.port());
        control.describe(record, self.options.wanted, self.family, (spoken_to, port));
        Facts::new(name.as_bytes(), control.bytes())
    }

    /// Puts a datagram into the pair. False: the pair is full.
    fn deliver(&mut self, facts: Facts, payload: &[u8]) -> bool {
        if self.facts.len() >= FACTS_MAX {
            self.facts.clear();
        }
        if !self.facts.contains_key(&facts) {
            let Ok(file) = facts.write() else {
                return false;
            };
            self.facts.insert(facts.clone(), file);
        }
        let Some(file) = self.facts.get(&facts) else {
            return false;
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [file.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let parts = [IoSlice::new(payload)];
        let sent = rustix::net::sendmsg(&self.ours, &parts, &mut control, flags);
        // What else fails, fails because the program's end is gone or shut: nobody reads it.
        !matches!(
            sent,
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::TOOMANYREFS | Errno::NOMEM)
        )
    }

    /// An error for the program's next call. A call that is stopped returns this error; one that is not, ECONNRESET.
    fn raise(&mut self, error: Errno) {
        self.error = Some(error);
        if self.peer == Peer::None {
            return;
        }
        // It fails where the program's end is gone, which is found out soon.
        let _ = fail_once(self.ours.as_fd(), &self.own_name, &self.programs_name);
    }

    /// The error that a stopped call has to return, if the program has not heard of it by another.
    pub fn take_error(&mut self, programs: BorrowedFd<'_>) -> Option<Errno> {
        let found = self.socket.take_error();
        let mut pending = [0; 4];
        let _ = backing::option(programs, libc::SOL_SOCKET, libc::SO_ERROR, &mut pending);
        let is_pending = self.peer == Peer::None || i32::from_ne_bytes(pending) != 0;
        let noted = self.error.take().filter(|_| is_pending);
        found.or(noted)
    }
}

/// What the other end has sent next. What our end has sent to itself (`fail_once`) stays there where the other one is gone.
fn take_sent(ours: BorrowedFd<'_>, own_name: &SocketAddrAny, buffer: &mut [u8]) -> Option<usize> {
    loop {
        let taken = rustix::net::recvfrom(ours, &mut buffer[..], RecvFlags::DONTWAIT);
        let (len, _, sender) = taken.ok()?;
        if sender.as_ref() != Some(own_name) {
            return Some(len);
        }
    }
}

/// Makes the next call on the other end fail, once: our end lets go of it with a datagram unread, one of our own, which
/// takes a moment without a peer.
fn fail_once(
    ours: BorrowedFd<'_>,
    own_name: &SocketAddrAny,
    programs_name: &SocketAddrAny,
) -> Result<(), Errno> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let failed = rustix::net::connect_unspec(ours)
        .and_then(|()| rustix::net::sendto(ours, &[0], flags, own_name))
        .and_then(|_| rustix::net::connect(ours, programs_name))
        .and_then(|()| rustix::net::connect_unspec(ours));
    failed.and(rustix::net::connect(ours, programs_name))
}
