//! The classic BPF program that tells a group of packet sockets (`PACKET_FANOUT_CBPF`) which of them gets
//! a frame: for TCP a hash of both ends, for an ICMP error the hash of the packet that it quotes, for
//! everything else, fragments and IPv6 extension headers included, 0.
//!
//! Read first: packet(7), `PACKET_FANOUT`, and `fanout_demux_bpf` in the kernel's af_packet.c: the program
//! sees the packet from its network header on, a load past its end returns 0, and the result is taken
//! modulo the number of sockets. The hash itself, and why it is made of so little, is the caller's.

use bpf::classic::ancillary::PROTOCOL;
use bpf::classic::{
    ADD_X, AND, COPY_TO_X, Instruction, JUMP, LOAD_BYTE, LOAD_BYTE_AT_X, LOAD_CELL, LOAD_CELL_TO_X,
    LOAD_HALF, LOAD_HALF_AT_X, LOAD_WORD, LOAD_WORD_AT_X, MULTIPLY, RETURN, RETURN_ACCUMULATOR,
    SHIFT_LEFT, SHIFT_RIGHT, STORE, XOR, XOR_X, if_equal, if_set, length, plain,
};

/// The hash of both ends: see [`program`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hash {
    /// It mixes two words.
    Mixed(Mix),
    /// It is a network card's, with a key that repeats after 16 bits: the folded input is rotated to the right by n bits for
    /// each bit n of this number.
    OfCard(u16),
}

/// The constants of a hash that mixes two words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix {
    /// Secret of the engine.
    pub key: u32,
    /// Odd multipliers.
    pub multipliers: [u32; 3],
    /// Right shifts.
    pub shifts: [u32; 3],
}

const ETHERTYPE_IPV4: u32 = 0x0800;
const ETHERTYPE_IPV6: u32 = 0x86dd;
const TCP: u32 = 6;
const ICMP: u32 = 1;
/// RFC 791 §3.1: more fragments, or not the first; only the latter.
const FRAGMENT: u32 = 0x3fff;
const LATER_FRAGMENT: u32 = 0x1fff;
/// RFC 792: destination unreachable, time exceeded, parameter problem.
const ICMP_ERRORS: [u32; 3] = [3, 11, 12];
/// RFC 792: what an error quotes comes after this many bytes.
const QUOTE: u32 = 8;

/// RFC 8200 §3: next header, source address, and what comes behind the header.
const NEXT_HEADER: u32 = 6;
const SOURCE: u32 = 8;
const PAYLOAD: u32 = 40;
const ICMPV6: u32 = 58;
/// RFC 4443 §2.1: destination unreachable, packet too big, time exceeded, parameter problem.
const ICMPV6_ERRORS: [u32; 4] = [1, 2, 3, 4];

/// Cells of the program's memory.
const HEADER_LEN: u32 = 0;
const ADDRESSES: u32 = 1;
const OTHER_ADDRESS: u32 = 2;
const PORTS: u32 = 3;

/// A card's hash: the lowest bit of what is returned, and how many bits.
pub(crate) const CARD_SHIFT: u32 = 8;
pub(crate) const CARD_MASK: u32 = 0x7f;

/// The program. With `a` both addresses and `p` both ports, each XORed, it returns of a mixing hash
///
/// ```text
/// h = (a ^ key) * m0;  h = (h ^ h >> s0 ^ p) * m1;  h = (h ^ h >> s1) * m2;  h >> s2
/// ```
///
/// and of a card's, with `f` the XOR of both halves of `a` and of `p`, the bits 8 to 14 of the XOR of all rotated `f`.
#[must_use]
pub fn program(hash: &Hash) -> Vec<Instruction> {
    let mut ipv4 = of_ipv4();
    let mut ipv6 = of_ipv6(length(&ipv4));
    let mut program = vec![
        plain(LOAD_WORD, PROTOCOL),
        if_equal(ETHERTYPE_IPV4, 2, 0),
        if_equal(ETHERTYPE_IPV6, 2, 0),
        plain(RETURN, 0),
        plain(JUMP, length(&ipv6)),
    ];
    program.append(&mut ipv6);
    program.append(&mut ipv4);
    match hash {
        Hash::Mixed(mix) => program.extend(mixed(mix)),
        Hash::OfCard(rotations) => program.extend(of_card(*rotations)),
    }
    program
}

