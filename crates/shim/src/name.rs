//! bind(2), getsockname(2), getpeername(2).
//!
//! The backing socket is always bound too: the kernel then answers EADDRINUSE and EACCES, finds free
//! ports, and hands the port to nobody else. An engine's address is foreign to the kernel, which
//! IP_FREEBIND makes it accept.

use core::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{SocketAddrAny, sockopt};

use crate::accelerated;
use crate::address::{self, Emitted, Family, Name, canonical};
use crate::datagram;
use crate::descriptors;
use crate::outcome::Switched;
use crate::readiness::Phase;
use crate::route;
use crate::socket::{Bound, Owner};
use crate::sys;
use crate::transfer::with_stream;

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
    let networks = accelerated::networks();
    let mut owner = route::owner(address.ip(), &networks);
    let is_broadcast = matches!(address.ip(), IpAddr::V4(ip) if networks.is_broadcast(ip));
    if socket.is_datagram() && (is_broadcast || address.ip().is_multicast()) {
        // It is no host's: what arrives for it on either stack is meant.
        owner = Some(Owner::Any);
    }
    if socket.borrow_stream().is_some() || socket.bound().is_some() {
        // Linux looks at the address first: one that is not the kernel's either gets its answer there.
        return if owner.is_some() {
            Err(Errno::INVAL)
        } else {
            Ok(None)
        };
    }
    let Some(owner) = owner else {
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
    };
    if socket.is_datagram() {
        datagram::bind(fd, socket, bound)?;
    } else {
        socket.set_bound(bound);
    }
    Ok(Some(0))
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
fn bind_as(backing: BorrowedFd<'_>, address: SocketAddr, family: Family) -> Result<(), Errno> {
    let written = match (address, family) {
        (SocketAddr::V4(v4), Family::V6) => {
            SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
        }
        (address, _) => address,
    };
    rustix::net::bind(backing, &written)
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
        Ok(local.map(|address| shown(address, call.socket().family())))
    })?;
    match known {
        None => Ok(datagram::names(fd).and_then(|names| names.local())),
        known => Ok(known.flatten()),
    }
}

/// An address of an engine's connection, as the program sees it.
pub fn shown(address: SocketAddr, family: Family) -> Emitted {
    let scope_id = match address.ip() {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => accelerated::networks().scope_id,
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
            Ok(shown(peer, call.socket().family()))
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
