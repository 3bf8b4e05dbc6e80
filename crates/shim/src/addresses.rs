//! The addresses that the engines own, among those that the kernel names to a program: getifaddrs(3), rtnetlink(7) and
//! the questions of netdevice(7). Each stands at its engine's interface, as far as the program's network has that.
//!
//! Shared addresses are the kernel's and named by it.

mod netdevice;
mod netlink;

use core::net::IpAddr;
use std::os::fd::{BorrowedFd, RawFd};

pub use netdevice::{answered, is_asked, room};
pub use netlink::{Dump, SENDER, is_dump, observe, receive};

use crate::policy::policy;
use crate::{accelerated, create, descriptors, file};
use client::Sharing;
use client::route::EngineNetworks;

/// An address that only an engine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Number of the engine's interface.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// Length of its network's prefix.
    pub prefix_len: u8,
}

/// All of them. `socket` is any socket of the program's network. Attaches the process, as a first socket does.
pub fn own(socket: BorrowedFd<'_>) -> Vec<Own> {
    // Without an engine there are none; whether sockets may be made then is not asked here.
    let _ = create::attach(libc::SOCK_STREAM);
    let mut found = Vec::new();
    for networks in accelerated::networks().iter() {
        if let Ok(name) = rustix::net::netdevice::index_to_name(socket, networks.scope_id) {
            found.extend(of(networks, &name));
        }
    }
    found
}

fn of(networks: &EngineNetworks, name: &str) -> Vec<Own> {
    if networks.sharing != Sharing::Owned {
        return Vec::new();
    }
    let own = networks.interfaces.iter().map(|network| Own {
        index: networks.scope_id,
        name: name.to_owned(),
        address: network.address,
        prefix_len: network.prefix_len,
    });
    own.collect()
}

/// Whether a socket of this kind answers questions for addresses.
pub fn is_candidate(domain: i32, protocol: i32) -> bool {
    domain == libc::AF_NETLINK && protocol == libc::NETLINK_ROUTE && policy().may_accelerate()
}

/// The program has made a netlink socket for routes: its questions for addresses are to be seen.
pub fn follow(fd: RawFd) {
    descriptors::insert(fd, file::File::new(file::Kind::Dump(Dump::default())));
}
