//! The classic BPF program that lets only frames for the engine's addresses reach the socket.
//!
//! Read first: `Documentation/networking/filter.rst` of the kernel. A pure function builds the
//! program; attaching it is `sys.rs`. Frames with a VLAN tag are not for us yet: the kernel takes
//! the tag out of the frame, so the program asks for it through the ancillary loads.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bpf::classic::ancillary::VLAN_TAG_PRESENT;
use bpf::classic::{
    ACCEPT, AND, Instruction, JUMP, LOAD_BYTE, LOAD_HALF, LOAD_WORD, REJECT, RETURN, if_equal,
    length, plain,
};

/// Most addresses in one program: a jump of classic BPF reaches 255 instructions, and a program has
/// 4096 at most.
pub const ADDRESSES_MAX: usize = 200;

/// IEEE 802: the first bit on the wire says that a frame is for several stations.
const ETHERNET_DESTINATION_AT: u32 = 0;
const GROUP_BIT: u32 = 1;
const ETHERTYPE_AT: u32 = 12;
const ETHERTYPE_IPV4: u32 = 0x0800;
const ETHERTYPE_ARP: u32 = 0x0806;
const ETHERTYPE_IPV6: u32 = 0x86dd;
/// RFC 826: sender and target protocol address, behind the Ethernet header.
const ARP_SENDER_AT: u32 = 14 + 14;
const ARP_TARGET_AT: u32 = 14 + 24;
/// RFC 791 §3.1: destination address, behind the Ethernet header.
const IPV4_DESTINATION_AT: u32 = 14 + 16;
/// RFC 8200 §3: destination address, behind the Ethernet header.
const IPV6_DESTINATION_AT: u32 = 14 + 24;

/// A program that accepts no frame.
pub(super) const NOTHING: [Instruction; 1] = [plain(RETURN, REJECT)];

/// A program that accepts frames of one EtherType, without a VLAN tag.
pub(super) fn for_ether_type(ether_type: u16) -> [Instruction; 7] {
    [
        plain(LOAD_WORD, VLAN_TAG_PRESENT),
        if_equal(0, 1, 0),
        plain(RETURN, REJECT),
        plain(LOAD_HALF, ETHERTYPE_AT),
        if_equal(u32::from(ether_type), 0, 1),
        plain(RETURN, ACCEPT),
        plain(RETURN, REJECT),
    ]
}

/// Why no program can be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{count} addresses are more than one socket filter takes ({ADDRESSES_MAX}): name fewer, or none to receive every frame"
)]
#[non_exhaustive]
pub struct TooManyAddresses {
    /// Addresses asked for.
    pub count: usize,
}

/// A program that accepts IP frames for one of `addresses`, ARP frames whose target or sender is one
/// of them (the sender, so that somebody else's use of our address is seen), where one is of IPv4 all
/// IPv4 frames for groups and for everybody on the link, and where one is of IPv6
/// all frames for IPv6 groups and link-local addresses: neighbour discovery speaks to groups, and the
/// stack makes up link-local addresses of its own. The unspecified IPv6 address stands for every one:
/// which of them a stack makes from announced prefixes nobody knows before.
///
/// # Errors
/// More than [`ADDRESSES_MAX`] addresses.
pub fn for_addresses(addresses: &[IpAddr]) -> Result<Vec<Instruction>, TooManyAddresses> {
    let count = addresses.len();
    if count > ADDRESSES_MAX {
        return Err(TooManyAddresses { count });
    }
    let (mut of_v4, mut of_v6) = (Vec::new(), Vec::new());
    for address in addresses {
        match address {
            IpAddr::V4(v4) => of_v4.push(*v4),
            IpAddr::V6(v6) => of_v6.push(*v6),
        }
    }
    let mut arp = match_any(ARP_TARGET_AT, &of_v4);
    arp.extend(match_any(ARP_SENDER_AT, &of_v4));
    arp.push(plain(RETURN, REJECT));
    let mut ipv4 = Vec::new();
    if !of_v4.is_empty() {
        ipv4.push(plain(LOAD_BYTE, ETHERNET_DESTINATION_AT));
        ipv4.push(plain(AND, GROUP_BIT));
        ipv4.push(if_equal(GROUP_BIT, 0, 1));
        ipv4.push(plain(RETURN, ACCEPT));
    }
    ipv4.extend(match_any(IPV4_DESTINATION_AT, &of_v4));
    ipv4.push(plain(RETURN, REJECT));
    let mut ipv6 = match_ipv6(&of_v6);

    let mut program = vec![
        plain(LOAD_WORD, VLAN_TAG_PRESENT),
        if_equal(0, 1, 0),
        plain(RETURN, REJECT),
        plain(LOAD_HALF, ETHERTYPE_AT),
        // The list of ARP may be longer than a conditional jump reaches, an unconditional one
        // reaches everything.
        if_equal(ETHERTYPE_ARP, 5, 0),
        if_equal(ETHERTYPE_IPV4, 2, 0),
        if_equal(ETHERTYPE_IPV6, 2, 0),
        plain(RETURN, REJECT),
        plain(JUMP, length(&arp) + 1),
        plain(JUMP, length(&arp) + length(&ipv4)),
    ];
    program.append(&mut arp);
    program.append(&mut ipv4);
    program.append(&mut ipv6);
    Ok(program)
}

