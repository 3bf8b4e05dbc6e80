//! What the two families of addresses need of a command: scopes and `IPV6_V6ONLY` (ipv6(7)).

use crate::core::EngineCore;
use core::net::{IpAddr, SocketAddr, SocketAddrV6};
use rustix::net::sockopt;

impl EngineCore {
    /// `IPV6_V6ONLY`, which the backing socket keeps.
    pub(crate) fn is_v6_only(&mut self, row: u32) -> bool {
        let backing = self.sockets.companion(row).backing.as_ref();
        // An IPv4 socket has no such option, and its address says all.
        backing.is_some_and(|backing| sockopt::ipv6_v6only(backing).unwrap_or(false))
    }

    /// A link-local address lies on the one link of the engine, whatever number that has for the program.
    pub(crate) fn scoped(&self, address: SocketAddr) -> SocketAddr {
        match (address.ip().to_canonical(), address.port()) {
            (IpAddr::V6(v6), port) => {
                SocketAddrV6::new(v6, port, 0, self.config.interface_index).into()
            }
            (address, port) => SocketAddr::new(address, port),
        }
    }
}
