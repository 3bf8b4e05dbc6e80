//! A program with labels for jumps, which only go forward.

use super::{Instruction, JUMP_IF_EQUAL, plain};

/// One instruction; where it goes is filled in once all stand.
#[derive(Debug)]
struct Line<L> {
    instruction: Instruction,
    /// Where to go if it is so, and if not; `None`: on.
    jumps: [Option<L>; 2],
}

/// A program under construction, its parts labelled by `L`.
#[derive(Debug)]
pub struct Assembler<L> {
    lines: Vec<Line<L>>,
    labels: Vec<(L, usize)>,
}

impl<L: Copy + PartialEq> Assembler<L> {
    /// An empty program.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            lines: Vec::new(),
            labels: Vec::new(),
        }
    }

    /// What follows is the part of this label.
    pub fn begin(&mut self, label: L) {
        self.labels.push((label, self.lines.len()));
    }

    /// Appends an instruction that always goes on.
    pub fn does(&mut self, code: u16, operand: u32) {
        self.push(plain(code, operand), [None; 2]);
    }

    /// Goes to `yes` if the accumulator is `operand`, and to `no` if not; `None`: on.
    pub fn if_equal(&mut self, operand: u32, yes: Option<L>, no: Option<L>) {
        self.push(plain(JUMP_IF_EQUAL, operand), [yes, no]);
    }

    fn push(&mut self, instruction: Instruction, jumps: [Option<L>; 2]) {
        self.lines.push(Line { instruction, jumps });
    }

    /// The whole program.
    ///
    /// # Panics
    /// If a label of a jump does not follow within 255 instructions.
    #[must_use]
    pub fn finish(&self) -> Vec<Instruction> {
        let distance = |from: usize, to: Option<L>| {
            let at = to.map_or(from + 1, |to| {
                let found = self.labels.iter().find(|(label, _)| *label == to);
                found.expect("invariant: every label is there").1
            });
            let skipped = at.checked_sub(from + 1);
            let skipped = skipped.expect("invariant: a jump goes forward");
            u8::try_from(skipped).expect("invariant: the program is short")
        };
        let lines = self.lines.iter().enumerate();
        lines
            .map(|(at, line)| Instruction {
                jt: distance(at, line.jumps[0]),
                jf: distance(at, line.jumps[1]),
                ..line.instruction
            })
            .collect()
    }
}

impl<L: Copy + PartialEq> Default for Assembler<L> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classic::{LOAD_WORD, RETURN, run};

    #[test]
    fn a_condition_leads_to_its_label_or_on() {
        let mut program = Assembler::new();
        program.does(LOAD_WORD, 0);
        program.if_equal(7, Some("found"), None);
        program.if_equal(8, None, Some("other"));
        program.does(RETURN, 2);
        program.begin("found");
        program.does(RETURN, 1);
        program.begin("other");
        program.does(RETURN, 3);
        let program = program.finish();
        let result = |word: u32| run(&program, &|_, _| Some(word));
        assert_eq!([result(7), result(8), result(9)], [1, 2, 3]);
    }

    #[test]
    #[should_panic(expected = "a jump goes forward")]
    fn a_jump_back_is_refused() {
        let mut program = Assembler::new();
        program.begin(());
        program.if_equal(1, Some(()), None);
        let _ = program.finish();
    }
}
