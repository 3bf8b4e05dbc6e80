//! What the two families of addresses need of a command: scopes and `IPV6_V6ONLY` (ipv6(7)).

use crate::core::EngineCore;
use core::net::{IpAddr, SocketAddr, SocketAddrV6};
use rustix::net::sockopt;

impl EngineCore {
    /// `IPV6_V6ONLY`, which the backing socket keeps.
    pub(crate) fn is_v6_only(&mut self, row: u32) -> bool {
        let backing = self.sockets.companion(row).backing.as_ref();
        // An IPv4 socket has no such option, and its address says all.
        backing.is_some_and(|backing| sockopt::ipv6_v6only(&**backing).unwrap_or(false))
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

/// Whether who holds a port on one address holds it on the other: loopback is everybody's, and whose listener has a port there
/// is for the kernel to say.
pub fn covers(held: IpAddr, address: IpAddr, is_v6_only: bool) -> bool {
    match held.to_canonical() {
        IpAddr::V6(any) if any.is_unspecified() => address.is_ipv6() || !is_v6_only,
        IpAddr::V4(any) if any.is_unspecified() => address.is_ipv4(),
        held => held == address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_on_one_address_is_not_a_port_on_another() {
        let covers = |held: &str, address: &str, is_v6_only| {
            covers(held.parse().unwrap(), address.parse().unwrap(), is_v6_only)
        };
        assert!(covers("127.0.0.1", "127.0.0.1", false));
        assert!(covers("0.0.0.0", "127.0.0.1", false));
        assert!(covers("::", "127.0.0.1", false) && covers("::", "::1", true));
        assert!(covers("::ffff:127.0.0.1", "127.0.0.1", false));
        assert!(!covers("127.0.0.2", "127.0.0.1", false));
        assert!(!covers("127.0.0.2", "0.0.0.0", false));
        assert!(!covers("::", "127.0.0.1", true) && !covers("0.0.0.0", "::1", false));
    }
}
