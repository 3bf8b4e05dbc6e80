//! Receiving datagrams, in the order of checks that Linux has in `__skb_recv_udp`. A socket on ANY asks
//! all stacks: the engines first, in rotation, and the kernel whenever they have nothing or were served many times. What a
//! call has looked at (MSG_PEEK, FIONREAD) the next one takes.

use std::io::IoSliceMut;
use std::mem;
use std::os::fd::RawFd;

use client::address::{self, Family, Name};
use client::{Failure, HeardBy, Received};
use rustix::io::Errno;

use super::{Call, Served};
use crate::calls::sigio;
use crate::socket::Socket;
use crate::sys as system;
use crate::wait::sleep::{Deadline, after_interruption};
use crate::wait::sleeping;
use switch::device::Device;
use switch::readiness::{ALWAYS, IN};
use switch::stream::Arrived;

/// The next thing that a receiving call has to do.
pub enum Step {
    /// A datagram.
    Delivered(Arrived<Received>),
    /// An entry of the error queue.
    Failure(Arrived<Failure>),
    /// Ask the kernel without sleeping; say with [`Receiving::kernel_was_empty`] if it had nothing, and with
    /// [`Receiving::kernel_had_it`] if it had something.
    AskKernel,
    /// Nothing more will come: shut down.
    End,
}

/// A receiving call.
pub struct Receiving {
    call: Call,
    flags: i32,
    deadline: Option<Deadline>,
    kernel_asked: bool,
    /// The engine's side was asked for what has come.
    has_looked: bool,
}

impl Receiving {
    /// `None`: the engine has nothing of the socket, the call is the kernel's.
    pub fn begin(fd: RawFd, flags: i32) -> Option<Receiving> {
        let call = Call::begin(fd)?;
        call.socket()?.borrow_stream().as_ref()?;
        Some(Receiving {
            call,
            flags,
            deadline: None,
            kernel_asked: false,
            has_looked: false,
        })
    }

    /// The family of the socket, and what its program wants to hear with datagrams.
    pub fn told(&self) -> (Family, u32) {
        let socket = self.call.socket();
        socket.map_or((Family::V4, 0), |socket| (socket.family(), socket.wanted()))
    }

    /// The kernel had nothing.
    pub fn kernel_was_empty(&mut self) {
        self.kernel_asked = true;
    }

    /// The kernel had a datagram, or an entry of its error queue.
    pub fn kernel_gave_it(&self) {
        if let Some(socket) = self.call.socket() {
            socket.last_arrival.note_kernels(socket.wanted());
        }
    }

    /// The kernel had something, from whom if that was asked. `name` is as the kernel writes it.
    pub fn kernel_had_it(&self, name: &[u8]) {
        let Some(socket) = self.call.socket() else {
            return;
        };
        self.note_source(socket, Device::Kernel);
        if let Ok(Name::Ip(peer)) = address::parse(name, socket.family()) {
            socket.heard.note(peer, HeardBy::Kernel);
        }
    }

    fn note_source(&self, socket: &Socket, source: Device) {
        let is_left = self.flags & libc::MSG_PEEK != 0;
        socket
            .looked_at
            .store(if is_left { source } else { Device::Any });
    }

