//! socket(2): which sockets the switch follows, and the first contact with the engine.

use std::os::fd::RawFd;

use client::SocketKinds;
use rustix::io::Errno;

use crate::abi::entries::refused;
use crate::accelerated;
use crate::fd_table::descriptors;
use crate::fd_table::file::{File, Kind};
use crate::policy::policy;
use crate::report;
use crate::socket::Socket;
use client::address::Family;

/// Whether a socket of this kind can be accelerated: TCP, as which MPTCP is served, and UDP. The rest is the kernel's.
pub fn is_candidate(domain: i32, kind: i32, protocol: i32) -> bool {
    let is_ours = match kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
        libc::SOCK_STREAM => matches!(protocol, 0 | libc::IPPROTO_TCP | libc::IPPROTO_MPTCP),
        libc::SOCK_DGRAM => matches!(protocol, 0 | libc::IPPROTO_UDP),
        _ => false,
    };
    is_ours && matches!(domain, libc::AF_INET | libc::AF_INET6) && policy().may_accelerate()
}

/// The protocol of the backing socket: MPTCP (RFC 8684) with an engine is TCP, as with a peer that lacks it.
pub fn backing_protocol(protocol: i32, is_followed: bool) -> i32 {
    if is_followed && protocol == libc::IPPROTO_MPTCP {
        libc::IPPROTO_TCP
    } else {
        protocol
    }
}

/// Whether sockets of this kind are to be followed: attaches on the first question. ENETDOWN where there
/// is no engine and the user demanded one, EPROTONOSUPPORT where he demanded one that lacks the protocol.
pub fn attach(kind: i32) -> Result<bool, Errno> {
    match accelerated::attach() {
        Ok(()) if accelerated::serve(served(kind)) => {
            refused::say();
            Ok(true)
        }
        // The engine was started without the protocol (`--protocols`): the kernel has it.
        Ok(()) if policy().is_engine_only() => Err(Errno::PROTONOSUPPORT),
        Ok(()) => Ok(false),
        Err(reason) => {
            if let Some(reason) = reason {
                let instead = if policy().require_engine {
                    "SHUNT_REQUIRE=1 refuses sockets"
                } else {
                    "using the kernel"
                };
                report::line(&format!(
                    "no engine ({reason}); {instead}. Start one with `shunt engine`, or name it with \
                     SHUNT_ENGINE"
                ));
            }
            if policy().require_engine {
                Err(Errno::NETDOWN)
            } else {
                Ok(false)
            }
        }
    }
}

/// Whether a socket that the kernel has made, and that is not followed, must not be: raw ones, other protocols.
pub fn is_refused(domain: i32) -> bool {
    matches!(domain, libc::AF_INET | libc::AF_INET6) && policy().is_engine_only()
}

/// What serves a socket of this kind.
fn served(kind: i32) -> SocketKinds {
    match kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
        libc::SOCK_DGRAM => SocketKinds::DATAGRAM,
        _ => SocketKinds::STREAM,
    }
}

/// The kernel has made the backing socket: follow it.
pub fn created(fd: RawFd, domain: i32, kind: i32) {
    let family = if domain == libc::AF_INET6 {
        Family::V6
    } else {
        Family::V4
    };
    let socket = match kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
        libc::SOCK_DGRAM => Socket::datagram(family),
        _ => Socket::new(family),
    };
    socket.set_made_nonblocking(kind & libc::SOCK_NONBLOCK != 0);
    descriptors::insert(fd, File::new(Kind::Socket(socket)));
}
