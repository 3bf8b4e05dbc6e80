//! The addresses that the engines own, as a program is told them among the kernel's: by rtnetlink(7) (`netlink`) and by the
//! questions of netdevice(7) (`netdevice`). Each stands at its engine's interface, as far as the program's network has that.
//!
//! Shared addresses are the kernel's and named by it. Where a program's question is seen, and where the answer is put, is
//! for the switch (preload library or supervisor): docs/decisions/0057-addresses-of-engines-are-named.md.

pub mod netdevice;
pub mod netlink;

use core::net::IpAddr;

use hostif::control::Sharing;
use rustix::fd::BorrowedFd;

use crate::engines::Networks;
use crate::engines::route::EngineNetworks;

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

/// All of them. `socket` is any socket of the program's network.
#[must_use]
pub fn own(networks: &Networks, socket: BorrowedFd<'_>) -> Vec<Own> {
    let mut found = Vec::new();
    for networks in networks.iter() {
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
