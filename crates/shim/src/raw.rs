//! System calls by number.

mod sys;
#[path = "raw/waits/sys.rs"]
mod waits;

pub use sys::enter;
