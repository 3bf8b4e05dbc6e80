//! Calls that libc makes inside itself: stdio on a descriptor, getaddrinfo, dprintf, syslog, aio, daemon, login_tty; and those of libraries that find
//! libc's symbols before this library's (RTLD_DEEPBIND). No symbol of this
//! library stands in their way, so the entries of libc's own read, write, connect and their kin lead here (DESIGN §4,
//! docs/decisions/0041). What is done to memory is in `sys.rs`; here stands which functions, and which instructions may
//! give way to a jump.

pub mod refused;
mod sys;

use std::ffi::CStr;

pub use sys::replace;

use crate::abi::exports;
use crate::calls::messages::sys as messages;
use crate::process::exec::sys as exec;

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
            // mov from register to register, of 64 bits; mov %ecx, %r10d
            [0x48 | 0x49 | 0x4c | 0x4d, 0x89, 0xc0..=0xff, ..] | [0x41, 0x89, 0xca, ..] => {
                (3, None)
            }
            // xor %eax, %eax; syscall; cmp $…, %rax
            [0x31, 0xc0, ..] | [0x0f, 0x05, ..] => (2, None),
            [0x48, 0x3d, _, _, _, _, ..] => (6, None),
            // push $…; push; sub $…, %rsp; mov %rdx, …(%rsp)
            [0x6a, _, ..] => (2, None),
            [0x50..=0x57, ..] => (1, None),
            [0x41, 0x50..=0x57, ..] => (2, None),
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

/// The function of this library that takes the place of one of libc's; 0 for others.
fn target_of(name: &CStr) -> usize {
    match name.to_bytes() {
        b"read" => exports::read as *const () as usize,
        b"readv" => exports::readv as *const () as usize,
        b"write" => exports::write as *const () as usize,
        b"writev" => exports::writev as *const () as usize,
        b"close" => exports::close as *const () as usize,
        b"recv" => exports::recv as *const () as usize,
        b"recvfrom" => exports::recvfrom as *const () as usize,
        b"recvmsg" => messages::recvmsg as *const () as usize,
        b"recvmmsg" => messages::recvmmsg as *const () as usize,
        b"send" => exports::send as *const () as usize,
        b"sendto" => exports::sendto as *const () as usize,
        b"sendmsg" => messages::sendmsg as *const () as usize,
        b"sendmmsg" => messages::sendmmsg as *const () as usize,
        b"poll" => exports::poll as *const () as usize,
        b"socket" => exports::socket as *const () as usize,
        b"connect" => exports::connect as *const () as usize,
        b"bind" => exports::bind as *const () as usize,
        b"getsockname" => exports::getsockname as *const () as usize,
        b"getpeername" => exports::getpeername as *const () as usize,
        b"getsockopt" => exports::getsockopt as *const () as usize,
        b"setsockopt" => exports::setsockopt as *const () as usize,
        b"shutdown" => exports::shutdown as *const () as usize,
        b"ioctl" => exports::ioctl as *const () as usize,
        b"__read_nocancel" => sys::read_nocancel as *const () as usize,
        b"__write_nocancel" => sys::write_nocancel as *const () as usize,
        b"__close_nocancel" => sys::close_nocancel as *const () as usize,
        b"dup2" => sys::dup2 as *const () as usize,
        b"dup3" => sys::dup3 as *const () as usize,
        b"posix_spawn" => exec::posix_spawn as *const () as usize,
        b"listen" => exports::listen as *const () as usize,
        b"accept" => exports::accept as *const () as usize,
        b"accept4" => exports::accept4 as *const () as usize,
        b"select" => exports::select as *const () as usize,
        b"pselect" => exports::pselect as *const () as usize,
        b"ppoll" => exports::ppoll as *const () as usize,
        b"epoll_create" => exports::epoll_create as *const () as usize,
        b"epoll_create1" => exports::epoll_create1 as *const () as usize,
        b"epoll_ctl" => exports::epoll_ctl as *const () as usize,
        b"epoll_wait" => exports::epoll_wait as *const () as usize,
        b"epoll_pwait" => exports::epoll_pwait as *const () as usize,
        b"epoll_pwait2" => exports::epoll_pwait2 as *const () as usize,
        b"sendfile" => exports::sendfile as *const () as usize,
        b"splice" => exports::splice as *const () as usize,
        b"dup" => exports::dup as *const () as usize,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
