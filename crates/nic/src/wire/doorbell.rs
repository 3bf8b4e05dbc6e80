//! What wakes the other end of a wire, and the descriptor that our own sleep waits for.
//!
//! Read first: eventfd(2); unix(7) for sockets. Two eventfds serve ends that trust each other to leave them
//! alone: a stranger could make a read of ours wait. Between two programs it is the socket over which
//! they have met: no call on it ever waits, and it says when the other end is gone, however that ended.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Rings that one look takes back; what is left is seen by the next.
const RINGS_MAX: u32 = 16;

/// One end's doorbells.
pub(super) enum Doorbell {
    /// Eventfds: the one that wakes us, and the one that wakes the other end.
    Pair { ours: OwnedFd, theirs: OwnedFd },
    /// A connected Unix socket of packets.
    Channel(OwnedFd),
}

impl Doorbell {
    /// An eventfd.
    pub(super) fn eventfd() -> rustix::io::Result<OwnedFd> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
    }

    /// What becomes readable when the other end rings.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Pair { ours: fd, .. } | Self::Channel(fd) => fd.as_fd(),
        }
    }

    /// Wakes the other end.
    pub(super) fn ring(&self) -> io::Result<()> {
        let rung = match self {
            Self::Pair { theirs, .. } => rustix::io::write(theirs, &1_u64.to_ne_bytes()),
            Self::Channel(channel) => {
                send(channel, b"!", SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            }
        };
        match rung {
            // A full counter, or a full socket, wakes as well as one more.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            // That the other end is gone is found where we hear of it.
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes back what rang. False: the other end is gone, as far as the doorbell can tell.
    pub(super) fn hear(&self) -> io::Result<bool> {
        match self {
            Self::Pair { ours, .. } => match rustix::io::read(ours, &mut [0_u8; 8]) {
                Ok(_) | Err(Errno::AGAIN) => Ok(true),
                Err(error) => Err(error.into()),
            },
            Self::Channel(channel) => {
                for _ in 0..RINGS_MAX {
                    let mut byte = [0_u8; 8];
                    match recv(channel, &mut byte[..], RecvFlags::DONTWAIT) {
                        Ok((_, 0)) | Err(Errno::CONNRESET) => return Ok(false),
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(Errno::AGAIN) => return Ok(true),
                        Err(error) => return Err(error.into()),
                    }
                }
                Ok(true)
            }
        }
    }
}
