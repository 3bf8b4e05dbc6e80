//! rtnetlink(7): a program that asks for all addresses gets a datagram with those of the engines before the kernel's answer,
//! which lies there when the question has been sent. Both have the question's number; the kernel's one ends the list.

use core::net::{IpAddr, Ipv4Addr};
use std::collections::VecDeque;

use rustix::fd::BorrowedFd;
use rustix::net::netlink::SocketAddrNetlink;

use super::Own;

/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// linux/if_addr.h.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_LABEL: u16 = 3;
const IFA_BROADCAST: u16 = 4;
const IFA_CACHEINFO: u16 = 6;
const IFA_FLAGS: u16 = 8;
const IFA_F_PERMANENT: u8 = 0x80;
/// linux/rtnetlink.h.
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_LINK: u8 = 253;
/// linux/netlink.h.
const NLM_F_MULTI: u16 = 2;
const NLM_F_DUMP: u16 = 0x300;
/// A question for addresses is no longer; what is longer asks for something else too.
pub const QUESTION_MAX: usize = 256;

/// A datagram that has so many bytes gets no further address: the kernel's fit into a page, and who asks has a buffer of a page.
const DATAGRAM_BYTES: usize = 3_500;

/// Who answers: the kernel, as `struct sockaddr_nl` names it.
pub const SENDER: [u8; 12] = {
    let family = libc::AF_NETLINK.to_ne_bytes();
    [family[0], family[1], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
};

/// A question for all addresses of a family, or of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its number.
    pub sequence: u32,
    /// 0: all.
    pub family: u8,
    /// 0: any interface.
    pub index: u32,
}

/// The socket's number among those of netlink, to which answers are addressed.
#[must_use]
pub fn port(socket: BorrowedFd<'_>) -> u32 {
    let name = rustix::net::getsockname(socket);
    let name = name
        .and_then(|name| SocketAddrNetlink::try_from(name).map_err(|_| rustix::io::Errno::INVAL));
    name.map_or(0, |name| name.pid())
}

impl Question {
    /// The question that a program sends, if it is one.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Question> {
        let u16_at = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let (kind, flags) = (u16_at(4)?, u16_at(6)?);
        if kind != libc::RTM_GETADDR || flags & NLM_F_DUMP != NLM_F_DUMP {
            return None;
        }
        Some(Question {
            sequence: u32_at(8)?,
            family: *bytes.get(HEADER)?,
            // Who asks with `struct rtgenmsg` names no interface.
            index: u32_at(HEADER + 4).unwrap_or(0),
        })
    }

    /// The answer to a socket of this number, as datagrams for which everybody has room.
    #[must_use]
    pub fn answer(&self, port: u32, all: &[Own]) -> VecDeque<Vec<u8>> {
        let mut datagrams: VecDeque<Vec<u8>> = VecDeque::new();
        for own in all {
            let family = if own.address.is_ipv4() {
                libc::AF_INET
            } else {
                libc::AF_INET6
            };
            let family = u8::try_from(family).unwrap_or(0);
            let is_asked = self.family == 0 || self.family == family;
            if is_asked && (self.index == 0 || self.index == own.index) {
                let is_full = |last: &Vec<u8>| last.len() > DATAGRAM_BYTES;
                if datagrams.back().is_none_or(is_full) {
                    datagrams.push_back(Vec::new());
                }
                if let Some(last) = datagrams.back_mut() {
                    message(last, family, self.sequence, port, own);
                }
            }
        }
        datagrams
    }
}

/// What a datagram of the kernel's answer tells of the question, for code that has not seen that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The question's number.
    pub sequence: u32,
    /// The number of the socket that asked.
    pub port: u32,
    /// The families of which there are addresses.
    pub families: Vec<u8>,
}

