//! UDP sockets of the program: which stack serves them, and the state that a call finds.
//!
//! The decision falls late (docs/decisions/0012): a socket bound to an address of the engine is the
//! engine's, one bound to ANY receives from engine and kernel alike, and each datagram that is sent goes
//! by the route of its destination. A connected socket has the stack of its peer, until it is connected
//! again. Nothing is on an engine before one of these.

mod beside;
mod control;
pub mod groups;
mod options;
mod receive;
mod send;
mod sys;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::accelerated::{self, Stream};
use crate::descriptors;
use crate::driven;
use crate::file::File;
use crate::outcome::Switched;
use crate::policy::{Policy, policy};
use crate::report;
use crate::socket::{Bound, Owner, Place, Socket};
use crate::{name, sys as system};
use client::address::{self, Emitted, Family, Name};
use client::route::{self, Stack};
use hostif::MembershipChange;

pub use client::Control;
pub use client::datagram_messages::want;
pub use control::{ask, ioctl, shutdown};
pub use options::{engine_options, follow};
pub use sys::{
    receive, receive_from, receive_message, receive_messages, send, send_message, send_messages,
    send_to,
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
    place: Place,
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
        name::specific(self.peer).map(|address| name::shown(address, self.family, self.place))
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

/// What the engine has of it, with the socket.
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

/// Where a datagram to this destination goes.
fn stack_for(socket: &Socket, destination: SocketAddr) -> Result<Stack, Errno> {
    // Bound to an address of the engine: nobody else could send from it, but only to others.
    let owner = socket.bound().map(|bound| bound.owner);
    let is_local = destination.ip().is_loopback() || destination.ip().is_unspecified();
    if owner == Some(Owner::Engine) && !is_local {
        return Ok(Stack::Engine);
    }
    let networks = accelerated::networks();
    let reaches_many = is_for_many(destination.ip());
    let stack = if reaches_many {
        let named = socket.multicast_stack(address::family(destination));
        route::stack_for_group(destination, &networks, named)
    } else {
        route::stack_for(destination, &networks)
    };
    if stack == Stack::Kernel && reaches_many && policy().policy == Policy::EngineOnly {
        return Ok(Stack::Engine);
    }
    if stack == Stack::Kernel && policy().policy == Policy::EngineOnly && !is_local {
        return Err(Errno::NETUNREACH);
    }
    Ok(stack)
}

/// Groups, and everybody on a link that is not named.
fn is_for_many(ip: IpAddr) -> bool {
    ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// bind(2), after the address was parsed and found to be free to bind.
pub fn bind(fd: RawFd, socket: &Socket, bound: Bound) -> Result<(), Errno> {
    socket.set_bound(bound);
    match open(fd, socket, bound.address) {
        Ok(_) => Ok(()),
        Err(error) if bound.owner == Owner::Engine => Err(error),
        Err(error) => {
            report::line(&format!(
                "a UDP socket on ANY is served by the kernel alone: {error}"
            ));
            socket.leave_to_kernel();
            descriptors::forget(fd);
            Ok(())
        }
    }
}

/// The engine's side of a socket whose port the kernel holds.
fn open(fd: RawFd, socket: &Socket, local: SocketAddr) -> Result<Arc<Stream>, Errno> {
    let backing = system::borrow(fd)?;
    let (place, _) = accelerated::datagram_networks();
    let stream = Stream::open(place, backing)?;
    if socket.family() == Family::V6 {
        socket.set_v6_only(rustix::net::sockopt::ipv6_v6only(backing)?);
    }
    let options = engine_options(socket);
    if options != client::DatagramOptions::default() {
        stream.set_datagram_options(&options);
    }
    driven::apply(fd, socket, &stream);
    stream.bind(local)?;
    for membership in socket.memberships().iter() {
        let change = if membership.is_blocked {
            MembershipChange::Block
        } else {
            MembershipChange::Join
        };
        // As when it was asked for beside the kernel: one of the two is enough.
        let _ = stream.change_membership(change, membership);
    }
    let owner = socket.bound().map_or(Owner::Any, |bound| bound.owner);
    socket.set_kernel_receives(owner == Owner::Any);
    if owner == Owner::Any {
        beside::attach(fd, socket.hears_kernel_groups())?;
    }
    socket.decide(Arc::clone(&stream));
    Ok(stream)
}

/// The engine's side of a socket that is about to send there or to connect; binds it where the program
/// has not, as Linux does with the first datagram.
fn ensure(fd: RawFd, socket: &Socket) -> Result<Arc<Stream>, Errno> {
    if let Some(stream) = socket.stream() {
        return Ok(stream);
    }
    let backing = system::borrow(fd)?;
    let any: IpAddr = match socket.family() {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let bound = bound_in_kernel(backing, any)?;
    open(fd, socket, SocketAddr::new(any, bound.port()))
}

fn bound_in_kernel(backing: BorrowedFd<'_>, any: IpAddr) -> Result<SocketAddr, Errno> {
    let local = name::local_of(backing)?;
    if local.port() == 0 {
        rustix::net::bind(backing, &SocketAddr::new(any, 0))?;
    }
    name::local_of(backing)
}

/// connect(2): gives the socket a peer on the stack that reaches it, or takes the peer away.
pub fn connect(fd: RawFd, socket: &Socket, name: Name) -> Switched<i32> {
    let destination = match name {
        Name::Ip(destination) if speaks(fd, socket, destination)? => destination,
        Name::Unspecified => return disconnect(fd, socket),
        Name::Ip(_) | Name::Other => return Ok(None),
    };
    if stack_for(socket, destination)? == Stack::Kernel {
        // From now on only the kernel's peer is heard.
        if socket.stream().is_some() {
            beside::detach(fd);
        }
        socket.undecide();
        socket.set_engine_peer(false);
        return Ok(None);
    }
    if destination.port() == 0 {
        // Linux connects to port 0 and has every send fail; no peer is ever there.
        return Err(Errno::INVAL);
    }
    if is_forbidden_broadcast(socket, destination) {
        return Err(Errno::ACCESS);
    }
    let backing = system::borrow(fd)?;
    if name::peer_of(backing).is_some() {
        rustix::net::connect_unspec(backing)?;
    }
    let stream = ensure(fd, socket)?;
    stream.set_peer(destination)?;
    socket.set_engine_peer(true);
    socket.set_kernel_receives(false);
    socket.watchers.moved_to_engine();
    Ok(Some(0))
}

/// connect(2) with AF_UNSPEC: the socket is as it was bound, or not bound at all.
fn disconnect(fd: RawFd, socket: &Socket) -> Switched<i32> {
    let backing = system::borrow(fd)?;
    rustix::net::connect_unspec(backing)?;
    let local = name::local_of(backing)?;
    socket.set_engine_peer(false);
    if local.port() == 0 {
        // The kernel has given the port back (__udp_disconnect).
        socket.forget_bound();
        socket.undecide();
        return Ok(Some(0));
    }
    match (socket.stream(), socket.bound()) {
        (Some(stream), bound) => {
            stream.clear_peer()?;
            if bound.is_none_or(|bound| bound.owner == Owner::Any) {
                socket.set_kernel_receives(true);
                socket.watchers.moved_to_both();
            }
        }
        (None, Some(bound)) => {
            open(fd, socket, bound.address)?;
        }
        (None, None) => {}
    }
    Ok(Some(0))
}

/// EACCES of udp(7): broadcast needs SO_BROADCAST.
fn is_forbidden_broadcast(socket: &Socket, destination: SocketAddr) -> bool {
    match destination {
        SocketAddr::V4(v4) => {
            accelerated::networks().is_broadcast(*v4.ip()) && !engine_options(socket).broadcast
        }
        SocketAddr::V6(_) => false,
    }
}

/// The destination that a sending call names; `None`: the kernel knows what to say.
fn destination(fd: RawFd, socket: &Socket, name: &[u8]) -> Result<Option<SocketAddr>, Errno> {
    match parse(name, socket.family())? {
        Name::Ip(destination) if !speaks(fd, socket, destination)? => Ok(None),
        Name::Ip(destination) if destination.port() == 0 => Err(Errno::INVAL),
        Name::Ip(destination) => Ok(Some(destination)),
        Name::Unspecified | Name::Other => Ok(None),
    }
}

/// Reads a destination; a socket of AF_INET6 takes names of AF_INET too (`udpv6_sendmsg`).
pub fn parse(name: &[u8], family: Family) -> Result<Name, Errno> {
    match address::parse(name, family)? {
        Name::Other if family == Family::V6 => address::parse(name, Family::V4),
        parsed => Ok(parsed),
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
