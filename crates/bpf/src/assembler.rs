//! Programs from instructions and labels, so that no compiler is needed on the machine that runs them.
//! Read first: RFC 9669 §4 and §5.
//!
//! It encodes and counts distances; whether a program is safe is the kernel's verifier's business.

use std::os::fd::AsRawFd as _;

use crate::Map;
use crate::instruction::{Condition, Helper, Instruction, Operand, Operation, Register, Width};

/// Instruction classes and flags (RFC 9669 §3.3, §4).
const CLASS_LDX: u8 = 0x01;
const CLASS_ST: u8 = 0x02;
const CLASS_STX: u8 = 0x03;
const CLASS_ALU: u8 = 0x04;
const CLASS_JMP: u8 = 0x05;
const CLASS_JMP32: u8 = 0x06;
const CLASS_ALU64: u8 = 0x07;
const MODE_MEM: u8 = 0x60;
const SOURCE_REGISTER: u8 = 0x08;
const LOAD_WIDE: u8 = 0x18;
const BYTE_SWAP: u8 = 0xd0;
const TO_BIG_ENDIAN: u8 = 0x08;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
/// RFC 9669 §5.4: the immediate is the descriptor of a map.
const SOURCE_MAP_FD: u8 = 1;

/// Why a program cannot be finished: a mistake of its author.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// A jump leads to a label that was never placed.
    #[error("instruction {at} jumps to a label that is nowhere")]
    NoSuchPlace {
        /// The jump.
        at: usize,
    },
    /// A jump reaches 32,767 instructions.
    #[error("instruction {at} jumps too far")]
    TooFar {
        /// The jump.
        at: usize,
    },
}

/// A place in a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

/// A program in the making. Its calls append an instruction each, in the order of execution.
#[derive(Debug, Default)]
pub struct Assembler {
    instructions: Vec<Instruction>,
    /// Where each label lies.
    places: Vec<Option<usize>>,
    /// Jumps and their labels.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// An empty program.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A label that is placed later.
    pub fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// The label is here.
    pub fn place(&mut self, label: Label) -> &mut Self {
        self.places[label.0] = Some(self.instructions.len());
        self
    }

    /// `destination = *(source + offset)`, the upper bits zero.
    pub fn load(
        &mut self,
        width: Width,
        destination: Register,
        source: Register,
        offset: i16,
    ) -> &mut Self {
        let opcode = CLASS_LDX | MODE_MEM | width.code();
        self.push(opcode, destination, source.into(), offset)
    }

    /// `*(destination + offset) = value`.
    pub fn store(
        &mut self,
        width: Width,
        destination: Register,
        offset: i16,
        value: impl Into<Operand>,
    ) -> &mut Self {
        let value = value.into();
        let class = match value {
            Operand::Register(_) => CLASS_STX,
            Operand::Immediate(_) => CLASS_ST,
        };
        self.push(class | MODE_MEM | width.code(), destination, value, offset)
    }

    /// `destination = destination OPERATION operand`, 64 bits.
    pub fn alu(
        &mut self,
        operation: Operation,
        destination: Register,
        operand: impl Into<Operand>,
    ) -> &mut Self {
        self.operate(CLASS_ALU64, operation as u8, destination, operand.into(), 0)
    }

    /// The same of the low 32 bits; the upper ones become zero.
    pub fn alu32(
        &mut self,
        operation: Operation,
        destination: Register,
        operand: impl Into<Operand>,
    ) -> &mut Self {
        self.operate(CLASS_ALU, operation as u8, destination, operand.into(), 0)
    }

    /// Between the network's order of bytes and this machine's.
    pub fn from_network(&mut self, width: Width, register: Register) -> &mut Self {
        let opcode = CLASS_ALU | BYTE_SWAP | TO_BIG_ENDIAN;
        self.push(opcode, register, width.bits().into(), 0)
    }

    /// Goes on at `label`.
    pub fn jump(&mut self, label: Label) -> &mut Self {
        self.jumps.push((self.instructions.len(), label));
        self.push(CLASS_JMP, Register::R0, 0.into(), 0)
    }

    /// Goes on at `label` if the condition holds of 64 bits.
    pub fn jump_if(
        &mut self,
        condition: Condition,
        left: Register,
        right: impl Into<Operand>,
        label: Label,
    ) -> &mut Self {
        self.jumps.push((self.instructions.len(), label));
        self.operate(CLASS_JMP, condition as u8, left, right.into(), 0)
    }

    /// Goes on at `label` if the condition holds of the low 32 bits.
    pub fn jump32_if(
        &mut self,
        condition: Condition,
        left: Register,
        right: impl Into<Operand>,
        label: Label,
    ) -> &mut Self {
        self.jumps.push((self.instructions.len(), label));
        self.operate(CLASS_JMP32, condition as u8, left, right.into(), 0)
    }

    /// The map, as a function of the kernel takes it. It must be open when the program is loaded.
    pub fn load_map(&mut self, register: Register, map: &Map) -> &mut Self {
        self.wide(register, SOURCE_MAP_FD, [map.fd().as_raw_fd(), 0])
    }

    /// A number of 64 bits.
    pub fn load_wide(&mut self, register: Register, number: u64) -> &mut Self {
        let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
        let halves = [[a, b, c, d], [e, f, g, h]].map(i32::from_le_bytes);
        self.wide(register, 0, halves)
    }

    /// Calls a function of the kernel: arguments in R1 to R5, which are lost, its result in R0.
    pub fn call(&mut self, helper: Helper) -> &mut Self {
        let number = i32::try_from(helper as u32).expect("invariant: the numbers are small");
        self.push(CLASS_JMP | CALL, Register::R0, number.into(), 0)
    }

