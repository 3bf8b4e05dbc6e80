//! sigaction(2) and its kin: a handler of ours stands in front of each of the program's, and lets it run only outside the
//! library's calls (`client::SignalDeferral`): docs/decisions/0050-handlers-run-at-the-edge.md.
//!
//! The program sees the handlers it installed, their flags and their masks. Signals that answer to what the thread
//! itself does (SIGSEGV and its like) go to the program's handler directly: they cannot wait. What libc
//! installs by itself, or a program by syscall(2), is not covered: such a handler may run in the middle of a call,
//! and then must not use sockets.

mod sys;

use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

/// Signals of Linux: 1 to 64.
const SIGNALS: usize = 65;

/// What the program wants of a signal in front of whose handler ours stands. Each word by itself is
/// what some call has set.
struct Wish {
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
}

static WISHES: [Wish; SIGNALS] = [const {
    Wish {
        handler: AtomicUsize::new(0),
        flags: AtomicI32::new(0),
        mask: AtomicU64::new(0),
    }
}; SIGNALS];

fn wish(signal: i32) -> Option<&'static Wish> {
    WISHES.get(usize::try_from(signal).ok()?)
}

/// A program's wish, as sigaction(2) has it; the mask in the kernel's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Action {
    handler: usize,
    flags: i32,
    mask: u64,
}

impl Wish {
    fn store(&self, action: Action) {
        self.mask.store(action.mask, Ordering::Relaxed);
        self.flags.store(action.flags, Ordering::Relaxed);
        self.handler.store(action.handler, Ordering::Release);
    }

    fn load(&self) -> Action {
        Action {
            handler: self.handler.load(Ordering::Acquire),
            flags: self.flags.load(Ordering::Relaxed),
            mask: self.mask.load(Ordering::Relaxed),
        }
    }
}

/// Whether ours may stand in front of a handler of this signal.
fn can_wait(signal: i32) -> bool {
    !matches!(
        signal,
        libc::SIGSEGV
            | libc::SIGBUS
            | libc::SIGFPE
            | libc::SIGILL
            | libc::SIGTRAP
            | libc::SIGSYS
            | libc::SIGABRT
    )
}

impl Action {
    /// Flags with which ours is installed: it decides itself what is blocked while the program's runs, and
    /// when the default comes back.
    fn installed_flags(self) -> i32 {
        self.flags & !(libc::SA_NODEFER | libc::SA_RESETHAND) | libc::SA_SIGINFO
    }

    /// The mask under which the program's handler runs, where the thread's was `interrupted`.
    fn running_mask(self, signal: i32, interrupted: u64) -> u64 {
        let own = if self.flags & libc::SA_NODEFER == 0 {
            1 << (signal - 1)
        } else {
            0
        };
        interrupted | self.mask | own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_runs_under_the_mask_that_sigaction_promises() {
        let usual = Action {
            handler: 1,
            flags: libc::SA_RESTART,
            mask: 0b100,
        };
        assert_eq!(usual.running_mask(1, 0b1000), 0b1101);
        let open = Action {
            flags: libc::SA_NODEFER | libc::SA_RESETHAND,
            ..usual
        };
        assert_eq!(open.running_mask(1, 0b1000), 0b1100);
        assert_eq!(open.installed_flags(), libc::SA_SIGINFO);
        assert_eq!(usual.installed_flags(), libc::SA_SIGINFO | libc::SA_RESTART);
    }

    #[test]
    fn what_cannot_wait_is_not_held_up() {
        assert!(can_wait(libc::SIGTERM) && can_wait(libc::SIGALRM) && can_wait(40));
        assert!(!can_wait(libc::SIGSEGV) && !can_wait(libc::SIGABRT));
    }
}
