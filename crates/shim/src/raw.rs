//! System calls by number.

mod sys;

pub use sys::enter;
