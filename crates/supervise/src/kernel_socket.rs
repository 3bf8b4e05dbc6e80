//! What is asked of a kernel socket, the program's or a backing socket, and binding it.

use std::net::{IpAddr, SocketAddr};

use client::address::{self, Family};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::sys;

/// SO_BINDTOIFINDEX of asm-generic/socket.h.
const SO_BINDTOIFINDEX: i32 = 62;

/// The family of a TCP socket of the kernel's.
pub fn family_of_tcp(fd: BorrowedFd<'_>) -> Option<Family> {
    let is_tcp = sockopt::socket_type(fd) == Ok(SocketType::STREAM)
        && sockopt::socket_protocol(fd)
            .is_ok_and(|protocol| protocol == Some(rustix::net::ipproto::TCP));
    if is_tcp { family_of(fd).ok() } else { None }
}

/// The family of a socket.
pub fn family_of(fd: BorrowedFd<'_>) -> Result<Family, Errno> {
    match sockopt::socket_domain(fd)? {
        AddressFamily::INET => Ok(Family::V4),
        AddressFamily::INET6 => Ok(Family::V6),
        _ => Err(Errno::AFNOSUPPORT),
    }
}

/// What the kernel says a socket is bound to.
pub fn local_of(backing: BorrowedFd<'_>) -> Result<SocketAddr, Errno> {
    let any = rustix::net::getsockname(backing)?;
    let address = SocketAddr::try_from(any).map_err(|_| Errno::INVAL)?;
    Ok(address::canonical(address))
}

/// A socket of the same kind with which nothing was done.
pub fn fresh_like(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let family = sockopt::socket_domain(socket)?;
    socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// The family of a UDP socket of the kernel's.
pub fn family_of_udp(fd: BorrowedFd<'_>) -> Option<Family> {
    let is_udp = sockopt::socket_type(fd) == Ok(rustix::net::SocketType::DGRAM)
        && sockopt::socket_protocol(fd)
            .is_ok_and(|protocol| protocol == Some(rustix::net::ipproto::UDP));
    if is_udp { family_of(fd).ok() } else { None }
}

/// The interface that a socket is bound to (SO_BINDTODEVICE).
pub fn device_of(fd: BorrowedFd<'_>) -> Option<u32> {
    let mut device = [0; 4];
    sys::option(fd, libc::SOL_SOCKET, SO_BINDTOIFINDEX, &mut device).ok()?;
    Some(u32::from_ne_bytes(device)).filter(|device| *device != 0)
}

/// Sets IP_FREEBIND of its family.
pub fn set_freebind(fd: BorrowedFd<'_>, family: Family, on: bool) -> Result<(), Errno> {
    match family {
        Family::V4 => sockopt::set_ip_freebind(fd, on),
        Family::V6 => sockopt::set_ipv6_freebind(fd, on),
    }
}

/// Binds the program's own socket to an address that need not be the kernel's.
pub fn bind_freely(fd: BorrowedFd<'_>, family: Family, address: SocketAddr) -> Result<(), Errno> {
    let frees = match family {
        Family::V4 => sockopt::ip_freebind(fd)?,
        Family::V6 => sockopt::ipv6_freebind(fd)?,
    };
    let address = match (family, address.ip()) {
        (Family::V6, IpAddr::V4(v4)) if !v4.is_unspecified() => {
            SocketAddr::new(v4.to_ipv6_mapped().into(), address.port())
        }
        _ => address,
    };
    set_freebind(fd, family, true)?;
    let bound = rustix::net::bind(fd, &address);
    set_freebind(fd, family, frees)?;
    bound
}
