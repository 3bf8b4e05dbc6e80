//! execl(3), execlp(3), execle(3): libc executes by itself inside them, so that a program started by one would not be
//! looked at. Read first: the calling conventions for a varying number of arguments (System V AMD64, AAPCS64), which
//! pass strings as for any other function: some in registers, the rest in a row on the stack.

#![allow(unsafe_code)]

use std::arch::naked_asm;
use std::ffi::{c_char, c_int};

use crate::process::exec::sys::Strings;
use crate::process::exit::{execv, execve, execvp};

/// Registers that hold arguments behind the first.
#[cfg(target_arch = "x86_64")]
const REGISTERS: usize = 5;
#[cfg(target_arch = "aarch64")]
const REGISTERS: usize = 7;

/// Exports a function of this name, whose arguments `by` gets: the first, and where the others lie.
macro_rules! lists {
    ($(fn $name:ident by $by:ident;)*) => {$(
        /// As libc's function of this name.
        ///
        /// # Safety
        /// As libc's: strings, and null behind the last.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "x86_64")]
        pub unsafe extern "C" fn $name(file: *const c_char, name: *const c_char) -> c_int {
            naked_asm!(
                "sub rsp, 56",
                "mov [rsp], rsi",
                "mov [rsp + 8], rdx",
                "mov [rsp + 16], rcx",
                "mov [rsp + 24], r8",
                "mov [rsp + 32], r9",
                "mov rsi, rsp",
                // Behind the place made above and the address to return to.
                "lea rdx, [rsp + 64]",
                "call {by}",
                "add rsp, 56",
                "ret",
                by = sym $by,
            )
        }

        /// As libc's function of this name.
        ///
        /// # Safety
        /// As libc's: strings, and null behind the last.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "aarch64")]
        pub unsafe extern "C" fn $name(file: *const c_char, name: *const c_char) -> c_int {
            naked_asm!(
                "sub sp, sp, #80",
                "stp x29, x30, [sp]",
                "stp x1, x2, [sp, #16]",
                "stp x3, x4, [sp, #32]",
                "stp x5, x6, [sp, #48]",
                "str x7, [sp, #64]",
                "add x1, sp, #16",
                "add x2, sp, #80",
                "bl {by}",
                "ldp x29, x30, [sp]",
                "add sp, sp, #80",
                "ret",
                by = sym $by,
            )
        }
    )*};
}

lists! {
    fn execl by list;
    fn execlp by searched_list;
    fn execle by list_and_environment;
}

unsafe extern "C" fn list(file: *const c_char, registers: Strings, stack: Strings) -> c_int {
    // SAFETY: the registers and the stack of a caller that met execl's preconditions.
    unsafe { execv(file, gathered(registers, stack).as_ptr()) }
}

unsafe extern "C" fn searched_list(
    file: *const c_char,
    registers: Strings,
    stack: Strings,
) -> c_int {
    // SAFETY: as above, for execlp.
    unsafe { execvp(file, gathered(registers, stack).as_ptr()) }
}

unsafe extern "C" fn list_and_environment(
    file: *const c_char,
    registers: Strings,
    stack: Strings,
) -> c_int {
    // SAFETY: as above, for execle: behind the null that ends the strings lies the environment.
    unsafe {
        let arguments = gathered(registers, stack);
        let environment: Strings = argument(registers, stack, arguments.len()).cast();
        execve(file, arguments.as_ptr(), environment)
    }
}

/// The strings, with the null that ends them.
///
/// # Safety
/// The arguments behind the first are strings, and null behind the last.
unsafe fn gathered(registers: Strings, stack: Strings) -> Vec<*const c_char> {
    let mut arguments = Vec::with_capacity(8);
    loop {
        // SAFETY: none was null so far.
        let next = unsafe { argument(registers, stack, arguments.len()) };
        arguments.push(next);
        if next.is_null() {
            return arguments;
        }
    }
}

/// # Safety
/// There are so many arguments behind the first.
unsafe fn argument(registers: Strings, stack: Strings, index: usize) -> *const c_char {
    // SAFETY: the caller's duty.
    unsafe {
        match index.checked_sub(REGISTERS) {
            None => *registers.add(index),
            Some(beyond) => *stack.add(beyond),
        }
    }
}
