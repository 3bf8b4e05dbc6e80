//! The kernel socket behind each socket of an engine: it holds the port, so that the kernel gives it to nobody
//! else, and tells the engine who asks (docs/native.md). No data passes through it.

use std::net::SocketAddr;

use client::address::family;
use client::{Errno, PrivateFd};
use rustix::fd::AsFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use switch::backing::{bind_freely, local_of};

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
    bind_freely(backing.as_fd(), local, family(local))?;
    local_of(backing.as_fd())
}
