//! The XDP program that gives the engine what is addressed to it and the kernel everything else.
//!
//! Read first: `Documentation/networking/af_xdp.rst` of the kernel. Taken are IPv4 and IPv6 packets in frames
//! for one station, without a VLAN tag, whose destination is one of the engine's addresses; where addresses are
//! shared with the kernel, what is claimed (`crate::sharing`). Everything else, ARP, neighbour discovery and
//! what is for groups among it, goes on to the kernel, which needs it as well: there the driver's packet socket
//! hears it. So does a frame for which the map has no socket, whatever the reason.
//!
//! With several cores a frame is taken only by a queue of the core that the hash of `af_packet/steering.rs`
//! names; one that arrived at another queue finds its core by way of the packet sockets.

use std::net::IpAddr;

use crate::af_packet::steering::{CARD_MASK, CARD_SHIFT, Hash, Mix};
use crate::sharing::Tables;
use bpf::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9};
use bpf::{
    AssembleError, Assembler, Condition, Helper, Instruction, Label, Map, Operation, Register,
    Width,
};

/// `enum xdp_action`.
const XDP_PASS: i32 = 2;
/// `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const DATA_META: i16 = 8;
const RX_QUEUE_INDEX: i16 = 16;

const ETHERNET_LEN: i16 = 14;
const GROUP_BIT: i32 = 1;
const ETHERTYPE_AT: i16 = 12;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const IPV4_LEN: i16 = 20;
const IPV6_LEN: i16 = 40;
/// RFC 791 §3.1.
const IPV4_FRAGMENT_AT: i16 = ETHERNET_LEN + 6;
const IPV4_PROTOCOL_AT: i16 = ETHERNET_LEN + 9;
const IPV4_SOURCE_AT: i16 = ETHERNET_LEN + 12;
const IPV4_DESTINATION_AT: i16 = ETHERNET_LEN + 16;
/// More fragments, or not the first.
const FRAGMENT: u16 = 0x3fff;
/// RFC 8200 §3.
const IPV6_NEXT_HEADER_AT: i16 = ETHERNET_LEN + 6;
const IPV6_SOURCE_AT: i16 = ETHERNET_LEN + 8;
const IPV6_DESTINATION_AT: i16 = ETHERNET_LEN + 24;
const TCP: i32 = 6;

/// Whose frames.
#[derive(Debug, Clone, Copy)]
pub(super) enum Whose<'a> {
    /// Packets to any address.
    Anybodys,
    /// Packets to these addresses.
    Of(&'a [IpAddr]),
    /// What is claimed, in frames for this station.
    Claimed(&'a Tables, [u8; 6]),
    /// Frames of this EtherType.
    Typed(u16),
}

/// Which frames the program takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken<'a> {
    /// Whose.
    pub whose: Whose<'a>,
    /// With several cores: how many, and the hash.
    pub cores: Option<(u16, Hash)>,
    /// Each frame that is taken has the time before it: see [`STAMP_BYTES`].
    pub stamps: bool,
}

/// What stands before a stamped frame: a number by which it is known, then CLOCK_MONOTONIC in nanoseconds when the program saw it. The
/// kernel copies what a program leaves before a frame into the UMEM, see `Documentation/networking/xdp-rx-metadata.rst`.
pub(super) const STAMP_BYTES: u8 = 16;
pub(super) const STAMP: u64 = 0x7368_756e_745f_7470;

/// A number of 16 bits as it lies in a packet, loaded by this machine.
fn in_network_order(number: u16) -> i32 {
    u16::from_ne_bytes(number.to_be_bytes()).into()
}

/// The program; `sockets` is a map from queues to sockets.
pub(super) fn assemble(
    taken: &Taken<'_>,
    sockets: &Map,
) -> Result<Vec<Instruction>, AssembleError> {
    assemble_with(taken, sockets, XDP_PASS)
}

