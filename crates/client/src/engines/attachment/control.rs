//! Requests on the control channel: one at a time, each answered in order.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hostif::control::{self, Invalid, Reply, Request};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::lock::lock;
use crate::private::PrivateFd;
use crate::sys;

/// Why a request got no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlError {
    /// The request alone failed: it was not sent, or no descriptor was free for what came with its answer. The channel
    /// serves the next one.
    Request(Errno),
    /// The channel broke, or nothing came in time.
    Channel(Errno),
    /// The answer was no message.
    Invalid(Invalid),
}

/// The control channel.
pub struct Control {
    channel: PrivateFd,
    talking: Mutex<()>,
}

/// The right to talk on the channel.
pub struct ChannelGuard<'a> {
    control: &'a Control,
    _guard: MutexGuard<'a, ()>,
}

impl Control {
    /// Over an open channel.
    pub fn new(channel: PrivateFd) -> Control {
        Control {
            channel,
            talking: Mutex::new(()),
        }
    }

    /// The number to poll: a hang-up means that the engine is gone.
    pub fn number(&self) -> RawFd {
        self.channel.as_raw_fd()
    }

    /// Waits until nobody else talks.
    pub fn lock(&self) -> ChannelGuard<'_> {
        ChannelGuard {
            control: self,
            _guard: lock(&self.talking),
        }
    }

    /// Asks and waits for the answer.
    pub fn request(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), ControlError> {
        self.lock().request(request, descriptors)
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

impl ChannelGuard<'_> {
    /// Asks and waits for the answer, as long as the engine lives: one that was stopped, or that gets no processor,
    /// answers later, and a request that was given up would leave its answer to the next one.
    pub fn request(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), ControlError> {
        self.request_within(None, request, descriptors)
    }

    /// As `request`, but gives up after `patience`; the channel is of no use afterwards.
    pub fn request_within(
        &self,
        patience: Option<Duration>,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), ControlError> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        loop {
            let (reply, descriptors) = self.ask(deadline, request, descriptors)?;
            match reply {
                // The engine that took the request was replaced.
                Reply::Refused {
                    errno: control::ASK_AGAIN,
                    ..
                } => {}
                reply => return Ok((reply, descriptors)),
            }
        }
    }

    fn ask(
        &self,
        deadline: Option<Instant>,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), ControlError> {
        let channel = self.control.channel.as_fd();
        // An engine that has taken the place of another may have answered what was answered already.
        while control::receive(channel, RecvFlags::DONTWAIT).is_ok_and(|old| !old.bytes.is_empty())
        {
        }
        self.send(deadline, &request.encode(), descriptors)?;
        let received = loop {
            self.wait_for(libc::POLLIN, deadline)?;
            match control::receive(channel, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => {}
                // The packet was taken whole, but its descriptors found no free numbers.
                Err(Errno::MSGSIZE) => return Err(ControlError::Request(Errno::MFILE)),
                received => break received.map_err(ControlError::Channel)?,
            }
        };
        if received.bytes.is_empty() {
            return Err(ControlError::Channel(Errno::CONNRESET));
        }
        let reply = Reply::decode(&received.bytes).map_err(ControlError::Invalid)?;
        Ok((reply, received.descriptors))
    }

    fn send(
        &self,
        deadline: Option<Instant>,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), ControlError> {
        let channel = self.control.channel.as_fd();
        loop {
            match control::send(channel, bytes, descriptors) {
                Ok(()) => return Ok(()),
                // The engine has not taken what was sent before.
                Err(Errno::AGAIN) => self.wait_for(libc::POLLOUT, deadline)?,
                Err(errno) if self.is_of_channel(errno) => {
                    return Err(ControlError::Channel(errno));
                }
                // A descriptor that another thread has closed meanwhile, more of them under way than unix(7)
                // permits, no memory: nothing was sent.
                Err(errno) => return Err(ControlError::Request(errno)),
            }
        }
    }

    /// Whether a packet was not sent because the channel cannot send any.
    fn is_of_channel(&self, errno: Errno) -> bool {
        match errno {
            Errno::PIPE
            | Errno::CONNRESET
            | Errno::NOTCONN
            | Errno::CONNREFUSED
            | Errno::NOTSOCK => true,
            Errno::BADF => rustix::io::fcntl_getfd(self.control.channel.as_fd()).is_err(),
            _ => false,
        }
    }

    /// Waits until the channel is ready, or its other end is closed.
    fn wait_for(&self, events: i16, deadline: Option<Instant>) -> Result<(), ControlError> {
        let mut fds = [libc::pollfd {
            fd: self.control.number(),
            events,
            revents: 0,
        }];
        loop {
            let left = deadline.map(|moment| moment.saturating_duration_since(Instant::now()));
            match sys::ppoll(&mut fds, left, None) {
                // The program's signals are not what this waits for.
                Err(Errno::INTR) => {}
                Ok(0) => return Err(ControlError::Channel(Errno::TIMEDOUT)),
                Ok(_) => return Ok(()),
                Err(errno) => return Err(ControlError::Channel(errno)),
            }
        }
    }
}
