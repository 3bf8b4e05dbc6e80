//! Requests on the control channel: one at a time, each answered in order.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use hostif::control::{self, Invalid, Reply, Request};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::lock::lock;
use crate::private::PrivateFd;
use crate::sys;

/// An engine that answers no request for so long is as good as dead.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a request got no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlError {
    /// The channel broke.
    Channel(Errno),
    /// The answer was no message.
    Invalid(Invalid),
}

/// The control channel.
pub struct Control {
    channel: PrivateFd,
    turn: Mutex<()>,
}

/// The right to talk on the channel.
pub struct Turn<'a> {
    control: &'a Control,
    _guard: MutexGuard<'a, ()>,
}

impl Control {
    /// Over an open channel.
    pub fn new(channel: PrivateFd) -> Control {
        Control {
            channel,
            turn: Mutex::new(()),
        }
    }

    /// The number to poll: a hang-up means that the engine is gone.
    pub fn number(&self) -> RawFd {
        self.channel.as_raw_fd()
    }

    /// Waits for its turn to talk.
    pub fn turn(&self) -> Turn<'_> {
        Turn {
            control: self,
            _guard: lock(&self.turn),
        }
    }

    /// Asks and waits for the answer.
    pub fn request(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), ControlError> {
        self.turn().request(request, descriptors)
    }

    /// Whether the other end is closed. A system call.
    pub fn is_hung_up(&self) -> bool {
        let mut fds = [libc::pollfd {
            fd: self.number(),
            events: 0,
            revents: 0,
        }];
        let _ = sys::ppoll(&mut fds, Some(Duration::ZERO), None);
        fds[0].revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
    }

    /// In a forked child: this channel is the parent's.
    pub fn close_leaked(&self) {
        self.channel.close_leaked();
    }
}

impl Turn<'_> {
    /// Asks and waits for the answer.
    pub fn request(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), ControlError> {
        let channel = self.control.channel.as_fd();
        control::send(channel, &request.encode(), descriptors).map_err(ControlError::Channel)?;
        self.await_answer().map_err(ControlError::Channel)?;
        let received =
            control::receive(channel, RecvFlags::DONTWAIT).map_err(ControlError::Channel)?;
        if received.bytes.is_empty() {
            return Err(ControlError::Channel(Errno::CONNRESET));
        }
        let reply = Reply::decode(&received.bytes).map_err(ControlError::Invalid)?;
        Ok((reply, received.descriptors))
    }

    fn await_answer(&self) -> Result<(), Errno> {
        let mut fds = [libc::pollfd {
            fd: self.control.number(),
            events: libc::POLLIN,
            revents: 0,
        }];
        let start = std::time::Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(start.elapsed());
            match sys::ppoll(&mut fds, Some(left), None) {
                // The program's signals are not what this waits for.
                Err(Errno::INTR) => {}
                Ok(0) => return Err(Errno::TIMEDOUT),
                Ok(_) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
    }
}
