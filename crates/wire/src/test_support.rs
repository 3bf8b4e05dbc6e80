//! What the tests of several modules share: frames captured from Linux 6.18 on a veth pair
//! (10.7.0.1 and 10.7.0.2), and strategies for addresses.

use core::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

/// Who has 10.7.0.2?
pub(crate) const ARP_REQUEST: &str =
    "ffffffffffff020000000001080600010800060400010200000000010a0700010000000000000a070002";
/// 10.7.0.2 is at 02:00:00:00:00:02.
pub(crate) const ARP_REPLY: &str =
    "020000000001020000000002080600010800060400020200000000020a0700020200000000010a070001";
/// A SYN whose checksum field holds only the pseudo-header sum.
pub(crate) const SYN_PARTIAL: &str = "02000000000202000000000108004500003c424640004006e4650a070001\
    0a0700029d2000510386b81c00000000a002faf0143f0000020405b40402080ad10a78ee000000000103030a";
/// The RST that answers it from a closed port; its checksum is complete.
pub(crate) const RST: &str = "02000000000102000000000208004500002800004000400626c00a070002\
    0a0700010051 9d20000000000386b81d5014000042ab0000";
/// A SYN with a complete checksum.
pub(crate) const SYN: &str = "02000000000202000000000108004500003c420640004006e4a50a070001\
    0a070002b0aa1f90c976515000000000a002faf0551b0000020405b40402080a329ec640000000000103030a";
/// A data segment, "hello", with timestamps.
pub(crate) const HELLO: &str = "020000000002020000000001080045000039420840004006e4a60a070001\
    0a070002b0aa1f90c9765151d73c43e88018003ff3bd00000101080a329ec6402aa4012668656c6c6f";
/// A UDP datagram, "hey".
pub(crate) const UDP_HEY: &str =
    "02000000000202000000000108004500001fa8dc400040117de10a0700010a070002bf50270f000b2402686579";
/// The ICMP port unreachable that answers it.
pub(crate) const PORT_UNREACHABLE: &str = "020000000001020000000002080045c0003be3c00000400182310a07\
    00020a0700010303112a000000004500001fa8dc400040117de10a0700010a070002bf50270f000b2402686579";

/// A neighbour solicitation from fe80::1 for fe80::2, made by hand.
pub(crate) const SOLICITATION: &str = "3333ff00000202000000000186dd6000000000203afffe800000000000\
    000000000000000001ff0200000000000000000001ff000002870073710000 0000fe800000000000000000000000000002\
    0101020000000001";
/// A fragment of a UDP datagram that begins with destination options, over IPv6, made by hand.
pub(crate) const FRAGMENT_V6: &str = "02000000000202000000000186dd600000000020 3c40fe8000000000000000\
    00000000000001fe8000000000000000000000000000022c00010400000000110000010000 0007bf50270f00100000616263646566\
    6768";

/// All of them.
pub(crate) const FRAMES: &[&str] = &[
    ARP_REQUEST,
    ARP_REPLY,
    SYN_PARTIAL,
    RST,
    SYN,
    HELLO,
    UDP_HEY,
    PORT_UNREACHABLE,
    SOLICITATION,
    FRAGMENT_V6,
];

/// The bytes that a string of hexadecimal digits names; spaces are for the reader.
pub(crate) fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| u8::try_from(c.to_digit(16).unwrap()).unwrap())
        .collect();
    assert!(digits.len().is_multiple_of(2));
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

/// The IPv4 packet of a captured frame.
pub(crate) fn ipv4_packet(frame: &str) -> Vec<u8> {
    hex(frame).split_off(crate::ethernet::Header::LEN)
}

/// What the IPv4 packet of a captured frame carries.
pub(crate) fn ipv4_payload(frame: &str) -> Vec<u8> {
    ipv4_packet(frame).split_off(crate::ipv4::Header::LEN)
}

pub(crate) fn ipv4_address() -> impl Strategy<Value = Ipv4Addr> {
    any::<u32>().prop_map(Ipv4Addr::from)
}

pub(crate) fn ipv6_address() -> impl Strategy<Value = Ipv6Addr> {
    any::<u128>().prop_map(Ipv6Addr::from)
}

pub(crate) fn hardware_address() -> impl Strategy<Value = crate::ethernet::Address> {
    any::<[u8; 6]>().prop_map(crate::ethernet::Address)
}
