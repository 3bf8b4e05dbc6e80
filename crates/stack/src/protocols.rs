//! Which protocols a stack speaks besides IPv4. What is left out is not there: its packets are refused as
//! those of any protocol that a host does not know (RFC 1122 §3.2.2.1, RFC 8200 §4), and so are sockets.
//!
//! ARP belongs to IPv4, neighbour discovery to IPv6, group membership to UDP. Without ICMP nothing is
//! answered, reported or believed; the path MTU is then found without it (RFC 4821).

use crate::error::Error;
use bitflags::bitflags;
use core::net::IpAddr;

bitflags! {
    /// A set of protocols.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Protocols: u8 {
        /// IPv6 with its neighbour discovery (RFC 8200, RFC 4861).
        const IPV6 = 1;
        /// TCP (RFC 9293).
        const TCP = 1 << 1;
        /// UDP and multicast (RFC 768, RFC 1112).
        const UDP = 1 << 2;
        /// Echo and errors of both families (RFC 792, RFC 4443).
        const ICMP = 1 << 3;
    }
}

impl Protocols {
    /// Every protocol and its name.
    pub const NAMES: [(Self, &'static str); 4] = [
        (Self::IPV6, "ipv6"),
        (Self::TCP, "tcp"),
        (Self::UDP, "udp"),
        (Self::ICMP, "icmp"),
    ];

    /// The protocol of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(_, known)| *known == name);
        found.map(|(protocol, _)| *protocol)
    }

    /// The names of those in the set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let is_in = move |(protocol, _): &(Self, &str)| self.contains(*protocol);
        Self::NAMES.into_iter().filter(is_in).map(|(_, name)| name)
    }

    /// Whether a socket of `kind` may have an end at `address`.
    pub(crate) fn check_socket(self, kind: Self, address: IpAddr) -> Result<(), Error> {
        if !self.contains(kind) {
            return Err(Error::ProtocolNotSupported);
        }
        // The unspecified address of IPv6 stands for both families.
        let needs_ipv6 = address.to_canonical().is_ipv6() && !address.is_unspecified();
        if needs_ipv6 && !self.contains(Self::IPV6) {
            return Err(Error::FamilyNotSupported);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for (protocol, name) in Protocols::NAMES {
            assert_eq!(Protocols::named(name), Some(protocol));
            assert_eq!(protocol.names().collect::<Vec<_>>(), [name]);
        }
        assert_eq!(Protocols::named("ipv4"), None, "it is always there");
        assert_eq!(Protocols::all().names().count(), 4);
    }
}
