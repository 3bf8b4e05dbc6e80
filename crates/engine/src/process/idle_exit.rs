//! Whether an engine that was started for certain programs is still needed. See pidfd_open(2).
//!
//! A guest is a process that connected to the control socket: `shunt run` does so before it becomes
//! the program, so a program counts from its start, long before its first socket.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::process::PidfdFlags;
use tcp::{Duration, Instant};

/// Guests that are watched at most; one that comes later counts while it is attached.
const MAX_GUESTS: usize = 1_024;
/// Asking costs a system call for each guest, and an engine that serves one goes idle often.
const INTERVAL: Duration = Duration::from_ms(200);

/// The processes that came, and since when nobody has needed the engine.
#[derive(Debug)]
pub struct IdleExit {
    patience: Duration,
    living: Vec<OwnedFd>,
    quiet_since: Instant,
    look_at: Instant,
}

impl IdleExit {
    /// Nobody yet; the engine may end when it was not needed for as long as `patience`.
    pub fn new(patience: Duration, now: Instant) -> Self {
        Self {
            patience,
            living: Vec::new(),
            quiet_since: now,
            look_at: now,
        }
    }

    /// The process at the other end of a control channel has come.
    pub fn welcome(&mut self, control: BorrowedFd<'_>) {
        self.living.retain(lives);
        if self.living.len() == MAX_GUESTS {
            return;
        }
        // A process of another pid namespace has no number here: it counts while it is attached.
        let process = rustix::net::sockopt::socket_peercred(control)
            .and_then(|peer| rustix::process::pidfd_open(peer.pid, PidfdFlags::empty()));
        self.living
            .extend(process.map(hostif::host_hooks::relocate_fd));
    }

    /// Whether the engine has not been needed for long enough; `is_in_use` is asked only where no
    /// guest lives.
    pub fn are_gone(&mut self, now: Instant, is_in_use: impl FnOnce() -> bool) -> bool {
        if now < self.look_at {
            return false;
        }
        self.look_at = now + INTERVAL;
        self.living.retain(lives);
        if !self.living.is_empty() || is_in_use() {
            self.quiet_since = now;
            return false;
        }
        now.since(self.quiet_since) >= self.patience
    }
}

/// A pidfd becomes readable when its process ends.
fn lives(process: &OwnedFd) -> bool {
    let at_once = Timespec::default();
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    !matches!(rustix::event::poll(&mut watched, Some(&at_once)), Ok(1..))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd as _;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    const PATIENCE: Duration = Duration::from_secs(2);

    #[test]
    fn an_engine_that_nobody_comes_to_is_given_up_after_its_patience() {
        let mut idle_exit = IdleExit::new(PATIENCE, Instant::from_us(1));
        assert!(!idle_exit.are_gone(Instant::from_us(1_999_999), || false));
        assert!(idle_exit.are_gone(Instant::from_us(2_300_001), || false));
    }

    #[test]
    fn a_living_process_and_an_open_connection_each_keep_the_engine() {
        let mut idle_exit = IdleExit::new(PATIENCE, Instant::from_us(0));
        let (ours, _theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        // The other end is this very process.
        idle_exit.welcome(ours.as_fd());
        assert!(!idle_exit.are_gone(Instant::from_us(10_000_000), || false));
        idle_exit.living.clear();
        assert!(!idle_exit.are_gone(Instant::from_us(20_000_000), || true));
        assert!(!idle_exit.are_gone(Instant::from_us(21_000_000), || false));
        assert!(idle_exit.are_gone(Instant::from_us(22_000_000), || false));
    }

    #[test]
    fn a_process_that_has_ended_is_no_guest() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty()).unwrap();
        assert!(lives(&process));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!lives(&process));
    }
}
