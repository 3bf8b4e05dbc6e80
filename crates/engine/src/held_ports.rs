//! Ports that the kernel is to give to nobody while connections that no program has any more end, and in TIME-WAIT. The engine has to
//! close its duplicate of such a connection's backing socket to see when the last descriptor closes (see `orphans`), so another
//! socket takes its place before.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::sockets::backing;

/// Another socket of the kernel's on the same end, which lets the same others in (SO_REUSEADDR, SO_REUSEPORT, socket(7)). For a moment
/// both have to allow each other.
pub fn beside(socket: &OwnedFd) -> Result<OwnedFd, Errno> {
    let local = backing::name_of(socket)?;
    let is_reused = sockopt::socket_reuseaddr(socket)?;
    sockopt::set_socket_reuseaddr(socket, true)?;
    let held = bound_as(socket, local);
    sockopt::set_socket_reuseaddr(socket, is_reused)?;
    let held = held?;
    sockopt::set_socket_reuseaddr(&held, is_reused)?;
    Ok(held)
}

fn bound_as(other: &OwnedFd, local: SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = new_socket(local)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, sockopt::socket_reuseport(other)?)?;
    free_bind(&socket, local)?;
    if local.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, sockopt::ipv6_v6only(other)?)?;
    }
    rustix::net::bind(&socket, &local)?;
    Ok(socket)
}

/// A socket of the kernel on the same port of any address.
pub fn bound_to(local: SocketAddr) -> Result<OwnedFd, Errno> {
    let any: IpAddr = match local {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = new_socket(local)?;
    rustix::net::bind(&socket, &SocketAddr::new(any, local.port()))?;
    Ok(socket)
}

fn new_socket(local: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match local {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// An engine's address is foreign to the kernel (ip(7)).
fn free_bind(socket: &OwnedFd, local: SocketAddr) -> Result<(), Errno> {
    match local {
        SocketAddr::V4(_) => sockopt::set_ip_freebind(socket, true),
        SocketAddr::V6(_) => sockopt::set_ipv6_freebind(socket, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_held_without_a_moment_between_and_lets_in_whom_it_let_in() {
        let ends = [
            "127.0.0.1:0",
            "0.0.0.0:0",
            "10.9.8.7:0",
            "[::1]:0",
            "[::]:0",
        ];
        for (any, is_reused) in ends.into_iter().flat_map(|any| [(any, false), (any, true)]) {
            let any: SocketAddr = any.parse().unwrap();
            let socket = new_socket(any).unwrap();
            free_bind(&socket, any).unwrap();
            sockopt::set_socket_reuseaddr(&socket, is_reused).unwrap();
            rustix::net::bind(&socket, &any).unwrap();
            let local = backing::name_of(&socket).unwrap();
            let held = beside(&socket).unwrap();
            assert_eq!(sockopt::socket_reuseaddr(&socket), Ok(is_reused));
            drop(socket);
            let bind = |reuses| {
                let other = new_socket(local).unwrap();
                free_bind(&other, local).unwrap();
                sockopt::set_socket_reuseaddr(&other, reuses).unwrap();
                rustix::net::bind(&other, &local)
            };
            assert_eq!(bind(false), Err(Errno::ADDRINUSE), "{local}");
            assert_eq!(bind(true).is_ok(), is_reused, "{local}");
            drop(held);
            assert_eq!(bind(false), Ok(()), "{local}");
        }
    }
}