/// Accepts if the packet is for one of `addresses` or, where there are any, for a group or a link-local
/// address.
fn match_ipv6(addresses: &[Ipv6Addr]) -> Vec<Instruction> {
    let mut program = Vec::new();
    if addresses.contains(&Ipv6Addr::UNSPECIFIED) {
        return vec![plain(RETURN, ACCEPT)];
    }
    if !addresses.is_empty() {
        program.push(plain(LOAD_BYTE, IPV6_DESTINATION_AT));
        program.push(if_equal(0xff, 3, 0)); // RFC 4291 §2.7
        program.push(plain(LOAD_HALF, IPV6_DESTINATION_AT));
        program.push(plain(AND, 0xffc0));
        program.push(if_equal(0xfe80, 0, 1)); // RFC 4291 §2.5.6
        program.push(plain(RETURN, ACCEPT));
    }
    for address in addresses {
        // From each word that differs to the next address.
        let to_next = [7, 5, 3, 1];
        let octets = address.octets();
        let (words, _) = octets.as_chunks::<4>();
        for ((word, at), skip) in words.iter().zip([0, 4, 8, 12]).zip(to_next) {
            program.push(plain(LOAD_WORD, IPV6_DESTINATION_AT + at));
            program.push(if_equal(u32::from_be_bytes(*word), 0, skip));
        }
        program.push(plain(RETURN, ACCEPT));
    }
    program.push(plain(RETURN, REJECT));
    program
}

