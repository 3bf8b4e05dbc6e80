//! socket(2): which sockets the switch follows, and the first contact with the engine.

use std::os::fd::RawFd;

use rustix::io::Errno;

use crate::accelerated;
use crate::address::Family;
use crate::descriptors;
use crate::file::{File, Kind};
use crate::policy::policy;
use crate::report;
use crate::socket::Socket;

/// Whether a socket of this kind can be accelerated: TCP and UDP. The rest is the kernel's.
pub fn is_candidate(domain: i32, kind: i32, protocol: i32) -> bool {
    let own = match kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
        libc::SOCK_STREAM => libc::IPPROTO_TCP,
        libc::SOCK_DGRAM => libc::IPPROTO_UDP,
        _ => return false,
    };
    matches!(domain, libc::AF_INET | libc::AF_INET6)
        && (protocol == 0 || protocol == own)
        && policy().may_accelerate()
}

/// Whether sockets are to be followed: attaches on the first question. ENETDOWN where there is no
/// engine and the user demanded one.
pub fn attach() -> Result<bool, Errno> {
    match accelerated::attach() {
        Ok(()) => Ok(true),
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
    descriptors::insert(fd, File::new(Kind::Socket(socket)));
}
