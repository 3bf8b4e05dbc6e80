//! What sockets of datagrams share: waiting, receiving, the options of the IP header, and ICMP errors out of the queue of
//! IP_RECVERR, see ip(7) and ipv6(7): without it a socket would learn of a router's answer nothing but an errno.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use super::{Answer, BLOCK, Wait};
use crate::{
    error_queue::{QueuedError, receive_error},
    sys,
};

/// The largest datagram there is, RFC 768.
pub const DATAGRAM_MAX_BYTES: usize = 65_535;

/// Errors of this host that are passed over at a time.
const QUEUED_MAX: usize = 64;

/// What of the IP header a user can ask for.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeaderOptions {
    /// Time to live, or hop limit.
    pub hop_limit: Option<u8>,
    /// Never fragment.
    pub dont_fragment: bool,
}

/// A connected socket and a buffer as large as any datagram.
#[derive(Debug)]
pub struct Endpoint {
    pub socket: OwnedFd,
    pub buffer: Vec<u8>,
    is_v6: bool,
    /// Sending took the news of an error whose entry is still in the queue.
    is_error_queued: bool,
}

/// A datagram or an error.
#[derive(Debug)]
pub enum Received {
    /// So many bytes are in the buffer.
    Bytes(usize),
    /// An ICMP message or an error of this host; what it quotes is in the buffer.
    Error(QueuedError),
    /// An error that the queue does not explain.
    Errno(io::Error),
}

impl Endpoint {
    /// Takes over a socket that is connected to `peer`.
    pub fn new(socket: OwnedFd, peer: IpAddr, options: HeaderOptions) -> io::Result<Self> {
        let is_v6 = peer.is_ipv6();
        let fd = socket.as_fd();
        sys::set_receive_timeout(fd, BLOCK)?;
        // A stack without an error queue says what happened by errno alone.
        let _ = if is_v6 {
            sys::set(fd, libc::SOL_IPV6, libc::IPV6_RECVERR, 1)
        } else {
            sys::set(fd, libc::SOL_IP, libc::IP_RECVERR, 1)
        };
        set_header_options(fd, is_v6, options)?;
        Ok(Self {
            socket,
            buffer: vec![0; DATAGRAM_MAX_BYTES],
            is_v6,
            is_error_queued: false,
        })
    }

    /// Sets the time to live, or hop limit, of what is sent from now on.
    pub fn set_hop_limit(&self, hops: u8) -> io::Result<()> {
        set_hop_limit(self.socket.as_fd(), self.is_v6, hops)
    }

    /// Sends; an earlier probe's error that the socket still holds is left in its queue.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let send = || sys::send(self.socket.as_fd(), bytes, libc::MSG_DONTWAIT).map(drop);
        // The socket tells of an ICMP error once, by whatever call comes next: what this call says of itself comes again.
        send().or_else(|_| {
            self.is_error_queued = true;
            send()
        })
    }

    /// Takes one datagram or error; `None` where none came in time.
    pub fn receive(&mut self, wait: Wait) -> io::Result<Option<Received>> {
        if self.is_error_queued {
            let queued = self.queued()?;
            self.is_error_queued = queued.is_some();
            if queued.is_some() {
                return Ok(queued);
            }
        }
        let flags = wait_readable(self.socket.as_fd(), wait)?;
        match sys::recv(self.socket.as_fd(), &mut self.buffer, flags) {
            Ok(count) => Ok(Some(Received::Bytes(count))),
            Err(error) if is_nothing(&error) => self.queued(),
            Err(error) => Ok(Some(self.queued()?.unwrap_or(Received::Errno(error)))),
        }
    }

    /// The next error that came from elsewhere: what this host says of a datagram send(2) has said already.
    fn queued(&mut self) -> io::Result<Option<Received>> {
        for _ in 0..QUEUED_MAX {
            match receive_error(self.socket.as_fd(), &mut self.buffer) {
                Ok(Some(error)) if error.origin == libc::SO_EE_ORIGIN_LOCAL => {}
                Ok(error) => return Ok(error.map(Received::Error)),
                // A stack without an error queue.
                Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }
}

/// Waits as it says; the flags with which recv(2) is to be called then.
pub fn wait_readable(socket: BorrowedFd<'_>, wait: Wait) -> io::Result<libc::c_int> {
    match wait {
        Wait::Blocked => Ok(0),
        Wait::Not => Ok(libc::MSG_DONTWAIT),
        Wait::AtMost(time) => {
            let mut entry = [libc::pollfd {
                fd: socket.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            }];
            sys::wait(&mut entry, time)?;
            Ok(libc::MSG_DONTWAIT)
        }
    }
}

/// Whether a call says that nothing has come, or that a signal came.
pub fn is_nothing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Sets what a user asks of the IP header.
pub fn set_header_options(
    socket: BorrowedFd<'_>,
    is_v6: bool,
    options: HeaderOptions,
) -> io::Result<()> {
    if let Some(hops) = options.hop_limit {
        set_hop_limit(socket, is_v6, hops)?;
    }
    if options.dont_fragment {
        let (level, name, value) = if is_v6 {
            (
                libc::SOL_IPV6,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_DO,
            )
        } else {
            (libc::SOL_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
        };
        sys::set(socket, level, name, value)?;
    }
    Ok(())
}

fn set_hop_limit(socket: BorrowedFd<'_>, is_v6: bool, hops: u8) -> io::Result<()> {
    let (level, name) = if is_v6 {
        (libc::SOL_IPV6, libc::IPV6_UNICAST_HOPS)
    } else {
        (libc::SOL_IP, libc::IP_TTL)
    };
    sys::set(socket, level, name, hops.into())
}

/// Who said it, and what an ICMP error means; RFC 792 and 4443 §3. An error of this host, or another message, is a reason.
pub fn meaning(error: &QueuedError) -> Result<Answer, String> {
    match (error.origin, error.kind, error.code) {
        (libc::SO_EE_ORIGIN_ICMP, 3, 3) | (libc::SO_EE_ORIGIN_ICMP6, 1, 4) => {
            Ok(Answer::PortUnreachable)
        }
        (libc::SO_EE_ORIGIN_ICMP, 11, 0) | (libc::SO_EE_ORIGIN_ICMP6, 3, 0) => {
            Ok(Answer::TimeExceeded)
        }
        _ => {
            let said = io::Error::from_raw_os_error(error.errno);
            Err(match error.offender {
                Some(router) => format!("{said} (from {router})"),
                None => said.to_string(),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(origin: u8, kind: u8, code: u8) -> QueuedError {
        let errno = libc::EHOSTUNREACH;
        QueuedError {
            errno,
            origin,
            kind,
            code,
            offender: None,
            quoted: 0,
        }
    }

    #[test]
    fn port_unreachable_and_time_exceeded_of_both_families_are_answers_and_no_other() {
        let icmp = [(3, 3), (11, 0)]
            .map(|(kind, code)| meaning(&queued(libc::SO_EE_ORIGIN_ICMP, kind, code)));
        let icmp6 = [(1, 4), (3, 0)]
            .map(|(kind, code)| meaning(&queued(libc::SO_EE_ORIGIN_ICMP6, kind, code)));
        assert_eq!(
            icmp,
            [Ok(Answer::PortUnreachable), Ok(Answer::TimeExceeded)]
        );
        assert_eq!(icmp6, icmp);
        assert!(
            meaning(&queued(libc::SO_EE_ORIGIN_ICMP, 3, 1))
                .unwrap_err()
                .contains("No route")
        );
        assert!(meaning(&queued(libc::SO_EE_ORIGIN_LOCAL, 3, 3)).is_err());
    }
}
