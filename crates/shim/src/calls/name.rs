//! bind(2), getsockname(2), getpeername(2).
//!
//! The backing socket is always bound too: the kernel then answers EADDRINUSE and EACCES, finds free
//! ports, and hands the port to nobody else. An engine's address is foreign to the kernel, which
//! IP_FREEBIND makes it accept.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{SocketAddrAny, sockopt};

use crate::accelerated;
use crate::calls::datagram;
use crate::calls::transfer::with_stream;
use crate::fd_table::descriptors;
use crate::outcome::Switched;
use crate::policy::policy;
use crate::socket::{Bound, EngineIndex, Owner, Socket};
use crate::sys;
use crate::wait::readiness::Phase;
use client::address::{self, Emitted, Family, Name, canonical};
use client::engines;
use client::route::EngineNetworks;

/// bind(2).
pub fn bind(fd: RawFd, name: &[u8]) -> Switched<i32> {
    let Some(file) = descriptors::lookup(fd) else {
        return Ok(None);
    };
    let Some(socket) = file.socket() else {
        return Ok(None);
    };
    let Name::Ip(address) = address::parse(name, socket.family())? else {
        return Ok(None);
    };
    let (owner, is_broadcast) = owner_of(socket, address.ip());
    socket.shed();
    if socket.borrow_stream().is_some() || socket.bound().is_some() {
        // Linux looks at the address first: one that is not the kernel's either gets its answer there.
        return if owner.is_some() {
            Err(Errno::INVAL)
        } else {
            Ok(None)
        };
    }
    let Some((owner, place)) = owner else {
        if policy().is_engine_only() && !address.ip().is_loopback() {
            return Err(Errno::ADDRNOTAVAIL);
        }
        socket.leave_to_kernel();
        descriptors::forget(fd);
        return Ok(None);
    };
    let backing = sys::borrow(fd)?;
    if owner == Owner::Engine || is_broadcast {
        bind_freely(backing, address, socket.family())?;
    } else {
        bind_as(backing, address, socket.family())?;
    }
    let bound = Bound {
        address: local_of(backing)?,
        owner,
        place,
    };
    if socket.is_datagram() {
        datagram::bind(fd, socket, bound)?;
    } else {
        socket.set_bound(bound);
    }
    Ok(Some(0))
}

/// Who has an address that a program binds to, of the kernel (`None`) and the engines; and whether it reaches
/// every host of a network.
fn owner_of(socket: &Socket, ip: IpAddr) -> (Option<(Owner, EngineIndex)>, bool) {
    let all = if socket.is_datagram() {
        accelerated::datagram_networks()
    } else {
        accelerated::stream_networks()
    };
    let is_broadcast =
        |one: &Arc<EngineNetworks>| matches!(ip, IpAddr::V4(ip) if one.is_broadcast(ip));
    let is_broadcast = all.iter().any(is_broadcast);
    let owner = if socket.is_datagram() && (is_broadcast || ip.is_multicast()) {
        // It is no host's: what arrives for it on any stack is meant.
        Some((Owner::Any, EngineIndex::FIRST))
    } else {
        engines::owner(ip, &all)
    };
    (owner, is_broadcast)
}

/// Binds to an address that the kernel does not have, and leaves the option as the program set it.
fn bind_freely(backing: BorrowedFd<'_>, address: SocketAddr, family: Family) -> Result<(), Errno> {
    if family == Family::V4 {
        let before = sockopt::ip_freebind(backing)?;
        sockopt::set_ip_freebind(backing, true)?;
        let result = bind_as(backing, address, family);
        sockopt::set_ip_freebind(backing, before)?;
        return result;
    }
    // A v4-mapped address asks for the option of IPv6 too (inet6_bind).
    let before = sockopt::ipv6_freebind(backing)?;
    sockopt::set_ipv6_freebind(backing, true)?;
    let result = bind_as(backing, address, family);
    sockopt::set_ipv6_freebind(backing, before)?;
    result
}

/// Binds a socket to an address as its family writes it.
pub fn bind_as(backing: BorrowedFd<'_>, address: SocketAddr, family: Family) -> Result<(), Errno> {
    let scope_id = match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    };
    sys::bind(backing, &address::emit(address, family, scope_id))
}

/// Gives a UDP socket a peer as its family writes it.
pub fn connect_as(backing: BorrowedFd<'_>, peer: SocketAddr, family: Family) -> Result<(), Errno> {
    let peer = match (peer.ip(), family) {
        (IpAddr::V4(ip), Family::V6) => SocketAddr::new(ip.to_ipv6_mapped().into(), peer.port()),
        _ => peer,
    };
    rustix::net::connect(backing, &peer)
}

/// Any address and port.
pub fn any_of(family: Family) -> SocketAddr {
    let any: IpAddr = match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(any, 0)
}

/// What the kernel says the backing socket is bound to.
pub fn local_of(backing: BorrowedFd<'_>) -> Result<SocketAddr, Errno> {
    ip(&rustix::net::getsockname(backing)?).ok_or(Errno::INVAL)
}

/// The peer that the backing socket has in the kernel.
pub fn peer_of(backing: BorrowedFd<'_>) -> Option<SocketAddr> {
    let peer = rustix::net::getpeername(backing).ok()??;
    ip(&peer)
}

/// An IP address out of any.
pub fn ip(any: &SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(any.clone()).ok().map(canonical)
}

/// getsockname(2) of an accelerated connection; a socket that is only bound is asked in the kernel.
pub fn local(fd: RawFd) -> Switched<Emitted> {
    let known = with_stream(fd, |call| {
        let local = specific(call.stream().local());
        let place = call.stream().place();
        Ok(local.map(|address| shown(address, call.socket().family(), place)))
    })?;
    match known {
        None => Ok(datagram::names(fd).and_then(|names| names.local())),
        known => Ok(known.flatten()),
    }
}

/// An address of a connection on that engine, as the program sees it.
pub fn shown(address: SocketAddr, family: Family, place: EngineIndex) -> Emitted {
    let scope_id = match address.ip() {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => accelerated::networks_of(place).scope_id,
        _ => 0,
    };
    address::emit(address, family, scope_id)
}

/// getpeername(2).
pub fn peer(fd: RawFd) -> Switched<Emitted> {
    let known = with_stream(fd, |call| {
        // Linux has no peer in TCP_CLOSE, nor before the connection stands.
        if call.stream().phase() == Phase::Connected {
            let peer = specific(call.stream().peer()).ok_or(Errno::NOTCONN)?;
            let place = call.stream().place();
            Ok(shown(peer, call.socket().family(), place))
        } else {
            Err(Errno::NOTCONN)
        }
    })?;
    match known {
        None => Ok(datagram::names(fd).and_then(|names| names.peer())),
        known => Ok(known),
    }
}

/// An address that says something.
pub fn specific(address: Option<SocketAddr>) -> Option<SocketAddr> {
    address.filter(|address| !address.ip().is_unspecified())
}
