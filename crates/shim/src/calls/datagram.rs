//! UDP sockets of the program: which stack serves them, and the state that a call finds.
//!
//! The decision falls late (docs/decisions/0012): a socket bound to an address of an engine is that
//! engine's, one bound to ANY receives from all engines and the kernel alike, and each datagram that is sent
//! goes by the route of its destination. A connected socket has the stack of its peer, until it is connected
//! again. Nothing is on an engine before one of these. Where a socket is, and how it comes there: `places`.

pub mod beside;
pub mod control;
mod cork;
pub mod groups;
mod options;
mod places;
mod receive;
mod send;
pub mod stamp;
mod sys;

use core::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::fd_table::descriptors;
use crate::fd_table::file::File;
use crate::outcome::Switched;
use crate::socket::{EngineIndex, Socket};
use crate::{calls::name, sys as system};
use client::address::{Emitted, Family, Name};
use client::engines::{AllNetworks, Flow};
use client::route;
use switch::attached;
use switch::backing;
use switch::stream::Stream;

pub use client::Control;
pub use client::datagram_messages::want;
pub use cork::uncork;
pub use options::{engine_options, follow, tell};
pub use places::{bind, come_back, follow_device};
pub use switch::datagram::parse;
pub use sys::{
    control_room, give_control, give_entry, kernel_sends, receive, receive_from, receive_message,
    send, send_message, send_to,
};

/// Whether the number stands for a UDP socket that the switch follows.
pub fn is_followed(fd: RawFd) -> bool {
    let entry = descriptors::borrow(fd);
    let file = entry.as_ref().and_then(|entry| entry.as_ref());
    file.and_then(|file| file.socket())
        .is_some_and(Socket::is_datagram)
}

/// Whether what is sent without a name goes to an engine.
pub fn sends_to_engine(fd: RawFd) -> bool {
    Call::begin(fd).is_some_and(|call| call.socket().is_some_and(Socket::has_engine_peer))
}

/// A call on a UDP socket.
struct Call {
    fd: RawFd,
    file: Arc<File>,
}

impl Call {
    fn begin(fd: RawFd) -> Option<Call> {
        let file = descriptors::lookup(fd)?;
        let call = Call { fd, file };
        call.socket()?.is_datagram().then_some(call)
    }

    fn socket(&self) -> Option<&Socket> {
        self.file.socket()
    }
}

/// The two ends of a socket, where the engine knows better than the kernel.
pub struct Names {
    family: Family,
    place: EngineIndex,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
}

impl Names {
    /// The local end as the program sees it.
    pub fn local(&self) -> Option<Emitted> {
        name::specific(self.local).map(|address| name::shown(address, self.family, self.place))
    }

    /// The peer.
    pub fn peer(&self) -> Option<Emitted> {
        // One of port 0 is none (`inet_getname`).
        let peer = name::specific(self.peer).filter(|peer| peer.port() != 0);
        peer.map(|address| name::shown(address, self.family, self.place))
    }
}

/// See [`Names`].
pub fn names(fd: RawFd) -> Option<Names> {
    let call = Call::begin(fd)?;
    let served = call.served()?;
    let peer = served.stream.peer();
    Some(Names {
        family: served.socket.family(),
        place: served.stream.place(),
        local: served.stream.local(),
        peer: peer.filter(|_| served.socket.has_engine_peer()),
    })
}

/// A UDP socket that an engine serves, with the engine's side of it.
struct Served<'a> {
    fd: RawFd,
    file: &'a Arc<File>,
    socket: &'a Socket,
    stream: Arc<Stream>,
}

impl Call {
    /// `None`: the engine has nothing of it yet, or not any more.
    fn served(&self) -> Option<Served<'_>> {
        let socket = self.socket()?;
        Some(Served {
            fd: self.fd,
            file: &self.file,
            socket,
            stream: socket.stream()?,
        })
    }
}

