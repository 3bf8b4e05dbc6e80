//! The extension headers between an IPv6 header and what it carries (RFC 8200 §4; RFC 5095 for the
//! routing header of type 0, RFC 6946 for atomic fragments, RFC 8504 §5.3 for the bounds).
//!
//! A host asks nothing of them but to be skipped, so only the fragment header becomes a value. What a
//! header demands that we do not know is a [`Problem`], and the sender is told where it says so.

use super::{Header, Protocol};
use crate::{Error, header_mut, split_header};

/// Headers in front of the upper layer at most: RFC 8200 §4.1 names no packet with more.
pub const HEADERS_MAX: usize = 8;
/// Options of one header at most, padding not counted (Linux `max_hbh_opts_number`; RFC 8504 §5.3).
pub const OPTIONS_MAX: usize = 8;

impl Protocol {
    /// Hop-by-hop options, RFC 8200 §4.3.
    pub const HOP_BY_HOP: Protocol = Protocol(0);
    /// A routing header, RFC 8200 §4.4.
    pub const ROUTING: Protocol = Protocol(43);
    /// A fragment header, RFC 8200 §4.5.
    pub const FRAGMENT: Protocol = Protocol(44);
    /// ICMP for IPv6, RFC 4443.
    pub const ICMPV6: Protocol = Protocol(58);
    /// Nothing follows, RFC 8200 §4.7.
    pub const NO_NEXT_HEADER: Protocol = Protocol(59);
    /// Destination options, RFC 8200 §4.6.
    pub const DESTINATION_OPTIONS: Protocol = Protocol(60);

    /// Whether this is one of the headers that [`walk`] goes through.
    #[must_use]
    pub const fn is_extension(self) -> bool {
        matches!(
            self,
            Protocol::HOP_BY_HOP
                | Protocol::ROUTING
                | Protocol::FRAGMENT
                | Protocol::DESTINATION_OPTIONS
        )
    }
}

/// The fragment header (RFC 8200 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fragment {
    /// What the fragmented part of the original packet begins with.
    pub next_header: Protocol,
    /// Where this part belongs, in bytes: a multiple of eight.
    pub offset: u16,
    /// More fragments of the same packet follow.
    pub more: bool,
    /// Names the packet among others of the same two hosts.
    pub identification: u32,
}

impl Fragment {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    /// Reads the header; returns it with what follows.
    ///
    /// # Errors
    /// [`Error::Truncated`] below [`Fragment::LEN`] bytes.
    pub fn parse(bytes: &[u8]) -> Result<(Fragment, &[u8]), Error> {
        let (&[next_header, _, o0, o1, i0, i1, i2, i3], rest) =
            split_header::<{ Fragment::LEN }>(bytes)?;
        let offset = u16::from_be_bytes([o0, o1]);
        let header = Fragment {
            next_header: Protocol(next_header),
            offset: offset & !7,
            more: offset & 1 != 0,
            identification: u32::from_be_bytes([i0, i1, i2, i3]),
        };
        Ok((header, rest))
    }

    /// Writes the header to the start of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`Fragment::LEN`] or the offset not a multiple of eight.
    #[track_caller]
    pub fn emit(&self, out: &mut [u8]) {
        assert!(
            self.offset.is_multiple_of(8),
            "invariant: fragments start at multiples of eight"
        );
        let out = header_mut::<{ Fragment::LEN }>(out);
        out[0] = self.next_header.0;
        out[1] = 0;
        out[2..4].copy_from_slice(&(self.offset | u16::from(self.more)).to_be_bytes());
        out[4..].copy_from_slice(&self.identification.to_be_bytes());
    }

    /// Whether the header stands before a whole packet (RFC 6946 §2).
    #[must_use]
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }
}

/// The fragment header of a part, and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentPart {
    /// The header.
    pub header: Fragment,
    /// Where it starts, counted from the IPv6 header.
    pub at: usize,
    /// Where the byte stands that announces it.
    pub named_at: usize,
}

/// Where the headers lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain<'a> {
    /// What `payload` is: never a known extension header, unless it is a part of a fragmented one.
    pub protocol: Protocol,
    /// What follows the headers.
    pub payload: &'a [u8],
    /// Where `payload` starts, counted from the IPv6 header.
    pub payload_at: usize,
    /// Where the byte stands that says what `payload` is.
    pub next_header_at: usize,
    /// `payload` is a part of a larger packet; `protocol` is what that begins with. An atomic fragment
    /// is a whole packet and not named here.
    pub fragment: Option<FragmentPart>,
    /// There is a fragment header, be it an atomic one.
    pub is_marked_fragment: bool,
    /// A hop-by-hop option asks routers to look at the packet (RFC 2711).
    pub router_alert: bool,
}

/// Why a packet must not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Drop it without a word.
    Discard,
    /// Drop it and tell the sender.
    Report {
        /// Code of the ICMPv6 parameter problem (RFC 4443 §3.4).
        code: u8,
        /// Where the offending byte stands, counted from the IPv6 header.
        pointer: usize,
        /// The sender is told even if the packet was for a group.
        even_for_groups: bool,
    },
}

/// Where a walk begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The kind of the first header.
    pub protocol: Protocol,
    /// Where the byte stands that says so.
    pub next_header_at: usize,
    /// Where the first header starts.
    pub at: usize,
}

impl Start {
    /// Right behind the IPv6 header.
    #[must_use]
    pub const fn behind(header: &Header) -> Start {
        Start {
            protocol: header.next_header,
            next_header_at: 6,
            at: Header::LEN,
        }
    }
}

