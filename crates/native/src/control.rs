//! What a stream can be told and asked without one of its halves.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use client::{Errno, OptionChanges, Readiness, ShutdownHow, Socket, State, TcpSocket};

use crate::engine::Engine;
use crate::error::from_errno;
use crate::half::Core;

/// Controls a stream beside its halves, from any thread. The connection is closed when the halves and all controls
/// are dropped.
#[derive(Clone)]
pub struct StreamControl {
    core: Arc<Core>,
}

impl StreamControl {
    pub(crate) fn new(core: Arc<Core>) -> StreamControl {
        StreamControl { core }
    }

    pub(crate) fn socket(&self) -> &Arc<TcpSocket> {
        &self.core.socket
    }

    /// The engine that the stream is on.
    #[must_use]
    pub fn engine(&self) -> Engine {
        Engine::of(self.socket())
    }

    /// How long calls on either half wait; `None`: for ever.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.core.timeout.set(timeout);
    }

    /// How a connect ended: `false`, it has not yet.
    ///
    /// # Errors
    /// Why it failed.
    pub fn connect_outcome(&self) -> io::Result<bool> {
        let socket = self.socket();
        match socket.state() {
            State::Idle | State::Connecting => Ok(false),
            State::Connected | State::Listening => Ok(true),
            State::Closed if socket.peer_address().is_some() && !socket.has_error() => Ok(true),
            State::Closed => Err(from_errno(
                socket.take_error().unwrap_or(Errno::CONNABORTED),
            )),
        }
    }

    /// Ends one or both directions; what was sent goes out first.
    ///
    /// # Errors
    /// ENOTCONN: there is no connection.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let how = match how {
            Shutdown::Read => ShutdownHow::Read,
            Shutdown::Write => ShutdownHow::Write,
            Shutdown::Both => ShutdownHow::Both,
        };
        self.socket().shutdown(how).map_err(from_errno)
    }

    /// Ends the connection with a reset.
    pub fn abort(&self) {
        self.socket().abort();
    }

    /// Whether small pieces leave at once (TCP_NODELAY).
    ///
    /// # Errors
    /// ECONNRESET: the engine is gone.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        let changes = OptionChanges {
            no_delay: Some(nodelay),
            ..OptionChanges::default()
        };
        self.socket().set_options(&changes).map_err(from_errno)
    }

    /// What holds now, as poll(2) would say it. No system call.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.socket().readiness()
    }

    /// The pending error, which is taken.
    ///
    /// # Errors
    /// That there is none is no error.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.socket().take_error().map(from_errno))
    }

    /// This end.
    ///
    /// # Errors
    /// ENOTCONN: not known yet.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        known(self.socket().local_address())
    }

    /// The other end.
    ///
    /// # Errors
    /// ENOTCONN: not known yet.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        known(self.socket().peer_address())
    }
}

/// An address that says something.
pub fn known(address: Option<SocketAddr>) -> io::Result<SocketAddr> {
    let address = address.filter(|address| address.port() != 0);
    address.ok_or_else(|| from_errno(Errno::NOTCONN))
}
