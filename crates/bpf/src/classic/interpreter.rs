//! What the kernel makes of a program, for tests that compare with an oracle. Read first: bpf(4).

use super::{
    ADD_X, AND, COPY_TO_X, Instruction, JUMP, JUMP_IF_EQUAL, JUMP_IF_SET, LOAD_BYTE,
    LOAD_BYTE_AT_X, LOAD_CELL, LOAD_CELL_TO_X, LOAD_HALF, LOAD_HALF_AT_X, LOAD_WORD,
    LOAD_WORD_AT_X, MULTIPLY, RETURN, RETURN_ACCUMULATOR, SHIFT_LEFT, SHIFT_RIGHT, STORE, XOR,
    XOR_X,
};

/// Cells of a program's memory (`BPF_MEMWORDS`).
const CELLS: usize = 16;

/// The result of a program. `load` gives what lies at an offset, in so many bytes; a load of nothing ends the program with 0.
///
/// # Panics
/// If the program has an operation that [`crate::classic`] does not name, or leaves its instructions.
pub fn run(program: &[Instruction], load: &dyn Fn(u32, u32) -> Option<u32>) -> u32 {
    let index = |number: u32| usize::try_from(number).expect("invariant: 32 bits");
    let (mut accumulator, mut x) = (0_u32, 0_u32);
    let mut cells = [0_u32; CELLS];
    let mut at = 0;
    loop {
        let Instruction { code, jt, jf, k } = program[at];
        at += 1;
        let jump = |holds: bool| usize::from(if holds { jt } else { jf });
        match code {
            LOAD_BYTE | LOAD_HALF | LOAD_WORD | LOAD_BYTE_AT_X | LOAD_HALF_AT_X
            | LOAD_WORD_AT_X => {
                let bytes = match code {
                    LOAD_BYTE | LOAD_BYTE_AT_X => 1,
                    LOAD_HALF | LOAD_HALF_AT_X => 2,
                    _ => 4,
                };
                let is_at_x = matches!(code, LOAD_BYTE_AT_X | LOAD_HALF_AT_X | LOAD_WORD_AT_X);
                let Some(found) = load(bytes, if is_at_x { x.wrapping_add(k) } else { k }) else {
                    return 0;
                };
                accumulator = found;
            }
            LOAD_CELL => accumulator = cells[index(k)],
            LOAD_CELL_TO_X => x = cells[index(k)],
            STORE => cells[index(k)] = accumulator,
            COPY_TO_X => x = accumulator,
            ADD_X => accumulator = accumulator.wrapping_add(x),
            XOR_X => accumulator ^= x,
            XOR => accumulator ^= k,
            AND => accumulator &= k,
            MULTIPLY => accumulator = accumulator.wrapping_mul(k),
            SHIFT_LEFT => accumulator <<= k,
            SHIFT_RIGHT => accumulator >>= k,
            JUMP => at += index(k),
            JUMP_IF_EQUAL => at += jump(accumulator == k),
            JUMP_IF_SET => at += jump(accumulator & k != 0),
            RETURN => return k,
            RETURN_ACCUMULATOR => return accumulator,
            other => panic!("operation {other:#x}"),
        }
    }
}
