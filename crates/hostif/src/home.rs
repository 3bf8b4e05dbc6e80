//! What an engine does differently where it is a guest. One with a process of its own leaves descriptors
//! where the kernel puts them, and ignores SIGPIPE; one that lives inside a program moves each descriptor out
//! of the program's way as soon as it has it, and must not let the program hear of its own broken pipes.
//!
//! Everything in the engine that keeps a descriptor passes it through [`settle`]. Where to is decided
//! by whoever starts the engine.

use std::sync::OnceLock;

use rustix::fd::OwnedFd;

/// Moves a descriptor to where it stays.
pub type Home = fn(OwnedFd) -> OwnedFd;

/// Runs work that may raise SIGPIPE so that nobody hears of it.
pub type Shield = fn(&mut dyn FnMut());

static HOME: OnceLock<(Home, Shield)> = OnceLock::new();

/// From now on these two have the last word. Only the first call counts.
pub fn set(home: Home, shield: Shield) {
    let _ = HOME.set((home, shield));
}

/// Whether the engine of this process lives inside a program.
#[must_use]
pub fn is_guest() -> bool {
    HOME.get().is_some()
}

/// Runs `work`, which may write to a pipe that nobody reads any more.
pub fn shielded(work: &mut dyn FnMut()) {
    match HOME.get() {
        Some((_, shield)) => shield(work),
        None => work(),
    }
}

/// A descriptor that the engine is going to keep.
#[must_use]
pub fn settle(fd: OwnedFd) -> OwnedFd {
    match HOME.get() {
        Some((home, _)) => home(fd),
        None => fd,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsRawFd as _;

    #[test]
    fn without_a_home_a_descriptor_stays_where_it_is() {
        let fd = crate::doorbell::create().unwrap();
        let number = fd.as_raw_fd();
        assert_eq!(settle(fd).as_raw_fd(), number);
        let mut runs = 0;
        shielded(&mut || runs += 1);
        assert_eq!(runs, 1);
    }
}