impl Answered {
    /// Of a datagram with addresses of a list.
    #[must_use]
    pub fn of(datagram: &[u8]) -> Option<Answered> {
        let mut answered: Option<Answered> = None;
        let mut left = datagram;
        while let Some(head) = left.first_chunk::<HEADER>() {
            let word = |at: usize| [head[at], head[at + 1], head[at + 2], head[at + 3]];
            let half = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
            let len = usize::try_from(u32::from_ne_bytes(word(0))).ok()?;
            if len < HEADER || half(4) != libc::RTM_NEWADDR || half(6) & NLM_F_MULTI == 0 {
                break;
            }
            let Some(&family) = left.get(HEADER) else {
                break;
            };
            let answered = answered.get_or_insert_with(|| Answered {
                sequence: u32::from_ne_bytes(word(8)),
                port: u32::from_ne_bytes(word(12)),
                families: Vec::new(),
            });
            if !answered.families.contains(&family) {
                answered.families.push(family);
            }
            left = left.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        answered
    }
}

/// An RTM_NEWADDR as the kernel writes it (net/ipv4/devinet.c, net/ipv6/addrconf.c).
fn message(bytes: &mut Vec<u8>, family: u8, sequence: u32, port: u32, own: &Own) {
    let start = bytes.len();
    bytes.extend([0; 4]);
    bytes.extend(libc::RTM_NEWADDR.to_ne_bytes());
    bytes.extend(NLM_F_MULTI.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(port.to_ne_bytes());
    let scope = match own.address {
        IpAddr::V4(address) if address.is_link_local() => RT_SCOPE_LINK,
        IpAddr::V6(address) if address.is_unicast_link_local() => RT_SCOPE_LINK,
        _ => RT_SCOPE_UNIVERSE,
    };
    bytes.extend([family, own.prefix_len, IFA_F_PERMANENT, scope]);
    bytes.extend(own.index.to_ne_bytes());
    match own.address {
        IpAddr::V4(address) => {
            attribute(bytes, IFA_ADDRESS, &address.octets());
            attribute(bytes, IFA_LOCAL, &address.octets());
            if let Some(broadcast) = broadcast(address, own.prefix_len) {
                attribute(bytes, IFA_BROADCAST, &broadcast.octets());
            }
            let label: Vec<u8> = own.name.bytes().chain([0]).collect();
            attribute(bytes, IFA_LABEL, &label);
        }
        IpAddr::V6(address) => attribute(bytes, IFA_ADDRESS, &address.octets()),
    }
    attribute(bytes, IFA_FLAGS, &u32::from(IFA_F_PERMANENT).to_ne_bytes());
    // Preferred and valid for ever; when it was made is not known.
    let mut cache = [0; 16];
    cache[..8].fill(0xff);
    attribute(bytes, IFA_CACHEINFO, &cache);
    let len = u32::try_from(bytes.len() - start).unwrap_or(u32::MAX);
    bytes[start..start + 4].copy_from_slice(&len.to_ne_bytes());
}

fn attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    bytes.extend(len.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// The last address of the network; RFC 3021: a /31 has no broadcast address, nor has a /32.
#[must_use]
pub fn broadcast(address: Ipv4Addr, prefix_len: u8) -> Option<Ipv4Addr> {
    let host = u32::MAX.checked_shr(u32::from(prefix_len)).unwrap_or(0);
    (prefix_len < 31).then(|| Ipv4Addr::from_bits(address.to_bits() | host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(kind: u16, flags: u16, family: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(24_u32.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(77_u32.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend([family, 0, 0, 0, 0, 0, 0, 0]);
        bytes
    }

    #[test]
    fn only_a_dump_of_addresses_is_a_question() {
        let asked = Question::of(&ask(libc::RTM_GETADDR, 0x301, 2));
        let expected = Question {
            sequence: 77,
            family: 2,
            index: 0,
        };
        assert_eq!(asked, Some(expected));
        assert_eq!(Question::of(&ask(libc::RTM_GETLINK, 0x301, 0)), None);
        assert_eq!(Question::of(&ask(libc::RTM_GETADDR, 1, 0)), None);
        assert!(Question::of(&ask(libc::RTM_GETADDR, 0x300, 0)[..17]).is_some());
        assert_eq!(Question::of(&ask(libc::RTM_GETADDR, 0x300, 0)[..16]), None);
    }

    #[test]
    fn an_answer_holds_the_family_that_was_asked_for() {
        let own = |address: &str, prefix_len| Own {
            index: 3,
            name: "eth0".to_owned(),
            address: address.parse().unwrap(),
            prefix_len,
        };
        let all = [own("10.0.0.9", 24), own("fe80::9", 64)];
        let answered = |family, index| {
            let question = Question {
                sequence: 5,
                family,
                index,
            };
            question
                .answer(4242, &all)
                .into_iter()
                .flatten()
                .collect::<Vec<u8>>()
        };
        let (four, six) = (answered(2, 0), answered(10, 0));
        assert_eq!([&four[..], &six[..]].concat(), answered(0, 3));
        assert!(answered(0, 4).is_empty());
        assert_eq!(four.len() % 4, 0);
        assert_eq!(four[..4], u32::try_from(four.len()).unwrap().to_ne_bytes());
        assert_eq!(four[12..16], 4242_u32.to_ne_bytes());
        assert_eq!(four[HEADER..HEADER + 8], [2, 24, 0x80, 0, 3, 0, 0, 0]);
        assert_eq!(six[HEADER..HEADER + 8], [10, 64, 0x80, 253, 3, 0, 0, 0]);
        assert!(four.windows(4).any(|bytes| bytes == [10, 0, 0, 255]));
        let both = Answered::of(&[&four[..], &six[..]].concat()).unwrap();
        let expected = Answered {
            sequence: 5,
            port: 4242,
            families: vec![2, 10],
        };
        assert_eq!(both, expected);
        assert_eq!(Answered::of(&four).unwrap().families, [2]);
        assert_eq!(Answered::of(&four[..HEADER]), None);
        assert_eq!(Answered::of(&ask(libc::RTM_GETADDR, 2, 2)), None);
        let endless = [&0_u32.to_ne_bytes()[..], &four[4..]].concat();
        assert_eq!(Answered::of(&endless), None);
    }

    #[test]
    fn small_networks_have_no_broadcast_address() {
        let broadcast = |prefix_len| broadcast(Ipv4Addr::new(10, 1, 2, 3), prefix_len);
        assert_eq!(broadcast(8), Some(Ipv4Addr::new(10, 255, 255, 255)));
        assert_eq!(broadcast(0), Some(Ipv4Addr::BROADCAST));
        assert_eq!((broadcast(31), broadcast(32)), (None, None));
    }
}
