//! ICMP for IPv6 (RFC 4443): errors and echo. Neighbour discovery is [`ndp`]; what else there is, as
//! multicast listener discovery, is [`Message::Other`] with its bytes.
//!
//! The checksum covers the addresses (RFC 4443 §2.3), so they are parameters. Whether a quote belongs to
//! a connection of ours is decided in `stack` and `tcp`.

use core::net::Ipv6Addr;

use crate::checksum::Sum;
use crate::ipv6::Protocol;
use crate::{Error, split_header};

pub mod ndp;

/// Bytes before the data of an echo or the packet quoted by an error.
pub const HEADER_LEN: usize = 8;
/// Bytes of type, code and checksum.
const COMMON_LEN: usize = 4;

const DESTINATION_UNREACHABLE: u8 = 1;
const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const PARAMETER_PROBLEM: u8 = 4;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;

/// Whether an error must not answer a message that begins with these bytes (RFC 4443 §2.4 (e.1), (e.2)): it is an error
/// itself, or a redirect, or nobody can tell.
#[must_use]
pub const fn must_not_be_answered(message: &[u8]) -> bool {
    match message {
        // RFC 4443 §2.1: the high bit is clear in errors.
        [kind, ..] => *kind < 128 || *kind == ndp::REDIRECT,
        [] => true,
    }
}

/// Codes of [`Message::DestinationUnreachable`] (RFC 4443 §3.1).
pub mod unreachable {
    /// No route to the destination.
    pub const NO_ROUTE: u8 = 0;
    /// The address could not be resolved, or any other reason.
    pub const ADDRESS: u8 = 3;
    /// Nobody listens on the port.
    pub const PORT: u8 = 4;
}

/// Codes of [`Message::TimeExceeded`] (RFC 4443 §3.3).
pub mod time_exceeded {
    /// The hop limit ran out in transit.
    pub const HOPS: u8 = 0;
    /// Not all fragments came in time.
    pub const REASSEMBLY: u8 = 1;
}

/// Codes of [`Message::ParameterProblem`] (RFC 4443 §3.4, RFC 7112 §5).
pub mod parameter_problem {
    /// A field of a header is wrong.
    pub const FIELD: u8 = 0;
    /// A next header is not known.
    pub const NEXT_HEADER: u8 = 1;
    /// An option is not known.
    pub const OPTION: u8 = 2;
    /// The first fragment does not hold all headers.
    pub const INCOMPLETE_CHAIN: u8 = 3;
}

/// An ICMPv6 message. `quoted` is the start of the packet that caused it, from its IPv6 header on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message<'a> {
    /// The packet could not be delivered.
    DestinationUnreachable {
        /// Why: see [`mod@unreachable`].
        code: u8,
        /// The packet that caused the message.
        quoted: &'a [u8],
    },
    /// The packet is too long for the next hop.
    PacketTooBig {
        /// MTU of the next hop.
        mtu: u32,
        /// The packet that caused the message.
        quoted: &'a [u8],
    },
    /// The packet's hops or the time to collect its fragments ran out.
    TimeExceeded {
        /// Which: see [`mod@time_exceeded`].
        code: u8,
        /// The packet that caused the message.
        quoted: &'a [u8],
    },
    /// The packet could not be processed.
    ParameterProblem {
        /// Why: see [`mod@parameter_problem`].
        code: u8,
        /// Offset of the wrong byte in the quoted packet.
        pointer: u32,
        /// The packet that caused the message.
        quoted: &'a [u8],
    },
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
    /// A message of neighbour discovery.
    Ndp(ndp::Message<'a>),
    /// Any other type.
    Other {
        /// The ICMPv6 type.
        kind: u8,
        /// Its code.
        code: u8,
        /// What follows the checksum.
        body: &'a [u8],
    },
}

