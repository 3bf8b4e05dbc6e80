//! What arrives for addresses that are the engine's alone is kept from the kernel: it would look at each packet only to
//! throw it away, and where it forwards it would send it on. A TCX program behind the packet sockets drops it.
//!
//! Without privilege for BPF, and before Linux 6.6, the kernel goes on looking.

use std::net::IpAddr;

use crate::sharing::ShareError;
use Register::{R0, R1, R2, R3, R4, R6, R10};
use bpf::packet::{PACKET_HOST, PACKET_TYPE, PROTOCOL, VLAN_PRESENT, network_half};
use bpf::{
    AssembleError, Assembler, Condition, Helper, Instruction, Label, Link, Operation, Program,
    ProgramKind, Register, TcxHook, Width,
};

/// Addresses that are compared, at most; packets for others reach the kernel as well.
const ADDRESSES_MAX: usize = 32;

/// `TCX_NEXT` and `TCX_DROP` of linux/bpf.h.
const NEXT: i32 = -1;
const DROP: i32 = 2;

/// Offset of the destination, behind the Ethernet header (RFC 791 §3.1, RFC 8200 §3).
const DESTINATION_V4: i32 = 14 + 16;
const DESTINATION_V6: i32 = 14 + 24;
/// Where the destination is copied to, from the top of the program's stack.
const PLACE: i16 = -16;

/// Drops the kernel's copy of what arrives at interface number `interface` for these addresses, until the link is dropped.
pub(super) fn attach(interface: u32, addresses: &[IpAddr]) -> Result<Link, ShareError> {
    let program = program(addresses)?;
    let program = Program::load(ProgramKind::Classifier, "shunt_drop", &program)?;
    Ok(Link::tcx(&program, interface, TcxHook::Ingress)?)
}

fn program(addresses: &[IpAddr]) -> Result<Vec<Instruction>, AssembleError> {
    let mut a = Assembler::new();
    let [ipv6, ours, others] = [a.label(), a.label(), a.label()];
    a.alu(Operation::Move, R6, R1)
        .load(Width::Word, R0, R6, VLAN_PRESENT)
        .jump_if(Condition::NotEqual, R0, 0, others)
        .load(Width::Word, R0, R6, PACKET_TYPE)
        .jump_if(Condition::NotEqual, R0, PACKET_HOST, others)
        .load(Width::Word, R0, R6, PROTOCOL)
        .jump_if(Condition::Equal, R0, network_half(0x86dd), ipv6)
        .jump_if(Condition::NotEqual, R0, network_half(0x0800), others);
    let some = || addresses.iter().take(ADDRESSES_MAX);
    copy(&mut a, DESTINATION_V4, 4, others);
    for address in some() {
        if let IpAddr::V4(v4) = address {
            compare(&mut a, &v4.octets(), ours);
        }
    }
    a.jump(others);
    a.place(ipv6);
    copy(&mut a, DESTINATION_V6, 16, others);
    for address in some() {
        if let IpAddr::V6(v6) = address {
            compare(&mut a, &v6.octets(), ours);
        }
    }
    a.place(others).exit_with(NEXT);
    a.place(ours).exit_with(DROP);
    a.finish()
}

/// Copies `len` bytes of the frame to the place; a frame that ends before is the kernel's.
fn copy(a: &mut Assembler, from: i32, len: i32, others: Label) {
    a.alu(Operation::Move, R1, R6)
        .alu(Operation::Move, R2, from)
        .alu(Operation::Move, R3, R10)
        .alu(Operation::Add, R3, i32::from(PLACE))
        .alu(Operation::Move, R4, len)
        .call(Helper::LoadBytes)
        .jump_if(Condition::NotEqual, R0, 0, others);
}

/// Jumps to `ours` if the place holds this address.
fn compare(a: &mut Assembler, address: &[u8], ours: Label) {
    let another = a.label();
    let (words, _) = address.as_chunks::<4>();
    for (at, word) in (PLACE..).step_by(4).zip(words) {
        a.load(Width::Word, R0, R10, at).jump32_if(
            Condition::NotEqual,
            R0,
            i32::from_ne_bytes(*word),
            another,
        );
    }
    a.jump(ours);
    a.place(another);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// An Ethernet frame to the loopback's station, with an IP header whose destination this is.
    fn frame(to: IpAddr, ethertype: u16) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend(ethertype.to_be_bytes());
        match to {
            IpAddr::V4(v4) => {
                frame.extend([0; 16]);
                frame.extend(v4.octets());
            }
            IpAddr::V6(v6) => {
                frame.extend([0; 24]);
                frame.extend(v6.octets());
            }
        }
        frame
    }

    #[test]
    fn packets_for_these_addresses_are_dropped_and_no_others() {
        let ours = ["10.0.0.2", "10.0.0.7", "2001:db8::2", "fe80::5"];
        let others = [
            "10.0.0.3",
            "11.0.0.2",
            "2001:db8::3",
            "2001:db9::2",
            "fe80::",
        ];
        let parse = |text: &&str| text.parse::<IpAddr>().unwrap();
        let addresses: Vec<IpAddr> = ours.iter().map(parse).collect();
        let program = program(&addresses).unwrap();
        let program = match Program::load(ProgramKind::Classifier, "shunt_test", &program) {
            Ok(program) => program,
            Err(error) if error.is_privilege() => {
                let _ = writeln!(
                    std::io::stderr(),
                    "skipped: dropping the kernel's copy: {error}"
                );
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let verdict = |frame: &[u8]| program.run_on(frame).unwrap().verdict.cast_signed();
        let of = |to: IpAddr| if to.is_ipv4() { 0x0800 } else { 0x86dd };
        for to in ours.iter().map(parse) {
            assert_eq!(verdict(&frame(to, of(to))), DROP, "{to}");
            // ARP, say: both stacks hear it.
            assert_eq!(verdict(&frame(to, 0x0806)), NEXT, "{to}");
        }
        for to in others.iter().map(parse) {
            assert_eq!(verdict(&frame(to, of(to))), NEXT, "{to}");
        }
        // To a group (RFC 1112 §6.4): another station's, or everybody's.
        let mut group = frame(addresses[0], 0x0800);
        group[0] = 1;
        assert_eq!(verdict(&group), NEXT);
    }
}
