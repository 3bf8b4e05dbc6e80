//! What the backing socket of a socket on ANY must not receive because an engine receives it too
//! (`client::duplicate_filter`).

use std::os::fd::RawFd;

use rustix::io::Errno;

use crate::socket::Socket;
use crate::sys;
use switch::attached;
use switch::backing;

/// Attaches the filter, if it is not there and an engine is on a link of this kernel.
pub fn attach(fd: RawFd, socket: &Socket) -> Result<(), Errno> {
    if socket.is_filtered() {
        return Ok(());
    }
    attach_again(fd, socket)
}

/// Attaches the filter again, for the engines and groups that there are now.
pub fn attach_again(fd: RawFd, socket: &Socket) -> Result<(), Errno> {
    let all = attached::datagram_networks();
    if let Some(program) = client::duplicate_filter(&all, socket.hears_kernel_groups()) {
        bpf::classic::attach(sys::borrow(fd)?, &program)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))?;
    }
    socket.set_filtered(true);
    Ok(())
}

/// Whether this filter is attached and the program has none: then the program sees none and can detach none.
pub fn stands_alone(socket: &Socket) -> bool {
    socket.is_datagram()
        && socket.is_filtered()
        && !ATTACH
            .iter()
            .any(|(level, name)| socket.log.has(*level, *name))
}

/// The program has set an option: its own filter takes the place of this one until it is detached.
pub fn follow(fd: RawFd, socket: &Socket, option: (i32, i32)) -> Result<(), Errno> {
    if option == DETACH {
        socket.log.forget(&ATTACH);
        if socket.is_filtered() {
            attach_again(fd, socket)?;
        }
    }
    Ok(())
}

const ATTACH: [(i32, i32); 2] = [
    (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER),
    (libc::SOL_SOCKET, libc::SO_ATTACH_BPF),
];
/// Level and name of SO_DETACH_FILTER.
pub const DETACH: (i32, i32) = (libc::SOL_SOCKET, libc::SO_DETACH_FILTER);
/// Level and name of SO_GET_FILTER, which has the number of SO_ATTACH_FILTER.
pub const GET: (i32, i32) = (libc::SOL_SOCKET, libc::SO_GET_FILTER);

/// Detaches the filter.
pub fn detach(fd: RawFd, socket: &Socket) {
    socket.set_filtered(false);
    // There is none where the engine has no link, or the program has put its own in its place.
    let _ = backing::set_option(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &[0; 4]);
}
