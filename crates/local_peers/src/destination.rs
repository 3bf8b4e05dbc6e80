//! Which station a frame that is about to leave is for, read from its headers. Read RFC 826 and RFC 4861 §4.3
//! first. Only what this very stack builds is read here: the headers lie in one piece.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::arp::{Operation, Packet};
use wire::ethernet::{EtherType, Header};

const IP_START: usize = Header::LEN;
const IPV4_DESTINATION: usize = IP_START + 16;
const IPV6_NEXT_HEADER: usize = IP_START + 6;
const IPV6_DESTINATION: usize = IP_START + 24;
const ICMPV6_START: usize = IP_START + 40;
/// RFC 4861 §4.3.
const NEIGHBOUR_SOLICITATION: u8 = 135;
const SOLICITATION_TARGET: usize = ICMPV6_START + 8;
/// RFC 4443.
const ICMPV6: u8 = 58;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A packet to this address.
    Packet(IpAddr),
    /// A question: who has this address?
    Question(IpAddr),
    /// Anything else: it is for the link.
    Link,
}

fn bytes<const N: usize>(frame: &[u8], at: usize) -> Option<[u8; N]> {
    frame.get(at..)?.first_chunk().copied()
}

fn v6(frame: &[u8], at: usize) -> Option<IpAddr> {
    Some(Ipv6Addr::from(bytes::<16>(frame, at)?).into())
}

/// Whether the headers surely are of no question, as those of nearly all frames.
#[inline]
pub fn asks_nothing(headers: &[u8]) -> bool {
    let ethertype = bytes(headers, 12).map(|two| EtherType(u16::from_be_bytes(two)));
    match ethertype {
        Some(EtherType::IPV4) => true,
        Some(EtherType::IPV6) => headers.get(IPV6_NEXT_HEADER) != Some(&ICMPV6),
        _ => false,
    }
}

/// Reads it from the headers of a frame.
#[inline]
pub fn of(headers: &[u8]) -> Destination {
    read(headers).unwrap_or(Destination::Link)
}

#[inline]
fn read(headers: &[u8]) -> Option<Destination> {
    let ethertype = EtherType(u16::from_be_bytes(bytes(headers, 12)?));
    match ethertype {
        EtherType::IPV4 => {
            let destination = Ipv4Addr::from(bytes::<4>(headers, IPV4_DESTINATION)?);
            Some(Destination::Packet(destination.into()))
        }
        EtherType::IPV6 => {
            let is_question = headers.get(IPV6_NEXT_HEADER) == Some(&ICMPV6)
                && headers.get(ICMPV6_START) == Some(&NEIGHBOUR_SOLICITATION);
            if is_question {
                v6(headers, SOLICITATION_TARGET).map(Destination::Question)
            } else {
                v6(headers, IPV6_DESTINATION).map(Destination::Packet)
            }
        }
        EtherType::ARP => {
            let packet = Packet::parse(headers.get(IP_START..)?).ok()?;
            (packet.operation == Operation::REQUEST)
                .then(|| Destination::Question(packet.target_protocol.into()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(ethertype: EtherType, rest: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend(ethertype.0.to_be_bytes());
        frame.extend(rest);
        frame
    }

    #[test]
    fn packets_are_for_their_destination() {
        let mut packet = [0; 40];
        packet[16..20].copy_from_slice(&[10, 0, 0, 7]);
        let expected = IpAddr::from([10, 0, 0, 7]);
        assert!(asks_nothing(&frame(EtherType::IPV4, &packet)));
        assert_eq!(
            of(&frame(EtherType::IPV4, &packet)),
            Destination::Packet(expected)
        );
        let target: Ipv6Addr = "fd00::7".parse().unwrap();
        packet[24..40].copy_from_slice(&target.octets());
        assert_eq!(
            of(&frame(EtherType::IPV6, &packet)),
            Destination::Packet(target.into())
        );
    }

    #[test]
    fn questions_are_about_their_target() {
        let mut request = [0; 28];
        let question = Packet {
            operation: Operation::REQUEST,
            sender_hardware: wire::ethernet::Address([2; 6]),
            sender_protocol: [10, 0, 0, 1].into(),
            target_hardware: wire::ethernet::Address([0; 6]),
            target_protocol: [10, 0, 0, 7].into(),
        };
        question.emit(&mut request);
        let expected = Destination::Question(IpAddr::from([10, 0, 0, 7]));
        assert_eq!(of(&frame(EtherType::ARP, &request)), expected);
        assert!(!asks_nothing(&frame(EtherType::ARP, &request)));
        let reply = Packet {
            operation: Operation::REPLY,
            ..question
        };
        reply.emit(&mut request);
        assert_eq!(of(&frame(EtherType::ARP, &request)), Destination::Link);

        let target: Ipv6Addr = "fd00::7".parse().unwrap();
        let mut solicitation = [0; 64];
        solicitation[6] = ICMPV6;
        solicitation[40] = NEIGHBOUR_SOLICITATION;
        solicitation[48..64].copy_from_slice(&target.octets());
        assert_eq!(
            of(&frame(EtherType::IPV6, &solicitation)),
            Destination::Question(target.into())
        );
    }

    #[test]
    fn what_is_too_short_or_unknown_is_for_the_link() {
        for short in [0, 13, 14, 33] {
            let mut bytes = frame(EtherType::IPV4, &[0; 20]);
            bytes.truncate(short);
            assert_eq!(of(&bytes), Destination::Link, "{short}");
        }
        assert_eq!(of(&frame(EtherType(0x88cc), &[0; 60])), Destination::Link);
    }
}