/// Goes through the extension headers of `packet`, which begins with its IPv6 header and ends where that
/// says. A fragment header of a part ends the walk.
///
/// # Errors
/// [`Problem`]: what RFC 8200 says about the first header or option that cannot be processed.
pub fn walk(packet: &[u8], start: Start) -> Result<Chain<'_>, Problem> {
    let Start {
        mut protocol,
        mut next_header_at,
        mut at,
    } = start;
    let (mut router_alert, mut is_marked_fragment) = (false, false);
    for _ in 0..HEADERS_MAX {
        let rest = packet.get(at..).ok_or(Problem::Discard)?;
        let here = protocol;
        let mut chain = Chain {
            protocol,
            payload: rest,
            payload_at: at,
            next_header_at,
            fragment: None,
            is_marked_fragment,
            router_alert,
        };
        if here == Protocol::FRAGMENT {
            let (fragment, part) = Fragment::parse(rest).map_err(|_| Problem::Discard)?;
            let part_at = FragmentPart {
                header: fragment,
                at,
                named_at: next_header_at,
            };
            protocol = fragment.next_header;
            next_header_at = at;
            at += Fragment::LEN;
            is_marked_fragment = true;
            if !fragment.is_atomic() {
                (chain.protocol, chain.payload) = (protocol, part);
                (chain.payload_at, chain.next_header_at) = (at, next_header_at);
                (chain.fragment, chain.is_marked_fragment) = (Some(part_at), true);
                return Ok(chain);
            }
            continue;
        }
        if !here.is_extension() {
            return Ok(chain);
        }
        // RFC 8200 §4.1: hop-by-hop options stand first or nowhere.
        if here == Protocol::HOP_BY_HOP && at != Header::LEN {
            return Err(unrecognized_next_header(next_header_at));
        }
        let (next, len) = match *rest {
            [next, words, ..] => (next, 8 + usize::from(words) * 8),
            _ => return Err(Problem::Discard),
        };
        let body = rest.get(2..len).ok_or(Problem::Discard)?;
        if here == Protocol::ROUTING {
            refuse_routing(body, at)?;
        } else {
            router_alert |= walk_options(body, at + 2)? && here == Protocol::HOP_BY_HOP;
        }
        (protocol, next_header_at) = (Protocol(next), at);
        at += len;
    }
    Err(Problem::Discard)
}

/// What a packet carries behind its extension headers, whatever those ask for, and what is there of it. `None`: they
/// lead nowhere, or the packet is a part other than the first.
#[must_use]
pub fn upper_layer(packet: &[u8]) -> Option<(Protocol, &[u8])> {
    let mut protocol = Protocol(*packet.get(6)?);
    let mut rest = packet.get(Header::LEN..)?;
    for _ in 0..HEADERS_MAX {
        if !protocol.is_extension() {
            return Some((protocol, rest));
        }
        let &[next, words, ..] = rest else {
            return None;
        };
        let len = if protocol == Protocol::FRAGMENT {
            let (fragment, _) = Fragment::parse(rest).ok()?;
            if fragment.offset != 0 {
                return None;
            }
            Fragment::LEN
        } else {
            8 + usize::from(words) * 8
        };
        (protocol, rest) = (Protocol(next), rest.get(len..)?);
    }
    None
}

/// The answer to a next header that is not known (RFC 8200 §4).
#[must_use]
pub const fn unrecognized_next_header(next_header_at: usize) -> Problem {
    Problem::Report {
        code: crate::icmpv6::parameter_problem::NEXT_HEADER,
        pointer: next_header_at,
        even_for_groups: false,
    }
}

/// No routing type is known here, and type 0 must not be (RFC 5095 §3): a route that is at its end is
/// skipped, any other refused (RFC 8200 §4.4).
fn refuse_routing(body: &[u8], at: usize) -> Result<(), Problem> {
    match *body {
        [_, 0, ..] => Ok(()),
        _ => Err(Problem::Report {
            code: crate::icmpv6::parameter_problem::FIELD,
            pointer: at + 2,
            even_for_groups: false,
        }),
    }
}

/// Goes through the options that start at `at` in the packet; returns whether one is a router alert.
fn walk_options(mut options: &[u8], mut at: usize) -> Result<bool, Problem> {
    const PAD1: u8 = 0;
    const PAD_N: u8 = 1;
    const ROUTER_ALERT: u8 = 5;
    let mut router_alert = false;
    let mut known = 0;
    while let [kind, rest @ ..] = options {
        if *kind == PAD1 {
            (options, at) = (rest, at + 1);
            continue;
        }
        let [len, rest @ ..] = rest else {
            return Err(Problem::Discard);
        };
        let len = usize::from(*len);
        let after = rest.get(len..).ok_or(Problem::Discard)?;
        if *kind != PAD_N {
            known += 1;
            // Padding is bounded by the header's length; options that ask for work are bounded here.
            if known > OPTIONS_MAX {
                return Err(Problem::Discard);
            }
            match *kind {
                ROUTER_ALERT => router_alert = true,
                unknown => judge_unknown(unknown, at)?,
            }
        }
        (options, at) = (after, at + 2 + len);
    }
    Ok(router_alert)
}

/// RFC 8200 §4.2: the two highest bits of an option say what to do without knowing it.
fn judge_unknown(kind: u8, at: usize) -> Result<(), Problem> {
    match kind >> 6 {
        0 => Ok(()),
        1 => Err(Problem::Discard),
        action => Err(Problem::Report {
            code: crate::icmpv6::parameter_problem::OPTION,
            pointer: at,
            even_for_groups: action == 2,
        }),
    }
}

#[cfg(test)]
mod tests;
