//! Neighbour discovery (RFC 4861 §4; RFC 4862 for the prefix option's lifetimes).
//!
//! Options stay bytes whose lengths were checked; [`Options`] finds the known ones. What the messages
//! mean and which must be dropped (hop limit, addresses: §6.1, §7.1) is decided in `stack`.

use core::net::Ipv6Addr;

use crate::ethernet::Address;
use crate::{Error, split_header};

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
pub(super) const REDIRECT: u8 = 137;

const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;
const PREFIX_INFORMATION: u8 = 3;
const MTU: u8 = 5;

/// Whether an ICMPv6 type is one of those read here.
#[must_use]
pub const fn is_kind(kind: u8) -> bool {
    matches!(kind, ROUTER_SOLICITATION..=REDIRECT)
}

/// A message of neighbour discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message<'a> {
    /// "Which routers are there?" (§4.1)
    RouterSolicitation {
        /// Source link-layer address.
        options: Options<'a>,
    },
    /// "I am a router" (§4.2).
    RouterAdvertisement(RouterAdvertisement<'a>),
    /// "Who has this address?" (§4.3)
    NeighbourSolicitation {
        /// The address asked for.
        target: Ipv6Addr,
        /// Source link-layer address.
        options: Options<'a>,
    },
    /// "I have this address" (§4.4).
    NeighbourAdvertisement {
        /// The address.
        target: Ipv6Addr,
        /// Who says so is a router.
        router: bool,
        /// It answers a question.
        solicited: bool,
        /// It is to replace what is known.
        overrides: bool,
        /// Target link-layer address.
        options: Options<'a>,
    },
    /// "There is a better first hop" (§4.5).
    Redirect {
        /// The better one; the destination itself where that is on the link.
        target: Ipv6Addr,
        /// For what.
        destination: Ipv6Addr,
        /// Target link-layer address, the packet that caused it.
        options: Options<'a>,
    },
}

/// The body of a router advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouterAdvertisement<'a> {
    /// What hosts are to put into their packets; 0: no advice.
    pub hop_limit: u8,
    /// The flags M, O and those defined later, as they stand.
    pub flags: u8,
    /// How long it is a default router; 0: it is none.
    pub router_lifetime_s: u16,
    /// How long a neighbour counts as reachable after it was heard, milliseconds; 0: no advice.
    pub reachable_time_ms: u32,
    /// Time between solicitations, milliseconds; 0: no advice.
    pub retransmission_time_ms: u32,
    /// Source link-layer address, MTU, prefixes.
    pub options: Options<'a>,
}

/// Options whose lengths were checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options<'a>(&'a [u8]);

/// The prefix information option (§4.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PrefixInformation {
    /// The prefix; bits past its length say nothing.
    pub prefix: Ipv6Addr,
    /// Bits that count.
    pub prefix_len: u8,
    /// Its addresses are on the link.
    pub on_link: bool,
    /// Hosts may make addresses from it (RFC 4862 §5.5.3).
    pub autonomous: bool,
    /// How long it may be used, seconds; all ones: for ever.
    pub valid_lifetime_s: u32,
    /// How long addresses made from it are preferred, seconds.
    pub preferred_lifetime_s: u32,
}

impl PrefixInformation {
    /// Bytes of the option.
    pub const LEN: usize = 32;

    /// The option's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; PrefixInformation::LEN] {
        let mut out = [0; PrefixInformation::LEN];
        out[0] = PREFIX_INFORMATION;
        out[1] = 4;
        out[2] = self.prefix_len;
        out[3] = u8::from(self.on_link) << 7 | u8::from(self.autonomous) << 6;
        out[4..8].copy_from_slice(&self.valid_lifetime_s.to_be_bytes());
        out[8..12].copy_from_slice(&self.preferred_lifetime_s.to_be_bytes());
        out[16..].copy_from_slice(&self.prefix.octets());
        out
    }

    fn from_body(body: &[u8]) -> Option<Self> {
        let body: &[u8; PrefixInformation::LEN - 2] = body.try_into().ok()?;
        let word =
            |at: usize| u32::from_be_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
        let mut prefix = [0; 16];
        prefix.copy_from_slice(&body[14..]);
        Some(Self {
            prefix: Ipv6Addr::from_octets(prefix),
            prefix_len: body[0],
            on_link: body[1] & 0x80 != 0,
            autonomous: body[1] & 0x40 != 0,
            valid_lifetime_s: word(2),
            preferred_lifetime_s: word(6),
        })
    }
}

