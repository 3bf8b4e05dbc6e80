//! System calls by number.

mod sys;
#[path = "syscall/waits/sys.rs"]
mod waits;
