//! One option of socket(7) that rustix does not have.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// The number of a socket's network namespace, which no other has as long as the kernel runs.
pub(super) fn network_cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie = 0_u64;
    let mut len =
        libc::socklen_t::try_from(size_of_val(&cookie)).expect("invariant: an option is small");
    // SAFETY: pointer and length describe `cookie`, which the kernel fills and which outlives the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(cookie)
    }
}
