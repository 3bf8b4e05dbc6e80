//! Where C comes in: the symbols that the library exports, the entries inside libc that lead to it, and system calls by number.

pub(crate) mod cancel;
pub(crate) mod entries;
pub(crate) mod exports;
pub(crate) mod load;
pub(crate) mod symbol;
pub(crate) mod syscall;