/// Keeps the addresses of an IPv4 packet and loads its ports.
fn of_ipv4() -> Vec<Instruction> {
    let mut program = Vec::new();
    program.extend([
        plain(LOAD_BYTE, 0),
        plain(AND, 0x0f),
        plain(SHIFT_LEFT, 2),
        plain(STORE, HEADER_LEN),
        plain(LOAD_HALF, 6),
    ]);
    program.extend(only_if_clear(FRAGMENT));
    program.push(plain(LOAD_BYTE, 9));

    let mut tcp = vec![
        plain(LOAD_WORD, 12),
        plain(COPY_TO_X, 0),
        plain(LOAD_WORD, 16),
        plain(XOR_X, 0),
        plain(STORE, ADDRESSES),
        plain(LOAD_CELL_TO_X, HEADER_LEN),
        plain(LOAD_WORD_AT_X, 0),
    ];
    let mut icmp = quoted_tcp();
    icmp.push(plain(JUMP, length(&tcp)));
    program.push(if_equal(TCP, 0, 1));
    program.push(plain(JUMP, length(&icmp)));
    program.append(&mut icmp);
    program.append(&mut tcp);
    program
}

/// As [`of_ipv4`], of an IPv6 packet; `to_mix` instructions lie between this and the hash.
fn of_ipv6(to_mix: u32) -> Vec<Instruction> {
    let mut tcp = flow_of_ipv6(0);
    tcp.push(plain(JUMP, to_mix));
    let mut icmp = Vec::from(only_if_equal(ICMPV6));
    icmp.extend([
        plain(LOAD_BYTE, PAYLOAD),
        if_equal(ICMPV6_ERRORS[0], 4, 0),
        if_equal(ICMPV6_ERRORS[1], 3, 0),
        if_equal(ICMPV6_ERRORS[2], 2, 0),
        if_equal(ICMPV6_ERRORS[3], 1, 0),
        plain(RETURN, 0),
        plain(LOAD_BYTE, PAYLOAD + QUOTE + NEXT_HEADER),
    ]);
    icmp.extend(only_if_equal(TCP));
    icmp.extend(flow_of_ipv6(PAYLOAD + QUOTE));
    icmp.push(plain(JUMP, length(&tcp) + to_mix));

    let mut program = vec![
        plain(LOAD_BYTE, NEXT_HEADER),
        if_equal(TCP, 0, 1),
        plain(JUMP, length(&icmp)),
    ];
    program.append(&mut icmp);
    program.append(&mut tcp);
    program
}

/// Of the IPv6 packet at `start` whose header TCP follows: keeps the addresses, loads the ports.
fn flow_of_ipv6(start: u32) -> Vec<Instruction> {
    let words = (SOURCE..PAYLOAD).step_by(4).skip(1);
    let mut program = vec![plain(LOAD_WORD, start + SOURCE)];
    for word in words {
        program.extend([
            plain(COPY_TO_X, 0),
            plain(LOAD_WORD, start + word),
            plain(XOR_X, 0),
        ]);
    }
    program.extend([plain(STORE, ADDRESSES), plain(LOAD_WORD, start + PAYLOAD)]);
    program
}

