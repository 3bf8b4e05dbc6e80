//! On which engines a UDP socket is, and by which of them a datagram leaves (docs/decisions/0032-several-engines.md).
//!
//! Bound to an address of an engine, or with a peer that an engine reaches, it is on that one; on ANY on all that serve
//! UDP, and on the kernel. The routes are asked for each datagram.

use core::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;

use client::address::Family;
use client::engines::{self, AllNetworks, Candidates};
use client::route;
use hostif::{MembershipChange, Transport};
use rustix::io::Errno;

use super::beside;
use super::options::options_at;
use crate::calls::sigio;
use crate::fd_table::descriptors;
use crate::policy::policy;
use crate::report;
use crate::socket::{EngineIndex, Owner, Socket};
use crate::sys as system;
use switch::attached;
use switch::backing;
use switch::bind::Bound;
use switch::datagram::Sender;
use switch::stream::Stream;

/// The engines that a datagram to this destination can leave by now; none: it is the kernel's.
pub fn towards(
    socket: &Socket,
    destination: SocketAddr,
    all: &AllNetworks,
) -> Result<Candidates, Errno> {
    let ways = ways(socket, destination, all)?;
    Ok(heard(ways, destination, all))
}

/// The engines of `ways`; none where the datagram stays on this host and a socket of the kernel receives it rather than
/// one of theirs.
pub fn heard(ways: Candidates, destination: SocketAddr, all: &AllNetworks) -> Candidates {
    let holds = |place| attached::holds(place, Transport::Udp, route::resolved(destination));
    if !is_on_both(destination.ip(), all) || ways.first().is_some_and(holds) {
        ways
    } else {
        Candidates::default()
    }
}

/// Whether both an engine and the kernel may have sockets at the address.
pub fn is_on_both(destination: IpAddr, all: &AllNetworks) -> bool {
    !policy().is_engine_only() && engines::stays_here(destination, all)
}

/// The engines that a datagram to this destination could leave by; none: it is the kernel's.
pub fn ways(
    socket: &Socket,
    destination: SocketAddr,
    all: &AllNetworks,
) -> Result<Candidates, Errno> {
    sender(socket, all).ways(destination, |family| socket.multicast_device(family))
}

fn sender<'a>(socket: &Socket, all: &'a AllNetworks) -> Sender<'a> {
    Sender {
        local: socket.bound().into(),
        device: socket.bound_device.load(),
        is_engine_only: policy().is_engine_only(),
        all,
    }
}

/// Whether a socket receives nothing from an engine: it is bound to an interface that no engine is on.
pub fn is_on_kernels_device(socket: &Socket) -> bool {
    sender(socket, &[]).is_on_kernels_device()
}

/// The interface that a socket is bound to is another one: what is on ANY is on the stacks of that one from now on.
pub fn follow_device(fd: RawFd, socket: &Socket) -> Result<(), Errno> {
    let device = socket.device(fd, &attached::datagram_networks());
    socket.bound_device.store(device);
    let is_elsewhere = |bound: Bound| !bound.address.ip().is_unspecified();
    let is_served = socket.stream().is_some();
    if socket.bound().is_some_and(is_elsewhere) || socket.has_engine_peer() {
        return Ok(());
    }
    if is_served {
        beside::detach(fd, socket);
        socket.undecide();
    }
    let is_bound = is_served || socket.bound().is_some();
    if is_bound && !is_on_kernels_device(socket) {
        open(fd, socket, local_end(fd, socket)?)?;
    }
    Ok(())
}

