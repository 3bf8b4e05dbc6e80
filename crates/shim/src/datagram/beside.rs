//! What the backing socket of a socket on ANY must not hear because the engine hears it too
//! (`client::heard_beside`).

use std::os::fd::RawFd;

use rustix::io::Errno;

use crate::{accelerated, sys};

/// Attaches the filter, if the engine is on a link of this kernel. With `hears_groups` groups pass.
pub fn attach(fd: RawFd, hears_groups: bool) -> Result<(), Errno> {
    let networks = accelerated::networks();
    match client::heard_beside(&networks, hears_groups) {
        Some(program) => sys::attach_filter(fd, &program),
        None => Ok(()),
    }
}

/// Takes it away.
pub fn detach(fd: RawFd) {
    // There is none where the engine has no link, or the program has put its own in its place.
    let _ = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &[0; 4]);
}
