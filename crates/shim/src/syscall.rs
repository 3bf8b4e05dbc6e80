//! System calls by number.

mod sys;
#[path = "syscall/waits/sys.rs"]
mod waits;

pub use sys::enter;
