//! Functions of libc, found behind this library in the search order.

pub mod originals;
mod sys;

pub use sys::Symbol;
pub(crate) use sys::real;
