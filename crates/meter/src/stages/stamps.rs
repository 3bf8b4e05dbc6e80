//! The kernel's stamps of one connection, noted beside the marks of its program.

use std::{io, os::fd::BorrowedFd};

use hostif::stages::{self, Mark, mark_at};

use super::sys;

/// Stamps that are taken at once; a message has three.
const TAKEN_MAX: usize = 16;

/// A connection whose stamps are noted.
#[derive(Debug, Clone, Copy)]
pub struct KernelStamps(());

impl KernelStamps {
    /// Asks for the stamps of a connection, where this process notes stages and its sockets are the kernel's.
    ///
    /// # Errors
    /// The kernel has no such stamps.
    pub fn begin(socket: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        if !stages::is_on() || std::env::var_os("LD_PRELOAD").is_some() {
            return Ok(None);
        }
        sys::enable(socket)?;
        Ok(Some(Self(())))
    }

    /// Receives, and notes when it had come to this host.
    pub fn receive(
        self,
        socket: BorrowedFd<'_>,
        buffer: &mut [u8],
        flags: libc::c_int,
    ) -> io::Result<usize> {
        let found = sys::receive(socket, buffer, flags)?;
        mark_at(Mark::Arrived, found.real_ns);
        Ok(found.count)
    }

    /// Notes what is told of messages that were sent.
    pub fn take_sent(self, socket: BorrowedFd<'_>) {
        for _ in 0..TAKEN_MAX {
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            match sys::receive(socket, &mut [], flags) {
                Ok(found) => {
                    if let Some(mark) = found.mark {
                        mark_at(mark, found.real_ns);
                    }
                }
                Err(_) => return,
            }
        }
    }
}
