//! A socket that accepts TCP connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use client::{Errno, PrivateFd, Readiness, TcpSocket};
use rustix::fd::AsFd;
use rustix::net::SocketType;

use crate::backing;
use crate::control::known;
use crate::engine::Engine;
use crate::error::from_errno;
use crate::stream::TcpStream;
use crate::wait::{self, Timeout};

/// Accepts connections, on all cores of an engine. Dropping it ends that.
pub struct TcpListener {
    socket: Arc<TcpSocket>,
    timeout: Timeout,
    _backing: PrivateFd,
}

impl TcpListener {
    /// Listens on an address of the engine, or with ANY on all of them; port 0: a free one.
    ///
    /// # Errors
    /// As bind(2) and listen(2): EADDRINUSE, EACCES (a port below 1,024), EADDRNOTAVAIL (no address of the
    /// engine); ECONNRESET: the engine is gone.
    pub fn bind(engine: Engine, local: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
        listen(engine, local, backlog).map_err(from_errno)
    }

    /// Takes a connection; waits until there is one.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR, EMFILE; ECONNRESET or EINVAL: the engine is gone.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        wait::repeat(&self.socket, &self.timeout, Readiness::IN, || {
            self.take_one()
        })
    }

    /// As [`Self::accept`] without waiting.
    ///
    /// # Errors
    /// EAGAIN: there is none; else as there.
    pub fn try_accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.take_one().map_err(from_errno)
    }

    fn take_one(&self) -> Result<(TcpStream, SocketAddr), Errno> {
        let accepted = self.socket.try_accept()?.ok_or(Errno::AGAIN)?;
        let backing = PrivateFd::new(accepted.backing);
        Ok((TcpStream::accepted(accepted.socket, backing), accepted.peer))
    }

    /// How long [`Self::accept`] waits; `None`: for ever.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.timeout.set(timeout);
    }

    /// What holds now: [`Readiness::IN`] where a connection waits. No system call.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.socket.readiness()
    }

    /// Where it listens.
    ///
    /// # Errors
    /// ENOTCONN: the engine is gone.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        known(self.socket.local_address())
    }

    pub(crate) fn socket(&self) -> &Arc<TcpSocket> {
        &self.socket
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        // A poller may know the socket still.
        self.socket.close();
    }
}

fn listen(engine: Engine, local: SocketAddr, backlog: u32) -> Result<TcpListener, Errno> {
    let session = engine.session();
    let backing = backing::make(SocketType::STREAM, local)?;
    let local = backing::bind(&backing, local)?;
    let socket = session.open(backing.as_fd())?;
    socket.bind(local)?;
    if !local.ip().is_unspecified() {
        // Bound alone it would leave the port to a stranger who sets SO_REUSEADDR. On ANY it would take the
        // connections to the kernel's addresses, which nobody accepts.
        let length = i32::try_from(backlog).unwrap_or(i32::MAX);
        rustix::net::listen(&backing, length)?;
    }
    socket.listen(backing.as_fd(), backlog)?;
    Ok(TcpListener {
        socket,
        timeout: Timeout::default(),
        _backing: backing,
    })
}
