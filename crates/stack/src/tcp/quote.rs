//! What an ICMP error quotes of a segment.

use crate::containers::demux::FourTuple;
use crate::ip::quote::QuotedPacket;
use crate::link::interface::InterfaceId;
use core::net::IpAddr;
use wire::ipv4::Protocol;

/// The connection and the sequence number that an ICMP error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quote {
    pub(crate) tuple: FourTuple,
    pub(crate) seq: u32,
    pub(crate) total_len: u16,
}

impl Quote {
    /// Reads the start of a segment that `offender`, on the link of `interface`, says that this host has sent.
    pub(crate) fn parse(quoted: &[u8], offender: IpAddr, interface: InterfaceId) -> Option<Self> {
        let packet = QuotedPacket::parse(quoted, Protocol::TCP)?;
        let (local, remote) = (packet.source, packet.destination);
        let [.., a, b, c, d] = *packet.header;
        let tuple = FourTuple::new(local.ip(), local.port(), remote.ip(), remote.port());
        (local.is_ipv4() == offender.is_ipv4()).then_some(Self {
            tuple: tuple.on_link(interface),
            seq: u32::from_be_bytes([a, b, c, d]),
            total_len: packet.total_len,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_shorter_than_rfc_792_says_is_no_quote() {
        let parse = |quoted: &[u8]| Quote::parse(quoted, IpAddr::from([0; 4]), InterfaceId(0));
        let mut quoted = [0_u8; 28];
        quoted[0] = 0x45;
        quoted[9] = 6;
        assert!(parse(&quoted).is_some());
        assert_eq!(parse(&quoted[..27]), None);
        quoted[0] = 0x4f;
        assert_eq!(parse(&quoted), None, "options that are not there");
        quoted[0] = 0x45;
        quoted[7] = 1;
        assert_eq!(parse(&quoted), None, "not the first fragment");
    }
}
