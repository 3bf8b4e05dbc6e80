//! ICMP for IPv4 (RFC 792; RFC 1191 for the next-hop MTU, RFC 1122 §3.2.2 for what hosts do).
//!
//! Extensions after the quoted packet (RFC 4884) are left where they are, at the end of `quoted`.
//! Whether a quote belongs to a connection of ours is decided in `stack` and `tcp` (RFC 5927).

use core::net::Ipv4Addr;

use crate::checksum::Sum;
use crate::{Error, split_header};

/// Bytes before the data of an echo or the packet quoted by an error.
pub const HEADER_LEN: usize = 8;

const ECHO_REPLY: u8 = 0;
const DESTINATION_UNREACHABLE: u8 = 3;
const REDIRECT: u8 = 5;
const ECHO_REQUEST: u8 = 8;
const SOURCE_QUENCH: u8 = 4;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// Whether a message of that type reports an error: then it must never be answered with one (RFC 1122 §3.2.2).
#[must_use]
pub const fn is_error(kind: u8) -> bool {
    matches!(
        kind,
        DESTINATION_UNREACHABLE | SOURCE_QUENCH | REDIRECT | TIME_EXCEEDED | PARAMETER_PROBLEM
    )
}

/// Codes of [`Message::DestinationUnreachable`] (RFC 792; RFC 1812 §5.2.7.1).
pub mod unreachable {
    /// No route to the network.
    pub const NETWORK: u8 = 0;
    /// No route to the host.
    pub const HOST: u8 = 1;
    /// The host does not speak the protocol.
    pub const PROTOCOL: u8 = 2;
    /// Nobody listens on the port.
    pub const PORT: u8 = 3;
    /// The packet is too long for the next hop and must not be fragmented.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// The source route failed.
    pub const SOURCE_ROUTE_FAILED: u8 = 5;
    /// A filter dropped the packet.
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 13;
}

/// An ICMP message. `quoted` is the start of the packet that caused it: its IPv4 header and at least
/// eight bytes more, if the sender kept to RFC 792.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message<'a> {
    /// "Are you there?"
    EchoRequest {
        /// Names the asker.
        identifier: u16,
        /// Counts its questions.
        sequence: u16,
        /// To be returned unchanged.
        data: &'a [u8],
    },
    /// The answer to an echo request.
    EchoReply {
        /// As in the request.
        identifier: u16,
        /// As in the request.
        sequence: u16,
        /// As in the request.
        data: &'a [u8],
    },
    /// The packet could not be delivered.
    DestinationUnreachable {
        /// Why: see [`mod@unreachable`].
        code: u8,
        /// With [`unreachable::FRAGMENTATION_NEEDED`] the MTU of the next hop, 0 from routers older
        /// than RFC 1191; otherwise unused.
        next_hop_mtu: u16,
        /// The packet that caused the message.
        quoted: &'a [u8],
    },
    /// There is a better first hop.
    Redirect {
        /// 0 and 2 for the network, 1 and 3 for the host; hosts make no difference (RFC 1122 §3.2.2.2).
        code: u8,
        /// The better one.
        gateway: Ipv4Addr,
        /// The packet that caused the message.
        quoted: &'a [u8],
    },
    /// The packet's hops or the time to collect its fragments ran out.
    TimeExceeded {
        /// 0 in transit, 1 while its fragments were collected.
        code: u8,
        /// The packet that caused the message.
        quoted: &'a [u8],
    },
    /// A field of the packet's header is wrong.
    ParameterProblem {
        /// 0 when `pointer` says which.
        code: u8,
        /// Offset of the wrong byte in the quoted packet.
        pointer: u8,
        /// The packet that caused the message.
        quoted: &'a [u8],
    },
    /// Any other type; RFC 1122 §3.2.2 has hosts ignore them.
    Other {
        /// The ICMP type.
        kind: u8,
        /// Its code.
        code: u8,
    },
}

