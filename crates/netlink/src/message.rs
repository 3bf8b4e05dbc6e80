//! The bytes of netlink messages: a header, a structure of the family, and attributes, which may have attributes in them.
//! Read first: netlink(7). What the kernel sends is checked: a length that is not there ends the list.

use std::io;
use std::net::IpAddr;

/// `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// `struct nlattr`.
const ATTRIBUTE_BYTES: usize = 4;
/// Messages and attributes start at multiples of this (`NLMSG_ALIGNTO`, `NLA_ALIGNTO`).
const ALIGN: usize = 4;
/// Kinds of messages that every family has (linux/netlink.h).
const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `NLA_TYPE_MASK`: the kind of an attribute without its flags.
const KIND_MASK: u16 = 0x3fff;

/// Flags of a request (linux/netlink.h); every one has [`flag::REQUEST`].
pub(crate) mod flag {
    pub(crate) const REQUEST: u16 = 1;
    pub(crate) const ACK: u16 = 4;
    pub(crate) const EXCL: u16 = 0x200;
    pub(crate) const DUMP: u16 = 0x300;
    pub(crate) const CREATE: u16 = 0x400;
}

/// A request under construction.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    bytes: Vec<u8>,
    flags: u16,
}

impl Request {
    /// A request of this kind with the structure of its family, a multiple of four bytes.
    pub(crate) fn new(kind: u16, flags: u16, structure: &[u8]) -> Self {
        let flags = flags | flag::REQUEST;
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend(structure);
        Self { bytes, flags }
    }

    /// One message answers it, and nothing says that this was all.
    pub(crate) fn has_single_answer(&self) -> bool {
        self.flags & (flag::ACK | flag::DUMP) == 0
    }

    /// Appends an attribute.
    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        put(&mut self.bytes, kind, value);
        self
    }

    /// The whole message.
    pub(crate) fn finish(mut self, sequence: u32) -> Vec<u8> {
        let len = u32::try_from(self.bytes.len()).expect("invariant: a request is short");
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// Attributes that are the value of another.
pub(crate) fn nested(inner: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, value) in inner {
        put(&mut bytes, *kind, value);
    }
    bytes
}

fn put(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = u16::try_from(ATTRIBUTE_BYTES + value.len()).expect("invariant: ours are short");
    bytes.extend(len.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
}

/// A piece of an answer.
#[derive(Debug)]
pub(crate) enum AnswerPart<'a> {
    /// A message of the family: its kind and what follows its header.
    Message(u16, &'a [u8]),
    /// The answer is over, by an error if there is one.
    End(Option<io::Error>),
}

/// What a socket gave, message by message, each with its sequence number.
pub(crate) fn parts(mut rest: &[u8]) -> impl Iterator<Item = (u32, AnswerPart<'_>)> {
    core::iter::from_fn(move || {
        loop {
            let header = rest.first_chunk::<HEADER_BYTES>()?;
            let [a, b, c, d, kind_low, kind_high, _, _, e, f, g, h, ..] = *header;
            let len = usize::try_from(u32::from_ne_bytes([a, b, c, d])).ok()?;
            let body = rest.get(HEADER_BYTES..len)?;
            rest = rest.get(len.next_multiple_of(ALIGN)..).unwrap_or_default();
            let part = match u16::from_ne_bytes([kind_low, kind_high]) {
                NLMSG_NOOP => continue,
                NLMSG_DONE => AnswerPart::End(None),
                NLMSG_ERROR => AnswerPart::End(error(body)),
                kind => AnswerPart::Message(kind, body),
            };
            return Some((u32::from_ne_bytes([e, f, g, h]), part));
        }
    })
}

/// `struct nlmsgerr`: a negative errno; 0 acknowledges.
fn error(body: &[u8]) -> Option<io::Error> {
    let code = body
        .first_chunk()
        .map_or(0, |code| i32::from_ne_bytes(*code));
    (code != 0).then(|| io::Error::from_raw_os_error(code.wrapping_neg()))
}

/// The attributes in a run of bytes: kind without its flags, and value.
pub(crate) fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    core::iter::from_fn(move || {
        let [low, high, kind_low, kind_high] = *rest.first_chunk::<ATTRIBUTE_BYTES>()?;
        let len = usize::from(u16::from_ne_bytes([low, high]));
        let value = rest.get(ATTRIBUTE_BYTES..len)?;
        rest = rest.get(len.next_multiple_of(ALIGN)..).unwrap_or_default();
        Some((u16::from_ne_bytes([kind_low, kind_high]) & KIND_MASK, value))
    })
}

/// The value of the first attribute of a kind.
pub(crate) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut all = attributes(bytes);
    all.find(|(of, _)| *of == kind).map(|(_, value)| value)
}

/// Text up to its final zero.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default()).into()
}

/// A number in this machine's order that stands at an offset.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*word))
}

/// An address of either family, by its length.
pub(crate) fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
        return Some(octets.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

/// The bytes of an address, as an attribute holds them.
pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_are_cut_short_end_the_list() {
        let whole = Request::new(18, 0, &[0; 16]).finish(5);
        let two = [whole.clone(), whole].concat();
        assert_eq!(parts(&two).count(), 2);
        assert_eq!(parts(&two[..two.len() - 1]).count(), 1);
        assert_eq!(parts(&[0; 64]).count(), 0, "a length of nothing");
        assert!(parts(&two).all(|(sequence, _)| sequence == 5));
    }

    #[test]
    fn attributes_come_back_and_are_padded() {
        let inner = nested(&[(1, b"veth\0"), (2, &[7])]);
        let request = Request::new(16, flag::CREATE, &[0; 16]).attribute(18 | 0x8000, &inner);
        let bytes = request.finish(1);
        assert_eq!(bytes.len() % ALIGN, 0);
        let Some((1, AnswerPart::Message(16, body))) = parts(&bytes).next() else {
            panic!("{bytes:?}");
        };
        let found = attribute(&body[16..], 18).unwrap();
        let found: Vec<(u16, &[u8])> = attributes(found).collect();
        assert_eq!(found, [(1, &b"veth\0"[..]), (2, &[7][..])]);
        assert_eq!(text(found[0].1), "veth");
    }

    #[test]
    fn an_error_has_its_errno_and_an_acknowledgement_none() {
        let answer = |code: i32| {
            let body = [code.to_ne_bytes(), [0; 4]].concat();
            let bytes = Request::new(NLMSG_ERROR, 0, &body).finish(9);
            let Some((9, AnswerPart::End(error))) = parts(&bytes).next() else {
                panic!("{bytes:?}");
            };
            error.map(|error| error.raw_os_error())
        };
        assert_eq!(answer(0), None);
        assert_eq!(answer(-libc::ENODEV), Some(Some(libc::ENODEV)));
    }
}
