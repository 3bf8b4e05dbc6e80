//! What an engine does differently where it lives inside a program. One with a process of its own leaves descriptors
//! where the kernel puts them; one that lives inside a program moves each descriptor out
//! of the program's way as soon as it has it.
//!
//! Everything in the engine that keeps a descriptor passes it through [`relocate_fd`]. Where to is decided
//! by whoever starts the engine.

use std::sync::OnceLock;

use rustix::fd::OwnedFd;

/// Moves a descriptor to the number where it stays.
pub type RelocateFd = fn(OwnedFd) -> OwnedFd;

static HOME: OnceLock<RelocateFd> = OnceLock::new();

/// Sets where descriptors of this process's engine go. Only the first call counts.
pub fn set(home: RelocateFd) {
    let _ = HOME.set(home);
}

/// Whether the engine of this process lives inside a program.
#[must_use]
pub fn is_inline() -> bool {
    HOME.get().is_some()
}

/// A descriptor that the engine is going to keep.
#[must_use]
pub fn relocate_fd(fd: OwnedFd) -> OwnedFd {
    match HOME.get() {
        Some(home) => home(fd),
        None => fd,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsRawFd as _;

    #[test]
    fn without_a_home_a_descriptor_stays_where_it_is() {
        let fd = crate::sync::doorbell::create().unwrap();
        let number = fd.as_raw_fd();
        assert_eq!(relocate_fd(fd).as_raw_fd(), number);
    }
}
