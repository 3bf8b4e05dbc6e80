//! The mapping of a socket, the option that fills it, and writing out of it.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// `struct tcp_zerocopy_receive` of linux/tcp.h, as long as its first version was: later fields are zero where they are
/// not given.
#[repr(C)]
#[derive(Debug, Default)]
struct ZeroCopyReceive {
    address: u64,
    length: u32,
    recv_skip_hint: u32,
}

/// What a call brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Got {
    /// Bytes that are mapped now, and received; whole pages.
    pub mapped: usize,
    /// Where none are: so many of the next ones have to be read. 0: none has come.
    pub to_read: usize,
}

/// A place for received pages of one socket.
#[derive(Debug)]
pub struct Reception {
    start: NonNull<u8>,
    len: usize,
    page_bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, and bytes have no thread.
unsafe impl Send for Reception {}

impl Reception {
    /// For so many bytes at a time, whole pages. An error: this socket has no such thing.
    pub fn new(socket: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice; the descriptor is borrowed for the call.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            start,
            len,
            page_bytes: rustix::param::page_size(),
        })
    }

    /// Receives up to so many bytes of the same socket into the mapping, in the place of what was there.
    pub fn receive(&mut self, socket: BorrowedFd<'_>, len: usize) -> io::Result<Got> {
        let len = len.min(self.len);
        let mut asked = ZeroCopyReceive {
            address: self.start.as_ptr() as u64,
            length: u32::try_from(len - len % self.page_bytes).unwrap_or(0),
            recv_skip_hint: 0,
        };
        let mut asked_len =
            libc::socklen_t::try_from(size_of::<ZeroCopyReceive>()).unwrap_or(libc::socklen_t::MAX);
        // SAFETY: the value is a local of the length that is said, and its address that of a mapping of the socket that
        // lives as long as `self`; nobody has a reference to its bytes.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_ZEROCOPY_RECEIVE,
                (&raw mut asked).cast(),
                &raw mut asked_len,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let bytes = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        Ok(Got {
            mapped: bytes(asked.length).min(len),
            to_read: bytes(asked.recv_skip_hint),
        })
    }

    /// pwrite(2) of a part of what was received last.
    pub fn write(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        from: usize,
        len: usize,
    ) -> io::Result<usize> {
        assert!(
            from <= self.len && len <= self.len - from,
            "invariant: no more is written than was mapped"
        );
        let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        // SAFETY: the range lies within the mapping; the kernel reads it and answers EFAULT for what is not there.
        let count = unsafe {
            let start = self.start.as_ptr().add(from);
            libc::pwrite(file.as_raw_fd(), start.cast(), len, offset)
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }
}

impl Drop for Reception {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody borrows it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