/// `absent` is the verdict on a frame that would be taken, but its queue has no socket.
fn assemble_with(
    taken: &Taken<'_>,
    sockets: &Map,
    absent: i32,
) -> Result<Vec<Instruction>, AssembleError> {
    let addresses = match taken.whose {
        Whose::Of(addresses) => Some(addresses),
        Whose::Anybodys | Whose::Claimed(..) | Whose::Typed(_) => None,
    };
    if let Whose::Typed(ether_type) = taken.whose {
        return typed(ether_type, taken, sockets, absent);
    }
    // The verifier refuses code that nothing leads to.
    let is_any = |family: fn(&IpAddr) -> bool| {
        addresses.is_none_or(|addresses| addresses.iter().any(family))
    };
    let mut program = Assembler::new();
    let [pass, ipv4, ipv6, first, hashed] = [(); 5].map(|()| program.label());
    if let Whose::Claimed(tables, station) = taken.whose {
        let ours = program.label();
        tables.judge(&mut program, station, [ours, pass]);
        program.place(ours);
    } else {
        program.alu(Operation::Move, R6, R1);
    }
    program
        .load(Width::Word, R2, R6, DATA)
        .load(Width::Word, R3, R6, DATA_END);
    needs(&mut program, ETHERNET_LEN + IPV4_LEN, pass);
    program
        .load(Width::Byte, R5, R2, 0)
        .jump_if(Condition::Set, R5, GROUP_BIT, pass)
        .load(Width::Half, R5, R2, ETHERTYPE_AT);
    let families = [
        (ETHERTYPE_IPV4, is_any(IpAddr::is_ipv4), ipv4),
        (ETHERTYPE_IPV6, is_any(IpAddr::is_ipv6), ipv6),
    ];
    for (ethertype, _, label) in families.iter().filter(|(_, is_any, _)| *is_any) {
        program.jump_if(Condition::Equal, R5, in_network_order(*ethertype), *label);
    }
    let [has_ipv4, has_ipv6] = families.map(|(_, is_any, _)| is_any);
    if has_ipv4 || has_ipv6 {
        program.jump(pass);
    }
    if has_ipv4 {
        program.place(ipv4);
        let take = program.label();
        match_ipv4(&mut program, addresses, take, pass);
        program.place(take);
        if taken.cores.is_some() {
            ports_of_ipv4(&mut program, first);
        }
        program.jump(hashed);
    }
    if has_ipv6 {
        program.place(ipv6);
        needs(&mut program, ETHERNET_LEN + IPV6_LEN, pass);
        let take = program.label();
        match_ipv6(&mut program, addresses, take, pass);
        program.place(take);
        if taken.cores.is_some() {
            ports_of_ipv6(&mut program, first);
        }
        program.jump(hashed);
    }
    if has_ipv4 || has_ipv6 {
        program.place(hashed);
        into_socket(&mut program, taken, sockets, absent, [first, pass]);
    }
    program.place(pass).exit_with(XDP_PASS);
    program.finish()
}

/// The program that looks at nothing but the EtherType. What has one of no protocol of IP belongs to whichever core has its queue.
fn typed(
    ether_type: u16,
    taken: &Taken<'_>,
    sockets: &Map,
    absent: i32,
) -> Result<Vec<Instruction>, AssembleError> {
    let mut program = Assembler::new();
    let [pass, first] = [(); 2].map(|()| program.label());
    program
        .alu(Operation::Move, R6, R1)
        .load(Width::Word, R2, R6, DATA)
        .load(Width::Word, R3, R6, DATA_END);
    needs(&mut program, ETHERNET_LEN, pass);
    program.load(Width::Half, R5, R2, ETHERTYPE_AT).jump_if(
        Condition::NotEqual,
        R5,
        in_network_order(ether_type),
        pass,
    );
    let taken = Taken {
        cores: None,
        ..*taken
    };
    into_socket(&mut program, &taken, sockets, absent, [first, pass]);
    program.place(pass).exit_with(XDP_PASS);
    program.finish()
}

