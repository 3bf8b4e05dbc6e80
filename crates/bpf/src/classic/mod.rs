//! Classic BPF: the instructions that socket filters, fanout groups and seccomp filters take, jumps by label
//! ([`Assembler`]), attaching to a socket, and what a program says of a packet ([`run`]), for tests.
//!
//! Read first: `Documentation/networking/filter.rst` of the kernel. Programs stand beside what they are for.

mod assembler;
mod interpreter;
mod sys;

pub use assembler::Assembler;
pub use interpreter::run;
pub use sys::{attach, attach_fanout, detach};

/// One instruction: operation (`code`), instructions to skip if a condition holds (`jt`) and if not (`jf`), operand (`k`).
pub type Instruction = libc::sock_filter;

/// `BPF_LD | BPF_B | BPF_ABS`
pub const LOAD_BYTE: u16 = 0x30;
/// `BPF_LD | BPF_H | BPF_ABS`
pub const LOAD_HALF: u16 = 0x28;
/// `BPF_LD | BPF_W | BPF_ABS`
pub const LOAD_WORD: u16 = 0x20;
/// `BPF_LD | BPF_B | BPF_IND`
pub const LOAD_BYTE_AT_X: u16 = 0x50;
/// `BPF_LD | BPF_H | BPF_IND`
pub const LOAD_HALF_AT_X: u16 = 0x48;
/// `BPF_LD | BPF_W | BPF_IND`
pub const LOAD_WORD_AT_X: u16 = 0x40;
/// `BPF_LD | BPF_MEM`
pub const LOAD_CELL: u16 = 0x60;
/// `BPF_LDX | BPF_MEM`
pub const LOAD_CELL_TO_X: u16 = 0x61;
/// `BPF_ST`
pub const STORE: u16 = 0x02;
/// `BPF_MISC | BPF_TAX`
pub const COPY_TO_X: u16 = 0x07;
/// `BPF_ALU | BPF_ADD | BPF_X`
pub const ADD_X: u16 = 0x0c;
/// `BPF_ALU | BPF_XOR | BPF_X`
pub const XOR_X: u16 = 0xac;
/// `BPF_ALU | BPF_XOR | BPF_K`
pub const XOR: u16 = 0xa4;
/// `BPF_ALU | BPF_AND | BPF_K`
pub const AND: u16 = 0x54;
/// `BPF_ALU | BPF_MUL | BPF_K`
pub const MULTIPLY: u16 = 0x24;
/// `BPF_ALU | BPF_LSH | BPF_K`
pub const SHIFT_LEFT: u16 = 0x64;
/// `BPF_ALU | BPF_RSH | BPF_K`
pub const SHIFT_RIGHT: u16 = 0x74;
/// `BPF_JMP | BPF_JA`
pub const JUMP: u16 = 0x05;
/// `BPF_JMP | BPF_JEQ | BPF_K`
pub const JUMP_IF_EQUAL: u16 = 0x15;
/// `BPF_JMP | BPF_JSET | BPF_K`
pub const JUMP_IF_SET: u16 = 0x45;
/// `BPF_RET | BPF_K`
pub const RETURN: u16 = 0x06;
/// `BPF_RET | BPF_A`
pub const RETURN_ACCUMULATOR: u16 = 0x16;

/// Offsets at which a load gives what the kernel knows beside a packet's bytes (linux/filter.h).
pub mod ancillary {
    /// `SKF_AD_OFF + SKF_AD_PROTOCOL`: the EtherType.
    pub const PROTOCOL: u32 = 0xffff_f000;
    /// `SKF_AD_OFF + SKF_AD_PKTTYPE`: `PACKET_*` of linux/if_packet.h.
    pub const PACKET_TYPE: u32 = PROTOCOL + 4;
    /// `SKF_AD_OFF + SKF_AD_IFINDEX`: number of the interface.
    pub const INTERFACE: u32 = PROTOCOL + 8;
    /// `SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT`.
    pub const VLAN_TAG_PRESENT: u32 = PROTOCOL + 48;
    /// `SKF_NET_OFF`: from here on the packet from its IP header on.
    pub const IP_HEADER: u32 = 0xfff0_0000;
}

/// A socket filter's result: the packet passes whole.
pub const ACCEPT: u32 = u32::MAX;
/// A socket filter's result: the packet is dropped.
pub const REJECT: u32 = 0;

/// An instruction that always goes on.
#[must_use]
pub const fn plain(code: u16, operand: u32) -> Instruction {
    Instruction {
        code,
        jt: 0,
        jf: 0,
        k: operand,
    }
}

/// Skips `yes` instructions if the accumulator is `operand`, `no` if not.
#[must_use]
pub const fn if_equal(operand: u32, yes: u8, no: u8) -> Instruction {
    Instruction {
        jt: yes,
        jf: no,
        ..plain(JUMP_IF_EQUAL, operand)
    }
}

/// Skips `yes` instructions if the accumulator has one of these bits, `no` if none.
#[must_use]
pub const fn if_set(bits: u32, yes: u8, no: u8) -> Instruction {
    Instruction {
        jt: yes,
        jf: no,
        ..plain(JUMP_IF_SET, bits)
    }
}

/// Instructions of a program, as a jump over it counts them.
///
/// # Panics
/// If the program has 2^32.
#[must_use]
pub fn length(program: &[Instruction]) -> u32 {
    u32::try_from(program.len()).expect("invariant: a program is short")
}
