//! The kernel's own TCP connections on a port, TIME-WAIT included: an engine that begins to listen there must leave
//! them alone. Read first: sock_diag(7).

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use super::{PATIENCE, PIECE_BYTES};

/// linux/sock_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// linux/netlink.h: NLM_F_REQUEST and NLM_F_DUMP.
const DUMP: u16 = 1 | 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER_BYTES: usize = 16;
/// `struct inet_diag_req_v2`.
const REQUEST_BYTES: usize = 56;
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
