//! The calls of sending without a copy: MSG_ZEROCOPY with its notices on the error queue, and SEND_ZC of io_uring.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, cqueue, opcode, types};

use crate::sys::{Memory, set_option, submit};

/// Of a notice on the error queue: it tells of MSG_ZEROCOPY (SO_EE_ORIGIN_ZEROCOPY, linux/errqueue.h).
const ORIGIN_ZEROCOPY: u8 = 5;
/// The kernel copied (SO_EE_CODE_ZEROCOPY_COPIED).
const CODE_COPIED: u8 = 1;
/// What a completion of SEND_ZC says of the buffer: the kernel copied it (io_uring_enter(2)).
const USAGE_COPIED: u32 = 1 << 31;
/// Asks for it.
const REPORT_USAGE: u16 = 1 << 3;

/// Has a socket take MSG_ZEROCOPY.
pub fn enable(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    set_option(
        socket,
        libc::SOL_SOCKET,
        libc::SO_ZEROCOPY,
        &on.to_ne_bytes(),
    )
}

/// Bytes that the peer has not acknowledged (SIOCOUTQ, tcp(7)); `None`: the socket cannot say.
pub fn unacknowledged(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut count: libc::c_int = 0;
    // SAFETY: the descriptor is borrowed for the call, and the count is a local.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    (result == 0).then(|| u32::try_from(count).unwrap_or(0))
}

/// send(2) with MSG_ZEROCOPY: the kernel may read the bytes until it says that it is done. What they are changed to before
/// is what the peer may get.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL;
    // SAFETY: the descriptor and the bytes are borrowed for the call; from then on the kernel holds their pages, whether
    // they stay mapped or not.
    let sent = unsafe {
        libc::send(
            socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            flags,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// The kernel is done with the calls of these numbers, counted from 0 for each socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The first.
    pub first: u32,
    /// The last.
    pub last: u32,
    /// It had to copy them.
    pub is_copied: bool,
}

/// The next notice, without waiting; `None`: there is none.
pub fn notice(socket: BorrowedFd<'_>) -> io::Result<Option<Notice>> {
    const CONTROL_WORDS: usize = 16;
    let mut control = [0_u64; CONTROL_WORDS];
    // SAFETY: all-zero bytes are a value of this plain structure.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control);
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the descriptor is borrowed for the call; the header names a local buffer of the length that is said.
    if unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) } < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: the header is as the call has filled it.
    let first = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    if first.is_null() {
        return Ok(None);
    }
    // SAFETY: a control message lies there as a whole; its data may be unaligned for this structure.
    let error = unsafe {
        libc::CMSG_DATA(first)
            .cast::<libc::sock_extended_err>()
            .read_unaligned()
    };
    if error.ee_origin != ORIGIN_ZEROCOPY || error.ee_errno != 0 {
        return Ok(None);
    }
    Ok(Some(Notice {
        first: error.ee_info,
        last: error.ee_data,
        is_copied: error.ee_code & CODE_COPIED != 0,
    }))
}

/// Waits until there is a notice, at most so long.
pub fn await_notice(socket: BorrowedFd<'_>, patience_ms: i32) {
    let mut entry = libc::pollfd {
        fd: socket.as_raw_fd(),
        // A notice is an error, which needs not be asked for.
        events: 0,
        revents: 0,
    };
    // SAFETY: one entry, borrowed for the call. Whatever ends the wait, the caller looks.
    unsafe { libc::poll(&raw mut entry, 1, patience_ms) };
}

/// SEND_ZC from registered buffers.
pub struct Ring {
    ring: IoUring,
}

/// What came back of a ring.
#[derive(Debug)]
pub enum Completed {
    /// A send has ended; whether its buffer is still read from.
    Sent(io::Result<usize>, bool),
    /// The kernel is done with a buffer, and perhaps had to copy it.
    Free(usize, bool),
}

impl Ring {
    /// With so many buffers that follow one another in memory.
    pub fn new(memory: &mut Memory, buffers: u16, buffer_bytes: usize) -> io::Result<Self> {
        let ring = IoUring::new(u32::from(buffers))?;
        let start = memory.bytes().as_mut_ptr();
        let regions: Vec<libc::iovec> = (0..usize::from(buffers))
            .map(|index| libc::iovec {
                iov_base: start.wrapping_add(index * buffer_bytes).cast(),
                iov_len: buffer_bytes,
            })
            .collect();
        // SAFETY: the regions lie in `memory`. The kernel holds their pages, whether they stay mapped or not.
        unsafe { ring.submitter().register_buffers(&regions) }?;
        Ok(Self { ring })
    }

    /// Begins to send from a registered buffer: bytes that lie in it. What they are changed to before it is free again is
    /// what the peer may get.
    pub fn send(&mut self, socket: BorrowedFd<'_>, buffer: usize, bytes: &[u8]) -> io::Result<()> {
        let len = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let index = u16::try_from(buffer).map_err(|_| io::ErrorKind::InvalidInput)?;
        let entry = opcode::SendZc::new(types::Fd(socket.as_raw_fd()), bytes.as_ptr(), len)
            .buf_index(Some(index))
            .flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL)
            .zc_flags(REPORT_USAGE)
            .build()
            .user_data(buffer as u64);
        // SAFETY: the kernel reads only from pages of the registered buffer of this number, which it holds, and fails where
        // the bytes lie elsewhere; it takes a reference to the socket at submission, which is here.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| io::Error::from(io::ErrorKind::WouldBlock))?;
        submit(&self.ring, 0)
    }

    /// What came back next; it waits for it if that is wanted.
    pub fn completed(&mut self, wait: bool) -> io::Result<Option<Completed>> {
        let mut next = self.ring.completion().next();
        if next.is_none() && wait {
            submit(&self.ring, 1)?;
            next = self.ring.completion().next();
        }
        Ok(next.map(|entry| {
            let result = entry.result();
            if cqueue::notif(entry.flags()) {
                let buffer = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
                return Completed::Free(buffer, result.cast_unsigned() & USAGE_COPIED != 0);
            }
            let sent = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
            Completed::Sent(sent, cqueue::more(entry.flags()))
        }))
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}
