//! Options that travel one by one: what each means to the engine (tcp(7), ip(7)). The kernel has accepted
//! the values on the backing socket before.

use std::os::fd::RawFd;

use client::address::Family;
use client::options::refusal_if_open;
use rustix::io::Errno;

use crate::calls::datagram::beside;
use crate::calls::transfer::with_stream;
use crate::socket::Socket;
use switch::backing;
use switch::options::Log;
use switch::readiness::Phase;
use switch::stream::Stream;

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
            // Of a connection that has not begun to end.
            let stands = with_stream(fd, |call| Ok(call.stream().figures()?.state == ESTABLISHED))?;
            let is_v6 = stands != Some(false) && peer.as_bytes().starts_with(&V6);
            Ok(is_v6.then(|| libc::AF_INET6.to_ne_bytes().to_vec()))
        }
        _ => Ok(None),
    }
}

/// asm-generic/socket.h, linux/in6.h.
const SO_PEERNAME: i32 = 28;
const IPV6_ADDRFORM: i32 = 1;
/// net/tcp_states.h.
const ESTABLISHED: u64 = 1;
/// As a name of the family begins.
const V6: [u8; 2] = 10_u16.to_ne_bytes();

/// Level and name of IPV6_V6ONLY.
pub const V6_ONLY: (i32, i32) = (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);

/// A socket for IPv6 alone may have become so by its address, before it listens; that one is inherited. And one that connects may
/// become so because its backing socket gets an address here: that one is not told.
pub fn note_v6_only(fd: RawFd, socket: &Socket) {
    let (level, name) = V6_ONLY;
    let mut value = [0; 4];
    if socket.family() == Family::V6
        && !socket.log.has(level, name)
        && backing::option(fd, level, name, &mut value).is_ok()
        && value != [0; 4]
    {
        socket.log.record(level, name, &value);
    }
}

/// IPV6_V6ONLY of a connection whose socket was for both; `None`: the kernel knows.
pub fn not_v6_only(socket: &Socket, stream: &Stream) -> Option<Vec<u8>> {
    let is_for_both = stream.phase() == Phase::Connected
        && socket.family() == Family::V6
        && socket.bound().is_none()
        && !socket.log.has(V6_ONLY.0, V6_ONLY.1);
    is_for_both.then(|| 0_i32.to_ne_bytes().to_vec())
}

/// What Linux says where it takes a value only while a socket is closed, and this one is not; and to who takes back a filter that is
/// not his.
pub fn refusal(socket: &Socket, level: i32, name: i32, value: &[u8]) -> Option<Errno> {
    if (level, name) == beside::DETACH && value.len() >= 4 && beside::stands_alone(socket) {
        return Some(Errno::NOENT);
    }
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
    backing::option(fd, level, asked, &mut value).ok()?;
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
