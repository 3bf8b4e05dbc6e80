//! Calls that the filter refused: noted where it happens, in a signal's handler, and told where there is time for it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::calls;

/// Calls have numbers below this.
const NUMBERS: usize = 1_024;
const WORDS: usize = NUMBERS / 64;

static TOTAL: AtomicU64 = AtomicU64::new(0);
static NOTED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
static TOLD: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// Notes a call; nothing here waits, locks or takes memory.
pub fn note(number: usize) {
    let number = number.min(NUMBERS - 1);
    NOTED[number / 64].fetch_or(1 << (number % 64), Ordering::Relaxed);
    TOTAL.fetch_add(1, Ordering::Release);
}

/// How many calls were refused.
pub fn refused() -> u64 {
    TOTAL.load(Ordering::Acquire)
}

/// Has the log name each call that was refused since, once.
pub fn log_refused() {
    if refused() == 0 {
        return;
    }
    for (word, (noted, told)) in NOTED.iter().zip(&TOLD).enumerate() {
        let noted = noted.load(Ordering::Relaxed);
        let mut new = noted & !told.fetch_or(noted, Ordering::Relaxed);
        while new != 0 {
            let number = word * 64 + usize::try_from(new.trailing_zeros()).unwrap_or(0);
            tracing::error!(
                "the system call {} was refused (EPERM): the engine has no use for it. Somebody may be misusing it, or Shunt's list \
                 lacks a call; report it",
                name(number)
            );
            new &= new - 1;
        }
    }
}

/// The name of a call, where this crate knows it; of one that is allowed with other arguments, what it is allowed for.
fn name(number: usize) -> String {
    let wanted = libc::c_long::try_from(number).unwrap_or(-1);
    let engine = calls::engine();
    if let Some(call) = engine.iter().find(|call| call.number == wanted) {
        return format!(
            "{} with these arguments (it is for: {})",
            call.name(),
            call.why
        );
    }
    let others = calls::KNOWN.iter().find(|(_, number)| *number == wanted);
    others.map_or_else(
        || format!("number {number}"),
        |(name, _)| (*name).to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_has_a_name() {
        assert!(name(usize::try_from(libc::SYS_execve).unwrap()) == "execve");
        assert!(name(usize::try_from(libc::SYS_mmap).unwrap()).contains("never code"));
        assert_eq!(name(1_000), "number 1000");
    }
}
