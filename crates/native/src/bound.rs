//! What a listener and a UDP socket have in common: an address of their own, and a time for calls that wait.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use client::{Errno, PrivateFd, Readiness, Session, Socket};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::net::SocketType;

use crate::backing;
use crate::control::known;
use crate::engine::Engine;
use crate::wait::{self, Timeout};

/// A socket that is bound. Dropping it closes it.
pub struct BoundSocket {
    socket: Arc<dyn Socket>,
    timeout: Timeout,
    backing: PrivateFd,
}

impl BoundSocket {
    /// Also the engine's socket, which `open` makes.
    pub(crate) fn bind<S: Socket + 'static>(
        engine: Engine,
        (kind, local): (SocketType, SocketAddr),
        open: impl FnOnce(&'static Session, BorrowedFd<'_>) -> Result<Arc<S>, Errno>,
    ) -> Result<(Arc<S>, BoundSocket), Errno> {
        let backing = backing::make(kind, local)?;
        let local = backing::bind(&backing, local)?;
        let socket = open(engine.session(), backing.as_fd())?;
        let bound = BoundSocket {
            socket: Arc::<S>::clone(&socket),
            timeout: Timeout::default(),
            backing,
        };
        socket.core().bind(local)?;
        Ok((socket, bound))
    }

    /// How long its calls wait; `None`: for ever.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.timeout.set(timeout);
    }

    /// What holds now, as poll(2) would say it: [`Readiness::IN`] where a connection or a datagram waits. No system
    /// call.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.socket.readiness()
    }

    /// This end.
    ///
    /// # Errors
    /// ENOTCONN: the engine is gone.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        known(self.socket.core().local_address())
    }

    pub(crate) fn any_socket(&self) -> &Arc<dyn Socket> {
        &self.socket
    }

    pub(crate) fn backing(&self) -> &PrivateFd {
        &self.backing
    }

    /// Repeats a call that does not wait until it has done something.
    pub(crate) fn repeat<T>(
        &self,
        wanted: Readiness,
        call: impl FnMut() -> Result<T, Errno>,
    ) -> io::Result<T> {
        wait::repeat(&*self.socket, &self.timeout, wanted, call)
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        // A poller may know the socket still.
        self.socket.close();
    }
}
