//! A TCP connection.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use client::{Errno, PrivateFd, Socket, State, TcpSocket};
use rustix::fd::AsFd;
use rustix::net::SocketType;
use switch::backing::local_of;

use crate::backing;
use crate::control::StreamControl;
use crate::engine::Engine;
use crate::error::from_errno;
use crate::half::{Core, ReceiveHalf, SendHalf};
use crate::pieces::{Borrowed, Reserved};
use crate::wait;

/// A TCP connection on an engine. Dropping it closes it as close(2) would. What needs no half of it is in
/// [`StreamControl`], as which it can be used.
pub struct TcpStream {
    sending: SendHalf,
    receiving: ReceiveHalf,
    control: StreamControl,
}

impl Deref for TcpStream {
    type Target = StreamControl;

    fn deref(&self) -> &StreamControl {
        &self.control
    }
}

impl TcpStream {
    /// Connects to `remote`, and waits until the connection stands.
    ///
    /// # Errors
    /// As connect(2): ECONNREFUSED, ETIMEDOUT, ENETUNREACH (the engine has no way there), EHOSTUNREACH,
    /// EADDRNOTAVAIL; ECONNRESET: the engine is gone; EINTR.
    pub fn connect(engine: Engine, remote: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::start_connect(engine, remote, None)?;
        stream.await_connect(None)?;
        Ok(stream)
    }

    /// As [`TcpStream::connect`], and gives up after a time.
    ///
    /// # Errors
    /// As there.
    pub fn connect_timeout(
        engine: Engine,
        remote: SocketAddr,
        timeout: Duration,
    ) -> io::Result<TcpStream> {
        let stream = TcpStream::start_connect(engine, remote, None)?;
        stream.await_connect(Some(timeout))?;
        Ok(stream)
    }

    /// Starts to connect, from `local` where it is given (port 0: any), and does not wait. The stream is ready to
    /// send ([`Readiness::OUT`](crate::Readiness::OUT)) when that is decided; [`StreamControl::connect_outcome`] says how.
    ///
    /// # Errors
    /// As of [`TcpStream::connect`], but for what the peer and the way there decide; EADDRINUSE: the local port
    /// is taken; EAFNOSUPPORT: the two are of different families.
    pub fn start_connect(
        engine: Engine,
        remote: SocketAddr,
        local: Option<SocketAddr>,
    ) -> io::Result<TcpStream> {
        begin(engine, remote, local)
            .map(|core| TcpStream::of(&core))
            .map_err(from_errno)
    }

    fn await_connect(&self, timeout: Option<Duration>) -> io::Result<()> {
        let own = wait::Timeout::default();
        own.set(timeout);
        let socket = self.socket();
        let is_decided = &mut || !matches!(socket.state(), State::Idle | State::Connecting);
        wait::until(&**socket, &own, is_decided).map_err(from_errno)?;
        self.connect_outcome().map(drop)
    }

    pub(crate) fn accepted(socket: Arc<TcpSocket>, backing: PrivateFd) -> TcpStream {
        TcpStream::of(&Core::new(socket, backing))
    }

    fn of(core: &Arc<Core>) -> TcpStream {
        TcpStream {
            sending: SendHalf::new(Arc::clone(core)),
            receiving: ReceiveHalf::new(Arc::clone(core)),
            control: StreamControl::new(Arc::clone(core)),
        }
    }

    /// Two halves for two threads. The connection is closed when both are dropped.
    #[must_use]
    pub fn split(self) -> (SendHalf, ReceiveHalf) {
        (self.sending, self.receiving)
    }

    /// For who has no half: another thread that ends what the halves do, say.
    #[must_use]
    pub fn control(&self) -> StreamControl {
        self.control.clone()
    }

    /// The halves, one of which may hold a piece while the other is used.
    pub fn halves(&mut self) -> (&mut SendHalf, &mut ReceiveHalf) {
        (&mut self.sending, &mut self.receiving)
    }

    /// See [`SendHalf::reserve`].
    ///
    /// # Errors
    /// As there.
    pub fn reserve(&mut self, max: usize) -> io::Result<Reserved<'_>> {
        self.sending.reserve(max)
    }

    /// See [`ReceiveHalf::borrow`].
    ///
    /// # Errors
    /// As there.
    pub fn borrow(&mut self, max: usize) -> io::Result<Option<Borrowed<'_>>> {
        self.receiving.borrow(max)
    }

    /// See [`SendHalf::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sending.send(bytes)
    }

    /// See [`ReceiveHalf::receive`].
    ///
    /// # Errors
    /// As there.
    pub fn receive(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.receiving.receive(bytes)
    }
}

fn begin(
    engine: Engine,
    remote: SocketAddr,
    local: Option<SocketAddr>,
) -> Result<Arc<Core>, Errno> {
    let session = engine.session();
    let backing = backing::make(SocketType::STREAM, remote)?;
    let local = match local {
        Some(local) if local.is_ipv4() != remote.is_ipv4() => return Err(Errno::AFNOSUPPORT),
        Some(local) => backing::bind(&backing, local)?,
        None => {
            session.bind_towards(backing.as_fd(), remote)?;
            local_of(backing.as_fd())?
        }
    };
    let socket = TcpSocket::open_towards(session, backing.as_fd(), local, remote)?;
    socket.connect(remote, Some(local))?;
    Ok(Core::new(socket, backing))
}

impl Read for TcpStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.receive(bytes)
    }
}

impl Write for TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(bytes)
    }

    /// Nothing waits on this side.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
