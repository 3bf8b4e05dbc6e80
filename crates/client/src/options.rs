//! What the options of a TCP socket mean to the engine (tcp(7), ip(7), socket(7)). The kernel has accepted the
//! values on the backing socket before; what both switches must read alike stands here.

use hostif::{OptionChanges, SocketOption};
use rustix::io::Errno;

/// Level and name of TCP_CONGESTION, whose value is a name.
pub const CONGESTION: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);

/// Level and name of TCP_CC_INFO (linux/tcp.h; not in the C library's bindings).
pub const CONGESTION_INFO: (i32, i32) = (libc::IPPROTO_TCP, 26);

/// Notes one option among those that travel together; `false`: it is none of them.
pub fn note(changes: &mut OptionChanges, level: i32, name: i32, value: &[u8]) -> bool {
    if (level, name) == CONGESTION {
        changes.congestion = hostif::figures::congestion::code(value);
        return changes.congestion.is_some();
    }
    let Some(number) = int(value) else {
        return false;
    };
    let switch = Some(number != 0);
    let amount = u32::try_from(number).ok();
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => changes.no_delay = switch,
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => changes.keep_alive = switch,
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => changes.keep_idle_s = amount,
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => changes.keep_interval_s = amount,
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => changes.keep_count = amount,
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => changes.user_timeout_ms = amount,
        (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_RCVBUFFORCE) => {
            changes.receive_buffer_bytes = amount;
        }
        // 32 or 64 bits; -1 is no limit.
        (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE) => {
            let rate = value.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
            let rate = rate.unwrap_or(u64::from(number.cast_unsigned()));
            changes.max_pacing_rate = Some(u32::try_from(rate).unwrap_or(u32::MAX));
        }
        // Linux doubles the number and counts its own overhead, which the engine has not.
        (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_SNDBUFFORCE) => {
            changes.send_buffer_bytes = amount.map(|bytes| bytes.saturating_mul(2));
        }
        (libc::SOL_SOCKET, libc::SO_LINGER) => {
            let Some(seconds) = value.get(4..).and_then(int) else {
                return false;
            };
            // Linux caps a negative time to the longest.
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            changes.linger_s = Some((number != 0).then_some(seconds));
        }
        _ => return false,
    }
    true
}

/// Translates an option that travels by itself.
#[must_use]
pub fn translate(level: i32, name: i32, number: i32) -> Option<(SocketOption, u64)> {
    let switch = u64::from(number != 0);
    let amount = u64::try_from(number).unwrap_or(0);
    Some(match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_CORK) => (SocketOption::Cork, switch),
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => (SocketOption::QuickAck, switch),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => (SocketOption::MaxSegment, amount),
        (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => (SocketOption::SynCount, amount),
        (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP) => (SocketOption::WindowClamp, amount),
        (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) => (SocketOption::DeferAccept, amount),
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
        _ => return None,
    })
}

/// linux/tcp.h; not in the C library's bindings.
const TCP_FASTOPEN_NO_COOKIE: i32 = 34;

/// What Linux says to a value that it takes only while a socket is closed (of some: or listens), as its backing socket always
/// is (`do_tcp_setsockopt`, `do_ipv6_setsockopt`).
#[must_use]
pub fn refusal_if_open(level: i32, name: i32, value: &[u8], listens: bool) -> Option<Errno> {
    let number = int(value)?;
    let is_late = match (level, name) {
        // 0 is no clamp.
        (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP) => number == 0,
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN | TCP_FASTOPEN_NO_COOKIE) => !listens,
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT) => true,
        (libc::IPPROTO_TCP, libc::TCP_QUEUE_SEQ) => return Some(Errno::PERM),
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => true,
        _ => false,
    };
    is_late.then_some(Errno::INVAL)
}

/// The first four bytes of a value as a number.
#[must_use]
pub fn int(value: &[u8]) -> Option<i32> {
    value.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
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

    #[test]
    fn a_congestion_control_is_a_name_and_a_pacing_rate_has_two_sizes() {
        let of = |level, name, value: &[u8]| {
            let mut changes = OptionChanges::default();
            note(&mut changes, level, name, value).then_some(changes)
        };
        let congestion = |name: &[u8]| of(libc::IPPROTO_TCP, libc::TCP_CONGESTION, name);
        assert_eq!(congestion(b"bbr").unwrap().congestion, Some(2));
        assert_eq!(congestion(b"reno\0\0").unwrap().congestion, Some(0));
        assert_eq!(congestion(b"vegas"), None);
        let pacing = |value: &[u8]| {
            let changes = of(libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, value);
            changes.unwrap().max_pacing_rate
        };
        assert_eq!(pacing(&125_000_u32.to_ne_bytes()), Some(125_000));
        assert_eq!(pacing(&125_000_u64.to_ne_bytes()), Some(125_000));
        assert_eq!(pacing(&u64::MAX.to_ne_bytes()), Some(u32::MAX));
    }

    #[test]
    fn what_comes_too_late_is_refused() {
        let of = |name, number: i32, listens| {
            refusal_if_open(libc::IPPROTO_TCP, name, &number.to_ne_bytes(), listens)
        };
        assert_eq!(of(libc::TCP_WINDOW_CLAMP, 0, false), Some(Errno::INVAL));
        assert_eq!(of(libc::TCP_WINDOW_CLAMP, 1, false), None);
        assert_eq!(of(libc::TCP_FASTOPEN, 1, false), Some(Errno::INVAL));
        assert_eq!(of(libc::TCP_FASTOPEN, 1, true), None);
        assert_eq!(of(libc::TCP_QUEUE_SEQ, 1, false), Some(Errno::PERM));
        assert_eq!(of(libc::TCP_NODELAY, 1, false), None);
    }

    #[test]
    fn short_values_are_left_to_the_kernel() {
        let mut changes = OptionChanges::default();
        assert!(!note(
            &mut changes,
            libc::IPPROTO_TCP,
            libc::TCP_NODELAY,
            &[1]
        ));
        assert_eq!(changes, OptionChanges::default());
    }
}
