//! IGMP, what hosts hear and say about IPv4 groups (RFC 3376; RFC 2236 and RFC 1112 appendix I for the
//! older versions that a router may speak).
//!
//! Queries and the reports of other hosts are read, reports are written. Which groups a host is in is
//! `stack`'s business.

use core::net::Ipv4Addr;

use crate::checksum::Sum;
use crate::{Error, split_header};

const QUERY: u8 = 0x11;
const REPORT_V1: u8 = 0x12;
const REPORT_V2: u8 = 0x16;
const LEAVE_V2: u8 = 0x17;
const REPORT_V3: u8 = 0x22;
/// Bytes of the shortest message, and of what comes before the records of a version 3 report.
pub const HEADER_LEN: usize = 8;
/// Bytes of a version 3 query before its sources.
const QUERY_V3_LEN: usize = 12;

/// The version of a query, which tells what to answer with (RFC 3376 §7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// RFC 1112.
    V1,
    /// RFC 2236.
    V2,
    /// RFC 3376.
    V3,
}

/// What a router asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// Its version.
    pub version: Version,
    /// About which group; unspecified: all of them.
    pub group: Ipv4Addr,
    /// Answers are to be spread over so much time, milliseconds.
    pub max_response_ms: u32,
    sources: &'a [u8],
}

impl Query<'_> {
    /// The sources that are asked about; none: the group as a whole.
    pub fn sources(&self) -> impl Iterator<Item = Ipv4Addr> {
        let (chunks, _) = self.sources.as_chunks::<4>();
        chunks.iter().map(|bytes| Ipv4Addr::from_octets(*bytes))
    }
}

/// A message that a host acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A router asks.
    Query(Query<'a>),
    /// Another host is in this group, in the words of an older version.
    Report(Ipv4Addr),
    /// Anything else; RFC 3376 §4 has hosts ignore it.
    Other(u8),
}

impl<'a> Message<'a> {
    /// Reads a message and verifies its checksum; `bytes` is the whole payload of the IPv4 packet.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Checksum`], [`Error::Malformed`] for sources that are not there.
    pub fn parse(bytes: &'a [u8]) -> Result<Message<'a>, Error> {
        let (&[kind, code, _, _, a, b, c, d], rest) = split_header::<HEADER_LEN>(bytes)?;
        // RFC 3376 §4.1.2: over the whole IP payload.
        if !Sum::new().add(bytes).is_right() {
            return Err(Error::Checksum);
        }
        let group = Ipv4Addr::new(a, b, c, d);
        match kind {
            QUERY => Message::query(code, group, bytes.len(), rest).map(Message::Query),
            REPORT_V1 | REPORT_V2 => Ok(Message::Report(group)),
            _ => Ok(Message::Other(kind)),
        }
    }

    /// RFC 3376 §7.1: the version follows from length and code.
    fn query(code: u8, group: Ipv4Addr, len: usize, rest: &'a [u8]) -> Result<Query<'a>, Error> {
        let (version, tenths) = match (len, code) {
            // A router of version 1 wants answers within ten seconds (RFC 2236 §4).
            (HEADER_LEN, 0) => (Version::V1, 100),
            (HEADER_LEN, code) => (Version::V2, u32::from(code)),
            (QUERY_V3_LEN.., code) => (Version::V3, decode_time(code)),
            _ => return Err(Error::Malformed),
        };
        let mut sources: &[u8] = &[];
        if version == Version::V3 {
            let (&[_, _, high, low], listed) = split_header::<4>(rest)?;
            let count = usize::from(u16::from_be_bytes([high, low]));
            sources = listed.get(..count * 4).ok_or(Error::Truncated)?;
        }
        Ok(Query {
            version,
            group,
            max_response_ms: tenths * 100,
            sources,
        })
    }
}

/// RFC 3376 §4.1.1: tenths of seconds, from 128 on with an exponent.
fn decode_time(code: u8) -> u32 {
    if code < 128 {
        return u32::from(code);
    }
    let (exponent, mantissa) = ((code >> 4) & 7, u32::from(code & 15));
    (mantissa | 0x10) << (exponent + 3)
}

/// What a record of a version 3 report says (RFC 3376 §4.2.12), and one of MLDv2 (RFC 3810 §5.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Answer: listens to these sources only.
    IsInclude,
    /// Answer: listens to all sources but these.
    IsExclude,
    /// News: from now on to these sources only.
    ToInclude,
    /// News: from now on to all sources but these.
    ToExclude,
    /// News: to these sources as well.
    Allow,
    /// News: to these sources no more.
    Block,
}

impl RecordKind {
    pub(crate) const fn number(self) -> u8 {
        match self {
            RecordKind::IsInclude => 1,
            RecordKind::IsExclude => 2,
            RecordKind::ToInclude => 3,
            RecordKind::ToExclude => 4,
            RecordKind::Allow => 5,
            RecordKind::Block => 6,
        }
    }
}

/// Writes a report of version 3 with one record to the start of `out`; returns its length.
///
/// # Panics
/// When `out` is too short, or there are more than 65535 sources.
pub fn emit_report(
    kind: RecordKind,
    group: Ipv4Addr,
    sources: &[Ipv4Addr],
    out: &mut [u8],
) -> usize {
    let count = u16::try_from(sources.len()).expect("invariant: sources are bounded");
    let len = HEADER_LEN + 8 + sources.len() * 4;
    let out = &mut out[..len];
    out[..8].copy_from_slice(&[REPORT_V3, 0, 0, 0, 0, 0, 0, 1]);
    out[8..10].copy_from_slice(&[kind.number(), 0]);
    out[10..12].copy_from_slice(&count.to_be_bytes());
    out[12..16].copy_from_slice(&group.octets());
    for (place, source) in out[16..].chunks_exact_mut(4).zip(sources) {
        place.copy_from_slice(&source.octets());
    }
    finish(out)
}

/// What hosts say to routers of older versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldReport {
    /// Is in the group, to a router of version 1.
    V1,
    /// Is in the group, to a router of version 2.
    V2,
    /// Has left the group.
    Leave,
}

