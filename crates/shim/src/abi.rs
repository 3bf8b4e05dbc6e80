//! Where C comes in: the symbols that the library exports, the entries inside libc that lead to it, system calls by number,
//! and what their arguments point to.

pub(crate) mod caller;
pub(crate) mod cancel;
pub(crate) mod entries;
pub(crate) mod exports;
pub(crate) mod load;
pub(crate) mod memory;
pub(crate) mod symbol;
pub(crate) mod syscall;
