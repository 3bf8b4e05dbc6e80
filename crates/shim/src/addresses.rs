//! The addresses that the engines own, among those that the kernel names to a program: what it asks is seen, and answered,
//! here; the answers are `client::addresses`.

mod dump;
mod netdevice;
mod netlink;

use std::os::fd::{BorrowedFd, RawFd};

use client::addresses::Own;

pub use client::addresses::netlink::SENDER;
pub use dump::Dump;
pub use netdevice::{answered, is_asked, room};
pub use netlink::{is_dump, observe, receive};

use crate::policy::policy;
use crate::{
    calls::create,
    fd_table::{descriptors, file},
};

/// All of them. `socket` is any socket of the program's network. Attaches the process, as a first socket does.
fn own(socket: BorrowedFd<'_>) -> Vec<Own> {
    // Without an engine there are none; whether sockets may be made then is not asked here.
    let _ = create::attach(client::SocketKinds::STREAM);
    client::addresses::own(&switch::attached::networks(), socket)
}

/// Whether a socket of this kind answers questions for addresses.
pub fn is_candidate(domain: i32, protocol: i32) -> bool {
    domain == libc::AF_NETLINK && protocol == libc::NETLINK_ROUTE && policy().may_accelerate()
}

/// The program has made a netlink socket for routes: its questions for addresses are to be seen.
pub fn follow(fd: RawFd) {
    descriptors::insert(fd, file::File::new(file::Kind::Dump(Dump::default())));
}
