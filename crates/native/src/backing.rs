//! The kernel socket behind each socket of an engine: it holds the port, so that the kernel gives it to nobody
//! else, and tells the engine who asks (docs/native.md). No data passes through it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use client::{Errno, PrivateFd};
use rustix::fd::AsFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// A socket of the family of an address.
pub fn make(kind: SocketType, like: SocketAddr) -> Result<PrivateFd, Errno> {
    let family = match like {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let made = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    if like.is_ipv6() {
        // What the engine serves there is IPv6 alone.
        sockopt::set_ipv6_v6only(&made, true)?;
    }
    Ok(PrivateFd::new(made))
}

/// Binds to an address that the kernel need not have; port 0 becomes a free one. Returns the whole address.
pub fn bind(backing: &PrivateFd, local: SocketAddr) -> Result<SocketAddr, Errno> {
    match local {
        SocketAddr::V4(_) => sockopt::set_ip_freebind(backing, true)?,
        SocketAddr::V6(_) => sockopt::set_ipv6_freebind(backing, true)?,
    }
    rustix::net::bind(backing, &local)?;
    self::local(backing)
}

/// Where it is bound.
pub fn local(backing: &PrivateFd) -> Result<SocketAddr, Errno> {
    let name = rustix::net::getsockname(backing.as_fd())?;
    SocketAddr::try_from(name).map_err(|_| Errno::INVAL)
}

/// ANY of the family of an address.
pub fn any(like: SocketAddr) -> IpAddr {
    match like {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}
