//! Multicast listener discovery, what hosts hear and say about IPv6 groups (RFC 3810; RFC 2710 for the older
//! version that a router may speak).
//!
//! Queries and the reports of other hosts are read, reports are written. Which groups a host is in is
//! `stack`'s business; so is that these messages are believed from the link only.

use core::net::Ipv6Addr;

use crate::checksum::Sum;
use crate::igmp::{RecordKind, Version};
use crate::ipv6::Protocol;
use crate::{Error, split_header};

const QUERY: u8 = 130;
const REPORT_V1: u8 = 131;
const DONE_V1: u8 = 132;
const REPORT_V2: u8 = 143;
/// Bytes of type, code and checksum, which `icmpv6` reads.
const COMMON_LEN: usize = 4;
/// Bytes of a message of version 1, and of what a query of version 2 begins with.
const V1_LEN: usize = 24;
/// Bytes of a query of version 2 before its sources.
const QUERY_V2_LEN: usize = 28;

/// What a router asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// Its version, in numbers of IGMP: MLDv1 is [`Version::V2`], MLDv2 is [`Version::V3`].
    pub version: Version,
    /// About which group; unspecified: all of them.
    pub group: Ipv6Addr,
    /// Answers are to be spread over so much time, milliseconds.
    pub max_response_ms: u32,
    sources: &'a [u8],
}

impl Query<'_> {
    /// The sources that are asked about; none: the group as a whole.
    pub fn sources(&self) -> impl Iterator<Item = Ipv6Addr> {
        let (chunks, _) = self.sources.as_chunks::<16>();
        chunks.iter().map(|bytes| Ipv6Addr::from_octets(*bytes))
    }
}

/// A message that a host acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A router asks.
    Query(Query<'a>),
    /// Another host is in this group, in the words of the older version.
    Report(Ipv6Addr),
    /// Anything else; RFC 3810 §6 has hosts ignore it.
    Other(u8),
}

impl<'a> Message<'a> {
    /// Reads the `body` of an ICMPv6 message, whose checksum was verified: what follows that.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Malformed`] for a length that no version has.
    pub fn parse(kind: u8, body: &'a [u8]) -> Result<Message<'a>, Error> {
        match kind {
            QUERY => Message::query(body).map(Message::Query),
            REPORT_V1 => {
                let (fixed, _) = split_header::<{ V1_LEN - COMMON_LEN }>(body)?;
                Ok(Message::Report(group(fixed)))
            }
            _ => Ok(Message::Other(kind)),
        }
    }

    /// RFC 3810 §8.1: the version follows from the length.
    fn query(body: &'a [u8]) -> Result<Query<'a>, Error> {
        let (fixed, rest) = split_header::<{ V1_LEN - COMMON_LEN }>(body)?;
        let [high, low, ..] = *fixed;
        let code = u16::from_be_bytes([high, low]);
        let group = group(fixed);
        match COMMON_LEN + body.len() {
            V1_LEN => Ok(Query {
                version: Version::V2,
                group,
                max_response_ms: code.into(),
                sources: &[],
            }),
            QUERY_V2_LEN.. => {
                let (&[_, _, high, low], listed) = split_header::<4>(rest)?;
                let count = usize::from(u16::from_be_bytes([high, low]));
                Ok(Query {
                    version: Version::V3,
                    group,
                    max_response_ms: decode_time(code),
                    sources: listed.get(..count * 16).ok_or(Error::Truncated)?,
                })
            }
            _ => Err(Error::Malformed),
        }
    }
}

fn group(fixed: &[u8; V1_LEN - COMMON_LEN]) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&fixed[4..]);
    Ipv6Addr::from_octets(octets)
}

/// RFC 3810 §5.1.3: milliseconds, from 32768 on with an exponent.
fn decode_time(code: u16) -> u32 {
    if code < 32_768 {
        return u32::from(code);
    }
    let (exponent, mantissa) = ((code >> 12) & 7, u32::from(code & 0xfff));
    (mantissa | 0x1000) << (exponent + 3)
}

