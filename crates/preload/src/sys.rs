//! The symbol by which the switch asks for an engine in this library.
#![allow(unsafe_code)]

use shim::inline::EmbeddedEngine;

/// There is none.
// SAFETY: the type is that of the declaration in `shim`, and no other library defines the name.
#[unsafe(no_mangle)]
static shunt_embedded_engine: Option<&'static dyn EmbeddedEngine> = None;

// The symbol is this library's own affair: nothing else in the process sees it, or has one of that name that comes first.
core::arch::global_asm!(".hidden shunt_embedded_engine");
