//! The C library of the native interface: `include/shunt.h` over the crate `native`, as `libshunt_native.so` and
//! `libshunt_native.a`. docs/native.md has the table of calls.
//!
//! `ffi` and `many/ffi` have the functions that C calls, and everything `unsafe`; they check what C hands in and call `calls`,
//! which looks handles up in `table` and does the work on `object`s. A handle is a number with a generation, so a
//! stale one is an error and no access. Errors are negative errno values. No panic leaves the library: one would be
//! a bug of ours and becomes `-EIO`.

mod calls;
mod ffi;
mod many;
mod object;
mod table;
