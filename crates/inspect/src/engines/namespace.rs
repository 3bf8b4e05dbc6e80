//! Network namespaces other than this command's own, see network_namespaces(7): which processes stand for them, and
//! how something is done inside one.

use std::{collections::BTreeMap, fmt, fs, fs::File, os::fd::AsFd as _, thread};

use anyhow::Context as _;
use observe::process;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// Its inode, as lsns(8) shows it.
    pub inode: u64,
    /// A process in it.
    pub pid: u32,
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "net:[{}] of process {}", self.inode, self.pid)
    }
}

impl Namespace {
    /// That of a process; `None`: it is the one of this command.
    pub fn of(pid: u32) -> anyhow::Result<Option<Self>> {
        let (theirs, own) = (inode(&pid.to_string())?, inode("self")?);
        let other = Self { inode: theirs, pid };
        Ok((theirs != own).then_some(other))
    }

    /// Does something inside, on a thread of its own: what it opens belongs to that namespace.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        let door = File::open(format!("/proc/{}/ns/net", self.pid))
            .with_context(|| format!("{self} may not be looked at"))?;
        let inside = || {
            move_into_link_name_space(door.as_fd(), Some(LinkNameSpaceType::Network))
                .with_context(|| format!("{self} may not be entered: become root, or use `shunt lab exec HOST -- …` or nsenter(1)"))?;
            Ok(work())
        };
        let joined = thread::scope(|scope| scope.spawn(inside).join());
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// All others that have processes, by inode, and how many processes may not be looked at.
pub fn others() -> (Vec<Namespace>, usize) {
    let own = inode("self").ok();
    let (mut found, mut hidden) = (BTreeMap::new(), 0);
    for pid in process::all() {
        match inode(&pid.to_string()) {
            Ok(inode) if Some(inode) == own => {}
            Ok(inode) => {
                found.entry(inode).or_insert(pid);
            }
            Err(error) => {
                let denied = |cause: &(dyn std::error::Error + 'static)| {
                    let error = cause.downcast_ref::<std::io::Error>();
                    error.is_some_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
                };
                hidden += usize::from(error.chain().any(denied));
            }
        }
    }
    let others = found.into_iter();
    let others = others.map(|(inode, pid)| Namespace { inode, pid });
    (others.collect(), hidden)
}

/// `net:[4026531840]`
fn inode(pid: &str) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/ns/net");
    let link = fs::read_link(&path).with_context(|| path.clone())?;
    let text = link.to_string_lossy();
    let number = text
        .strip_prefix("net:[")
        .and_then(|rest| rest.strip_suffix(']'));
    number
        .and_then(|number| number.parse().ok())
        .with_context(|| format!("{path} leads to {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_in_its_own_namespace_and_all_others_differ() {
        assert_eq!(Namespace::of(std::process::id()).unwrap(), None);
        assert!(Namespace::of(u32::MAX).is_err());
        let own = inode("self").unwrap();
        assert!(others().0.iter().all(|one| one.inode != own));
    }
}
