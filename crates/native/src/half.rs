//! The two halves of a stream: each may be used by a thread of its own.
//!
//! A half is borrowed exclusively by every call, so that no thread can wait for a piece that it holds itself.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::sync::Arc;

use client::{Doorbell, Errno, PrivateFd, Readiness, ShutdownHow, Socket, TcpSocket, WriteMode};

use crate::error::from_errno;
use crate::pieces::{Borrowed, Reserved};
use crate::wait::{self, Timeout};

/// What both halves have; the last of them to go ends the connection.
pub struct Core {
    /// The engine's socket.
    pub socket: Arc<TcpSocket>,
    /// How long its calls wait.
    pub timeout: Timeout,
    /// Holds the port. Goes last.
    _backing: PrivateFd,
}

impl Core {
    /// Of a socket and what stands behind it.
    pub fn new(socket: Arc<TcpSocket>, backing: PrivateFd) -> Arc<Core> {
        Arc::new(Core {
            socket,
            timeout: Timeout::default(),
            _backing: backing,
        })
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // A poller may know the socket still.
        self.socket.close();
    }
}

/// Sends.
pub struct SendHalf {
    core: Arc<Core>,
}

impl SendHalf {
    pub(crate) fn new(core: Arc<Core>) -> SendHalf {
        SendHalf { core }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Room in the send window, `max` bytes of it at most; waits until there is some.
    ///
    /// # Errors
    /// EPIPE: nothing can be sent any more; ETIMEDOUT, EINTR; else the connection's error.
    pub fn reserve(&mut self, max: usize) -> io::Result<Reserved<'_>> {
        let Core {
            socket, timeout, ..
        } = &*self.core;
        wait::repeat(&**socket, timeout, Readiness::OUT, || socket.reserve(max)).map(Reserved::new)
    }

    /// As [`Self::reserve`] without waiting.
    ///
    /// # Errors
    /// EAGAIN: no room now; else as there.
    pub fn try_reserve(&mut self, max: usize) -> io::Result<Reserved<'_>> {
        let space = self.core.socket.reserve(max);
        space.map(Reserved::new).map_err(from_errno)
    }

    /// Copies as much of `bytes` into the window as there is room for, and sends it; waits until that is something.
    ///
    /// # Errors
    /// As of [`Self::reserve`].
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let Core {
            socket, timeout, ..
        } = &*self.core;
        let slices = [IoSlice::new(bytes)];
        wait::repeat(&**socket, timeout, Readiness::OUT, || {
            socket.try_send(&slices)
        })
    }

    /// As [`Self::send`] without waiting.
    ///
    /// # Errors
    /// EAGAIN: no room now; else as there.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.try_send_in(bytes, Doorbell::Now).map_err(from_errno)
    }

    /// As [`Self::try_send`], but the engine, if it sleeps, hears of it only with [`Engine::ring`](crate::Engine::ring).
    ///
    /// # Errors
    /// As there.
    pub fn try_send_later(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.try_send_in(bytes, Doorbell::Later).map_err(from_errno)
    }

    fn try_send_in(&mut self, bytes: &[u8], bell: Doorbell) -> Result<usize, Errno> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let slices = [IoSlice::new(bytes)];
        self.core
            .socket
            .try_send_in(&slices, WriteMode::Plain, bell)
    }

    /// Ends this direction: FIN after what was sent.
    ///
    /// # Errors
    /// ENOTCONN: there is no connection.
    pub fn finish(&mut self) -> io::Result<()> {
        let done = self.core.socket.shutdown(ShutdownHow::Write);
        done.map_err(from_errno)
    }
}

impl Write for SendHalf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(bytes)
    }

    /// Nothing waits on this side.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Receives.
pub struct ReceiveHalf {
    core: Arc<Core>,
}

impl ReceiveHalf {
    pub(crate) fn new(core: Arc<Core>) -> ReceiveHalf {
        ReceiveHalf { core }
    }

    /// The bytes that have arrived, where they lie, `max` of them at most; waits until there are some. `None` is the
    /// end of the stream.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR; else the connection's error, after everything that had arrived before it.
    pub fn borrow(&mut self, max: usize) -> io::Result<Option<Borrowed<'_>>> {
        let Core {
            socket, timeout, ..
        } = &*self.core;
        let lent = wait::repeat(&**socket, timeout, Readiness::IN, || socket.borrow(max))?;
        Ok(lent.map(Borrowed::new))
    }

    /// As [`Self::borrow`] without waiting.
    ///
    /// # Errors
    /// EAGAIN: nothing has arrived; else as there.
    pub fn try_borrow(&mut self, max: usize) -> io::Result<Option<Borrowed<'_>>> {
        let lent = self.core.socket.borrow(max).map_err(from_errno)?;
        Ok(lent.map(Borrowed::new))
    }

    /// Copies what has arrived into `bytes`, as far as it fits; waits until that is something. 0 is the end of the
    /// stream, unless no byte was asked for.
    ///
    /// # Errors
    /// As of [`Self::borrow`].
    pub fn receive(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let Core {
            socket, timeout, ..
        } = &*self.core;
        wait::repeat(&**socket, timeout, Readiness::IN, || {
            socket.try_recv(&mut [IoSliceMut::new(bytes)], false)
        })
    }

    /// As [`Self::receive`] without waiting.
    ///
    /// # Errors
    /// EAGAIN: nothing has arrived; else as there.
    pub fn try_receive(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.try_receive_in(bytes, Doorbell::Now)
            .map_err(from_errno)
    }

    /// As [`Self::try_receive`], but the engine, if it sleeps, hears of it only with
    /// [`Engine::ring`](crate::Engine::ring).
    ///
    /// # Errors
    /// As there.
    pub fn try_receive_later(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.try_receive_in(bytes, Doorbell::Later)
            .map_err(from_errno)
    }

    fn try_receive_in(&mut self, bytes: &mut [u8], bell: Doorbell) -> Result<usize, Errno> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let slices = &mut [IoSliceMut::new(bytes)];
        self.core.socket.try_recv_in(slices, false, bell)
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl Read for ReceiveHalf {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.receive(bytes)
    }
}