/// connect(2): gives the socket a peer on the stack that reaches it, or takes the peer away.
pub fn connect(fd: RawFd, socket: &Socket, name: Name) -> Switched<i32> {
    let destination = match name {
        Name::Ip(destination) if speaks(fd, socket, destination)? => destination,
        Name::Unspecified => return disconnect(fd, socket),
        Name::Ip(_) | Name::Other => return Ok(None),
    };
    let all = attached::datagram_networks();
    let candidates = places::ways(socket, destination, &all)?;
    if candidates.is_empty() {
        // From now on only the kernel's peer is heard.
        if socket.stream().is_some() {
            beside::detach(fd, socket);
        }
        socket.undecide();
        socket.set_engine_peer(false);
        return Ok(None);
    }
    if is_forbidden_broadcast(socket, destination, &all) {
        return Err(Errno::ACCESS);
    }
    let destination = route::resolved(destination);
    // Where the kernel has the address too each datagram goes where its peer is then, and both are heard.
    let is_on_both = places::is_on_both(destination.ip(), &all);
    leave_kernels_peer(fd, socket, is_on_both)?;
    let flow = Flow {
        local: places::local_end(fd, socket)?,
        remote: destination,
    };
    let stream = attached::first_that_opens(candidates, flow, |place| {
        let stream = places::alone(fd, socket, flow.local, place)?;
        stream.set_peer(destination)?;
        Ok(stream)
    })?;
    if is_on_both {
        backing::connect_as(system::borrow(fd)?, destination, socket.family())?;
    }
    socket.set_engine_peer(true);
    socket.set_kernel_receives(is_on_both);
    socket.decide(stream);
    Ok(Some(0))
}

/// Before another connect: the peer that the backing socket has in the kernel is none any more, unless it gets the next one
/// there at once. A port that an engine has too it keeps.
fn leave_kernels_peer(fd: RawFd, socket: &Socket, is_on_both: bool) -> Result<(), Errno> {
    let backing = system::borrow(fd)?;
    let is_on_engine = socket.stream().is_some();
    if backing::peer_of(backing).is_none() || (is_on_both && is_on_engine) {
        return Ok(());
    }
    let port = backing::local_of(backing)?.port();
    rustix::net::connect_unspec(backing)?;
    if is_on_engine && backing::local_of(backing)?.port() == 0 {
        let any = SocketAddr::new(backing::any_of(socket.family()).ip(), port);
        backing::bind_as(backing, any, socket.family())?;
    }
    Ok(())
}

/// connect(2) with AF_UNSPEC: the socket is as it was bound, or not bound at all.
fn disconnect(fd: RawFd, socket: &Socket) -> Switched<i32> {
    let backing = system::borrow(fd)?;
    rustix::net::connect_unspec(backing)?;
    let local = backing::local_of(backing)?;
    socket.set_engine_peer(false);
    if local.port() == 0 {
        // The kernel has given the port back (__udp_disconnect).
        socket.forget_bound();
        socket.undecide();
        return Ok(Some(0));
    }
    let stream = socket.stream();
    if let Some(stream) = &stream {
        stream.clear_peer()?;
    }
    let is_bound = stream.is_some() || socket.bound().is_some();
    if is_bound && !places::is_on_kernels_device(socket) {
        places::open(fd, socket, places::local_end(fd, socket)?)?;
    }
    Ok(Some(0))
}

/// EACCES of udp(7): broadcast needs SO_BROADCAST.
fn is_forbidden_broadcast(socket: &Socket, destination: SocketAddr, all: &AllNetworks) -> bool {
    match destination {
        SocketAddr::V4(v4) => {
            all.iter().any(|one| one.is_broadcast(*v4.ip())) && !engine_options(socket).broadcast
        }
        SocketAddr::V6(_) => false,
    }
}

/// The destination that a sending call names; `None`: the kernel knows what to say.
fn destination(fd: RawFd, socket: &Socket, name: &[u8]) -> Result<Option<SocketAddr>, Errno> {
    match parse(name, socket.family())? {
        Name::Ip(destination) if !speaks(fd, socket, destination)? => Ok(None),
        Name::Ip(destination) if destination.port() == 0 => Err(Errno::INVAL),
        Name::Ip(destination) => Ok(Some(route::resolved(destination))),
        Name::Unspecified | Name::Other => Ok(None),
    }
}

/// Whether a socket can speak to an address of that family: one of AF_INET6 speaks IPv4 unless it is for
/// IPv6 alone, or bound to an address of the other family.
fn speaks(fd: RawFd, socket: &Socket, destination: SocketAddr) -> Result<bool, Errno> {
    let bound = socket.bound().map(|bound| bound.address.ip());
    if bound.is_some_and(|ip| !ip.is_unspecified() && ip.is_ipv4() != destination.is_ipv4()) {
        return Ok(false);
    }
    if socket.family() == Family::V4 || destination.is_ipv6() {
        return Ok(true);
    }
    Ok(!rustix::net::sockopt::ipv6_v6only(system::borrow(fd)?)?)
}