/// Writes a message of an older version to the start of `out`; returns its length.
///
/// # Panics
/// When `out` is too short.
pub fn emit_old_report(report: OldReport, group: Ipv4Addr, out: &mut [u8]) -> usize {
    let kind = match report {
        OldReport::V1 => REPORT_V1,
        OldReport::V2 => REPORT_V2,
        OldReport::Leave => LEAVE_V2,
    };
    let out = &mut out[..HEADER_LEN];
    out[..4].copy_from_slice(&[kind, 0, 0, 0]);
    out[4..].copy_from_slice(&group.octets());
    finish(out)
}

fn finish(message: &mut [u8]) -> usize {
    let checksum = Sum::new().add(message).finish();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        finish(&mut bytes);
        bytes
    }

    #[test]
    fn the_version_of_a_query_follows_from_its_length_and_code() {
        let query = |bytes: Vec<u8>| match Message::parse(&sealed(bytes)) {
            Ok(Message::Query(query)) => (query.version, query.max_response_ms),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            query(vec![0x11, 0, 0, 0, 0, 0, 0, 0]),
            (Version::V1, 10_000)
        );
        assert_eq!(
            query(vec![0x11, 25, 0, 0, 0, 0, 0, 0]),
            (Version::V2, 2_500)
        );
        let mut three = vec![0x11, 0x9a, 0, 0, 239, 1, 2, 3, 2, 125, 0, 0];
        // (10 | 16) << (1 + 3) tenths.
        assert_eq!(query(three.clone()), (Version::V3, 41_600));
        three.truncate(10);
        assert_eq!(Message::parse(&sealed(three)), Err(Error::Malformed));
    }

    #[test]
    fn sources_that_are_promised_must_be_there() {
        let mut bytes = vec![
            0x11, 10, 0, 0, 239, 1, 2, 3, 0, 0, 0, 2, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        let whole = sealed(bytes.clone());
        let Ok(Message::Query(query)) = Message::parse(&whole) else {
            panic!("a query");
        };
        let sources: Vec<Ipv4Addr> = query.sources().collect();
        assert_eq!(
            sources,
            [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)]
        );
        bytes.truncate(16);
        assert_eq!(Message::parse(&sealed(bytes)), Err(Error::Truncated));
    }

    #[test]
    fn reports_are_written_as_the_rfc_draws_them() {
        let (group, source) = (Ipv4Addr::new(239, 1, 2, 3), Ipv4Addr::new(10, 0, 0, 9));
        let mut out = [0; 64];
        let len = emit_report(RecordKind::Allow, group, &[source], &mut out);
        assert_eq!(len, 20);
        assert_eq!(
            out[4..20],
            [0, 0, 0, 1, 5, 0, 0, 1, 239, 1, 2, 3, 10, 0, 0, 9]
        );
        assert_eq!(Message::parse(&out[..len]), Ok(Message::Other(0x22)));
        let len = emit_old_report(OldReport::V2, group, &mut out);
        assert_eq!(Message::parse(&out[..len]), Ok(Message::Report(group)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(Message::Query(query)) = Message::parse(&sealed_or_same(bytes)) {
                prop_assert!(query.sources().count() <= 16);
            }
        }
    }

    fn sealed_or_same(mut bytes: Vec<u8>) -> Vec<u8> {
        if bytes.len() >= 4 {
            bytes[2..4].fill(0);
            finish(&mut bytes);
        }
        bytes
    }
}