/// Writes a report of version 2 with one record (RFC 3810 §5.2) to the start of `out`; returns its length.
///
/// # Panics
/// When `out` is too short, or there are more than 65535 sources.
pub fn emit_report(
    (from, to): (Ipv6Addr, Ipv6Addr),
    kind: RecordKind,
    group: Ipv6Addr,
    sources: &[Ipv6Addr],
    out: &mut [u8],
) -> usize {
    let count = u16::try_from(sources.len()).expect("invariant: sources are bounded");
    let len = 28 + sources.len() * 16;
    let out = &mut out[..len];
    out[..8].copy_from_slice(&[REPORT_V2, 0, 0, 0, 0, 0, 0, 1]);
    out[8..10].copy_from_slice(&[kind.number(), 0]);
    out[10..12].copy_from_slice(&count.to_be_bytes());
    out[12..28].copy_from_slice(&group.octets());
    for (place, source) in out[28..].chunks_exact_mut(16).zip(sources) {
        place.copy_from_slice(&source.octets());
    }
    finish(from, to, out)
}

/// Writes what hosts say to routers of version 1 (RFC 2710 §3): that they are in a group, or have left it.
///
/// # Panics
/// When `out` is too short.
pub fn emit_old_report(
    (from, to): (Ipv6Addr, Ipv6Addr),
    leaves: bool,
    group: Ipv6Addr,
    out: &mut [u8],
) -> usize {
    let out = &mut out[..V1_LEN];
    let kind = if leaves { DONE_V1 } else { REPORT_V1 };
    out[..8].copy_from_slice(&[kind, 0, 0, 0, 0, 0, 0, 0]);
    out[8..].copy_from_slice(&group.octets());
    finish(from, to, out)
}

fn finish(from: Ipv6Addr, to: Ipv6Addr, message: &mut [u8]) -> usize {
    let checksum = Sum::new()
        .pseudo_header_v6(from, to, Protocol::ICMPV6, message.len())
        .add(message)
        .finish();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::icmpv6;

    const GROUP: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 7);
    const ENDS: (Ipv6Addr, Ipv6Addr) = (
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16),
    );

    fn query(code: u16, tail: &[u8]) -> Vec<u8> {
        let [high, low] = code.to_be_bytes();
        [&[high, low, 0, 0], &GROUP.octets()[..], tail].concat()
    }

    #[test]
    fn the_version_of_a_query_follows_from_its_length() {
        let read = |body: &[u8]| match Message::parse(QUERY, body) {
            Ok(Message::Query(query)) => Ok((query.version, query.max_response_ms, query.group)),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        };
        assert_eq!(read(&query(10_000, &[])), Ok((Version::V2, 10_000, GROUP)));
        // (0x234 | 0x1000) << (1 + 3) milliseconds.
        let two = query(0x9234, &[2, 125, 0, 0]);
        assert_eq!(read(&two), Ok((Version::V3, 0x1234 << 4, GROUP)));
        assert_eq!(read(&two[..22]), Err(Error::Malformed));
        assert_eq!(read(&two[..19]), Err(Error::Truncated));
    }

    #[test]
    fn sources_that_are_promised_must_be_there() {
        let source = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);
        let body = query(10, &[&[0, 0, 0, 1], &source.octets()[..]].concat());
        let Ok(Message::Query(whole)) = Message::parse(QUERY, &body) else {
            panic!("a query");
        };
        assert_eq!(whole.sources().collect::<Vec<_>>(), [source]);
        let cut = Message::parse(QUERY, &body[..body.len() - 1]);
        assert_eq!(cut, Err(Error::Truncated));
    }

    #[test]
    fn reports_are_written_as_the_rfc_draws_them() {
        let source = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);
        let mut out = [0; 64];
        let len = emit_report(ENDS, RecordKind::Allow, GROUP, &[source], &mut out);
        assert_eq!((len, &out[4..12]), (44, &[0, 0, 0, 1, 5, 0, 0, 1][..]));
        assert_eq!(out[12..44], [GROUP.octets(), source.octets()].concat());
        let sealed = icmpv6::Message::parse(ENDS.0, ENDS.1, &out[..len]);
        assert!(matches!(
            sealed,
            Ok(icmpv6::Message::Other { kind: 143, .. })
        ));
        let len = emit_old_report(ENDS, false, GROUP, &mut out);
        let Ok(icmpv6::Message::Other { kind, body, .. }) =
            icmpv6::Message::parse(ENDS.0, ENDS.1, &out[..len])
        else {
            panic!("a message");
        };
        assert_eq!(Message::parse(kind, body), Ok(Message::Report(GROUP)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            kind in 128_u8..=143,
            body in proptest::collection::vec(any::<u8>(), 0..128),
        ) {
            if let Ok(Message::Query(query)) = Message::parse(kind, &body) {
                prop_assert!(query.sources().count() <= 8);
            }
        }
    }
}
