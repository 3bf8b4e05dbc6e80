//! A call on a TCP socket that an engine serves.

use std::os::fd::RawFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::calls::sigio;
use crate::fd_table::descriptors;
use crate::fd_table::file::File;
use crate::outcome::Switched;
use crate::socket::Socket;
use switch::stream::Stream;

/// A call on data of one socket.
pub struct Call<'a> {
    pub(super) fd: RawFd,
    pub(super) file: &'a Arc<File>,
    pub(super) socket: &'a Socket,
    pub(super) stream: &'a Arc<Stream>,
}

/// Runs `body` if an engine serves the socket and it is TCP. When it returns, the signals for what it has seen were sent.
// What each call of the data path begins with is a part of that call.
#[inline(always)]
pub fn with_stream<T>(fd: RawFd, body: impl FnOnce(&Call<'_>) -> Result<T, Errno>) -> Switched<T> {
    let Some(entry) = descriptors::borrow(fd) else {
        return Ok(None);
    };
    let Some(file) = entry.as_ref() else {
        return Ok(None);
    };
    let Some(socket) = file.socket().filter(|socket| !socket.is_datagram()) else {
        return Ok(None);
    };
    let stream = socket.borrow_stream();
    let Some(stream) = stream.as_ref() else {
        return Ok(None);
    };
    let result = body(&Call {
        fd,
        file,
        socket,
        stream,
    });
    sigio::settle(socket, stream);
    result.map(Some)
}

impl Call<'_> {
    /// The engine's side of the socket.
    pub fn stream(&self) -> &Stream {
        self.stream
    }

    /// The program's side of the socket.
    pub fn socket(&self) -> &Socket {
        self.socket
    }

    /// The number by which the call came.
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// The event bits that hold now.
    pub fn events(&self) -> u32 {
        self.socket.events(self.stream)
    }
}