impl<'a> Message<'a> {
    /// Reads a message between two addresses and verifies its checksum. `bytes` is all that follows the
    /// IPv6 header and its extension headers.
    ///
    /// # Errors
    /// [`Error::Truncated`] when a known message ends before its header does, [`Error::Checksum`],
    /// [`Error::Malformed`] for an option of neighbour discovery without length.
    pub fn parse(
        source: Ipv6Addr,
        destination: Ipv6Addr,
        bytes: &'a [u8],
    ) -> Result<Message<'a>, Error> {
        let (&[kind, code, _, _], body) = split_header::<COMMON_LEN>(bytes)?;
        let sum = Sum::new()
            .pseudo_header_v6(source, destination, Protocol::ICMPV6, bytes.len())
            .add(bytes);
        if !sum.is_right() {
            return Err(Error::Checksum);
        }
        if ndp::is_kind(kind) {
            return ndp::Message::parse(kind, code, body).map(Message::Ndp);
        }
        if !matches!(
            kind,
            DESTINATION_UNREACHABLE..=PARAMETER_PROBLEM | ECHO_REQUEST | ECHO_REPLY
        ) {
            return Ok(Message::Other { kind, code, body });
        }
        let (&word, rest) = split_header::<4>(body)?;
        let [a, b, c, d] = word;
        let (identifier, sequence) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        Ok(match kind {
            DESTINATION_UNREACHABLE => Message::DestinationUnreachable { code, quoted: rest },
            PACKET_TOO_BIG => Message::PacketTooBig {
                mtu: u32::from_be_bytes(word),
                quoted: rest,
            },
            TIME_EXCEEDED => Message::TimeExceeded { code, quoted: rest },
            PARAMETER_PROBLEM => Message::ParameterProblem {
                code,
                pointer: u32::from_be_bytes(word),
                quoted: rest,
            },
            ECHO_REQUEST => Message::EchoRequest {
                identifier,
                sequence,
                data: rest,
            },
            _ => Message::EchoReply {
                identifier,
                sequence,
                data: rest,
            },
        })
    }

    /// Whether this reports an error: then it must never be answered with one (RFC 4443 §2.4 (e)).
    #[must_use]
    pub const fn is_error(&self) -> bool {
        match self {
            Message::DestinationUnreachable { .. }
            | Message::PacketTooBig { .. }
            | Message::TimeExceeded { .. }
            | Message::ParameterProblem { .. } => true,
            // RFC 4443 §2.1: the high bit is clear in errors.
            Message::Other { kind, .. } => *kind < 128,
            _ => false,
        }
    }

    /// Bytes that [`Message::emit`] writes.
    #[must_use]
    pub fn emit_len(&self) -> usize {
        match self {
            Message::Ndp(message) => COMMON_LEN + message.body_len(),
            Message::Other { body, .. } => COMMON_LEN + body.len(),
            _ => HEADER_LEN + self.variable_part().len(),
        }
    }

    /// Writes the message with its checksum to the start of `out`; returns its length.
    ///
    /// # Panics
    /// When `out` is shorter than [`Message::emit_len`].
    #[track_caller]
    pub fn emit(&self, source: Ipv6Addr, destination: Ipv6Addr, out: &mut [u8]) -> usize {
        let len = self.emit_len();
        let out = out
            .get_mut(..len)
            .expect("invariant: the buffer given to emit holds the whole message");
        let (kind, code) = self.kind_and_code();
        out[..COMMON_LEN].copy_from_slice(&[kind, code, 0, 0]);
        let body = &mut out[COMMON_LEN..];
        match self {
            Message::Ndp(message) => message.emit_body(body),
            Message::Other { body: bytes, .. } => body.copy_from_slice(bytes),
            _ => {
                body[..4].copy_from_slice(&self.second_word());
                body[4..].copy_from_slice(self.variable_part());
            }
        }
        let checksum = Sum::new()
            .pseudo_header_v6(source, destination, Protocol::ICMPV6, len)
            .add(out)
            .finish();
        out[2..4].copy_from_slice(&checksum.to_be_bytes());
        len
    }

    fn kind_and_code(&self) -> (u8, u8) {
        match *self {
            Message::DestinationUnreachable { code, .. } => (DESTINATION_UNREACHABLE, code),
            Message::PacketTooBig { .. } => (PACKET_TOO_BIG, 0),
            Message::TimeExceeded { code, .. } => (TIME_EXCEEDED, code),
            Message::ParameterProblem { code, .. } => (PARAMETER_PROBLEM, code),
            Message::EchoRequest { .. } => (ECHO_REQUEST, 0),
            Message::EchoReply { .. } => (ECHO_REPLY, 0),
            Message::Ndp(ref message) => (message.kind(), 0),
            Message::Other { kind, code, .. } => (kind, code),
        }
    }

    /// The second word of the header.
    fn second_word(&self) -> [u8; 4] {
        match *self {
            Message::PacketTooBig { mtu, .. } => mtu.to_be_bytes(),
            Message::ParameterProblem { pointer, .. } => pointer.to_be_bytes(),
            Message::EchoRequest {
                identifier,
                sequence,
                ..
            }
            | Message::EchoReply {
                identifier,
                sequence,
                ..
            } => {
                let ([a, b], [c, d]) = (identifier.to_be_bytes(), sequence.to_be_bytes());
                [a, b, c, d]
            }
            _ => [0; 4],
        }
    }

    fn variable_part(&self) -> &'a [u8] {
        match *self {
            Message::EchoRequest { data, .. } | Message::EchoReply { data, .. } => data,
            Message::DestinationUnreachable { quoted, .. }
            | Message::PacketTooBig { quoted, .. }
            | Message::TimeExceeded { quoted, .. }
            | Message::ParameterProblem { quoted, .. } => quoted,
            Message::Ndp(_) | Message::Other { .. } => &[],
        }
    }
}

#[cfg(test)]
mod tests;
