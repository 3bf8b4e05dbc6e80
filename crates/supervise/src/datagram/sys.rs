//! recvmsg(2) and sendmsg(2) on the kernel's socket with names and control messages as bytes, and its filter.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;

/// Bytes of control messages that are taken of a datagram.
const CONTROL_BYTES: usize = 512;

/// A datagram without its payload.
pub struct Message {
    /// Bytes of payload that were copied.
    pub len: usize,
    /// Who sent it.
    pub name: Vec<u8>,
    /// What the kernel says of it.
    pub control: Vec<u8>,
}

/// Takes a datagram, or looks at it, without waiting.
pub fn receive(socket: BorrowedFd<'_>, into: &mut [u8], flags: i32) -> Result<Message, Errno> {
    let mut name = vec![0; size_of::<libc::sockaddr_in6>()];
    let mut control = vec![0; CONTROL_BYTES];
    let mut part = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    // SAFETY: the header is plain data; all that it names are buffers of ours with their lengths, which live
    // through the call.
    let (len, header) = unsafe {
        let mut header: libc::msghdr = MaybeUninit::zeroed().assume_init();
        header.msg_name = name.as_mut_ptr().cast();
        header.msg_namelen = libc::socklen_t::try_from(name.len()).map_err(|_| Errno::INVAL)?;
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = control.len();
        let flags = flags | libc::MSG_DONTWAIT;
        let len = libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags);
        (len, header)
    };
    let len = usize::try_from(len).map_err(|_| last_error())?;
    name.truncate(usize::try_from(header.msg_namelen).unwrap_or(0));
    control.truncate(header.msg_controllen);
    Ok(Message { len, name, control })
}

/// Sends a datagram without waiting.
pub fn send(
    socket: BorrowedFd<'_>,
    payload: &[u8],
    name: &[u8],
    control: &[u8],
    flags: i32,
) -> Result<usize, Errno> {
    let mut part = libc::iovec {
        iov_base: payload.as_ptr().cast_mut().cast(),
        iov_len: payload.len(),
    };
    // SAFETY: as above; the kernel only reads the buffers.
    let sent = unsafe {
        let mut header: libc::msghdr = MaybeUninit::zeroed().assume_init();
        if !name.is_empty() {
            header.msg_name = name.as_ptr().cast_mut().cast();
            header.msg_namelen = libc::socklen_t::try_from(name.len()).map_err(|_| Errno::INVAL)?;
        }
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        if !control.is_empty() {
            header.msg_control = control.as_ptr().cast_mut().cast();
            header.msg_controllen = control.len();
        }
        let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        libc::sendmsg(socket.as_raw_fd(), &raw const header, flags)
    };
    usize::try_from(sent).map_err(|_| last_error())
}

fn last_error() -> Errno {
    // SAFETY: the location is valid for the life of the thread.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}
