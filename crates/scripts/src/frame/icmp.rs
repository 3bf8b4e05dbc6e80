//! ICMP for IPv4 (RFC 792) and IPv6 (RFC 4443): errors, with a quotation of what they are about, and echoes.

use super::{ICMPV4, ICMPV6, IpFields, Link, TCP, checksum, ip, pseudo_header, tcp::Tcp, wrap};

/// What an error says, in both versions' terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Fragmentation needed, packet too big: an MTU is told with it.
    TooBig,
    /// Network unreachable.
    NetUnreachable,
    /// Host unreachable.
    HostUnreachable,
    /// Protocol unreachable (IPv6: unrecognised next header).
    ProtocolUnreachable,
    /// Port unreachable.
    PortUnreachable,
    /// Administratively prohibited.
    Prohibited,
    /// Time exceeded.
    TimeExceeded,
    /// Source quench, which is to be ignored (RFC 6633); there is none for IPv6.
    SourceQuench,
}

impl Error {
    /// Type, code and the second word, for IPv4.
    fn v4(self, mtu: u32) -> (u8, u8, u32) {
        match self {
            // RFC 1191 §4: the MTU stands in the low half.
            Self::TooBig => (3, 4, mtu & 0xffff),
            Self::NetUnreachable => (3, 0, 0),
            Self::HostUnreachable => (3, 1, 0),
            Self::ProtocolUnreachable => (3, 2, 0),
            Self::PortUnreachable => (3, 3, 0),
            Self::Prohibited => (3, 13, 0),
            Self::TimeExceeded => (11, 0, 0),
            Self::SourceQuench => (4, 0, 0),
        }
    }

    /// The same for IPv6.
    fn v6(self, mtu: u32) -> (u8, u8, u32) {
        match self {
            Self::TooBig => (2, 0, mtu),
            Self::NetUnreachable => (1, 0, 0),
            Self::HostUnreachable => (1, 3, 0),
            // The pointer shows at the next-header field.
            Self::ProtocolUnreachable => (4, 1, 6),
            Self::PortUnreachable => (1, 4, 0),
            Self::Prohibited => (1, 1, 0),
            Self::TimeExceeded => (3, 0, 0),
            // The kind is not assigned (RFC 4443 §6.2): ignored, as a quench must be.
            Self::SourceQuench => (98, 0, 0),
        }
    }
}

/// The frame that brings the error to the host. It quotes `about` as the host sent it; `mtu` is that of [`Error::TooBig`].
pub fn frame(link: &Link, error: Error, mtu: u32, about: &Tcp) -> Vec<u8> {
    let fields = IpFields { ecn: 0, df: true };
    let segment = about.quoted(link);
    let mut quote = ip(link.host, link.peer, TCP, fields, &segment);
    quote.truncate(quote.len() - about.payload.len());
    let is_v4 = link.host.is_ipv4();
    let head = if is_v4 { error.v4(mtu) } else { error.v6(mtu) };
    wrapped(link, head, &quote)
}

/// The frame of an echo request with this number, which its reply repeats.
pub fn echo_request(link: &Link, number: u16) -> Vec<u8> {
    let kind = if link.host.is_ipv4() { 8 } else { 128 };
    wrapped(link, (kind, 0, number.into()), &[])
}

/// The number of an echo reply.
pub(super) fn echo_reply(message: &[u8], is_v4: bool) -> Option<u16> {
    let &[kind, 0, _, _, 0, 0, high, low, ..] = message else {
        return None;
    };
    let is_reply = kind == if is_v4 { 0 } else { 129 };
    is_reply.then_some(u16::from_be_bytes([high, low]))
}

/// A message to the host: type, code and second word, and what follows.
fn wrapped(link: &Link, (kind, code, word): (u8, u8, u32), rest: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(word.to_be_bytes());
    message.extend(rest);
    let is_v4 = link.host.is_ipv4();
    let sum = if is_v4 {
        checksum(&[&message])
    } else {
        let pseudo = pseudo_header(link.peer, link.host, ICMPV6, message.len());
        checksum(&[&pseudo, &message])
    };
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let protocol = if is_v4 { ICMPV4 } else { ICMPV6 };
    wrap(link, protocol, IpFields::default(), &message)
}
