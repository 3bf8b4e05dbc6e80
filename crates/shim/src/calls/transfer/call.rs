//! A call on a TCP socket that an engine serves.

use std::os::fd::RawFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::fd_table::descriptors::is_tracked;
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

/// [`with_stream`] of a number that is tracked, whose body is a part of the function around it.
macro_rules! on_stream {
    ($fd:expr, |$call:ident| $body:expr) => {
        'none: {
            let Some(entry) = $crate::fd_table::descriptors::borrow_tracked($fd) else {
                break 'none Ok(None);
            };
            let Some(file) = entry.as_ref() else {
                break 'none Ok(None);
            };
            let Some(socket) = file.socket().filter(|socket| !socket.is_datagram()) else {
                break 'none Ok(None);
            };
            let stream = socket.borrow_stream();
            let Some(stream) = stream.as_ref() else {
                break 'none Ok(None);
            };
            let $call = &$crate::calls::transfer::Call {
                fd: $fd,
                file,
                socket,
                stream,
            };
            let result = $body;
            $crate::calls::sigio::settle(socket, stream);
            result.map(Some)
        }
    };
}
pub(super) use on_stream;

/// Runs `body` if an engine serves the socket and it is TCP. When it returns, the signals for what it has seen were sent.
// What each call of the data path begins with is a part of that call.
#[inline(always)]
pub fn with_stream<T>(fd: RawFd, body: impl FnOnce(&Call<'_>) -> Result<T, Errno>) -> Switched<T> {
    if !is_tracked(fd) {
        return Ok(None);
    }
    on_stream!(fd, |call| body(call))
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
