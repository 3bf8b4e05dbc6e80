//! Options that travel one by one: what each means to the engine (tcp(7), ip(7)). The kernel has accepted
//! the values on the backing socket before.

use std::os::fd::RawFd;

use client::options::{int, is_for_closed, translate};
use hostif::SocketOption;

use crate::accelerated::Stream;
use crate::readiness::Phase;
use crate::socket::Socket;
use crate::sys;

/// Tells the engine of one setting, and the stream of what concerns this process; all others are ignored.
pub fn apply(stream: &Stream, level: i32, name: i32, value: &[u8]) {
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_KEY) {
        return stream.set_fast_open_keys(value);
    }
    let Some(number) = int(value) else { return };
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => stream.set_urgent_in_line(number != 0),
        (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => {
            return stream.set_unsent_limit(number.cast_unsigned());
        }
        _ => {}
    }
    let stamps = [
        libc::SO_TIMESTAMP,
        libc::SO_TIMESTAMPNS,
        libc::SO_TIMESTAMPING,
    ];
    if level == libc::SOL_SOCKET && stamps.contains(&name) {
        // Never taken back: another of them may be on.
        if super::stamp::is_asked(name, number) {
            stream.set_option(SocketOption::ArrivalTimes, 1);
        }
    } else if let Some((option, value)) = translate(level, name, number) {
        stream.set_option(option, value);
    }
}

/// Whether Linux takes a value only while a socket is closed, and this one is not.
pub fn is_refused(socket: &Socket, level: i32, name: i32, value: &[u8]) -> bool {
    is_for_closed(level, name, value)
        && !socket.is_datagram()
        && socket
            .stream()
            .is_some_and(|stream| stream.phase() != Phase::Closed)
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

/// What the engine makes of a buffer whose size the program leaves to it; the kernel knows what it has set.
pub fn tuned_buffer(log: &super::Log, stream: &Stream, name: i32) -> Option<Vec<u8>> {
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
