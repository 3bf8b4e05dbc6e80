//! socket(2): which sockets are followed at all.

use client::SocketKinds;

/// Which kind of an engine's sockets would serve a socket: TCP (MPTCP too) or UDP; `None`: all others are the
/// kernel's.
pub fn of(domain: i32, kind: i32, protocol: i32) -> Option<SocketKinds> {
    let kinds = match kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
        libc::SOCK_STREAM => match protocol {
            0 | libc::IPPROTO_TCP | libc::IPPROTO_MPTCP => SocketKinds::STREAM,
            _ => return None,
        },
        libc::SOCK_DGRAM => match protocol {
            0 | libc::IPPROTO_UDP => SocketKinds::DATAGRAM,
            _ => return None,
        },
        _ => return None,
    };
    is_internet(domain).then_some(kinds)
}

/// Whether sockets of the family speak IP: where the engine alone is wanted those that it does not serve are refused.
pub fn is_internet(domain: i32) -> bool {
    matches!(domain, libc::AF_INET | libc::AF_INET6)
}

/// The protocol of the backing socket: MPTCP (RFC 8684) with an engine is TCP, as with a peer that lacks it.
pub fn backing_protocol(protocol: i32) -> i32 {
    match protocol {
        libc::IPPROTO_MPTCP => libc::IPPROTO_TCP,
        protocol => protocol,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_and_udp_are_followed_and_nothing_else_is() {
        let (v4, v6) = (libc::AF_INET, libc::AF_INET6);
        let stream = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        assert_eq!(of(v4, stream, 0), Some(SocketKinds::STREAM));
        assert_eq!(
            of(v6, stream, libc::IPPROTO_MPTCP),
            Some(SocketKinds::STREAM)
        );
        let datagram = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK;
        assert_eq!(
            of(v6, datagram, libc::IPPROTO_UDP),
            Some(SocketKinds::DATAGRAM)
        );
        assert_eq!(of(v4, datagram, libc::IPPROTO_UDPLITE), None);
        assert_eq!(of(v4, libc::SOCK_RAW, libc::IPPROTO_TCP), None);
        assert_eq!(of(libc::AF_UNIX, stream, 0), None);
        assert_eq!(backing_protocol(libc::IPPROTO_MPTCP), libc::IPPROTO_TCP);
    }
}
