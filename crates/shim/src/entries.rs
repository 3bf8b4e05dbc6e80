//! Calls that libc makes inside itself: stdio on a descriptor, getaddrinfo, dprintf, syslog, aio. No symbol of this
//! library stands in their way, so the entries of libc's own read, write, connect and their kin lead here (DESIGN §4,
//! docs/decisions/0041). What is done to memory is in `sys.rs`; here stands which functions, and which instructions may
//! give way to a jump.

mod sys;

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use sys::{is_settled, original, settle};

use crate::abi;
use crate::messages::sys as messages;
use crate::report;

/// Bytes of a jump to an address that is near.
const JUMP_BYTES: usize = 5;

/// The instructions of a function that a jump displaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Displaced {
    /// Bytes of all of them.
    len: usize,
    /// Where among them a 32-bit address stands that counts from the end of its instruction, and that end.
    relative: Option<(usize, usize)>,
}

/// What a jump at the start of `code` displaces; `None` where an instruction is not one of those with which glibc's
/// calls begin: they may be executed elsewhere as they are, but for one address.
fn displaced(code: &[u8]) -> Option<Displaced> {
    let mut found = Displaced {
        len: 0,
        relative: None,
    };
    while found.len < JUMP_BYTES {
        let (len, relative) = match *code.get(found.len..)? {
            // endbr64
            [0xf3, 0x0f, 0x1e, 0xfa, ..] => (4, None),
            // cmpb $0, __libc_single_threaded(%rip)
            [0x80, 0x3d, _, _, _, _, _, ..] => (7, Some(2)),
            // mov %fs:…, %eax; cmpb $…, %fs:…
            [0x64, 0x8b, 0x04, 0x25, _, _, _, _, ..] => (8, None),
            [0x64, 0x80, 0x3c, 0x25, _, _, _, _, _, ..] => (9, None),
            // mov $number, %eax
            [0xb8, _, _, _, _, ..] => (5, None),
            // mov %rcx, %r10; mov %ecx, %r10d
            [0x49 | 0x41, 0x89, 0xca, ..] => (3, None),
            // xor %eax, %eax; syscall; cmp $…, %rax
            [0x31, 0xc0, ..] | [0x0f, 0x05, ..] => (2, None),
            [0x48, 0x3d, _, _, _, _, ..] => (6, None),
            // push; sub $…, %rsp; mov %rdx, …(%rsp)
            [0x50..=0x57, ..] => (1, None),
            [0x48, 0x83, 0xec, _, ..] => (4, None),
            [0x48, 0x89, 0x54, 0x24, _, ..] => (5, None),
            _ => return None,
        };
        found.relative = relative
            .map(|at| (found.len + at, found.len + len))
            .or(found.relative);
        found.len += len;
    }
    Some(found)
}

/// Functions of libc that libc itself calls, and those of this library that take their place.
fn replaced() -> [(&'static CStr, usize); REPLACED] {
    [
        (c"read", abi::read as *const () as usize),
        (c"readv", abi::readv as *const () as usize),
        (c"write", abi::write as *const () as usize),
        (c"writev", abi::writev as *const () as usize),
        (c"close", abi::close as *const () as usize),
        (c"recv", abi::recv as *const () as usize),
        (c"recvfrom", abi::recvfrom as *const () as usize),
        (c"recvmsg", messages::recvmsg as *const () as usize),
        (c"recvmmsg", messages::recvmmsg as *const () as usize),
        (c"send", abi::send as *const () as usize),
        (c"sendto", abi::sendto as *const () as usize),
        (c"sendmsg", messages::sendmsg as *const () as usize),
        (c"sendmmsg", messages::sendmmsg as *const () as usize),
        (c"poll", abi::poll as *const () as usize),
        (c"socket", abi::socket as *const () as usize),
        (c"connect", abi::connect as *const () as usize),
        (c"bind", abi::bind as *const () as usize),
        (c"getsockname", abi::getsockname as *const () as usize),
        (c"getpeername", abi::getpeername as *const () as usize),
        (c"getsockopt", abi::getsockopt as *const () as usize),
        (c"setsockopt", abi::setsockopt as *const () as usize),
        (c"shutdown", abi::shutdown as *const () as usize),
        (c"ioctl", abi::ioctl as *const () as usize),
        (c"__read_nocancel", sys::read_nocancel as *const () as usize),
        (
            c"__write_nocancel",
            sys::write_nocancel as *const () as usize,
        ),
        (
            c"__close_nocancel",
            sys::close_nocancel as *const () as usize,
        ),
    ]
}

/// How many of them there are.
const REPLACED: usize = 26;

/// Why libc's own calls of a function pass this library by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// Not the instructions that are known.
    Instructions,
    /// The system allows no change of this memory.
    Memory,
}

/// 0: nothing to say. Else one more than a place among the replaced, and behind it the [`Refusal`].
static REFUSED: AtomicUsize = AtomicUsize::new(0);

/// Remembers the first function that could not be replaced; it is said when it begins to matter.
fn refuse(place: usize, refusal: Refusal) {
    let word = 2 * (place + 1) + usize::from(refusal == Refusal::Memory);
    let _ = REFUSED.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed);
}

/// Says on the program's stderr, once, what libc's own calls do not reach: called with its first socket.
pub fn say_what_is_refused() {
    let word = REFUSED.swap(0, Ordering::Relaxed);
    let Some(place) = (word / 2).checked_sub(1) else {
        return;
    };
    let names = replaced();
    let Some((name, _)) = names.get(place) else {
        return;
    };
    let reason = match word % 2 {
        0 => "this libc begins it with instructions that are not known",
        _ => "the system allows no change of a program's code",
    };
    report::line(&format!(
        "calls of {} inside libc (stdio on a socket, getaddrinfo) do not reach the engine: {reason}",
        name.to_string_lossy()
    ));
}

#[cfg(test)]
mod tests;