/// The bytes of a source link-layer address option.
#[must_use]
pub const fn source_link_layer(address: Address) -> [u8; 8] {
    link_layer(SOURCE_LINK_LAYER, address)
}

/// The bytes of a target link-layer address option.
#[must_use]
pub const fn target_link_layer(address: Address) -> [u8; 8] {
    link_layer(TARGET_LINK_LAYER, address)
}

const fn link_layer(kind: u8, address: Address) -> [u8; 8] {
    let [a, b, c, d, e, f] = address.0;
    [kind, 1, a, b, c, d, e, f]
}

/// The bytes of an MTU option (§4.6.4).
#[must_use]
pub const fn mtu_option(mtu: u32) -> [u8; 8] {
    let [a, b, c, d] = mtu.to_be_bytes();
    [MTU, 1, 0, 0, a, b, c, d]
}

impl<'a> Options<'a> {
    /// No options.
    pub const NONE: Options<'static> = Options(&[]);

    /// Checks that options follow each other to the end of `bytes`.
    ///
    /// # Errors
    /// [`Error::Malformed`] for an option of length 0 (§6.1, §7.1 have the packet dropped) or one that
    /// is longer than what is left.
    pub fn parse(bytes: &'a [u8]) -> Result<Options<'a>, Error> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (_, _, after) = split_option(rest).ok_or(Error::Malformed)?;
            rest = after;
        }
        Ok(Options(bytes))
    }

    /// Kind and body of each option.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let (kind, body, after) = split_option(rest)?;
            rest = after;
            Some((kind, body))
        })
    }

    /// The sender's hardware address.
    #[must_use]
    pub fn source_link_layer(&self) -> Option<Address> {
        self.link_layer(SOURCE_LINK_LAYER)
    }

    /// The target's hardware address.
    #[must_use]
    pub fn target_link_layer(&self) -> Option<Address> {
        self.link_layer(TARGET_LINK_LAYER)
    }

    /// The link's MTU.
    #[must_use]
    pub fn mtu(&self) -> Option<u32> {
        let (_, body) = self.iter().find(|(kind, _)| *kind == MTU)?;
        match *body {
            [_, _, a, b, c, d] => Some(u32::from_be_bytes([a, b, c, d])),
            _ => None,
        }
    }

    /// The prefixes.
    pub fn prefixes(&self) -> impl Iterator<Item = PrefixInformation> + use<'a> {
        self.iter()
            .filter(|(kind, _)| *kind == PREFIX_INFORMATION)
            .filter_map(|(_, body)| PrefixInformation::from_body(body))
    }

    fn link_layer(&self, wanted: u8) -> Option<Address> {
        let (_, body) = self.iter().find(|(kind, _)| *kind == wanted)?;
        // Ethernet only: six bytes fill the option (RFC 2464 §6).
        body.try_into().ok().map(Address)
    }
}

fn split_option(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[kind, units], _) = bytes.split_first_chunk::<2>()?;
    let len = usize::from(units) * 8;
    let (option, after) = bytes.split_at_checked(len)?;
    Some((kind, option.get(2..)?, after))
}