impl<'a> Message<'a> {
    /// Reads a message and verifies its checksum. `bytes` is the whole payload of the IPv4 packet,
    /// which must not be a fragment.
    ///
    /// # Errors
    /// [`Error::Truncated`] below [`HEADER_LEN`] bytes, [`Error::Checksum`].
    pub fn parse(bytes: &'a [u8]) -> Result<Message<'a>, Error> {
        let (&[kind, code, _, _, b4, b5, b6, b7], rest) = split_header::<HEADER_LEN>(bytes)?;
        if !Sum::new().add(bytes).is_right() {
            return Err(Error::Checksum);
        }
        let first = u16::from_be_bytes([b4, b5]);
        let second = u16::from_be_bytes([b6, b7]);
        Ok(match kind {
            ECHO_REQUEST => Message::EchoRequest {
                identifier: first,
                sequence: second,
                data: rest,
            },
            ECHO_REPLY => Message::EchoReply {
                identifier: first,
                sequence: second,
                data: rest,
            },
            DESTINATION_UNREACHABLE => Message::DestinationUnreachable {
                code,
                next_hop_mtu: second,
                quoted: rest,
            },
            REDIRECT => Message::Redirect {
                code,
                gateway: Ipv4Addr::new(b4, b5, b6, b7),
                quoted: rest,
            },
            TIME_EXCEEDED => Message::TimeExceeded { code, quoted: rest },
            PARAMETER_PROBLEM => Message::ParameterProblem {
                code,
                pointer: b4,
                quoted: rest,
            },
            _ => Message::Other { kind, code },
        })
    }

    /// Bytes that [`Message::emit`] writes.
    #[must_use]
    pub fn emit_len(&self) -> usize {
        HEADER_LEN + self.variable_part().len()
    }

    /// Writes the message with its checksum to the start of `out`; returns its length.
    ///
    /// # Panics
    /// When `out` is shorter than [`Message::emit_len`].
    #[track_caller]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let (kind, code, rest_of_header) = self.fixed_part();
        let variable = self.variable_part();
        let len = HEADER_LEN + variable.len();
        let out = out
            .get_mut(..len)
            .expect("invariant: the buffer given to emit holds the whole message");
        out[..4].copy_from_slice(&[kind, code, 0, 0]);
        out[4..HEADER_LEN].copy_from_slice(&rest_of_header);
        out[HEADER_LEN..].copy_from_slice(variable);
        let checksum = Sum::new().add(out).finish();
        out[2..4].copy_from_slice(&checksum.to_be_bytes());
        len
    }

    /// Type, code and the second word of the header.
    fn fixed_part(&self) -> (u8, u8, [u8; 4]) {
        let pair = |first: u16, second: u16| {
            let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
            [a, b, c, d]
        };
        match *self {
            Message::EchoRequest {
                identifier,
                sequence,
                ..
            } => (ECHO_REQUEST, 0, pair(identifier, sequence)),
            Message::EchoReply {
                identifier,
                sequence,
                ..
            } => (ECHO_REPLY, 0, pair(identifier, sequence)),
            Message::DestinationUnreachable {
                code, next_hop_mtu, ..
            } => (DESTINATION_UNREACHABLE, code, pair(0, next_hop_mtu)),
            Message::Redirect { code, gateway, .. } => (REDIRECT, code, gateway.octets()),
            Message::TimeExceeded { code, .. } => (TIME_EXCEEDED, code, [0; 4]),
            Message::ParameterProblem { code, pointer, .. } => {
                (PARAMETER_PROBLEM, code, [pointer, 0, 0, 0])
            }
            Message::Other { kind, code } => (kind, code, [0; 4]),
        }
    }

