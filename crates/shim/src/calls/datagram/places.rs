//! On which engines a UDP socket is, and by which of them a datagram leaves (docs/decisions/0032-several-engines.md).
//!
//! Bound to an address of an engine, or with a peer that an engine reaches, it is on that one; on ANY on all that serve
//! UDP, and on the kernel. The routes are asked for each datagram.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;

use client::SocketKinds;
use client::address::{self, Family};
use client::engines::{self, AllNetworks, Candidates};
use client::route;
use hostif::{MembershipChange, Transport};
use rustix::io::Errno;

use super::beside;
use super::options::options_at;
use crate::accelerated::{self, Stream};
use crate::calls::device::{self, Device};
use crate::calls::name;
use crate::calls::sigio;
use crate::fd_table::descriptors;
use crate::policy::policy;
use crate::report;
use crate::socket::{Bound, EngineIndex, Owner, Socket};
use crate::sys as system;

/// Of 127.0.0.0/8.
const LOOPBACK_BROADCAST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 255, 255, 255));

/// The engines that a datagram to this destination leaves by at this moment; none: it is the kernel's.
pub fn towards(socket: &Socket, destination: SocketAddr) -> Result<Candidates, Errno> {
    let ways = ways(socket, destination)?;
    Ok(heard(ways, destination))
}

/// Of engines that a datagram could leave by none, where it stays on this host and a socket of the kernel hears it rather than
/// one of theirs.
pub fn heard(ways: Candidates, destination: SocketAddr) -> Candidates {
    let holds = |place| accelerated::holds(place, Transport::Udp, route::resolved(destination));
    if !is_on_both(destination.ip()) || ways.first().is_some_and(holds) {
        ways
    } else {
        Candidates::default()
    }
}

/// Whether the address is one that an engine and the kernel have sockets at.
pub fn is_on_both(destination: IpAddr) -> bool {
    let all = accelerated::datagram_networks();
    !policy().is_engine_only() && engines::stays_here(destination, &all)
}

/// The engines that a datagram to this destination could leave by; none: it is the kernel's.
pub fn ways(socket: &Socket, destination: SocketAddr) -> Result<Candidates, Errno> {
    let bound = socket.bound();
    let is_local = route::is_loopback(destination.ip());
    // Bound to an address of an engine: nobody else could send from it, but only to others.
    if let Some(bound) = bound.filter(|bound| bound.owner == Owner::Engine && !is_local) {
        return Ok(Candidates::only(bound.place));
    }
    let all = accelerated::datagram_networks();
    let is_bound_to_loopback = bound.is_some_and(|bound| bound.address.ip().is_loopback());
    let leaves = !engines::stays_here(destination.ip(), &all);
    // From loopback nothing reaches another host, and its broadcast is the kernel's: that says what comes of them.
    if is_bound_to_loopback && leaves || destination.ip() == LOOPBACK_BROADCAST {
        return Ok(Candidates::default());
    }
    let reaches_many = is_for_many(destination.ip());
    let closest = if reaches_many {
        towards_group(socket, destination, &all)
    } else {
        engines::closest(destination, &all)
    };
    // An address that the kernel shares with one engine is not another engine's.
    let candidates = match bound.filter(|bound| is_one_hosts(bound.address.ip(), &all)) {
        Some(bound) => closest.limited_to(bound.place),
        None => closest,
    };
    let candidates = match socket.bound_device.load() {
        Device::Engine(named) if !is_local => candidates.limited_to(named),
        Device::Engine(_) => Candidates::default(),
        Device::Kernel if is_on_kernels_device(socket) => Candidates::default(),
        Device::Kernel | Device::Loopback(_) | Device::Any => candidates,
    };
    if !candidates.is_empty() || !policy().is_engine_only() || is_local {
        return Ok(candidates);
    }
    let first = engines::serving(SocketKinds::DATAGRAM, &all).first();
    match first.filter(|_| reaches_many) {
        Some(first) => Ok(Candidates::only(first)),
        None => Err(Errno::NETUNREACH),
    }
}

fn towards_group(socket: &Socket, destination: SocketAddr, all: &AllNetworks) -> Candidates {
    let has_scope = matches!(destination, SocketAddr::V6(v6) if v6.scope_id() != 0);
    match socket.multicast_device(address::family(destination)) {
        Device::Engine(place) if !has_scope => Candidates::only(place),
        Device::Kernel if !has_scope => Candidates::default(),
        _ => engines::closest_to_group(destination, all),
    }
}

/// Groups, and everybody on a link that is not named.
fn is_for_many(ip: IpAddr) -> bool {
    ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// Whether it is the address of one host's interface.
fn is_one_hosts(ip: IpAddr, all: &AllNetworks) -> bool {
    let is_broadcast = |v4: Ipv4Addr| all.iter().any(|one| one.is_broadcast(v4));
    !ip.is_unspecified() && !ip.is_multicast() && !matches!(ip, IpAddr::V4(v4) if is_broadcast(v4))
}

/// Whether a socket hears nothing that an engine has: it is bound to an interface that no engine is on.
pub fn is_on_kernels_device(socket: &Socket) -> bool {
    let is_on_any = |bound: Bound| bound.address.ip().is_unspecified();
    socket.bound_device.load() == Device::Kernel && socket.bound().is_none_or(is_on_any)
}

/// The interface that a socket is bound to is another one: what is on ANY is on the stacks of that one from now on.
pub fn follow_device(fd: RawFd, socket: &Socket) -> Result<(), Errno> {
    let is_set = |name| socket.log.has(libc::SOL_SOCKET, name);
    let all = accelerated::datagram_networks();
    socket.bound_device.store(device::of(fd, is_set, &all));
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

/// The engines that a socket without a peer is on.
fn engines_of(socket: &Socket) -> Vec<EngineIndex> {
    let all = accelerated::datagram_networks();
    let bound = socket.bound();
    if let Some(bound) = bound.filter(|bound| is_one_hosts(bound.address.ip(), &all)) {
        return vec![bound.place];
    }
    // A broadcast address is an address of those only that are in its network.
    let broadcast = match bound.map(|bound| bound.address.ip()) {
        Some(IpAddr::V4(v4)) if !v4.is_unspecified() && !v4.is_multicast() => Some(v4),
        _ => None,
    };
    let device = socket.bound_device.load();
    let hears = |place: &EngineIndex| {
        let networks = &all[place.index()];
        let by_device = match device {
            Device::Engine(named) => all[named.index()].scope_id == networks.scope_id,
            _ => true,
        };
        by_device && broadcast.is_none_or(|address| networks.is_broadcast(address))
    };
    let serving = engines::serving(SocketKinds::DATAGRAM, &all);
    serving.iter().filter(hears).collect()
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
    let any = name::any_of(socket.family());
    if name::local_of(backing)?.port() == 0 {
        name::bind_as(backing, any, socket.family())?;
    }
    Ok(SocketAddr::new(any.ip(), name::local_of(backing)?.port()))
}

/// The engines' side of a socket without a peer, whose port the kernel holds. What is there stays. An engine that cannot
/// is left out if another can.
pub fn open(fd: RawFd, socket: &Socket, local: SocketAddr) -> Result<Arc<Stream>, Errno> {
    let (mut parts, mut refused) = (Vec::new(), None);
    let mut places: Vec<EngineIndex> = Vec::new();
    for place in engines_of(socket) {
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
