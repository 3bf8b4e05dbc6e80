//! UDP sockets of the program: which stack serves them, and the state that a call finds.
//!
//! The decision falls late (docs/decisions/0012): a socket bound to an address of the engine is the
//! engine's, one bound to ANY receives from engine and kernel alike, and each datagram that is sent goes
//! by the route of its destination. A connected socket has the stack of its peer, until it is connected
//! again. Nothing is on an engine before one of these.

mod control;
pub mod groups;
mod message;
mod options;
mod receive;
mod send;
mod sys;

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::accelerated::{self, Stream};
use crate::address::{self, Family, Name};
use crate::descriptors;
use crate::file::File;
use crate::outcome::Switched;
use crate::policy::{Policy, policy};
use crate::report;
use crate::route::{self, Stack};
use crate::socket::{Bound, Owner, Socket};
use crate::{name, sys as system};

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

/// The local end and the peer, where the engine knows better than the kernel.
pub fn names(fd: RawFd) -> Option<(Option<SocketAddr>, Option<SocketAddr>)> {
    let call = Call::begin(fd)?;
    let served = call.served()?;
    let peer = served
        .stream
        .peer()
        .filter(|_| served.socket.has_engine_peer());
    Some((served.stream.local(), peer))
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
fn stack_for(socket: &Socket, destination: SocketAddrV4) -> Result<Stack, Errno> {
    // Bound to an address of the engine: nobody else could send from it, but only to others.
    let owner = socket.bound().map(|bound| bound.owner);
    let is_local = destination.ip().is_loopback() || destination.ip().is_unspecified();
    if owner == Some(Owner::Engine) && !is_local {
        return Ok(Stack::Engine);
    }
    // Groups have no route that would decide: IP_MULTICAST_IF does, and a policy without a kernel.
    if destination.ip().is_multicast()
        && (socket.has_engine_multicast() || policy().policy == Policy::EngineOnly)
    {
        return Ok(Stack::Engine);
    }
    let stack = route::stack_for(destination.into(), &accelerated::networks());
    if stack == Stack::Kernel && policy().policy == Policy::EngineOnly && !is_local {
        return Err(Errno::NETUNREACH);
    }
    Ok(stack)
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
    let stream = Stream::open(system::borrow(fd)?)?;
    let options = engine_options(&socket.log);
    if options != client::DatagramOptions::default() {
        stream.set_datagram_options(&options);
    }
    stream.bind(local)?;
    for membership in socket.memberships().iter() {
        // As when it was asked for beside the kernel: one of the two is enough.
        let _ = stream.change_membership(true, membership.group, membership.source);
    }
    let owner = socket.bound().map_or(Owner::Any, |bound| bound.owner);
    socket.set_kernel_receives(owner == Owner::Any);
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
    let any = bound_in_kernel(backing)?;
    open(
        fd,
        socket,
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, any.port())),
    )
}

fn bound_in_kernel(backing: BorrowedFd<'_>) -> Result<SocketAddr, Errno> {
    let local = name::local_of(backing)?;
    if local.port() == 0 {
        rustix::net::bind(backing, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
    }
    name::local_of(backing)
}

/// connect(2): gives the socket a peer on the stack that reaches it, or takes the peer away.
pub fn connect(fd: RawFd, socket: &Socket, name: Name) -> Switched<i32> {
    let destination = match name {
        Name::Ip(SocketAddr::V4(destination)) => destination,
        Name::Unspecified => return disconnect(fd, socket),
        Name::Ip(_) | Name::Other => return Ok(None),
    };
    if stack_for(socket, destination)? == Stack::Kernel {
        // From now on only the kernel's peer is heard.
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
    stream.set_peer(SocketAddr::V4(destination))?;
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
fn is_forbidden_broadcast(socket: &Socket, destination: SocketAddrV4) -> bool {
    accelerated::networks().is_broadcast(*destination.ip())
        && !engine_options(&socket.log).broadcast
}

/// The destination that a sending call names.
fn destination(name: &[u8]) -> Result<Option<SocketAddrV4>, Errno> {
    match address::parse(name, Family::V4)? {
        Name::Ip(SocketAddr::V4(destination)) if destination.port() == 0 => Err(Errno::INVAL),
        Name::Ip(SocketAddr::V4(destination)) => Ok(Some(destination)),
        Name::Ip(_) | Name::Unspecified | Name::Other => Ok(None),
    }
}
