//! Classic BPF as the kernel takes it: one instruction, and the operations that our programs use.
//!
//! Read first: `Documentation/networking/filter.rst` of the kernel. The programs are `filter.rs`,
//! `steering.rs` and `sharing/silence.rs`; attaching them is `sys.rs`.

/// One instruction, laid out as the kernel's `struct sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip if the condition holds.
    pub jump_true: u8,
    /// Instructions to skip if it does not.
    pub jump_false: u8,
    /// Operand.
    pub operand: u32,
}

pub(super) const LOAD_BYTE: u16 = 0x30; // BPF_LD | BPF_B | BPF_ABS
pub(super) const LOAD_HALF: u16 = 0x28; // BPF_LD | BPF_H | BPF_ABS
pub(crate) const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
pub(super) const LOAD_BYTE_AT_X: u16 = 0x50; // BPF_LD | BPF_B | BPF_IND
pub(super) const LOAD_HALF_AT_X: u16 = 0x48; // BPF_LD | BPF_H | BPF_IND
pub(super) const LOAD_WORD_AT_X: u16 = 0x40; // BPF_LD | BPF_W | BPF_IND
pub(super) const LOAD_CELL: u16 = 0x60; // BPF_LD | BPF_MEM
pub(super) const LOAD_CELL_TO_X: u16 = 0x61; // BPF_LDX | BPF_MEM
pub(super) const STORE: u16 = 0x02; // BPF_ST
pub(super) const COPY_TO_X: u16 = 0x07; // BPF_MISC | BPF_TAX
pub(super) const ADD_X: u16 = 0x0c; // BPF_ALU | BPF_ADD | BPF_X
pub(super) const XOR_X: u16 = 0xac; // BPF_ALU | BPF_XOR | BPF_X
pub(super) const XOR: u16 = 0xa4; // BPF_ALU | BPF_XOR | BPF_K
pub(super) const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
pub(super) const MULTIPLY: u16 = 0x24; // BPF_ALU | BPF_MUL | BPF_K
pub(super) const SHIFT_LEFT: u16 = 0x64; // BPF_ALU | BPF_LSH | BPF_K
pub(super) const SHIFT_RIGHT: u16 = 0x74; // BPF_ALU | BPF_RSH | BPF_K
pub(super) const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
pub(crate) const JUMP_IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
pub(super) const JUMP_IF_SET: u16 = 0x45; // BPF_JMP | BPF_JSET | BPF_K
pub(crate) const RETURN: u16 = 0x06; // BPF_RET | BPF_K
pub(super) const RETURN_ACCUMULATOR: u16 = 0x16; // BPF_RET | BPF_A
