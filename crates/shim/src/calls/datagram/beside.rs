//! What the backing socket of a socket on ANY must not hear because an engine hears it too
//! (`client::duplicate_filter`).

use std::os::fd::RawFd;

use rustix::io::Errno;

use crate::socket::Socket;
use crate::{accelerated, sys};

/// Attaches the filter, if it is not there and an engine is on a link of this kernel.
pub fn attach(fd: RawFd, socket: &Socket) -> Result<(), Errno> {
    if socket.is_filtered() {
        return Ok(());
    }
    attach_again(fd, socket)
}

/// Attaches it as it is to be now.
pub fn attach_again(fd: RawFd, socket: &Socket) -> Result<(), Errno> {
    let all = accelerated::datagram_networks();
    if let Some(program) = client::duplicate_filter(&all, socket.hears_kernel_groups()) {
        bpf::classic::attach(sys::borrow(fd)?, &program)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))?;
    }
    socket.set_filtered(true);
    Ok(())
}

/// Takes it away.
pub fn detach(fd: RawFd, socket: &Socket) {
    socket.set_filtered(false);
    // There is none where the engine has no link, or the program has put its own in its place.
    let _ = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &[0; 4]);
}
