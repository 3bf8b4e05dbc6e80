//! The programs over the claims: what is the engine's is admitted to its sockets, and taken from the
//! kernel. Each frame begins at its Ethernet header.
//!
//! An XDP program takes for AF_XDP what the other two would take for packet sockets, before either of them
//! sees it; what the kernel needs as well it leaves to them.
//!
//! Most frames of a busy host are the kernel's and end after the look at one word, that of their local port.
//! What differs between the two: frames for groups and everybody are the kernel's too, and so are errors of
//! ICMP and all fragments but the first, in which alone the ports stand: both stacks get those. A kernel
//! that misses first fragments says nothing of the others (RFC 1122 §3.3.2). Frames with a VLAN tag belong
//! to another interface; IPv6 extension headers other than that of fragments, and IPv4 protocols other than
//! TCP and UDP, to the kernel.

use super::{KEY_BYTES, Verdict, port};
use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};
use bpf::packet::{
    PACKET_HOST, PACKET_OTHERHOST, PACKET_TYPE, PROTOCOL, VLAN_PRESENT, network_half,
};
use bpf::{
    AssembleError, Assembler, Condition, Helper, Instruction, Label, Map, Operation, Register,
    Width,
};

/// Which side a program works for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// A filter of the engine's sockets.
    Engine,
    /// The kernel's way in.
    Kernel,
}

const TCP: i32 = 6;
const UDP: i32 = 17;
const ICMP: i32 = 1;
const ICMPV6: i32 = 58;
const FRAGMENT: i32 = 44;
/// RFC 792: destination unreachable, time exceeded, parameter problem.
const ICMP_ERRORS: [i32; 3] = [3, 11, 12];
/// RFC 4443 §2.1: the first four types are the errors.
const ICMPV6_ERRORS: [i32; 4] = [1, 2, 3, 4];

/// Where things lie on the program's stack, from its top.
const KEY: i16 = -40;
const KEY_LOCAL: i16 = KEY + 16;
const KEY_PORTS: i16 = KEY + 32;
const KEY_LOCAL_PORT: i16 = KEY + 34;
const KEY_PROTOCOL: i16 = KEY + 36;
const HEADER: i16 = -80;
const TRANSPORT: i16 = -88;
const PORT_INDEX: i16 = -92;
const TYPE: i16 = -96;

/// The Ethernet header ends here.
const IP: i32 = 14;
const _: () = assert!(KEY_BYTES == 40);

/// Places that several parts jump to.
struct Places {
    /// How bytes of the frame are read.
    load: Helper,
    /// Ports and protocol are to be judged: R7 protocol, R8 the family's bit of a port, R9 where the transport header is.
    transport: Label,
    /// A fragment without ports.
    fragment: Label,
    /// Both get it if it is for a claimed address.
    both_if_ours: Label,
    ours: Label,
    others: Label,
}

impl Places {
    fn new(a: &mut Assembler, load: Helper, ours: Label, others: Label) -> Self {
        Self {
            load,
            transport: a.label(),
            fragment: a.label(),
            both_if_ours: a.label(),
            ours,
            others,
        }
    }
}

/// The program of one side.
pub(super) fn build(
    side: Side,
    entries: &Map,
    ports: &Map,
) -> Result<Vec<Instruction>, AssembleError> {
    let mut a = Assembler::new();
    let [ours, others] = [a.label(), a.label()];
    let places = Places::new(&mut a, Helper::LoadBytes, ours, others);
    begin(&mut a, side, &places);
    a.load(Width::Word, R0, R6, PROTOCOL);
    of_families(&mut a, &places, entries, ports);
    a.place(places.fragment);
    // UDP for groups: whose it is is not known before it is whole.
    a.load(Width::Word, R0, R10, TYPE)
        .jump_if(Condition::NotEqual, R0, PACKET_HOST, places.ours);
    a.place(places.both_if_ours);
    if side == Side::Engine {
        for at in [0, 8, 32] {
            a.store(Width::Double, R10, KEY + at, 0);
        }
        look_up(&mut a, entries, KEY, &places);
        a.jump(places.ours);
    }
    // For the kernel's side both of these are the kernel's.
    a.place(places.others);
    a.exit_with(match side {
        Side::Engine => 0,
        Side::Kernel => -1, // TCX_NEXT: other programs have their say.
    });
    a.place(places.ours);
    a.exit_with(match side {
        Side::Engine => -1, // As much of the frame as there is.
        Side::Kernel => 2,  // TCX_DROP.
    });
    a.finish()
}

