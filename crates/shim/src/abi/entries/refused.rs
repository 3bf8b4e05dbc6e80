//! What libc's own calls do not reach, and why.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::abi::symbol::originals::{NAMES, OF_LIBC};
use crate::report;

/// Why libc's own calls of a function pass this library by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not the instructions that are known.
    Instructions,
    /// The system allows no change of this memory.
    Memory,
}

/// 0: nothing to say. Else the [`Refusal`] in the lowest bit, and above it an index into the names plus one.
static REFUSED: AtomicUsize = AtomicUsize::new(0);

/// Remembers the first function that could not be replaced; it is said when it begins to matter. Of those that libc
/// itself does not call nothing is said: few programs reach them past this library.
pub fn refuse(place: usize, refusal: Refusal) {
    if place >= OF_LIBC {
        return;
    }
    let word = 2 * (place + 1) + usize::from(refusal == Refusal::Memory);
    let _ = REFUSED.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed);
}

/// Says on the program's stderr, once, what libc's own calls do not reach: called with its first socket.
pub fn say() {
    let word = REFUSED.swap(0, Ordering::Relaxed);
    let Some(place) = (word / 2).checked_sub(1) else {
        return;
    };
    let Some(name) = NAMES.get(place) else {
        return;
    };
    let reason = match word % 2 {
        0 => "this libc begins it with instructions that are not known",
        _ => "the system allows no change of a program's code",
    };
    report::line(&format!(
        "calls of {} inside libc (stdio on a socket, getaddrinfo) do not reach the engine: {reason}",
        name.to_string_lossy()
    ));
}

/// Whether there is nothing to say.
#[cfg(test)]
pub fn is_none() -> bool {
    REFUSED.load(Ordering::Relaxed) == 0
}
