//! The kernel's own TCP connections, TIME-WAIT included: those on a port, which an engine that begins to listen there
//! must leave alone, and one by its two ends, which nobody may have a second time. Read first: sock_diag(7).

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use super::{PATIENCE, PIECE_BYTES};

/// linux/sock_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// linux/netlink.h: NLM_F_REQUEST, and that with NLM_F_DUMP.
const ONE: u16 = 1;
const DUMP: u16 = ONE | 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER_BYTES: usize = 16;
/// `struct inet_diag_req_v2`.
const REQUEST_BYTES: usize = 56;
/// Where `struct inet_diag_sockid` begins in a request: ports, addresses, interface, cookie.
const ID_AT: usize = HEADER_BYTES + 8;
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
    let flags = SocketFlags::CLOEXEC;
    let protocol = Some(netlink::SOCK_DIAG);
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    let mut found = Vec::new();
    let mut piece = vec![0; PIECE_BYTES];
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        send(&socket, &request(family, port), SendFlags::empty())?;
        let mut is_over = false;
        while !is_over {
            let (_, len) = recv(&socket, piece.as_mut_slice(), RecvFlags::empty())?;
            is_over = take(piece.get(..len).unwrap_or_default(), port, &mut found)?;
        }
    }
    Ok(found)
}

/// Asks for connections by both their ends.
#[derive(Debug)]
pub struct Connections {
    socket: OwnedFd,
    /// Number of the interface by which the peer's segments come.
    interface: u32,
}

impl Connections {
    /// `home` moves the socket to the number where it stays.
    ///
    /// # Errors
    /// No netlink socket.
    pub fn open(interface: u32, home: fn(OwnedFd) -> OwnedFd) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = Some(netlink::SOCK_DIAG);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        Ok(Self {
            socket: home(socket),
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
    pub fn has(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<bool> {
        send(
            &self.socket,
            &self.question(local, remote),
            SendFlags::empty(),
        )?;
        let mut piece = [0; 1_024];
        let (_, len) = recv(&self.socket, piece.as_mut_slice(), RecvFlags::empty())?;
        let mut found = Vec::new();
        match take(
            piece.get(..len).unwrap_or_default(),
            local.port(),
            &mut found,
        ) {
            // A listener is found as well, where there is no connection.
            Ok(_) => Ok(found.contains(&(bare(local), bare(remote)))),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// `struct inet_diag_req_v2` for one connection: state and cookie do not matter.
    fn question(&self, local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
        let (local, remote) = (bare(local), bare(remote));
        let family = match local {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let mut bytes = request(family, local.port());
        bytes[6..8].copy_from_slice(&ONE.to_ne_bytes());
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
        bytes
    }
}

/// An end as the kernel tells it: IPv4 where it is that, and without a scope.
fn bare(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}

fn request(family: AddressFamily, port: u16) -> Vec<u8> {
    let len = HEADER_BYTES + REQUEST_BYTES;
    let mut bytes = Vec::with_capacity(len);
    bytes.extend(u32::try_from(len).unwrap_or_default().to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(DUMP.to_ne_bytes());
    bytes.resize(HEADER_BYTES, 0);
    let [family, ..] = family.as_raw().to_le_bytes();
    bytes.extend([family, TCP, 0, 0]);
    bytes.extend(STATES.to_ne_bytes());
    bytes.extend(port.to_be_bytes());
    bytes.resize(len, 0);
    bytes
}

/// Takes what one piece says; whether it was the last.
fn take(mut rest: &[u8], port: u16, found: &mut Vec<(SocketAddr, SocketAddr)>) -> io::Result<bool> {
    while let Some(header) = rest.first_chunk::<HEADER_BYTES>() {
        let [a, b, c, d, kind_low, kind_high, ..] = *header;
        let len = usize::try_from(u32::from_ne_bytes([a, b, c, d])).unwrap_or(0);
        let Some(body) = rest.get(HEADER_BYTES..len) else {
            break;
        };
        match u16::from_ne_bytes([kind_low, kind_high]) {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let code = body
                    .first_chunk()
                    .map_or(0, |code| i32::from_ne_bytes(*code));
                return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
            }
            SOCK_DIAG_BY_FAMILY if found.len() < CONNECTIONS_MAX => {
                found.extend(ends(body).filter(|(local, _)| local.port() == port));
            }
            _ => {}
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// The ends in a `struct inet_diag_msg`: family, three bytes, both ports, both addresses.
fn ends(body: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let family = *body.first()?;
    let port = |at: usize| Some(u16::from_be_bytes(*body.get(at..)?.first_chunk()?));
    let address = |at: usize| -> Option<IpAddr> {
        if u16::from(family) == AddressFamily::INET.as_raw() {
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
        let connections = Connections::open(1, |fd| fd).unwrap();
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
    fn a_piece_that_is_cut_short_gives_nothing() {
        let mut found = Vec::new();
        let whole = request(AddressFamily::INET, 80);
        for len in 0..whole.len() {
            assert!(!take(&whole[..len], 80, &mut found).unwrap());
        }
        assert!(found.is_empty());
    }
}
