//! vfork(2) and clone(3) of the program: noted, and then done as libc does them. A call that returns twice cannot be made from a
//! frame of ours, which the child would spoil for its parent.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::HAS_LENT;
use crate::abi::symbol::Symbol;

/// libc's clone, or what says that there is none.
static CLONE: AtomicUsize = AtomicUsize::new(0);

/// Finds libc's clone, unless it is known.
pub fn find_clone() {
    if CLONE.load(Ordering::Relaxed) == 0 {
        static REAL: Symbol = Symbol::new(c"clone");
        let real = REAL.address().map(|address| address.expose_provenance());
        CLONE.store(
            real.unwrap_or(failed as *const () as usize),
            Ordering::Relaxed,
        );
    }
}

/// libc has no such function.
extern "C" fn failed() -> c_int {
    vfork_failed(libc::ENOSYS)
}

/// What a failed vfork(2) returns.
extern "C" fn vfork_failed(errno: c_int) -> c_int {
    crate::sys::set_errno(errno);
    -1
}

/// As libc's vfork. The return address waits in a register, for the child uses the stack.
///
/// # Safety
/// As vfork(2): the child executes or ends, and does not return.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> c_int {
    core::arch::naked_asm!(
        "endbr64",
        "mov byte ptr [rip + {has_lent}], 1",
        "pop rdi",
        "mov eax, {number}",
        "syscall",
        "push rdi",
        "cmp eax, -4095",
        "jae 2f",
        "ret",
        "2:",
        "neg eax",
        "mov edi, eax",
        "jmp {failed}",
        has_lent = sym HAS_LENT,
        number = const libc::SYS_vfork,
        failed = sym vfork_failed,
    );
}

/// As libc's vfork.
///
/// # Safety
/// As vfork(2): the child executes or ends, and does not return.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> c_int {
    core::arch::naked_asm!(
        "adrp x9, {has_lent}",
        "add x9, x9, :lo12:{has_lent}",
        "mov w10, #1",
        "strb w10, [x9]",
        "mov x0, {flags}",
        "mov x1, sp",
        "mov x8, {number}",
        "svc #0",
        "cmn x0, #4095",
        "b.hs 2f",
        "ret",
        "2:",
        "neg w0, w0",
        "b {failed}",
        has_lent = sym HAS_LENT,
        flags = const libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
        number = const libc::SYS_clone,
        failed = sym vfork_failed,
    );
}

/// As libc's clone, which has as many arguments as its flags ask for: they stay where they are.
///
/// # Safety
/// As clone(2).
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone() -> c_int {
    core::arch::naked_asm!(
        "endbr64",
        "mov byte ptr [rip + {has_lent}], 1",
        "jmp qword ptr [rip + {real}]",
        has_lent = sym HAS_LENT,
        real = sym CLONE,
    );
}

/// As libc's clone.
///
/// # Safety
/// As clone(2).
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone() -> c_int {
    core::arch::naked_asm!(
        "adrp x9, {has_lent}",
        "add x9, x9, :lo12:{has_lent}",
        "mov w10, #1",
        "strb w10, [x9]",
        "adrp x9, {real}",
        "ldr x9, [x9, :lo12:{real}]",
        "br x9",
        has_lent = sym HAS_LENT,
        real = sym CLONE,
    );
}