/// The beginning of an XDP program: it jumps to `ours` or to `others` and leaves its context in R6. A frame
/// for a station other than `station` is the others'.
pub(super) fn judge(
    a: &mut Assembler,
    [entries, ports]: [&Map; 2],
    station: [u8; 6],
    [ours, others]: [Label; 2],
) {
    let places = Places::new(a, Helper::XdpLoadBytes, ours, others);
    a.alu(Operation::Move, R6, R1);
    load_bytes(a, 0, HEADER, IP, &places);
    let [b0, b1, b2, b3, b4, b5] = station;
    let first = i32::from_ne_bytes([b0, b1, b2, b3]);
    a.load(Width::Word, R0, R10, HEADER)
        .jump32_if(Condition::NotEqual, R0, first, others)
        .load(Width::Half, R0, R10, HEADER + 4)
        .jump_if(
            Condition::NotEqual,
            R0,
            i32::from(u16::from_ne_bytes([b4, b5])),
            others,
        )
        .store(Width::Word, R10, TYPE, PACKET_HOST)
        .store(Width::Double, R10, KEY_PORTS, 0)
        .load(Width::Half, R0, R10, HEADER + 12);
    of_families(a, &places, entries, ports);
    // Both of these are the kernel's too.
    a.place(places.fragment)
        .place(places.both_if_ours)
        .jump(others);
}

/// Sorts out what is nobody's here, and empties the key but for its addresses.
fn begin(a: &mut Assembler, side: Side, places: &Places) {
    a.alu(Operation::Move, R6, R1)
        .load(Width::Word, R0, R6, VLAN_PRESENT)
        .jump_if(Condition::NotEqual, R0, 0, places.others)
        .load(Width::Word, R0, R6, PACKET_TYPE);
    match side {
        Side::Kernel => a.jump_if(Condition::NotEqual, R0, PACKET_HOST, places.others),
        Side::Engine => a.jump_if(Condition::Equal, R0, PACKET_OTHERHOST, places.others),
    };
    a.store(Width::Word, R10, TYPE, R0)
        .store(Width::Double, R10, KEY_PORTS, 0);
}

/// By the EtherType in R0, as the network has it.
fn of_families(a: &mut Assembler, places: &Places, entries: &Map, ports: &Map) {
    let ipv6 = a.label();
    a.jump_if(Condition::Equal, R0, network_half(0x86dd), ipv6)
        .jump_if(Condition::NotEqual, R0, network_half(0x0800), places.others);
    of_ipv4(a, places);
    a.place(ipv6);
    of_ipv6(a, places);
    of_transport(a, places, entries, ports);
}

fn of_ipv4(a: &mut Assembler, places: &Places) {
    let (icmp, whole) = (a.label(), a.label());
    load_bytes(a, IP, HEADER, 20, places);
    for at in [0, 8, 16, 24] {
        a.store(Width::Double, R10, KEY + at, 0);
    }
    // RFC 791 §3.1: source and destination; in the key behind the mark of a mapped address.
    for (from, to) in [(12, KEY), (16, KEY_LOCAL)] {
        a.store(Width::Half, R10, to + 10, 0xffff)
            .load(Width::Word, R0, R10, HEADER + from)
            .store(Width::Word, R10, to + 12, R0);
    }
    a.alu(Operation::Move, R8, immediate(port::ANY_V4))
        .load(Width::Byte, R9, R10, HEADER)
        .alu(Operation::And, R9, 0x0f)
        .alu(Operation::ShiftLeft, R9, 2)
        .alu(Operation::Add, R9, IP)
        .load(Width::Byte, R7, R10, HEADER + 9)
        .jump_if(Condition::Equal, R7, ICMP, icmp)
        .jump_if(Condition::Equal, R7, TCP, whole)
        .jump_if(Condition::NotEqual, R7, UDP, places.others)
        .place(whole)
        .load(Width::Half, R0, R10, HEADER + 6)
        .from_network(Width::Half, R0)
        .alu(Operation::And, R0, 0x1fff)
        .jump_if(Condition::NotEqual, R0, 0, places.fragment)
        .jump(places.transport);
    a.place(icmp);
    of_icmp(a, places, &ICMP_ERRORS);
}

fn of_ipv6(a: &mut Assembler, places: &Places) {
    let (icmp, plain) = (a.label(), a.label());
    load_bytes(a, IP, HEADER, 40, places);
    // RFC 8200 §3: source and destination.
    for at in [0, 8, 16, 24] {
        a.load(Width::Double, R0, R10, HEADER + 8 + at)
            .store(Width::Double, R10, KEY + at, R0);
    }
    a.alu(Operation::Move, R8, immediate(port::ANY_V6))
        .alu(Operation::Move, R9, IP + 40)
        .load(Width::Byte, R7, R10, HEADER + 6)
        .jump_if(Condition::Equal, R7, TCP, places.transport)
        .jump_if(Condition::Equal, R7, UDP, places.transport)
        .jump_if(Condition::Equal, R7, ICMPV6, icmp)
        .jump_if(Condition::NotEqual, R7, FRAGMENT, places.others);
    // RFC 8200 §4.5.
    load_bytes(a, IP + 40, TRANSPORT, 8, places);
    a.alu(Operation::Add, R9, 8)
        .load(Width::Byte, R7, R10, TRANSPORT)
        .jump_if(Condition::Equal, R7, TCP, plain)
        .jump_if(Condition::NotEqual, R7, UDP, places.others)
        .place(plain)
        .load(Width::Half, R0, R10, TRANSPORT + 2)
        .from_network(Width::Half, R0)
        .alu(Operation::And, R0, 0xfff8)
        .jump_if(Condition::NotEqual, R0, 0, places.fragment)
        .jump(places.transport);
    a.place(icmp);
    of_icmp(a, places, &ICMPV6_ERRORS);
}

