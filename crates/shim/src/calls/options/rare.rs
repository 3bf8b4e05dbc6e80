//! Options that travel one by one: what each means to the engine (tcp(7), ip(7)). The kernel has accepted
//! the values on the backing socket before.

use std::os::fd::RawFd;

use client::address::Family;
use client::options::refusal_if_open;
use rustix::io::Errno;

use super::log::Log;
use crate::accelerated::Stream;
use crate::socket::Socket;
use crate::sys;
use crate::wait::readiness::Phase;

/// Whether it is a level of IPv6 on a socket that knows none: the kernel says so.
pub fn is_foreign(socket: &Socket, level: i32) -> bool {
    level == libc::IPPROTO_IPV6 && socket.family() == Family::V4
}

/// The peer's name, of which the program may have asked for less but not for more (SO_PEERNAME); the family of a socket with a
/// peer (IPV6_ADDRFORM).
pub fn of_peer(fd: RawFd, level: i32, name: i32, room: usize) -> Result<Option<Vec<u8>>, Errno> {
    match (level, name) {
        (libc::SOL_SOCKET, SO_PEERNAME) => {
            let Some(peer) = crate::calls::name::peer(fd)? else {
                return Ok(None);
            };
            let bytes = peer.as_bytes();
            bytes
                .get(..room)
                .map(|name| Some(name.to_vec()))
                .ok_or(Errno::INVAL)
        }
        (libc::IPPROTO_IPV6, IPV6_ADDRFORM) => {
            let Some(peer) = crate::calls::name::peer(fd).ok().flatten() else {
                return Ok(None);
            };
            let is_v6 = peer.as_bytes().starts_with(&V6);
            Ok(is_v6.then(|| libc::AF_INET6.to_ne_bytes().to_vec()))
        }
        _ => Ok(None),
    }
}

/// asm-generic/socket.h, linux/in6.h.
const SO_PEERNAME: i32 = 28;
const IPV6_ADDRFORM: i32 = 1;
/// As a name of the family begins.
const V6: [u8; 2] = 10_u16.to_ne_bytes();

/// What Linux says where it takes a value only while a socket is closed, and this one is not.
pub fn refusal(socket: &Socket, level: i32, name: i32, value: &[u8]) -> Option<Errno> {
    if is_foreign(socket, level) {
        return None;
    }
    let stream = socket.borrow_stream();
    match stream.as_ref().filter(|_| !socket.is_datagram())?.phase() {
        Phase::Closed => None,
        phase => refusal_if_open(level, name, value, phase == Phase::Listening),
    }
}

/// What the kernel made of a value that it does not take as given; in the form that sets it again.
pub fn granted(fd: RawFd, level: i32, name: i32) -> Option<[u8; 4]> {
    let (asked, divisor) = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_RCVBUFFORCE) => (libc::SO_RCVBUF, 2),
        (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_SNDBUFFORCE) => (libc::SO_SNDBUF, 2),
        (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP) => (libc::TCP_WINDOW_CLAMP, 1),
        _ => return None,
    };
    let mut value = [0; 4];
    sys::option(fd, level, asked, &mut value).ok()?;
    Some((i32::from_ne_bytes(value) / divisor).to_ne_bytes())
}

/// The clamp of a connection where the program has set none: what the peer may fill now (`tcp_rcv_space_adjust`).
pub fn window_clamp(log: &Log, stream: &Stream) -> Option<Vec<u8>> {
    let is_left =
        stream.phase() == Phase::Connected && !log.is_on(libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP);
    let bytes = i32::try_from(stream.receive_window_bytes()).unwrap_or(i32::MAX);
    is_left.then(|| bytes.to_ne_bytes().to_vec())
}

/// IP_MTU, IPV6_MTU and IPV6_PATHMTU of a socket with a peer, whose backing socket has none.
pub fn path_mtu(
    socket: &Socket,
    level: i32,
    name: i32,
    mtu: &dyn Fn() -> Result<u64, Errno>,
) -> Result<Option<Vec<u8>>, Errno> {
    // `struct ip6_mtuinfo`: an address, of which nothing is said, and the MTU.
    let before = match (level, name) {
        (libc::IPPROTO_IP, libc::IP_MTU) => 0,
        (libc::IPPROTO_IPV6, libc::IPV6_MTU) if socket.family() == Family::V6 => 0,
        (libc::IPPROTO_IPV6, libc::IPV6_PATHMTU) if socket.family() == Family::V6 => 28,
        _ => return Ok(None),
    };
    let mtu = i32::try_from(mtu()?).unwrap_or(i32::MAX);
    Ok((mtu > 0).then(|| [&[0; 28][..before], &mtu.to_ne_bytes()].concat()))
}

/// What the engine makes of a buffer whose size the program leaves to it; the kernel knows what it has set.
pub fn tuned_buffer(log: &Log, stream: &Stream, name: i32) -> Option<Vec<u8>> {
    let (forced, bytes) = match name {
        // Linux counts its own overhead in, so half of what it tells holds data.
        libc::SO_RCVBUF => (
            libc::SO_RCVBUFFORCE,
            stream.receive_window_bytes().saturating_mul(2),
        ),
        _ => (libc::SO_SNDBUFFORCE, stream.send_window_bytes()),
    };
    let is_set = |name| log.has(libc::SOL_SOCKET, name);
    if bytes == 0 || is_set(name) || is_set(forced) {
        return None;
    }
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    Some(bytes.to_ne_bytes().to_vec())
}
