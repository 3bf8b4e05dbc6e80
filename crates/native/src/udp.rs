//! A UDP socket. Datagrams are copied into and out of the window, once each.

use core::ops::Deref;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;

use client::address::family;
use client::{Errno, Outgoing, Readiness, Socket};
use rustix::net::SocketType;
use switch::backing::any_of;

use crate::bound::BoundSocket;
use crate::control::known;
use crate::engine::Engine;
use crate::error::from_errno;

/// A UDP socket on an engine. Several threads may use it at once.
pub struct UdpSocket {
    socket: Arc<client::UdpSocket>,
    bound: BoundSocket,
}

impl UdpSocket {
    /// Binds to an address of the engine, or with ANY to all of them; port 0: a free one.
    ///
    /// # Errors
    /// As bind(2): EADDRINUSE, EACCES, EADDRNOTAVAIL; ECONNRESET: the engine is gone.
    pub fn bind(engine: Engine, local: SocketAddr) -> io::Result<UdpSocket> {
        let kind = (SocketType::DGRAM, local);
        let (socket, bound) =
            BoundSocket::bind(engine, kind, client::UdpSocket::open).map_err(from_errno)?;
        Ok(UdpSocket { socket, bound })
    }

    /// As [`Self::bind`] to a free port, and gives it a peer.
    ///
    /// # Errors
    /// As there and of [`Self::connect`].
    pub fn towards(engine: Engine, peer: SocketAddr) -> io::Result<UdpSocket> {
        let any = any_of(family(peer));
        let socket = UdpSocket::bind(engine, any)?;
        socket.connect(peer)?;
        Ok(socket)
    }

    /// Gives it a peer: nobody else is heard.
    ///
    /// # Errors
    /// ENETUNREACH, EACCES, EINVAL (port 0); ECONNRESET: the engine is gone.
    pub fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        if peer.port() == 0 {
            return Err(from_errno(Errno::INVAL));
        }
        self.socket.connect(peer, None).map_err(from_errno)
    }

    /// Sends a datagram to the peer; waits until there is room for it.
    ///
    /// # Errors
    /// EDESTADDRREQ: there is no peer; EMSGSIZE, ETIMEDOUT, EINTR, EPIPE; else the pending error, ECONNREFUSED
    /// say.
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.send_as(bytes, None, true)
    }

    /// Sends a datagram to whom it is for; waits until there is room for it.
    ///
    /// # Errors
    /// As of [`Self::send`].
    pub fn send_to(&self, bytes: &[u8], destination: SocketAddr) -> io::Result<usize> {
        self.send_as(bytes, Some(destination), true)
    }

    /// As [`Self::send`] or [`Self::send_to`] without waiting.
    ///
    /// # Errors
    /// EAGAIN: no room now; else as there.
    pub fn try_send(&self, bytes: &[u8], destination: Option<SocketAddr>) -> io::Result<usize> {
        self.send_as(bytes, destination, false)
    }

    fn send_as(
        &self,
        bytes: &[u8],
        destination: Option<SocketAddr>,
        waits: bool,
    ) -> io::Result<usize> {
        if destination.is_none() && self.peer_addr().is_err() {
            return Err(from_errno(Errno::DESTADDRREQ));
        }
        let outgoing = Outgoing {
            destination,
            ..Outgoing::default()
        };
        let slices = [IoSlice::new(bytes)];
        let call = || self.socket.sender()?.push(&outgoing, &slices);
        if !waits {
            return call().map_err(from_errno);
        }
        self.repeat(Readiness::OUT, call)
    }

    /// Takes the next datagram, as far as it fits, and who sent it; waits until there is one.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR; else the pending error.
    pub fn receive(&self, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.repeat(Readiness::IN, || self.take_one(bytes))
    }

    /// As [`Self::receive`] without waiting.
    ///
    /// # Errors
    /// EAGAIN: there is none; else as there.
    pub fn try_receive(&self, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.take_one(bytes).map_err(from_errno)
    }

    fn take_one(&self, bytes: &mut [u8]) -> Result<(usize, SocketAddr), Errno> {
        if let Some(error) = self.socket.take_error() {
            return Err(error);
        }
        let taken = match self.socket.receiver()? {
            Some(mut receiver) => receiver.next(&mut [IoSliceMut::new(bytes)], false)?,
            None => None,
        };
        let Some(letter) = taken else {
            self.socket.session().look_alive();
            return Err(Errno::AGAIN);
        };
        Ok((letter.copied, letter.record.source))
    }

    /// The peer.
    ///
    /// # Errors
    /// ENOTCONN: there is none.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        known(self.socket.peer_address())
    }
}

impl Deref for UdpSocket {
    type Target = BoundSocket;

    fn deref(&self) -> &BoundSocket {
        &self.bound
    }
}