    /// What comes next; sleeps where the call may. `None`: the engine's side is gone meanwhile.
    pub fn step(&mut self, slices: &mut [IoSliceMut<'_>]) -> Result<Option<Step>, Errno> {
        loop {
            let Some(served) = self.call.served() else {
                return Ok(None);
            };
            let peeks = self.flags & libc::MSG_PEEK != 0;
            let looks_ahead = peeks && served.socket.peek_from().is_some();
            // What has come to an engine inside is there when it is asked for; nearly always nothing was there before.
            if !self.has_looked && !served.stream.has_datagram() {
                self.has_looked = true;
                served.stream.on_idle_receive();
            }
            let heard = served.stream.rx_events();
            let tried = self.try_once(&served, slices);
            sigio::settle(served.socket, &served.stream);
            if let Some(step) = tried? {
                return Ok(Some(step));
            }
            if !mem::replace(&mut self.has_looked, true) {
                served.stream.on_idle_receive();
                if served.stream.rx_events() != heard || served.stream.has_error() {
                    continue;
                }
            }
            if self.deadline.is_none()
                && (self.flags & libc::MSG_DONTWAIT != 0
                    || served.socket.is_nonblocking(served.fd)?)
            {
                return Err(Errno::AGAIN);
            }
            // Before each sleep: the backing socket of one that is shut down is readable for ever.
            if served.socket.receive_shut() {
                return Ok(Some(Step::End));
            }
            let deadline = self
                .deadline
                .unwrap_or_else(|| Deadline::after_option(served.socket.receive_timeout()));
            sleep(&served, deadline, (looks_ahead, heard))?;
            self.deadline = Some(deadline);
            self.kernel_asked = false;
        }
    }

    fn try_once(
        &self,
        served: &Served<'_>,
        slices: &mut [IoSliceMut<'_>],
    ) -> Result<Option<Step>, Errno> {
        let (stream, socket) = (&served.stream, served.socket);
        let both = socket.kernel_receives();
        if self.flags & libc::MSG_ERRQUEUE != 0 {
            return match stream.take_failure(slices)? {
                Some(failure) => {
                    let at = failure.letter.record.timestamp_ns;
                    socket.last_arrival.note(at, socket.wanted());
                    Ok(Some(Step::Failure(failure)))
                }
                None if both && !self.kernel_asked => Ok(Some(Step::AskKernel)),
                None => Err(Errno::AGAIN),
            };
        }
        if let Some(error) = stream.take_error() {
            return Err(error);
        }
        let peek = self.flags & libc::MSG_PEEK != 0;
        let (turn, looked_at) = (socket.next_receive(), socket.looked_at.load());
        let kernel_first = match looked_at {
            Device::Any => Socket::is_kernels_turn(turn),
            Device::Kernel | Device::Loopback(_) => true,
            Device::Engine(_) => false,
        };
        if both && !self.kernel_asked && kernel_first {
            return Ok(Some(Step::AskKernel));
        }
        let first = match looked_at {
            Device::Engine(place) => Some(place),
            _ => None,
        };
        let arrived = match socket.peek_from().filter(|_| peek) {
            None => stream.receive_datagram((first, turn), slices, peek)?,
            Some(offset) => {
                let mut seen = socket.peeked_end();
                let place = (offset, &mut seen);
                let arrived = stream.look_at_datagram((first, turn), place, slices)?;
                socket.set_peeked_end(seen);
                arrived
            }
        };
        if let Some(arrived) = arrived {
            let told = match self.flags & libc::MSG_TRUNC {
                0 => arrived.letter.copied,
                _ => usize::try_from(arrived.letter.record.len).unwrap_or(0),
            };
            socket.move_peek_offset(told, peek);
            self.note_source(socket, Device::Engine(arrived.place));
            let at = arrived.letter.record.timestamp_ns;
            socket.last_arrival.note(at, socket.wanted());
            if both {
                let stack = HeardBy::Engine(arrived.place);
                socket.heard.note(arrived.letter.record.source, stack);
            }
            return Ok(Some(Step::Delivered(arrived)));
        }
        Ok((both && !self.kernel_asked).then_some(Step::AskKernel))
    }
}

/// `looks_ahead`: what is there was looked at; `heard`: what had come when that was found.
fn sleep(
    served: &Served<'_>,
    deadline: Deadline,
    (looks_ahead, heard): (bool, u32),
) -> Result<(), Errno> {
    if deadline.is_over() {
        return Err(Errno::AGAIN);
    }
    let _open = served.file.sleeper();
    let mut backing = [system::poll_in(served.fd)];
    let kernel = if served.socket.kernel_receives() {
        &mut backing[..]
    } else {
        &mut []
    };
    let (stream, socket) = (&served.stream, served.socket);
    let mut news = || {
        // Or another engine serves it from now on.
        let is_replaced = !socket.is_on(stream);
        let wanted = if looks_ahead { ALWAYS } else { IN | ALWAYS };
        let is_news = stream.events() & wanted != 0 || looks_ahead && stream.rx_events() != heard;
        is_news || socket.receive_shut() || is_replaced
    };
    match sleeping::sleep(&[stream], kernel, None, deadline, &mut news) {
        Err(Errno::INTR) => Err(after_interruption(deadline)),
        result => result,
    }
}