    fn variable_part(&self) -> &'a [u8] {
        match *self {
            Message::EchoRequest { data, .. } | Message::EchoReply { data, .. } => data,
            Message::DestinationUnreachable { quoted, .. }
            | Message::Redirect { quoted, .. }
            | Message::TimeExceeded { quoted, .. }
            | Message::ParameterProblem { quoted, .. } => quoted,
            Message::Other { .. } => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_support::{PORT_UNREACHABLE, UDP_HEY, ipv4_packet, ipv4_payload};

    #[test]
    fn captured_port_unreachable_quotes_the_datagram() {
        let bytes = ipv4_payload(PORT_UNREACHABLE);
        let quoted = ipv4_packet(UDP_HEY);
        let expected = Message::DestinationUnreachable {
            code: unreachable::PORT,
            next_hop_mtu: 0,
            quoted: &quoted,
        };
        assert_eq!(Message::parse(&bytes), Ok(expected));

        let mut emitted = vec![0xaa; expected.emit_len()];
        assert_eq!(expected.emit(&mut emitted), bytes.len());
        assert_eq!(emitted, bytes);
    }

    #[test]
    fn fragmentation_needed_carries_the_mtu_of_the_next_hop() {
        let mut bytes = [3, 4, 0, 0, 0, 0, 0x05, 0x78];
        let checksum = Sum::new().add(&bytes).finish();
        bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
        let expected = Message::DestinationUnreachable {
            code: unreachable::FRAGMENTATION_NEEDED,
            next_hop_mtu: 1400,
            quoted: &[],
        };
        assert_eq!(Message::parse(&bytes), Ok(expected));
    }

    #[test]
    fn empty_echo_request_has_the_known_checksum() {
        let request = Message::EchoRequest {
            identifier: 0,
            sequence: 0,
            data: &[],
        };
        let mut emitted = [0xaa; 8];
        request.emit(&mut emitted);
        assert_eq!(emitted, [8, 0, 0xf7, 0xff, 0, 0, 0, 0]);
    }

    #[test]
    fn any_flipped_bit_is_refused() {
        let bytes = ipv4_payload(PORT_UNREACHABLE);
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Message::parse(&bytes), Err(Error::Checksum), "bit {bit}");
        }
    }

    fn message(data: &[u8]) -> impl Strategy<Value = Message<'_>> {
        let is_known = |kind| {
            matches!(
                kind,
                ECHO_REPLY
                    | DESTINATION_UNREACHABLE
                    | REDIRECT
                    | ECHO_REQUEST
                    | TIME_EXCEEDED
                    | PARAMETER_PROBLEM
            )
        };
        prop_oneof![
            any::<(u16, u16)>().prop_map(move |(identifier, sequence)| Message::EchoRequest {
                identifier,
                sequence,
                data
            }),
            any::<(u16, u16)>().prop_map(move |(identifier, sequence)| Message::EchoReply {
                identifier,
                sequence,
                data
            }),
            any::<(u8, u16)>().prop_map(move |(code, next_hop_mtu)| {
                Message::DestinationUnreachable {
                    code,
                    next_hop_mtu,
                    quoted: data,
                }
            }),
            any::<u8>().prop_map(move |code| Message::TimeExceeded { code, quoted: data }),
            any::<(u8, [u8; 4])>().prop_map(move |(code, gateway)| Message::Redirect {
                code,
                gateway: gateway.into(),
                quoted: data
            }),
            any::<(u8, u8)>().prop_map(move |(code, pointer)| Message::ParameterProblem {
                code,
                pointer,
                quoted: data
            }),
            any::<(u8, u8)>()
                .prop_filter("a type of its own", move |&(kind, _)| !is_known(kind))
                .prop_map(|(kind, code)| Message::Other { kind, code }),
        ]
    }

    const DATA: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";

    proptest! {
        #[test]
        fn emitted_messages_parse_back(
            message in (0..DATA.len()).prop_flat_map(|len| message(&DATA[..len])),
            spare in 0_usize..10,
        ) {
            let mut bytes = vec![0xaa; message.emit_len() + spare];
            let len = message.emit(&mut bytes);
            prop_assert_eq!(len, message.emit_len());
            prop_assert!(bytes[len..].iter().all(|&byte| byte == 0xaa));
            prop_assert_eq!(Message::parse(&bytes[..len]), Ok(message));
            for len in 0..HEADER_LEN {
                prop_assert_eq!(Message::parse(&bytes[..len]), Err(Error::Truncated));
            }
        }
    }
}
