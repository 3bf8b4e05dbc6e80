//! The process that keeps a host's namespaces alive, see namespaces(7).
//!
//! It is `sleep` or `cat`, started inside new namespaces: it does nothing, so nothing in it can
//! fail. A pid alone proves nothing about a process, so the holder is remembered with its start
//! time, see proc_pid_stat(5).

use std::{
    io,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};

use crate::{
    Error,
    sys::{self, IdMap, Namespaces, NewNamespaces},
};

/// How long a holder lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Until somebody removes the lab.
    Detached,
    /// Until the lab is dropped or the process that made it ends, however it ends.
    WithParent,
}

/// A process told apart from later ones with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) pid: u32,
    /// Clock ticks after boot.
    start_time: u64,
}

impl Identity {
    /// The process that has this number now.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The second field is a name in parentheses and may hold anything; 22 is the start time.
        let start_time = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_ascii_whitespace().nth(19))
            .and_then(|field| field.parse().ok())
            .ok_or_else(|| io::Error::other("/proc/PID/stat has an unknown form"))?;
        Ok(Self { pid, start_time })
    }

    /// True while the process lives and is no zombie.
    pub(crate) fn alive(&self) -> bool {
        // A zombie has no namespaces left.
        Self::of(self.pid).is_ok_and(|now| now == *self)
            && Path::new(&format!("/proc/{}/ns/net", self.pid)).exists()
    }

    /// The number in the form the system calls want.
    pub(crate) fn raw(&self) -> Option<Pid> {
        i32::try_from(self.pid).ok().and_then(Pid::from_raw)
    }

    /// Sends a signal to exactly this process; false when it is gone.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        // The descriptor is taken first and the identity checked after it, so that the number
        // cannot be handed on in between.
        let Some(Ok(process)) = self
            .raw()
            .map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()))
        else {
            return false;
        };
        self.alive() && rustix::process::pidfd_send_signal(process, signal).is_ok()
    }
}

/// The holder of one host.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) identity: Identity,
    pub(crate) net_inode: u64,
    /// Present where this process started it: to be waited for.
    child: Option<Child>,
    /// Closing it ends a holder that lives with its parent.
    _lifeline: Option<ChildStdin>,
}

impl Holder {
    /// Starts a holder in new namespaces. Without root it owns a new user namespace, or joins the
    /// one of `sibling`.
    pub(crate) fn start(
        host: &str,
        lifetime: Lifetime,
        sibling: Option<&Self>,
    ) -> Result<Self, Error> {
        let failed = |source: io::Error| Error::Namespace {
            host: host.to_owned(),
            source,
        };
        let mut command = match lifetime {
            Lifetime::Detached => {
                let mut command = Command::new("sleep");
                command.arg("infinity").stdin(Stdio::null());
                command
            }
            Lifetime::WithParent => {
                let mut command = Command::new("cat");
                command.stdin(Stdio::piped());
                command
            }
        };
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/");
        let user_of = match sibling.and_then(|sibling| sibling.identity.raw()) {
            Some(pid) => Some(Namespaces::of(pid).map_err(failed)?),
            None => None,
        };
        let new_user = (sibling.is_none() && !privileged()).then(|| {
            let uid = rustix::process::geteuid().as_raw();
            let gid = rustix::process::getegid().as_raw();
            IdMap::single(0, uid, gid)
        });
        NewNamespaces { new_user, user_of }.attach(&mut command);
        let mut child = command.spawn().map_err(failed)?;
        let lifeline = child.stdin.take();
        let identity = Identity::of(child.id()).map_err(failed)?;
        let pid = identity
            .raw()
            .ok_or_else(|| failed(io::Error::other("process number out of range")))?;
        let net_inode = sys::namespace_inode(pid, "net").map_err(failed)?;
        Ok(Self {
            identity,
            net_inode,
            child: Some(child),
            _lifeline: lifeline,
        })
    }

    /// A holder that an earlier command started.
    pub(crate) fn known(identity: Identity, net_inode: u64) -> Self {
        Self {
            identity,
            net_inode,
            child: None,
            _lifeline: None,
        }
    }

    /// Ends the holder and waits until it is gone, at most two seconds.
    pub(crate) fn stop(&mut self) {
        self.identity.signal(Signal::KILL);
        if let Some(mut child) = self.child.take() {
            // It was killed: this returns at once, and leaves no zombie.
            let _ = child.wait();
            return;
        }
        let deadline = Instant::now() + Duration::from_secs(2);
        while self.identity.alive() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Leaves a detached holder to live on.
    pub(crate) fn release(&mut self) {
        self.child = None;
    }
}

/// True where namespaces can be made without a user namespace: root with CAP_SYS_ADMIN and
/// CAP_NET_ADMIN in effect, see capabilities(7).
pub(crate) fn privileged() -> bool {
    const CAP_NET_ADMIN: u32 = 12;
    const CAP_SYS_ADMIN: u32 = 21;
    let effective = std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("CapEff:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        });
    let has = |capability: u32| effective.is_some_and(|set| set >> capability & 1 == 1);
    rustix::process::geteuid().is_root() && has(CAP_NET_ADMIN) && has(CAP_SYS_ADMIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_tells_a_live_process_from_a_dead_one() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let identity = Identity::of(child.id()).unwrap();
        assert!(identity.alive());
        assert!(identity.signal(Signal::KILL));
        child.wait().unwrap();
        assert!(!identity.alive());
        assert!(!identity.signal(Signal::KILL));
    }

    #[test]
    fn identity_with_another_start_time_is_another_process() {
        let mut stranger = Identity::of(std::process::id()).unwrap();
        stranger.start_time -= 1;
        assert!(!stranger.alive());
    }
}
