//! A netlink socket that asks and takes answers. Read first: netlink(7).

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use crate::message::{AnswerPart, Request, parts};

/// A dump comes in pieces of this size at most.
pub(crate) const PIECE_BYTES: usize = 64 * 1024;
/// The kernel answers at once; whoever waits longer waits for nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// A socket for questions.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// A socket of a family (`None`: rtnetlink) that waits a second for an answer, and takes pieces of 64 KiB.
    ///
    /// # Errors
    /// The kernel gives no such socket.
    pub(crate) fn open(family: Option<Protocol>) -> rustix::io::Result<Self> {
        let fd = open(family, SocketFlags::empty())?;
        set_socket_timeout(&fd, Timeout::Recv, Some(PATIENCE))?;
        Ok(Self::of(fd, PIECE_BYTES))
    }

    /// One for questions that the kernel answers before they have been sent: it never waits.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn open_nonblocking(
        family: Option<Protocol>,
        answer_bytes: usize,
    ) -> rustix::io::Result<Self> {
        let fd = open(family, SocketFlags::NONBLOCK)?;
        Ok(Self::of(fd, answer_bytes))
    }

    fn of(fd: OwnedFd, answer_bytes: usize) -> Self {
        Self {
            fd,
            sequence: 0,
            buffer: vec![0; answer_bytes],
        }
    }

    /// The same socket, its descriptor moved to the number where it stays.
    pub(crate) fn moved(self, relocate_fd: fn(OwnedFd) -> OwnedFd) -> Self {
        Self {
            fd: relocate_fd(self.fd),
            ..self
        }
    }

    /// Asks, and hands every message of the answer to `sink`: its kind and what follows its header.
    ///
    /// # Errors
    /// The kernel's answer, or none within a second.
    pub(crate) fn ask(
        &mut self,
        request: Request,
        sink: &mut dyn FnMut(u16, &[u8]),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let has_single_answer = request.has_single_answer();
        send(&self.fd, &request.finish(self.sequence), SendFlags::empty())?;
        loop {
            let (_, len) = recv(&self.fd, self.buffer.as_mut_slice(), RecvFlags::empty())?;
            let bytes = self.buffer.get(..len).unwrap_or(&self.buffer);
            for (sequence, part) in parts(bytes) {
                match part {
                    _ if sequence != self.sequence => {}
                    AnswerPart::Message(kind, body) => {
                        sink(kind, body);
                        if has_single_answer {
                            return Ok(());
                        }
                    }
                    AnswerPart::End(None) => return Ok(()),
                    AnswerPart::End(Some(error)) => return Err(error),
                }
            }
        }
    }
}

/// A raw netlink socket, closed by exec(2).
pub(crate) fn open(family: Option<Protocol>, flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, family)
}