/// bind(2), after the address was parsed and found to be free to bind.
pub fn bind(fd: RawFd, socket: &Socket, bound: Bound) -> Result<(), Errno> {
    socket.set_bound(bound);
    if is_on_kernels_device(socket) {
        let is_refused = policy().is_engine_only();
        return if is_refused {
            Err(Errno::ADDRNOTAVAIL)
        } else {
            Ok(())
        };
    }
    match open(fd, socket, bound.address) {
        Ok(_) => Ok(()),
        Err(error) if bound.owner == Owner::Engine || policy().is_engine_only() => Err(error),
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

/// Where a socket is bound, or about to be: Linux binds it with the first datagram, or with its peer.
pub fn local_end(fd: RawFd, socket: &Socket) -> Result<SocketAddr, Errno> {
    if let Some(bound) = socket.bound() {
        return Ok(bound.address);
    }
    let backing = system::borrow(fd)?;
    let any = backing::any_of(socket.family());
    if backing::local_of(backing)?.port() == 0 {
        backing::bind_as(backing, any, socket.family())?;
    }
    Ok(SocketAddr::new(
        any.ip(),
        backing::local_of(backing)?.port(),
    ))
}

/// The engines' side of a socket without a peer, whose port the kernel holds. What is there stays. An engine that cannot
/// is left out if another can.
pub fn open(fd: RawFd, socket: &Socket, local: SocketAddr) -> Result<Arc<Stream>, Errno> {
    let (mut parts, mut refused) = (Vec::new(), None);
    let mut places: Vec<EngineIndex> = Vec::new();
    for place in sender(socket, &attached::datagram_networks()).engines() {
        match part(fd, socket, local, place, &places) {
            Ok(part) => {
                parts.push(part);
                places.push(place);
            }
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    let Some(stream) = Stream::together(&parts) else {
        return Err(refused.unwrap_or(Errno::NETDOWN));
    };
    if let Some(error) = refused {
        report::line(&format!(
            "a UDP socket on {local} is not served by all engines: {error}"
        ));
    }
    let owner = socket.bound().map_or(Owner::Any, |bound| bound.owner);
    if owner == Owner::Any {
        beside::attach(fd, socket)?;
    }
    socket.set_kernel_receives(owner == Owner::Any);
    socket.decide(Arc::clone(&stream));
    if parts.len() > 1 {
        // One that was there before may have others before it now.
        super::tell(socket);
    }
    Ok(stream)
}

/// As `open`, for a socket that is about to send.
pub fn ensure(fd: RawFd, socket: &Socket) -> Result<Arc<Stream>, Errno> {
    match socket.stream() {
        Some(stream) => Ok(stream),
        None => open(fd, socket, local_end(fd, socket)?),
    }
}

/// As `ensure`, for a datagram by one of the engines: it may have come, or come back, since the socket was opened.
pub fn ensure_at(fd: RawFd, socket: &Socket, place: EngineIndex) -> Result<Arc<Stream>, Errno> {
    let stream = ensure(fd, socket)?;
    if stream.is_at(place) {
        return Ok(stream);
    }
    let before = stream.places();
    let part = part(fd, socket, local_end(fd, socket)?, place, &before)?;
    let stream = stream.with(&part);
    socket.decide(Arc::clone(&stream));
    super::tell(socket);
    Ok(stream)
}

/// An engine of a socket is gone: what it had there is made anew on the next one, if that is there.
pub fn come_back(fd: RawFd, socket: &Socket) -> Result<(), Errno> {
    let Some(before) = socket.stream() else {
        return Ok(());
    };
    let (lost, are_there) = before.lost_places();
    if !are_there {
        return Err(Errno::NETDOWN);
    }
    // Another process that has the same socket may have been faster.
    let known = Stream::adopt_datagrams(system::borrow(fd)?)?;
    if let Some(stream) = known.filter(|stream| stream.local().is_some()) {
        socket.decide(stream);
        return Ok(());
    }
    let local = local_end(fd, socket)?;
    if !socket.has_engine_peer() {
        let stream = open(fd, socket, local)?;
        let is_whole = lost.iter().all(|place| stream.is_at(*place));
        return is_whole.then_some(()).ok_or(Errno::NETDOWN);
    }
    let peer = before.peer().ok_or(Errno::NOTCONN)?;
    let stream = alone(fd, socket, local, before.place())?;
    stream.set_peer(peer)?;
    socket.decide(stream);
    Ok(())
}

/// What a socket has on one engine, alone; made if it has nothing there.
pub fn alone(
    fd: RawFd,
    socket: &Socket,
    local: SocketAddr,
    place: EngineIndex,
) -> Result<Arc<Stream>, Errno> {
    part(fd, socket, local, place, &[])
}

/// As `alone`, where it is on those `before` it too.
fn part(
    fd: RawFd,
    socket: &Socket,
    local: SocketAddr,
    place: EngineIndex,
    before: &[EngineIndex],
) -> Result<Arc<Stream>, Errno> {
    let known = socket.stream().and_then(|stream| stream.only(place));
    if let Some(part) = known {
        return Ok(part);
    }
    let backing = system::borrow(fd)?;
    let stream = Stream::open_datagrams(place, backing)?;
    if socket.family() == Family::V6 {
        socket.set_v6_only(rustix::net::sockopt::ipv6_v6only(backing)?);
    }
    let options = options_at(socket, place, before);
    if options != client::DatagramOptions::default() {
        stream.set_datagram_options(|_, _| options);
    }
    sigio::apply(fd, socket, &stream);
    stream.bind(local)?;
    for membership in socket.memberships().iter() {
        if membership.place != place {
            continue;
        }
        let change = if membership.is_blocked {
            MembershipChange::Block
        } else {
            MembershipChange::Join
        };
        // As when it was asked for beside the kernel: one of the two is enough.
        let _ = stream.change_membership(change, membership);
    }
    if socket.receive_shut() || socket.send_shut() {
        stream.shut_datagrams(socket.receive_shut(), socket.send_shut());
    }
    Ok(stream)
}