/// Gives the frame to the socket of its queue, if that is its core's.
fn into_socket(
    program: &mut Assembler,
    taken: &Taken<'_>,
    sockets: &Map,
    absent: i32,
    [first, pass]: [Label; 2],
) {
    match &taken.cores {
        Some((cores, hash)) => only_own_queue(program, *cores, hash, [first, pass]),
        None => _ = program.place(first),
    }
    if taken.stamps {
        stamp(program);
    }
    program
        .load(Width::Word, R2, R6, RX_QUEUE_INDEX)
        .load_map(R1, sockets)
        .alu(Operation::Move, R3, absent)
        .call(Helper::RedirectMap)
        .exit();
}

/// Puts the time before the frame, where there is a place.
fn stamp(program: &mut Assembler) {
    let without = program.label();
    let bytes = i32::from(STAMP_BYTES);
    program
        .alu(Operation::Move, R1, R6)
        .alu(Operation::Move, R2, -bytes)
        .call(Helper::AdjustMeta)
        .jump_if(Condition::NotEqual, R0, 0, without)
        .call(Helper::MonotonicTime)
        .alu(Operation::Move, R8, R0)
        .load(Width::Word, R2, R6, DATA_META)
        .load(Width::Word, R3, R6, DATA)
        .alu(Operation::Move, R4, R2)
        .alu(Operation::Add, R4, bytes)
        .jump_if(Condition::Greater, R4, R3, without)
        .load_wide(R5, STAMP)
        .store(Width::Double, R2, 0, R5)
        .store(Width::Double, R2, 8, R8)
        .place(without);
}

/// Passes frames that end before `len`: R2 is the start, R3 the end.
fn needs(program: &mut Assembler, len: i16, pass: Label) {
    program
        .alu(Operation::Move, R4, R2)
        .alu(Operation::Add, R4, i32::from(len))
        .jump_if(Condition::Greater, R4, R3, pass);
}

fn match_ipv4(program: &mut Assembler, addresses: Option<&[IpAddr]>, take: Label, pass: Label) {
    let Some(addresses) = addresses else {
        return;
    };
    program.load(Width::Word, R5, R2, IPV4_DESTINATION_AT);
    for address in addresses {
        if let IpAddr::V4(address) = address {
            let word = i32::from_ne_bytes(address.octets());
            program.jump32_if(Condition::Equal, R5, word, take);
        }
    }
    program.jump(pass);
}

