//! Options that travel one by one: what each means to the engine (tcp(7), ip(7)). The kernel has accepted
//! the values on the backing socket before.

use std::os::fd::RawFd;

use hostif::SocketOption;

use super::int;
use crate::accelerated::Stream;
use crate::sys;

/// In place of a level: a setting of fcntl(2).
pub const FCNTL: i32 = -1;

/// Tells the engine of one setting, and the stream of what concerns this process; all others are ignored.
pub fn apply(stream: &Stream, level: i32, name: i32, value: &[u8]) {
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_KEY) {
        return stream.set_fast_open_keys(value);
    }
    let Some(number) = int(value) else { return };
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => stream.set_urgent_in_line(number != 0),
        (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => {
            stream.set_unsent_limit(number.cast_unsigned());
        }
        _ => {}
    }
    if let Some((option, value)) = translate(level, name, number) {
        stream.set_option(option, value);
    }
}

fn translate(level: i32, name: i32, number: i32) -> Option<(SocketOption, u64)> {
    let switch = u64::from(number != 0);
    let amount = u64::try_from(number).unwrap_or(0);
    Some(match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_CORK) => (SocketOption::Cork, switch),
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => (SocketOption::QuickAck, switch),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => (SocketOption::MaxSegment, amount),
        (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => (SocketOption::SynCount, amount),
        (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP) => (SocketOption::WindowClamp, amount),
        (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) => (SocketOption::DeferAccept, amount),
        (libc::SOL_SOCKET, libc::SO_TIMESTAMP | libc::SO_TIMESTAMPNS | libc::SO_TIMESTAMPING) => {
            // Never taken back: another of them may be on.
            if !super::stamp::is_asked(name, number) {
                return None;
            }
            (SocketOption::ArrivalTimes, 1)
        }
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN) => (SocketOption::FastOpen, amount),
        (libc::IPPROTO_TCP, libc::TCP_SAVE_SYN) => (SocketOption::SaveSyn, switch),
        // Unsigned: -1, the default, is no limit.
        (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => (
            SocketOption::NotSentLowWater,
            u64::from(number.cast_unsigned()),
        ),
        // Below 0 the orphan does not wait; the engine's word for that is the largest number.
        (libc::IPPROTO_TCP, libc::TCP_LINGER2) => (
            SocketOption::FinTimeout,
            u64::try_from(number).unwrap_or(u64::MAX),
        ),
        (libc::IPPROTO_IP, libc::IP_TOS) => (SocketOption::TypeOfService, amount & 0xff),
        // -1 is the default again.
        (libc::IPPROTO_IP, libc::IP_TTL) => (SocketOption::TimeToLive, amount),
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => (SocketOption::TypeOfService, amount & 0xff),
        (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => (SocketOption::TimeToLive, amount),
        (FCNTL, libc::F_SETOWN) => (SocketOption::Owner, u64::from(number.cast_unsigned())),
        _ => return None,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_below_zero_mean_what_tcp_7_says() {
        let of = |name, number| translate(libc::IPPROTO_TCP, name, number);
        assert_eq!(
            of(libc::TCP_LINGER2, -1),
            Some((SocketOption::FinTimeout, u64::MAX))
        );
        assert_eq!(
            of(libc::TCP_NOTSENT_LOWAT, -1),
            Some((SocketOption::NotSentLowWater, u64::from(u32::MAX)))
        );
        let hops = |number| translate(libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, number);
        assert_eq!(hops(-1), Some((SocketOption::TimeToLive, 0)), "the default");
        assert_eq!(hops(9), Some((SocketOption::TimeToLive, 9)));
        let class = |number| translate(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, number);
        assert_eq!(class(0xb8), Some((SocketOption::TypeOfService, 0xb8)));
        assert_eq!(class(-1), Some((SocketOption::TypeOfService, 0)));
        assert_eq!(of(libc::TCP_CORK, 7), Some((SocketOption::Cork, 1)));
        assert_eq!(of(libc::TCP_NODELAY, 1), None, "travels with others");
    }
}