    /// Ends with the result in R0.
    pub fn exit(&mut self) -> &mut Self {
        self.push(CLASS_JMP | EXIT, Register::R0, 0.into(), 0)
    }

    /// Ends with `result`.
    pub fn exit_with(&mut self, result: i32) -> &mut Self {
        self.alu(Operation::Move, Register::R0, result).exit()
    }

    /// The program.
    ///
    /// # Errors
    /// A jump that leads nowhere or too far.
    pub fn finish(mut self) -> Result<Vec<Instruction>, AssembleError> {
        for &(at, label) in &self.jumps {
            let place = self.places[label.0].ok_or(AssembleError::NoSuchPlace { at })?;
            // RFC 9669 §4.3: relative to the instruction behind the jump.
            let distance = i64::try_from(place)
                .ok()
                .zip(i64::try_from(at + 1).ok())
                .and_then(|(place, next)| i16::try_from(place - next).ok());
            self.instructions[at].offset = distance.ok_or(AssembleError::TooFar { at })?;
        }
        Ok(self.instructions)
    }

    fn operate(
        &mut self,
        class: u8,
        operation: u8,
        destination: Register,
        operand: Operand,
        offset: i16,
    ) -> &mut Self {
        let source = match operand {
            Operand::Register(_) => SOURCE_REGISTER,
            Operand::Immediate(_) => 0,
        };
        self.push(class | operation | source, destination, operand, offset)
    }

    fn push(
        &mut self,
        opcode: u8,
        destination: Register,
        operand: Operand,
        offset: i16,
    ) -> &mut Self {
        let (source, immediate) = match operand {
            Operand::Register(source) => (source as u8, 0),
            Operand::Immediate(number) => (0, number),
        };
        self.instructions.push(Instruction {
            opcode,
            registers: registers(destination, source),
            offset,
            immediate,
        });
        self
    }

    fn wide(&mut self, register: Register, source: u8, halves: [i32; 2]) -> &mut Self {
        self.instructions.push(Instruction {
            opcode: LOAD_WIDE,
            registers: registers(register, source),
            offset: 0,
            immediate: halves[0],
        });
        // RFC 9669 §3.2: the wide encoding's second half.
        self.instructions.push(Instruction {
            opcode: 0,
            registers: 0,
            offset: 0,
            immediate: halves[1],
        });
        self
    }
}

/// RFC 9669 §3.1: where the fields lie depends on the machine's byte order.
fn registers(destination: Register, source: u8) -> u8 {
    let destination = destination as u8;
    if cfg!(target_endian = "little") {
        destination | source << 4
    } else {
        destination << 4 | source
    }
}

#[cfg(test)]
mod tests {
    use super::super::instruction::Register::{R0, R1, R6};
    use super::*;

    fn encoded(instructions: &[Instruction]) -> Vec<(u8, u8, i16, i32)> {
        let parts = |one: &Instruction| (one.opcode, one.registers, one.offset, one.immediate);
        instructions.iter().map(parts).collect()
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn instructions_are_encoded_as_the_standard_says() {
        let mut program = Assembler::new();
        program
            .load(Width::Half, R6, R1, 12)
            .store(Width::Word, R1, -4, R6)
            .store(Width::Byte, R1, 2, 7)
            .alu(Operation::Add, R6, -1)
            .alu32(Operation::Xor, R6, R1)
            .from_network(Width::Half, R6)
            .load_wide(R0, 0x0102_0304_f506_0708)
            .call(Helper::RedirectMap)
            .exit_with(2);
        assert_eq!(
            encoded(&program.finish().unwrap()),
            [
                (0x69, 0x16, 12, 0),
                (0x63, 0x61, -4, 0),
                (0x72, 0x01, 2, 7),
                (0x07, 0x06, 0, -1),
                (0xac, 0x16, 0, 0),
                (0xdc, 0x06, 0, 16),
                (0x18, 0x00, 0, -0x0af9_f8f8),
                (0x00, 0x00, 0, 0x0102_0304),
                (0x85, 0x00, 0, 51),
                (0xb7, 0x00, 0, 2),
                (0x95, 0x00, 0, 0),
            ]
        );
    }

    #[test]
    fn jumps_reach_their_labels_forward_and_back() {
        let mut program = Assembler::new();
        let (again, end) = (program.label(), program.label());
        program
            .place(again)
            .jump_if(Condition::Equal, R0, 0, end)
            .jump32_if(Condition::Less, R0, R1, again)
            .jump(end)
            .place(end)
            .exit();
        let program = program.finish().unwrap();
        assert_eq!(
            program.iter().map(|one| one.offset).collect::<Vec<_>>(),
            [2, -2, 0, 0]
        );
        assert_eq!(
            program.iter().map(|one| one.opcode).collect::<Vec<_>>(),
            [0x15, 0xae, 0x05, 0x95]
        );
    }

    #[test]
    fn a_jump_that_leads_nowhere_or_too_far_is_named() {
        let mut program = Assembler::new();
        let label = program.label();
        program.exit().jump(label);
        assert_eq!(program.finish(), Err(AssembleError::NoSuchPlace { at: 1 }));

        let mut program = Assembler::new();
        let label = program.label();
        program.jump(label);
        for _ in 0..40_000 {
            program.exit();
        }
        program.place(label).exit();
        assert_eq!(program.finish(), Err(AssembleError::TooFar { at: 0 }));
    }
}
