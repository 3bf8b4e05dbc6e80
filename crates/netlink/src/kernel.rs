//! The kernel's own stack as a whole: every interface of the calling thread's network namespace, their addresses, and the
//! routes of the main table. For reports; an engine follows its one interface with [`crate::Monitor`]. Read first:
//! rtnetlink(7).

use std::io;
use std::net::IpAddr;

use wire::ethernet;

use crate::monitor::Route;
use crate::rtnetlink;
use crate::socket::Socket;

/// Interfaces and routes that are kept at most, each.
pub const ENTRIES_MAX: usize = 10_000;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Largest IP packet, in bytes.
    pub mtu_bytes: u32,
    /// It is switched on.
    pub is_up: bool,
    /// Its address on the link, where that has six bytes.
    pub hardware_address: Option<ethernet::Address>,
    /// Usable addresses with the length of their networks' prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// Interfaces by number, and routes with the number of the interface that they lead over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// At most [`ENTRIES_MAX`].
    pub links: Vec<Link>,
    /// At most [`ENTRIES_MAX`], longest prefixes first, as they are looked up.
    pub routes: Vec<(u32, Route)>,
}

impl Kernel {
    /// Asks for everything.
    ///
    /// # Errors
    /// The kernel did not answer.
    pub fn read() -> io::Result<Self> {
        let mut socket = Socket::open(None)?;
        let mut all = Self::default();
        socket.ask(rtnetlink::links(), &mut |kind, body| {
            if kind == rtnetlink::NEW_LINK && all.links.len() < ENTRIES_MAX {
                all.links.extend(rtnetlink::described_link(body));
            }
        })?;
        all.links.sort_by_key(|link| link.index);
        socket.ask(rtnetlink::addresses(), &mut |kind, body| {
            if kind != rtnetlink::NEW_ADDRESS {
                return;
            }
            for link in &mut all.links {
                link.addresses.extend(rtnetlink::address(body, link.index));
            }
        })?;
        socket.ask(rtnetlink::routes(), &mut |kind, body| {
            if kind == rtnetlink::NEW_ROUTE && all.routes.len() < ENTRIES_MAX {
                all.routes.extend(rtnetlink::routes_of_all(body));
            }
        })?;
        all.routes.sort_by_key(|(_, route)| {
            let family = u8::from(route.destination.is_ipv6());
            (family, core::cmp::Reverse(route.prefix_len), route.metric)
        });
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there_with_its_number_and_name() {
        let all = Kernel::read().unwrap();
        let loopback = all.links.iter().find(|link| link.name == "lo").unwrap();
        assert_eq!(loopback.index, 1);
        assert!(loopback.mtu_bytes >= 1_280);
        if loopback.is_up {
            assert!(loopback.addresses.iter().any(|(own, _)| own.is_loopback()));
        }
        for (interface, _) in &all.routes {
            assert!(all.links.iter().any(|link| link.index == *interface));
        }
    }
}
