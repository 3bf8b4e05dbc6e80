//! The engine of this library, by the symbol that the library defines, and what the environment asks for.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};

use super::EmbeddedEngine;

#[cfg(not(test))]
unsafe extern "Rust" {
    /// What the library that links this crate defines: an engine, or that it has none. A symbol, and not a call at the
    /// start, since the constructor of another library may make a socket before ours has run.
    #[link_name = "shunt_embedded_engine"]
    safe static EMBEDDED: Option<&'static dyn EmbeddedEngine>;
}

#[cfg(test)]
static EMBEDDED: Option<&'static dyn EmbeddedEngine> = None;

/// The engine in this library.
pub fn embedded() -> Option<&'static dyn EmbeddedEngine> {
    EMBEDDED
}

/// Whether the environment asks for an engine inside the program. Neither locks nor allocates.
pub fn is_wanted() -> bool {
    static WANTED: AtomicU8 = AtomicU8::new(UNKNOWN);
    const UNKNOWN: u8 = 2;
    let known = WANTED.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known == 1;
    }
    let wanted = match hostif::environment::kept() {
        Some(kept) => kept
            .value(hostif::INLINE_VARIABLE)
            .is_some_and(|value| !value.is_empty()),
        // SAFETY: the name ends with a zero byte; the value is looked at at once.
        None => unsafe {
            let value = libc::getenv(hostif::INLINE_VARIABLE_NAME.as_ptr());
            !value.is_null() && *value != 0
        },
    };
    WANTED.store(u8::from(wanted), Ordering::Relaxed);
    wanted
}

thread_local! {
    static LEAVING: Cell<bool> = const { Cell::new(false) };
}

/// Whether the thread forks the child that goes on with the engine: then a fork is not the program's.
pub fn is_leaving() -> bool {
    LEAVING.with(Cell::get)
}

/// Runs `work`, in which a fork is not the program's.
pub fn leaving<T>(work: impl FnOnce() -> T) -> T {
    LEAVING.with(|leaving| leaving.set(true));
    let result = work();
    LEAVING.with(|leaving| leaving.set(false));
    result
}
