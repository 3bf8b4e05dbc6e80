//! TCP connect: from SYN to SYN-ACK or RST. Each probe is a socket of its own, which is reset when it is answered, so that
//! no TIME-WAIT stays behind on either end.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    time::Duration,
};

use super::{
    Answer, Arrival, BLOCK, Probe, Wait,
    datagram::{HeaderOptions, set_header_options},
};
use crate::sys;

/// Connections that are being made.
#[derive(Debug)]
pub struct TcpConnect {
    to: SocketAddr,
    options: HeaderOptions,
    sockets: Vec<(u64, OwnedFd)>,
    /// In the order of `sockets`.
    entries: Vec<libc::pollfd>,
}

impl TcpConnect {
    /// Nothing is sent yet.
    pub fn new(to: SocketAddr, options: HeaderOptions) -> Self {
        Self {
            to,
            options,
            sockets: Vec::new(),
            entries: Vec::new(),
        }
    }

    fn remove(&mut self, index: usize) -> (u64, OwnedFd) {
        self.entries.swap_remove(index);
        self.sockets.swap_remove(index)
    }
}

impl Probe for TcpConnect {
    fn send(&mut self, sequence: u64) -> io::Result<()> {
        let socket = sys::socket(
            sys::family(self.to.ip()),
            libc::SOCK_STREAM | libc::SOCK_NONBLOCK,
            0,
        )?;
        sys::reset_on_close(socket.as_fd())?;
        set_header_options(socket.as_fd(), self.to.is_ipv6(), self.options)?;
        match sys::connect(socket.as_fd(), self.to) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            // A stack may know the answer at once; the error is asked for again below.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
        }
        let (fd, events) = (socket.as_raw_fd(), libc::POLLOUT);
        self.entries.push(libc::pollfd {
            fd,
            events,
            revents: 0,
        });
        self.sockets.push((sequence, socket));
        Ok(())
    }

    fn receive(&mut self, wait: Wait) -> io::Result<Option<Arrival>> {
        let time = match wait {
            Wait::Not => Duration::ZERO,
            Wait::Blocked => BLOCK,
            Wait::AtMost(time) => time,
        };
        if sys::wait(&mut self.entries, time)? == 0 {
            return Ok(None);
        }
        let Some(index) = self.entries.iter().position(|entry| entry.revents != 0) else {
            return Ok(None);
        };
        let (sequence, socket) = self.remove(index);
        let sequence = Some(sequence);
        let answer = |answer| Arrival::Answer {
            sequence,
            answer,
            from: None,
        };
        Ok(Some(match sys::pending_error(socket.as_fd())? {
            0 => answer(Answer::Accepted),
            libc::ECONNREFUSED => answer(Answer::Refused),
            errno => Arrival::Failed {
                sequence,
                reason: io::Error::from_raw_os_error(errno).to_string(),
            },
        }))
    }

    fn forget(&mut self, sequence: u64) {
        if let Some(index) = self.sockets.iter().position(|(one, _)| *one == sequence) {
            self.remove(index);
        }
    }

    fn is_datagram(&self) -> bool {
        false
    }
}