/// Of an ICMP error: loads the ports that it quotes, and keeps the addresses.
fn quoted_tcp() -> Vec<Instruction> {
    let mut program = Vec::from(only_if_equal(ICMP));
    program.extend([
        plain(LOAD_CELL_TO_X, HEADER_LEN),
        plain(LOAD_BYTE_AT_X, 0),
        if_equal(ICMP_ERRORS[0], 3, 0),
        if_equal(ICMP_ERRORS[1], 2, 0),
        if_equal(ICMP_ERRORS[2], 1, 0),
        plain(RETURN, 0),
        plain(LOAD_BYTE_AT_X, QUOTE + 9),
    ]);
    program.extend(only_if_equal(TCP));
    program.push(plain(LOAD_HALF_AT_X, QUOTE + 6));
    program.extend(only_if_clear(LATER_FRAGMENT));
    program.extend([
        plain(LOAD_WORD_AT_X, QUOTE + 12),
        plain(STORE, ADDRESSES),
        plain(LOAD_WORD_AT_X, QUOTE + 16),
        plain(STORE, OTHER_ADDRESS),
        plain(LOAD_BYTE_AT_X, QUOTE),
        plain(AND, 0x0f),
        plain(SHIFT_LEFT, 2),
        plain(ADD_X, 0),
        // Needed once more below, where X holds an address.
        plain(STORE, HEADER_LEN),
        plain(LOAD_CELL_TO_X, OTHER_ADDRESS),
        plain(LOAD_CELL, ADDRESSES),
        plain(XOR_X, 0),
        plain(STORE, ADDRESSES),
        plain(LOAD_CELL_TO_X, HEADER_LEN),
        plain(LOAD_WORD_AT_X, QUOTE),
    ]);
    program
}

/// The hash of the kept addresses and the loaded ports.
fn mixed(mix: &Mix) -> [Instruction; 20] {
    [
        plain(COPY_TO_X, 0),
        plain(SHIFT_RIGHT, 16),
        plain(XOR_X, 0),
        plain(AND, 0xffff),
        plain(STORE, PORTS),
        plain(LOAD_CELL, ADDRESSES),
        plain(XOR, mix.key),
        plain(MULTIPLY, mix.multipliers[0]),
        plain(COPY_TO_X, 0),
        plain(SHIFT_RIGHT, mix.shifts[0]),
        plain(XOR_X, 0),
        plain(LOAD_CELL_TO_X, PORTS),
        plain(XOR_X, 0),
        plain(MULTIPLY, mix.multipliers[1]),
        plain(COPY_TO_X, 0),
        plain(SHIFT_RIGHT, mix.shifts[1]),
        plain(XOR_X, 0),
        plain(MULTIPLY, mix.multipliers[2]),
        plain(SHIFT_RIGHT, mix.shifts[2]),
        plain(RETURN_ACCUMULATOR, 0),
    ]
}

/// A card's hash of the kept addresses and the loaded ports.
fn of_card(rotations: u16) -> Vec<Instruction> {
    let mut program = vec![
        plain(COPY_TO_X, 0),
        plain(LOAD_CELL, ADDRESSES),
        plain(XOR_X, 0),
        plain(COPY_TO_X, 0),
        plain(SHIFT_RIGHT, 16),
        plain(XOR_X, 0),
        plain(AND, 0xffff),
        plain(COPY_TO_X, 0),
        plain(SHIFT_LEFT, 16),
        plain(XOR_X, 0),
        // Twice the folded input, from which every rotation is cut.
        plain(STORE, PORTS),
        plain(AND, 0),
        plain(COPY_TO_X, 0),
    ];
    for by in (0..16).filter(|by| rotations >> by & 1 == 1) {
        program.extend([
            plain(LOAD_CELL, PORTS),
            plain(SHIFT_RIGHT, by),
            plain(XOR_X, 0),
            plain(COPY_TO_X, 0),
        ]);
    }
    program.extend([
        plain(SHIFT_RIGHT, CARD_SHIFT),
        plain(AND, CARD_MASK),
        plain(RETURN_ACCUMULATOR, 0),
    ]);
    program
}

/// Returns 0 unless the accumulator is `operand`.
fn only_if_equal(operand: u32) -> [Instruction; 2] {
    [if_equal(operand, 1, 0), plain(RETURN, 0)]
}

/// Returns 0 if the accumulator has one of these bits.
fn only_if_clear(bits: u32) -> [Instruction; 2] {
    [if_set(bits, 0, 1), plain(RETURN, 0)]
}
