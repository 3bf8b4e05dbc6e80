//! One eBPF instruction, and the words that programs are written in. Read first: RFC 9669.
//!
//! Building programs of them is `assembler.rs`.

/// RFC 9669 §3: the basic encoding, 64 bits, in this machine's byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    pub(crate) opcode: u8,
    /// Destination in the low four bits, source in the high ones, on a little-endian machine.
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) immediate: i32,
}

const _: () = assert!(size_of::<Instruction>() == 8);

/// A register. R0 holds results, R1 to R5 arguments (lost in a call), R6 to R9 are kept, R10 points behind
/// 512 bytes of stack and cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "numbers")]
#[repr(u8)]
pub enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// How much is loaded, stored or swapped (RFC 9669 §5, Table 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// One byte.
    Byte,
    /// Two.
    Half,
    /// Four.
    Word,
    /// Eight.
    Double,
}

impl Width {
    pub(crate) const fn bits(self) -> i32 {
        match self {
            Self::Byte => 8,
            Self::Half => 16,
            Self::Word => 32,
            Self::Double => 64,
        }
    }

    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Word => 0x00,
            Self::Half => 0x08,
            Self::Byte => 0x10,
            Self::Double => 0x18,
        }
    }
}

/// Arithmetic (RFC 9669 §4.1, Table 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named by what they do")]
#[repr(u8)]
pub enum Operation {
    Add = 0x00,
    Subtract = 0x10,
    Multiply = 0x20,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Modulo = 0x90,
    Xor = 0xa0,
    Move = 0xb0,
}

/// What a jump asks of its two operands, unsigned (RFC 9669 §4.3, Table 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Condition {
    /// Both are the same.
    Equal = 0x10,
    /// The first is larger.
    Greater = 0x20,
    /// The first is not smaller.
    GreaterOrEqual = 0x30,
    /// They have a bit in common.
    Set = 0x40,
    /// They differ.
    NotEqual = 0x50,
    /// The first is smaller.
    Less = 0xa0,
    /// The first is not larger.
    LessOrEqual = 0xb0,
}

/// Functions of the kernel, by the numbers of `bpf(2)` (bpf-helpers(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Helper {
    /// `bpf_map_lookup_elem(map, key)`: the address of the value, or 0.
    LookUp = 1,
    /// `bpf_ktime_get_ns()`: CLOCK_MONOTONIC.
    MonotonicTime = 5,
    /// `bpf_get_current_pid_tgid()`: the number of the process in the upper 32 bits, that of the thread in the lower ones.
    ProcessAndThread = 14,
    /// `bpf_skb_load_bytes(context, offset, to, len)`: 0, or an error.
    LoadBytes = 26,
    /// `bpf_xdp_adjust_meta(context, delta)`: 0, or an error where the device's driver has no place before a frame.
    AdjustMeta = 54,
    /// `bpf_redirect_map(map, key, flags)`: the verdict; the low bits of the flags are the verdict where the
    /// map has no such key.
    RedirectMap = 51,
    /// `bpf_map_push_elem(map, value, flags)`: 0, or an error.
    Push = 87,
    /// `bpf_probe_read_kernel(to, len, address)`: 0, or an error.
    ReadKernel = 113,
    /// `bpf_xdp_load_bytes(context, offset, to, len)`: 0, or an error.
    XdpLoadBytes = 189,
}

/// The second operand of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// What a register holds.
    Register(Register),
    /// A number; 64-bit instructions extend its sign.
    Immediate(i32),
}

impl From<Register> for Operand {
    fn from(register: Register) -> Self {
        Self::Register(register)
    }
}

impl From<i32> for Operand {
    fn from(number: i32) -> Self {
        Self::Immediate(number)
    }
}
