//! Address resolution for IPv4 over Ethernet (RFC 826; RFC 5227 for what the fields mean in probes).
//!
//! Other pairs of link and network layers are [`Error::Unsupported`]. The cache is in `stack`.

use core::net::Ipv4Addr;

use crate::ethernet::{Address, EtherType};
use crate::{Error, header_mut, split_header};

/// Hardware type Ethernet and its address length, protocol type IPv4 and its address length.
const ETHERNET_IPV4: [u8; 6] = {
    let [high, low] = EtherType::IPV4.0.to_be_bytes();
    [0, 1, high, low, 6, 4]
};

/// What an ARP packet asks or says (IANA "ARP Operation Codes").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation(pub u16);

impl Operation {
    /// Who has the target address?
    pub const REQUEST: Operation = Operation(1);
    /// The sender has it.
    pub const REPLY: Operation = Operation(2);
}

/// An ARP packet for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    /// Request or reply.
    pub operation: Operation,
    /// Hardware address of the sender.
    pub sender_hardware: Address,
    /// IPv4 address of the sender; unspecified in a probe (RFC 5227 §1.1).
    pub sender_protocol: Ipv4Addr,
    /// Hardware address of the target; has no meaning in a request.
    pub target_hardware: Address,
    /// IPv4 address of the target.
    pub target_protocol: Ipv4Addr,
}

impl Packet {
    /// Bytes of the packet.
    pub const LEN: usize = 28;

    /// Reads a packet; what follows it is padding of the frame and ignored.
    ///
    /// # Errors
    /// [`Error::Truncated`] below [`Packet::LEN`] bytes, [`Error::Unsupported`] when it is not about
    /// IPv4 over Ethernet.
    pub fn parse(bytes: &[u8]) -> Result<Packet, Error> {
        let (packet, _padding) = split_header::<{ Packet::LEN }>(bytes)?;
        if packet[..6] != ETHERNET_IPV4 {
            return Err(Error::Unsupported);
        }
        let hardware = |at: usize| Address(core::array::from_fn(|i| packet[at + i]));
        let protocol = |at: usize| Ipv4Addr::from(core::array::from_fn(|i| packet[at + i]));
        Ok(Packet {
            operation: Operation(u16::from_be_bytes([packet[6], packet[7]])),
            sender_hardware: hardware(8),
            sender_protocol: protocol(14),
            target_hardware: hardware(18),
            target_protocol: protocol(24),
        })
    }

    /// Writes the packet to the start of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`Packet::LEN`].
    #[track_caller]
    pub fn emit(&self, out: &mut [u8]) {
        let out = header_mut::<{ Packet::LEN }>(out);
        out[0..6].copy_from_slice(&ETHERNET_IPV4);
        out[6..8].copy_from_slice(&self.operation.0.to_be_bytes());
        out[8..14].copy_from_slice(&self.sender_hardware.0);
        out[14..18].copy_from_slice(&self.sender_protocol.octets());
        out[18..24].copy_from_slice(&self.target_hardware.0);
        out[24..28].copy_from_slice(&self.target_protocol.octets());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_support::{ARP_REPLY, ARP_REQUEST, hardware_address, hex, ipv4_address};

    #[test]
    fn captured_request_and_reply_are_read_field_by_field() {
        let (near, far) = (Ipv4Addr::new(10, 7, 0, 1), Ipv4Addr::new(10, 7, 0, 2));
        let (near_hardware, far_hardware) =
            (Address([2, 0, 0, 0, 0, 1]), Address([2, 0, 0, 0, 0, 2]));
        let request = Packet {
            operation: Operation::REQUEST,
            sender_hardware: near_hardware,
            sender_protocol: near,
            target_hardware: Address::UNSPECIFIED,
            target_protocol: far,
        };
        let reply = Packet {
            operation: Operation::REPLY,
            sender_hardware: far_hardware,
            sender_protocol: far,
            target_hardware: near_hardware,
            target_protocol: near,
        };
        assert_eq!(Packet::parse(&hex(ARP_REQUEST)[14..]), Ok(request));
        assert_eq!(Packet::parse(&hex(ARP_REPLY)[14..]), Ok(reply));
    }

    #[test]
    fn other_layers_are_unsupported() {
        for at in 0..6 {
            let mut packet = hex(ARP_REQUEST).split_off(14);
            packet[at] ^= 0x10;
            assert_eq!(Packet::parse(&packet), Err(Error::Unsupported), "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn emitted_packets_parse_back(
            operation in any::<u16>().prop_map(Operation),
            sender_hardware in hardware_address(),
            sender_protocol in ipv4_address(),
            target_hardware in hardware_address(),
            target_protocol in ipv4_address(),
        ) {
            let packet = Packet { operation, sender_hardware, sender_protocol, target_hardware, target_protocol };
            // A minimum Ethernet frame pads the packet to 46 bytes.
            let mut bytes = [0xaa; 46];
            packet.emit(&mut bytes);
            prop_assert_eq!(Packet::parse(&bytes), Ok(packet));
            prop_assert!(bytes[Packet::LEN..].iter().all(|&byte| byte == 0xaa));
            for len in 0..Packet::LEN {
                prop_assert_eq!(Packet::parse(&bytes[..len]), Err(Error::Truncated));
            }
        }
    }
}