impl<'a> Message<'a> {
    /// Reads what follows the checksum of a message whose type [`is_kind`].
    pub(super) fn parse(kind: u8, code: u8, body: &'a [u8]) -> Result<Message<'a>, Error> {
        if code != 0 {
            return Err(Error::Malformed);
        }
        Ok(match kind {
            ROUTER_SOLICITATION => {
                let (_, options) = split_header::<4>(body)?;
                Message::RouterSolicitation {
                    options: Options::parse(options)?,
                }
            }
            ROUTER_ADVERTISEMENT => {
                let (&[hop_limit, flags, l0, l1, r0, r1, r2, r3, t0, t1, t2, t3], options) =
                    split_header::<12>(body)?;
                Message::RouterAdvertisement(RouterAdvertisement {
                    hop_limit,
                    flags,
                    router_lifetime_s: u16::from_be_bytes([l0, l1]),
                    reachable_time_ms: u32::from_be_bytes([r0, r1, r2, r3]),
                    retransmission_time_ms: u32::from_be_bytes([t0, t1, t2, t3]),
                    options: Options::parse(options)?,
                })
            }
            REDIRECT => {
                let (_, rest) = split_header::<4>(body)?;
                let (&target, rest) = split_header::<16>(rest)?;
                let (&destination, options) = split_header::<16>(rest)?;
                Message::Redirect {
                    target: Ipv6Addr::from_octets(target),
                    destination: Ipv6Addr::from_octets(destination),
                    options: Options::parse(options)?,
                }
            }
            _ => {
                let (&[flags, _, _, _], rest) = split_header::<4>(body)?;
                let (&target, options) = split_header::<16>(rest)?;
                let target = Ipv6Addr::from_octets(target);
                let options = Options::parse(options)?;
                if kind == NEIGHBOUR_SOLICITATION {
                    Message::NeighbourSolicitation { target, options }
                } else {
                    Message::NeighbourAdvertisement {
                        target,
                        router: flags & 0x80 != 0,
                        solicited: flags & 0x40 != 0,
                        overrides: flags & 0x20 != 0,
                        options,
                    }
                }
            }
        })
    }

    pub(super) const fn kind(&self) -> u8 {
        match self {
            Message::RouterSolicitation { .. } => ROUTER_SOLICITATION,
            Message::RouterAdvertisement(_) => ROUTER_ADVERTISEMENT,
            Message::NeighbourSolicitation { .. } => NEIGHBOUR_SOLICITATION,
            Message::NeighbourAdvertisement { .. } => NEIGHBOUR_ADVERTISEMENT,
            Message::Redirect { .. } => REDIRECT,
        }
    }

    /// Bytes that follow the checksum.
    pub(super) const fn body_len(&self) -> usize {
        let (fixed, options) = match self {
            Message::RouterSolicitation { options } => (4, options),
            Message::RouterAdvertisement(advertisement) => (12, &advertisement.options),
            Message::NeighbourSolicitation { options, .. }
            | Message::NeighbourAdvertisement { options, .. } => (20, options),
            Message::Redirect { options, .. } => (36, options),
        };
        fixed + options.0.len()
    }

    /// Writes what follows the checksum; `out` is as long as that.
    pub(super) fn emit_body(&self, out: &mut [u8]) {
        out.fill(0);
        let options = match self {
            Message::RouterSolicitation { options } => options,
            Message::RouterAdvertisement(advertisement) => {
                out[0] = advertisement.hop_limit;
                out[1] = advertisement.flags;
                out[2..4].copy_from_slice(&advertisement.router_lifetime_s.to_be_bytes());
                out[4..8].copy_from_slice(&advertisement.reachable_time_ms.to_be_bytes());
                out[8..12].copy_from_slice(&advertisement.retransmission_time_ms.to_be_bytes());
                &advertisement.options
            }
            Message::NeighbourSolicitation { target, options } => {
                out[4..20].copy_from_slice(&target.octets());
                options
            }
            Message::Redirect {
                target,
                destination,
                options,
            } => {
                out[4..20].copy_from_slice(&target.octets());
                out[20..36].copy_from_slice(&destination.octets());
                options
            }
            Message::NeighbourAdvertisement {
                target,
                router,
                solicited,
                overrides,
                options,
            } => {
                out[0] =
                    u8::from(*router) << 7 | u8::from(*solicited) << 6 | u8::from(*overrides) << 5;
                out[4..20].copy_from_slice(&target.octets());
                options
            }
        };
        let start = out.len() - options.0.len();
        out[start..].copy_from_slice(options.0);
    }
}
