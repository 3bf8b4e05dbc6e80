//! Messages and their echoes on one TCP connection. The stream keeps the order, so a message is known by its place; its
//! bytes are compared all the same.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    time::Duration,
};

use hostif::stages::{Mark, mark};

use super::{
    Answer, Arrival, BLOCK, Probe, Wait,
    datagram::{HeaderOptions, is_nothing, set_header_options, wait_readable},
    message::Message,
};
use crate::{stages::KernelStamps, sys};

/// How much is received at once.
const RECEIVE_BYTES: usize = 64 * 1024;

/// A connection to an echo.
#[derive(Debug)]
pub struct TcpEcho {
    socket: OwnedFd,
    message: Message,
    /// Sent, or on its way out, in order.
    expected: VecDeque<u64>,
    /// What the send buffer had no place for: never more than the messages that are expected.
    unsent: VecDeque<u8>,
    /// Bytes of the first message expected that have come.
    came: Vec<u8>,
    received: Vec<u8>,
    /// What of `received` was not looked at yet.
    rest: std::ops::Range<usize>,
    over: bool,
    /// Where stages are noted.
    stamps: Option<KernelStamps>,
    /// A message was sent whose stamps were not taken.
    has_sent: bool,
}

impl TcpEcho {
    /// Connects, for `timeout` at most.
    ///
    /// # Errors
    /// Nobody listens there, or an option that the stack refuses.
    pub fn connect(
        to: SocketAddr,
        message: Message,
        options: HeaderOptions,
        timeout: Duration,
    ) -> io::Result<Self> {
        let stream = std::net::TcpStream::connect_timeout(&to, timeout)?;
        stream.set_nodelay(true)?;
        let socket = OwnedFd::from(stream);
        set_header_options(socket.as_fd(), to.is_ipv6(), options)?;
        sys::set_receive_timeout(socket.as_fd(), BLOCK)?;
        Ok(Self {
            stamps: KernelStamps::begin(socket.as_fd())?,
            has_sent: false,
            socket,
            message,
            expected: VecDeque::new(),
            unsent: VecDeque::new(),
            came: Vec::new(),
            received: vec![0; RECEIVE_BYTES],
            rest: 0..0,
            over: false,
        })
    }

    /// Sends what the send buffer takes.
    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            let (first, _) = self.unsent.as_slices();
            match sys::send(self.socket.as_fd(), first, libc::MSG_DONTWAIT) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if is_nothing(&error) => return Ok(()),
                Err(error) => {
                    self.over = true;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn recv(&mut self, flags: libc::c_int) -> io::Result<usize> {
        let Some(stamps) = self.stamps else {
            return sys::recv(self.socket.as_fd(), &mut self.received, flags);
        };
        // While the answer is on its way.
        if std::mem::take(&mut self.has_sent) {
            stamps.take_sent(self.socket.as_fd());
        }
        stamps.receive(self.socket.as_fd(), &mut self.received, flags)
    }

    /// The next message that is whole among what was received.
    fn next_whole(&mut self) -> Option<Arrival> {
        let missing = self.message.len() - self.came.len();
        let part = self.rest.start..self.rest.end.min(self.rest.start + missing);
        self.came.extend_from_slice(&self.received[part.clone()]);
        self.rest.start = part.end;
        if self.came.len() < self.message.len() {
            return None;
        }
        let arrival = match self.expected.pop_front() {
            None => Arrival::Foreign,
            Some(sequence) if self.message.of(sequence) == self.came => Arrival::Answer {
                sequence: Some(sequence),
                answer: Answer::Echo,
                from: None,
            },
            Some(_) => Arrival::Corrupted,
        };
        self.came.clear();
        Some(arrival)
    }

    /// Waits until the socket can be read, or until it takes more of what is unsent.
    fn wait(&mut self, wait: Wait) -> io::Result<libc::c_int> {
        if self.unsent.is_empty() {
            return wait_readable(self.socket.as_fd(), wait);
        }
        let time = match wait {
            Wait::Not => Duration::ZERO,
            Wait::Blocked => BLOCK,
            Wait::AtMost(time) => time,
        };
        let (fd, events) = (self.socket.as_raw_fd(), libc::POLLIN | libc::POLLOUT);
        sys::wait(
            &mut [libc::pollfd {
                fd,
                events,
                revents: 0,
            }],
            time,
        )?;
        self.flush()?;
        Ok(libc::MSG_DONTWAIT)
    }
}

impl Probe for TcpEcho {
    fn send(&mut self, sequence: u64) -> io::Result<()> {
        self.flush()?;
        let bytes = self.message.of(sequence);
        let mut sent = 0;
        self.has_sent = true;
        mark(Mark::Call);
        if self.unsent.is_empty() {
            sent = match sys::send(self.socket.as_fd(), bytes, libc::MSG_DONTWAIT) {
                Ok(count) => count,
                Err(error) if is_nothing(&error) => 0,
                Err(error) => {
                    self.over = true;
                    return Err(error);
                }
            };
        }
        self.unsent.extend(&bytes[sent..]);
        self.expected.push_back(sequence);
        Ok(())
    }

    fn receive(&mut self, wait: Wait) -> io::Result<Option<Arrival>> {
        if !self.rest.is_empty()
            && let Some(arrival) = self.next_whole()
        {
            return Ok(Some(arrival));
        }
        let mut flags = self.wait(wait)?;
        loop {
            match self.recv(flags) {
                Ok(0) => {
                    self.over = true;
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the peer closed the connection",
                    ));
                }
                Ok(count) => self.rest = 0..count,
                Err(error) if is_nothing(&error) => return Ok(None),
                Err(error) => {
                    self.over = true;
                    return Err(error);
                }
            }
            if let Some(arrival) = self.next_whole() {
                mark(Mark::Returned);
                return Ok(Some(arrival));
            }
            // The rest of a large message is on its way.
            if wait != Wait::Blocked {
                flags = libc::MSG_DONTWAIT;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn is_datagram(&self) -> bool {
        false
    }
}