fn match_ipv6(program: &mut Assembler, addresses: Option<&[IpAddr]>, take: Label, pass: Label) {
    let Some(addresses) = addresses else {
        return;
    };
    program
        .load(Width::Double, R5, R2, IPV6_DESTINATION_AT)
        .load(Width::Double, R7, R2, IPV6_DESTINATION_AT + 8);
    for address in addresses {
        if let IpAddr::V6(address) = address {
            let [a, b, c, d, e, f, g, h, rest @ ..] = address.octets();
            let next = program.label();
            program
                .load_wide(R8, u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
                .jump_if(Condition::NotEqual, R5, R8, next)
                .load_wide(R8, u64::from_ne_bytes(rest))
                .jump_if(Condition::Equal, R7, R8, take)
                .place(next);
        }
    }
    program.jump(pass);
}

/// For the hash: both addresses in R7 and both ports in R8, XORed; anything but whole TCP belongs to the
/// first core.
fn ports_of_ipv4(program: &mut Assembler, first: Label) {
    program
        .load(Width::Byte, R5, R2, IPV4_PROTOCOL_AT)
        .jump_if(Condition::NotEqual, R5, TCP, first)
        .load(Width::Half, R5, R2, IPV4_FRAGMENT_AT)
        .jump_if(Condition::Set, R5, in_network_order(FRAGMENT), first)
        .load(Width::Word, R7, R2, IPV4_SOURCE_AT)
        .load(Width::Word, R5, R2, IPV4_DESTINATION_AT)
        .alu(Operation::Xor, R7, R5)
        // RFC 791 §3.1: the header's length in words.
        .load(Width::Byte, R5, R2, ETHERNET_LEN)
        .alu(Operation::And, R5, 0x0f)
        .alu(Operation::ShiftLeft, R5, 2)
        .alu(Operation::Add, R2, R5);
    ports(program, ETHERNET_LEN, first);
}

fn ports_of_ipv6(program: &mut Assembler, first: Label) {
    program
        .load(Width::Byte, R5, R2, IPV6_NEXT_HEADER_AT)
        .jump_if(Condition::NotEqual, R5, TCP, first)
        .load(Width::Word, R7, R2, IPV6_SOURCE_AT);
    for word in 1..8 {
        program
            .load(Width::Word, R5, R2, IPV6_SOURCE_AT + 4 * word)
            .alu(Operation::Xor, R7, R5);
    }
    ports(program, ETHERNET_LEN + IPV6_LEN, first);
}

fn ports(program: &mut Assembler, at: i16, first: Label) {
    needs(program, at + 4, first);
    program
        .load(Width::Half, R8, R2, at)
        .load(Width::Half, R5, R2, at + 2)
        .alu(Operation::Xor, R8, R5)
        .from_network(Width::Half, R8)
        .from_network(Width::Word, R7);
}

/// Passes frames whose core has not this queue; as `af_packet::steering::program` computes it.
fn only_own_queue(program: &mut Assembler, cores: u16, hash: &Hash, [first, pass]: [Label; 2]) {
    let placed = program.label();
    match hash {
        Hash::Mixed(mix) => mixed(program, mix),
        Hash::OfCard(rotations) => of_card(program, *rotations),
    }
    modulo(program, R7, cores);
    program
        .jump(placed)
        .place(first)
        .alu(Operation::Move, R7, 0)
        .place(placed)
        .load(Width::Word, R9, R6, RX_QUEUE_INDEX);
    modulo(program, R9, cores);
    program.jump_if(Condition::NotEqual, R7, R9, pass);
}

fn number(number: u32) -> i32 {
    i32::from_ne_bytes(number.to_ne_bytes())
}

fn shift(shift: u32) -> i32 {
    i32::try_from(shift & 31).expect("invariant: masked")
}

/// The hash of R7 and R8, in R7.
fn mixed(program: &mut Assembler, mix: &Mix) {
    let fold = |program: &mut Assembler, by: u32| {
        program
            .alu32(Operation::Move, R5, R7)
            .alu32(Operation::ShiftRight, R5, shift(by))
            .alu32(Operation::Xor, R7, R5);
    };
    program.alu32(Operation::Xor, R7, number(mix.key)).alu32(
        Operation::Multiply,
        R7,
        number(mix.multipliers[0]),
    );
    fold(program, mix.shifts[0]);
    program.alu32(Operation::Xor, R7, R8).alu32(
        Operation::Multiply,
        R7,
        number(mix.multipliers[1]),
    );
    fold(program, mix.shifts[1]);
    program
        .alu32(Operation::Multiply, R7, number(mix.multipliers[2]))
        .alu32(Operation::ShiftRight, R7, shift(mix.shifts[2]));
}

/// A card's hash of R7 and R8, in R7.
fn of_card(program: &mut Assembler, rotations: u16) {
    program
        .alu32(Operation::Xor, R7, R8)
        .alu32(Operation::Move, R5, R7)
        .alu32(Operation::ShiftRight, R5, 16)
        .alu32(Operation::Xor, R7, R5)
        .alu32(Operation::And, R7, 0xffff)
        .alu32(Operation::Move, R8, R7)
        .alu32(Operation::ShiftLeft, R8, 16)
        .alu32(Operation::Or, R8, R7)
        .alu32(Operation::Move, R7, 0);
    for by in (0..16).filter(|by| rotations >> by & 1 == 1) {
        program
            .alu32(Operation::Move, R5, R8)
            .alu32(Operation::ShiftRight, R5, shift(by))
            .alu32(Operation::Xor, R7, R5);
    }
    program
        .alu32(Operation::ShiftRight, R7, shift(CARD_SHIFT))
        .alu32(Operation::And, R7, number(CARD_MASK));
}

fn modulo(program: &mut Assembler, register: Register, cores: u16) {
    program.alu32(Operation::Modulo, register, i32::from(cores));
}

#[cfg(test)]
mod tests;
