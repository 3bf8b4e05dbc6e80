//! bind(2), getsockname(2), getpeername(2).
//!
//! The backing socket is always bound too: the kernel then answers EADDRINUSE and EACCES, finds free
//! ports, and hands the port to nobody else. An engine's address is foreign to the kernel, which
//! IP_FREEBIND makes it accept.

use core::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{SocketAddrAny, sockopt};

use crate::accelerated;
use crate::address::{self, Name};
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
    let Name::V4(address) = address::parse(name)? else {
        return Ok(None);
    };
    let owner = route::owner(*address.ip(), &accelerated::networks());
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
    if owner == Owner::Engine {
        bind_freely(backing, address)?;
    } else {
        rustix::net::bind(backing, &address)?;
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
fn bind_freely(backing: BorrowedFd<'_>, address: SocketAddrV4) -> Result<(), Errno> {
    let before = sockopt::ip_freebind(backing)?;
    sockopt::set_ip_freebind(backing, true)?;
    let result = rustix::net::bind(backing, &address);
    sockopt::set_ip_freebind(backing, before)?;
    result
}

/// What the kernel says the backing socket is bound to.
pub fn local_of(backing: BorrowedFd<'_>) -> Result<SocketAddrV4, Errno> {
    v4(&rustix::net::getsockname(backing)?).ok_or(Errno::INVAL)
}

/// The peer that the backing socket has in the kernel.
pub fn peer_of(backing: BorrowedFd<'_>) -> Option<SocketAddrV4> {
    let peer = rustix::net::getpeername(backing).ok()??;
    v4(&peer)
}

/// An IPv4 address out of any.
pub fn v4(any: &SocketAddrAny) -> Option<SocketAddrV4> {
    SocketAddrV4::try_from(any.clone()).ok()
}

/// getsockname(2) of an accelerated connection; a socket that is only bound is asked in the kernel.
pub fn local(fd: RawFd) -> Switched<SocketAddrV4> {
    let known = with_stream(fd, |call| Ok(only_v4(call.stream().local())))?;
    match known {
        None => Ok(datagram::names(fd).and_then(|(local, _)| only_v4(local))),
        known => Ok(known.flatten()),
    }
}

/// getpeername(2).
pub fn peer(fd: RawFd) -> Switched<SocketAddrV4> {
    let known = with_stream(fd, |call| {
        // Linux has no peer in TCP_CLOSE, nor before the connection stands.
        if call.stream().phase() == Phase::Connected {
            only_v4(call.stream().peer()).ok_or(Errno::NOTCONN)
        } else {
            Err(Errno::NOTCONN)
        }
    })?;
    match known {
        None => Ok(datagram::names(fd).and_then(|(_, peer)| only_v4(peer))),
        known => Ok(known),
    }
}

fn only_v4(address: Option<SocketAddr>) -> Option<SocketAddrV4> {
    match address {
        Some(SocketAddr::V4(address)) if !address.ip().is_unspecified() => Some(address),
        _ => None,
    }
}
