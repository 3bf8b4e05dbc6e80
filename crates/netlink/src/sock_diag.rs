//! The kernel's own TCP connections, TIME-WAIT included: those on a port, which an engine that begins to listen there
//! must leave alone, and one by its two ends, which nobody may have a second time. Read first: sock_diag(7).

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::netlink;

use crate::message::{Request, flag};
use crate::socket::Socket;

/// linux/sock_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `struct inet_diag_req_v2`.
const REQUEST_BYTES: usize = 56;
/// Where `struct inet_diag_sockid` begins in it: ports, addresses, interface, cookie.
const ID_AT: usize = 8;
/// The kernel answers for one connection with less.
const ANSWER_BYTES: usize = 1_024;
/// net/tcp_states.h: every state but TCP_CLOSE (7) and TCP_LISTEN (10).
const STATES: u32 = 0xfff & !(1 << 7) & !(1 << 10);
const TCP: u8 = 6;
/// More are not looked at.
const CONNECTIONS_MAX: usize = 16_384;

/// Both ends, ours first, of the connections whose local port this is.
///
/// # Errors
/// The kernel does not say.
pub fn connections_on(port: u16) -> io::Result<Vec<(SocketAddr, SocketAddr)>> {
    let mut socket = Socket::open(Some(netlink::SOCK_DIAG))?;
    let mut found = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let request = Request::new(SOCK_DIAG_BY_FAMILY, flag::DUMP, &structure(family, port));
        socket.ask(request, &mut |kind, body| {
            let is_room = kind == SOCK_DIAG_BY_FAMILY && found.len() < CONNECTIONS_MAX;
            let ends = ends(body).filter(|(local, _)| is_room && local.port() == port);
            found.extend(ends);
        })?;
    }
    Ok(found)
}

/// Asks for connections by both their ends.
#[derive(Debug)]
pub struct Connections {
    socket: Socket,
    /// Number of the interface by which the peer's segments come.
    interface: u32,
}

impl Connections {
    /// `relocate_fd` moves the socket to the number where it stays.
    ///
    /// # Errors
    /// No netlink socket.
    pub fn open(interface: u32, relocate_fd: fn(OwnedFd) -> OwnedFd) -> io::Result<Self> {
        let socket = Socket::open_nonblocking(Some(netlink::SOCK_DIAG), ANSWER_BYTES)?;
        Ok(Self {
            socket: socket.moved(relocate_fd),
            interface,
        })
    }

    /// The interface was made anew and has this number.
    pub fn move_to(&mut self, interface: u32) {
        self.interface = interface;
    }

    /// Whether the kernel has a connection with these ends, ours first. It answers before the question has been
    /// sent, so nothing waits.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn has(&mut self, local: SocketAddr, remote: SocketAddr) -> io::Result<bool> {
        let mut found = false;
        let question = self.question(local, remote);
        let asked = self.socket.ask(question, &mut |kind, body| {
            // A listener is found as well, where there is no connection.
            found |= kind == SOCK_DIAG_BY_FAMILY && ends(body) == Some((bare(local), bare(remote)));
        });
        match asked {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            asked => asked.map(|()| found),
        }
    }

    /// The question for one connection: state and cookie do not matter.
    fn question(&self, local: SocketAddr, remote: SocketAddr) -> Request {
        let (local, remote) = (bare(local), bare(remote));
        let family = match local {
            SocketAddr::V4(_) => libc::AF_INET,
            SocketAddr::V6(_) => libc::AF_INET6,
        };
        let mut bytes = structure(family, local.port());
        let id = &mut bytes[ID_AT..];
        id[2..4].copy_from_slice(&remote.port().to_be_bytes());
        for (at, ip) in [(4, local.ip()), (20, remote.ip())] {
            match ip {
                IpAddr::V4(v4) => id[at..at + 4].copy_from_slice(&v4.octets()),
                IpAddr::V6(v6) => id[at..at + 16].copy_from_slice(&v6.octets()),
            }
        }
        // A socket that is tied to the interface has it too.
        id[36..40].copy_from_slice(&self.interface.to_ne_bytes());
        id[40..48].fill(0xff);
        Request::new(SOCK_DIAG_BY_FAMILY, 0, &bytes)
    }
}

/// An end as the kernel tells it: IPv4 where it is that, and without a scope.
fn bare(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}

/// `struct inet_diag_req_v2` for the connections of a local port.
fn structure(family: libc::c_int, port: u16) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    [bytes[0], ..] = family.to_le_bytes();
    bytes[1] = TCP;
    bytes[4..8].copy_from_slice(&STATES.to_ne_bytes());
    bytes[8..10].copy_from_slice(&port.to_be_bytes());
    bytes
}

/// The ends in a `struct inet_diag_msg`: family, three bytes, both ports, both addresses.
fn ends(body: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let family = *body.first()?;
    let port = |at: usize| Some(u16::from_be_bytes(*body.get(at..)?.first_chunk()?));
    let address = |at: usize| -> Option<IpAddr> {
        if i32::from(family) == libc::AF_INET {
            let octets: [u8; 4] = *body.get(at..)?.first_chunk()?;
            return Some(octets.into());
        }
        let octets: [u8; 16] = *body.get(at..)?.first_chunk()?;
        Some(IpAddr::V6(Ipv6Addr::from(octets)).to_canonical())
    };
    let local = SocketAddr::new(address(8)?, port(4)?);
    Some((local, SocketAddr::new(address(24)?, port(6)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_is_found_by_both_its_ends_and_a_listener_is_none() {
        let mut connections = Connections::open(1, |fd| fd).unwrap();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let local = listener.local_addr().unwrap();
            let client = TcpStream::connect(local).unwrap();
            let (accepted, peer) = listener.accept().unwrap();
            assert!(connections.has(peer, local).unwrap());
            assert!(connections.has(local, peer).unwrap());
            let other = SocketAddr::new(peer.ip(), 1);
            assert!(!connections.has(local, other).unwrap(), "its listener");
            drop(accepted);
            drop(client);
            assert!(connections.has(local, peer).unwrap(), "TIME-WAIT");
        }
        let nowhere = SocketAddr::from(([127, 0, 0, 77], 9));
        assert!(!connections.has(nowhere, nowhere).unwrap());
    }

    #[test]
    fn connections_of_the_kernel_are_found_by_their_local_port() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let local = listener.local_addr().unwrap();
            // Connections of others can have the same ports, to other peers or in TIME-WAIT.
            let of_port = |port| {
                let found = connections_on(port).unwrap();
                let is_of_port = |(local, remote): &(SocketAddr, SocketAddr)| {
                    local.port() == port && remote.port() != 0
                };
                assert!(found.iter().all(is_of_port), "{found:?}");
                found
            };
            of_port(local.port());
            let client = TcpStream::connect(local).unwrap();
            let _accepted = listener.accept().unwrap();
            let peer = client.local_addr().unwrap();
            assert!(of_port(local.port()).contains(&(local, peer)));
            assert!(of_port(peer.port()).contains(&(peer, local)));
        }
    }

    #[test]
    fn a_message_that_is_cut_short_names_no_connection() {
        let mut whole = [1; 72];
        whole[0] = 10;
        assert!(ends(&whole).is_some());
        for len in 0..40 {
            assert_eq!(ends(&whole[..len]), None);
        }
    }
}