/// Errors go to both stacks: only they can tell whose packet is quoted, and mind no other's.
fn of_icmp(a: &mut Assembler, places: &Places, errors: &[i32]) {
    load_bytes_at(a, R9, TRANSPORT, 4, places);
    a.load(Width::Byte, R0, R10, TRANSPORT);
    for kind in errors {
        a.jump_if(Condition::Equal, R0, *kind, places.both_if_ours);
    }
    a.jump(places.others);
}

fn of_transport(a: &mut Assembler, places: &Places, entries: &Map, ports: &Map) {
    let (is_tcp, no_flow, to_one, not_specific) = (a.label(), a.label(), a.label(), a.label());
    a.place(places.transport);
    load_bytes_at(a, R9, TRANSPORT, 4, places);
    // Both ports, the peer's first, as they stand.
    a.load(Width::Word, R0, R10, TRANSPORT)
        .store(Width::Word, R10, KEY_PORTS, R0)
        .store(Width::Byte, R10, KEY_PROTOCOL, R7)
        .load(Width::Half, R0, R10, TRANSPORT + 2)
        .from_network(Width::Half, R0)
        .jump_if(Condition::Equal, R7, TCP, is_tcp)
        .alu(Operation::Add, R0, 65_536)
        .place(is_tcp)
        .store(Width::Word, R10, PORT_INDEX, R0);
    look_up(a, ports, PORT_INDEX, places);
    a.load(Width::Word, R9, R0, 0)
        .jump_if(Condition::Equal, R9, 0, places.others)
        // Groups and everybody: only sockets of UDP on all addresses hear those.
        .load(Width::Word, R0, R10, TYPE)
        .jump_if(Condition::Equal, R0, PACKET_HOST, to_one)
        .jump_if(Condition::NotEqual, R7, UDP, places.others)
        .alu(Operation::And, R9, R8)
        .jump_if(Condition::Equal, R9, 0, places.others)
        .jump(places.ours)
        .place(to_one)
        .alu(Operation::Move, R0, R9)
        .alu(Operation::And, R0, immediate(port::FLOWS))
        .jump_if(Condition::Equal, R0, 0, no_flow);
    find(a, entries, KEY);
    a.jump_if(Condition::Equal, R0, 0, no_flow)
        .load(Width::Word, R0, R0, 0)
        .jump_if(
            Condition::Equal,
            R0,
            immediate(Verdict::Engine as u32),
            places.ours,
        )
        .jump(places.others)
        .place(no_flow)
        // From here on the peer does not matter.
        .store(Width::Double, R10, KEY, 0)
        .store(Width::Double, R10, KEY + 8, 0)
        .store(Width::Half, R10, KEY_PORTS, 0)
        .alu(Operation::Move, R0, R9)
        .alu(Operation::And, R0, immediate(port::SPECIFIC))
        .jump_if(Condition::Equal, R0, 0, not_specific);
    find(a, entries, KEY);
    a.jump_if(Condition::NotEqual, R0, 0, places.ours)
        .place(not_specific)
        .alu(Operation::And, R9, R8)
        .jump_if(Condition::Equal, R9, 0, places.others)
        .store(Width::Half, R10, KEY_LOCAL_PORT, 0)
        .store(Width::Byte, R10, KEY_PROTOCOL, 0);
    look_up(a, entries, KEY, places);
    a.jump(places.ours);
}

/// The address of the value in R0, or 0.
fn find(a: &mut Assembler, map: &Map, key: i16) {
    a.load_map(R1, map)
        .alu(Operation::Move, R2, R10)
        .alu(Operation::Add, R2, i32::from(key))
        .call(Helper::LookUp);
}

/// The same; without a value the packet is the others'.
fn look_up(a: &mut Assembler, map: &Map, key: i16, places: &Places) {
    find(a, map, key);
    a.jump_if(Condition::Equal, R0, 0, places.others);
}

fn load_bytes(a: &mut Assembler, from: i32, to: i16, len: i32, places: &Places) {
    a.alu(Operation::Move, R2, from);
    copy(a, to, len, places);
}

fn load_bytes_at(a: &mut Assembler, from: Register, to: i16, len: i32, places: &Places) {
    a.alu(Operation::Move, R2, from);
    copy(a, to, len, places);
}

/// From offset R2 of the frame; a frame that ends before is the others'.
fn copy(a: &mut Assembler, to: i16, len: i32, places: &Places) {
    a.alu(Operation::Move, R1, R6)
        .alu(Operation::Move, R3, R10)
        .alu(Operation::Add, R3, i32::from(to))
        .alu(Operation::Move, R4, len)
        .call(places.load)
        .jump_if(Condition::NotEqual, R0, 0, places.others);
}

fn immediate(number: u32) -> i32 {
    i32::try_from(number).expect("invariant: the numbers are small")
}