/// Accepts if the word at `at` is one of `addresses`, and goes on behind its end otherwise.
fn match_any(at: u32, addresses: &[Ipv4Addr]) -> Vec<Instruction> {
    let mut program = vec![plain(LOAD_WORD, at)];
    for (index, address) in addresses.iter().enumerate() {
        let to_accept = u8::try_from(addresses.len() - index)
            .expect("invariant: ADDRESSES_MAX is below the reach of a jump");
        program.push(if_equal(u32::from(*address), to_accept, 0));
    }
    program.push(plain(JUMP, 1));
    program.push(plain(RETURN, ACCEPT));
    program
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(program: &[Instruction], frame: &[u8], tagged: bool) -> u32 {
        bpf::classic::run(program, &|bytes, at| {
            if at == VLAN_TAG_PRESENT {
                return Some(tagged.into());
            }
            let start = usize::try_from(at).unwrap();
            let found = frame.get(start..start + usize::try_from(bytes).unwrap())?;
            Some(
                found
                    .iter()
                    .fold(0, |word, byte| word << 8 | u32::from(*byte)),
            )
        })
    }

    fn oracle(frame: &[u8], addresses: &[IpAddr]) -> bool {
        let listed = |at: usize| {
            let Some(&[a, b, c, d]) = frame.get(at..at + 4) else {
                return None;
            };
            Some(addresses.contains(&IpAddr::from([a, b, c, d])))
        };
        match frame.get(12..14) {
            Some([8, 0]) => {
                let to_many = frame[0] & 1 == 1 && addresses.iter().any(IpAddr::is_ipv4);
                to_many || listed(30) == Some(true)
            }
            // The target lies behind the sender: a frame that ends before it is rejected.
            Some([8, 6]) => match listed(38) {
                None => false,
                Some(target) => target || listed(28) == Some(true),
            },
            Some([0x86, 0xdd]) if addresses.iter().any(IpAddr::is_ipv6) => {
                // A load past the end rejects, wherever it stands.
                let group = frame.get(38) == Some(&0xff);
                let link_local =
                    matches!(frame.get(38..40), Some([0xfe, low]) if low & 0xc0 == 0x80);
                let address = frame.get(38..54).and_then(|bytes| bytes.first_chunk());
                let address = address.map(|octets: &[u8; 16]| IpAddr::from(*octets));
                group || link_local || address.is_some_and(|address| addresses.contains(&address))
            }
            _ => false,
        }
    }

    fn any_address() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            address().prop_map(IpAddr::from),
            (0_u16..3, 0_u16..3).prop_map(|(a, b)| IpAddr::from([0x2001, 0xdb8, a, 0, 0, 0, b, 1])),
        ]
    }

    fn address() -> impl Strategy<Value = Ipv4Addr> {
        (0_u8..4, 0_u8..4).prop_map(|(c, d)| Ipv4Addr::new(10, 0, c, d))
    }

    proptest! {
        #[test]
        fn exactly_the_frames_of_listed_addresses_pass(
            addresses in proptest::collection::vec(any_address(), 0..8),
            destination in prop_oneof![any_address(), Just(IpAddr::from([0xff02_u16, 0, 0, 0, 0, 0, 0, 1])), Just(IpAddr::from([0xfe80_u16, 0, 0, 0, 0, 0, 0, 1]))],
            ethertype in prop_oneof![Just([8_u8, 0]), Just([8, 6]), Just([0x86, 0xdd])],
            fields in (address(), address(), address()),
            length in 0_usize..80,
            (tagged, first) in any::<(bool, u8)>(),
        ) {
            let mut frame = vec![0_u8; 80];
            frame[0] = first;
            frame[12..14].copy_from_slice(&ethertype);
            frame[28..32].copy_from_slice(&fields.0.octets());
            if ethertype == [8, 0] {
                frame[30..34].copy_from_slice(&fields.1.octets());
            }
            frame[38..42].copy_from_slice(&fields.2.octets());
            if let (IpAddr::V6(v6), [0x86, 0xdd]) = (destination, ethertype) {
                frame[38..54].copy_from_slice(&v6.octets());
            }
            frame.truncate(length);
            let program = for_addresses(&addresses).unwrap();
            let accepted = run(&program, &frame, tagged) == u32::MAX;
            prop_assert_eq!(accepted, !tagged && oracle(&frame, &addresses));
        }
    }

    #[test]
    fn frames_of_one_ether_type_pass_and_no_others() {
        let program = for_ether_type(0x88b5);
        let mut frame = [0_u8; 60];
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        assert_eq!(run(&program, &frame, false), u32::MAX);
        assert_eq!(run(&program, &frame, true), 0, "a frame with a tag");
        assert_eq!(run(&program, &frame[..13], false), 0, "a cut frame");
        frame[13] = 0xb6;
        assert_eq!(run(&program, &frame, false), 0);
    }

    #[test]
    fn the_longest_list_is_reached_to_its_last_address() {
        let listed: Vec<IpAddr> = (0..200)
            .map(|last| IpAddr::from([192, 168, 7, last]))
            .collect();
        let program = for_addresses(&listed).unwrap();
        let mut frame = [0_u8; 60];
        frame[12..14].copy_from_slice(&[8, 0]);
        for address in &listed {
            let IpAddr::V4(address) = address else {
                panic!()
            };
            frame[30..34].copy_from_slice(&address.octets());
            assert_eq!(run(&program, &frame, false), u32::MAX, "{address}");
        }
        frame[30..34].copy_from_slice(&[192, 168, 7, 200]);
        assert_eq!(run(&program, &frame, false), 0);
    }

    #[test]
    fn the_unspecified_ipv6_address_lets_every_one_in() {
        let listed = [IpAddr::from([10, 0, 0, 1]), Ipv6Addr::UNSPECIFIED.into()];
        let program = for_addresses(&listed).unwrap();
        let mut frame = [0x20_u8; 60];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        assert_eq!(run(&program, &frame, false), u32::MAX);
        frame[12..14].copy_from_slice(&[8, 0]);
        assert_eq!(run(&program, &frame, false), 0, "IPv4 as before");
    }

    #[test]
    fn too_many_addresses_are_refused_with_the_number() {
        let addresses = [IpAddr::V4(Ipv4Addr::LOCALHOST); ADDRESSES_MAX + 1];
        let error = for_addresses(&addresses).unwrap_err();
        assert_eq!(error, TooManyAddresses { count: 201 });
    }
}
