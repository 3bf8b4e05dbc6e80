//! The kernel's socket behind a descriptor: what it is, and where it is bound (bind(2), ip(7)).
//!
//! It is always bound too: the kernel then answers EADDRINUSE and EACCES, finds free ports, and hands the port to nobody else.
//! An engine's address is foreign to the kernel, which IP_FREEBIND makes it accept.

mod sys;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;

use client::address::{self, Family, canonical};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketType, sockopt};

pub use sys::{listen, option, set_option};

/// The family of a TCP socket of the kernel's.
pub fn family_of_tcp(fd: BorrowedFd<'_>) -> Option<Family> {
    family_of_kind(fd, SocketType::STREAM, rustix::net::ipproto::TCP)
}

/// The family of a UDP socket of the kernel's.
pub fn family_of_udp(fd: BorrowedFd<'_>) -> Option<Family> {
    family_of_kind(fd, SocketType::DGRAM, rustix::net::ipproto::UDP)
}

fn family_of_kind(
    fd: BorrowedFd<'_>,
    kind: SocketType,
    protocol: rustix::net::Protocol,
) -> Option<Family> {
    let is_of_kind =
        sockopt::socket_type(fd) == Ok(kind) && sockopt::socket_protocol(fd) == Ok(Some(protocol));
    if is_of_kind { family_of(fd).ok() } else { None }
}

/// The family of a socket.
pub fn family_of(fd: BorrowedFd<'_>) -> Result<Family, Errno> {
    match sockopt::socket_domain(fd)? {
        AddressFamily::INET => Ok(Family::V4),
        AddressFamily::INET6 => Ok(Family::V6),
        _ => Err(Errno::AFNOSUPPORT),
    }
}

/// Sets IP_FREEBIND of its family.
pub fn set_freebind(fd: BorrowedFd<'_>, family: Family, on: bool) -> Result<(), Errno> {
    match family {
        Family::V4 => sockopt::set_ip_freebind(fd, on),
        // A v4-mapped address asks for the option of IPv6 too (inet6_bind).
        Family::V6 => sockopt::set_ipv6_freebind(fd, on),
    }
}

/// Binds to an address that the kernel does not have, and leaves the option as the program set it.
pub fn bind_freely(
    backing: BorrowedFd<'_>,
    address: SocketAddr,
    family: Family,
) -> Result<(), Errno> {
    let before = match family {
        Family::V4 => sockopt::ip_freebind(backing)?,
        Family::V6 => sockopt::ipv6_freebind(backing)?,
    };
    set_freebind(backing, family, true)?;
    let bound = bind_as(backing, address, family);
    set_freebind(backing, family, before)?;
    bound
}

/// Binds a socket to an address as its family writes it.
pub fn bind_as(backing: BorrowedFd<'_>, address: SocketAddr, family: Family) -> Result<(), Errno> {
    sys::bind(backing, &address::emit_scoped(address, family))
}

/// Gives a socket a port of the address that it is bound to: IP_BIND_ADDRESS_NO_PORT (ip(7)) has left that to connect(2). The
/// option stays as the program set it.
pub fn bind_port(backing: BorrowedFd<'_>, address: SocketAddr) -> Result<SocketAddr, Errno> {
    let (level, name) = (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT);
    let mut before = [0; size_of::<libc::c_int>()];
    option(backing, level, name, &mut before)?;
    set_option(
        backing,
        level,
        name,
        &libc::c_int::from(false).to_ne_bytes(),
    )?;
    let bound = bind_freely(backing, address, family_of(backing)?);
    set_option(backing, level, name, &before)?;
    bound?;
    local_of(backing)
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
