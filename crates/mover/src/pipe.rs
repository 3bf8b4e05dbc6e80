//! A pipe for splice(2), the system call that moves pages between a file and a socket through one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sys;

/// Bytes that it is asked to hold.
pub const PIPE_BYTES: usize = 1 << 20;

/// See the module. Whoever fills it empties it.
#[derive(Debug)]
pub struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
}

impl Pipe {
    /// An empty one.
    pub fn new() -> io::Result<Self> {
        let (out, into) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        // A smaller one serves too.
        let _ = rustix::pipe::fcntl_setpipe_size(&into, PIPE_BYTES);
        Ok(Self { out, into })
    }

    /// One into which a test writes by itself.
    #[cfg(test)]
    pub fn with_input() -> io::Result<(Self, std::fs::File)> {
        let pipe = Self::new()?;
        let input = pipe.into.try_clone()?;
        Ok((pipe, input.into()))
    }

    /// Takes up to so many bytes from a socket, or from an offset of a file.
    pub fn fill(&self, from: BorrowedFd<'_>, offset: Option<u64>, len: usize) -> io::Result<usize> {
        let flags = libc::SPLICE_F_MOVE;
        sys::splice(from, offset, self.into.as_fd(), None, len, flags)
    }

    /// Gives up to so many bytes of it to a socket, or to an offset of a file.
    pub fn empty(&self, to: BorrowedFd<'_>, offset: Option<u64>, len: usize) -> io::Result<usize> {
        let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_MORE;
        sys::splice(self.out.as_fd(), None, to, offset, len, flags)
    }

    /// Reads some of it into memory.
    pub fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.out, bytes)?)
    }
}
