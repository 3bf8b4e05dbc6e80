//! The unsafe part: forking, unsharing and joining namespaces, see fork(2), unshare(2), setns(2).
//!
//! `setns` into a user namespace wants a process with a single thread, and callers (tests above
//! all) have many. So everything that happens inside a host happens in a forked child, which must
//! not allocate or lock: it makes system calls only, on messages and paths built before the fork.

#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString},
    fs::File,
    io::{self, Read},
    net::SocketAddr,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::Command,
    time::Duration,
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    mount::{MountFlags, MountPropagationFlags},
    net::{AddressFamily, SocketFlags, SocketType},
    process::{Pid, Signal, WaitOptions},
    thread::{LinkNameSpaceType, UnshareFlags},
};

/// Most steps that one child performs: their results must fit a pipe without blocking.
const MAX_STEPS: usize = 64;

/// Descriptors of the namespaces that make a host.
#[derive(Debug)]
pub(crate) struct Namespaces {
    /// None where the host shares our user namespace.
    user: Option<OwnedFd>,
    net: OwnedFd,
    mount: OwnedFd,
}

impl Namespaces {
    /// Opens the namespaces of a living process.
    pub(crate) fn of(pid: Pid) -> io::Result<Self> {
        let open = |kind: &str| -> io::Result<OwnedFd> {
            let file = File::open(format!("/proc/{}/ns/{kind}", pid.as_raw_nonzero()))?;
            Ok(OwnedFd::from(file))
        };
        // Joining the user namespace one is in already is an error (EINVAL, setns(2)).
        let same_user = namespace_inode(pid, "user")? == own_namespace_inode("user")?;
        let user = if same_user { None } else { Some(open("user")?) };
        Ok(Self {
            user,
            net: open("net")?,
            mount: open("mnt")?,
        })
    }

    /// The network namespace, to hand a link over to it.
    pub(crate) fn net(&self) -> &OwnedFd {
        &self.net
    }

    /// Joins with the calling thread. System calls only: safe between fork and exec.
    pub(crate) fn join(&self, directory: &CStr) -> io::Result<()> {
        // The user namespace comes first: it brings the privilege that the others ask for.
        self.join_user()?;
        rustix::thread::move_into_link_name_space(
            self.net.as_fd(),
            Some(LinkNameSpaceType::Network),
        )?;
        rustix::thread::move_into_link_name_space(
            self.mount.as_fd(),
            Some(LinkNameSpaceType::Mount),
        )?;
        // Joining a mount namespace resets the working directory to its root.
        rustix::process::chdir(directory)?;
        Ok(())
    }

    fn join_user(&self) -> io::Result<()> {
        if let Some(user) = &self.user {
            rustix::thread::move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
        }
        Ok(())
    }
}

/// The inode that identifies a namespace of a process while it lives.
pub(crate) fn namespace_inode(pid: Pid, kind: &str) -> io::Result<u64> {
    Ok(rustix::fs::stat(format!("/proc/{}/ns/{kind}", pid.as_raw_nonzero()))?.st_ino)
}

/// The same for the calling process.
pub(crate) fn own_namespace_inode(kind: &str) -> io::Result<u64> {
    Ok(rustix::fs::stat(format!("/proc/self/ns/{kind}"))?.st_ino)
}

/// The text of uid_map and gid_map that shows one outer id as one inner id, see user_namespaces(7).
#[derive(Debug, Clone)]
pub(crate) struct IdMap {
    uid: Vec<u8>,
    gid: Vec<u8>,
}

impl IdMap {
    /// Shows the outer ids as `inside`.
    pub(crate) fn single(inside: u32, outer_uid: u32, outer_gid: u32) -> Self {
        let line = |outer: u32| format!("{inside} {outer} 1").into_bytes();
        Self {
            uid: line(outer_uid),
            gid: line(outer_gid),
        }
    }

    /// Enters a new user namespace with these maps. System calls only.
    fn enter(&self) -> io::Result<()> {
        // SAFETY: unsharing the user namespace changes credentials only; no descriptor table or
        // memory is split from other threads, and the caller is a freshly forked single thread.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }?;
        // gid_map may be written by an ordinary user only after setgroups is given up.
        write_file(c"/proc/self/setgroups", b"deny")?;
        write_file(c"/proc/self/uid_map", &self.uid)?;
        write_file(c"/proc/self/gid_map", &self.gid)
    }
}

/// How a holder gets its namespaces.
#[derive(Debug)]
pub(crate) struct NewNamespaces {
    /// Become root of a new user namespace first.
    pub(crate) new_user: Option<IdMap>,
    /// Join this host's user namespace first, so that both hosts have one owner.
    pub(crate) user_of: Option<Namespaces>,
}

impl NewNamespaces {
    /// Makes `command` start as the first process of new network and mount namespaces.
    pub(crate) fn attach(self, command: &mut Command) {
        let enter = move || {
            rustix::process::setsid()?;
            if let Some(map) = &self.new_user {
                map.enter()?;
            }
            if let Some(host) = &self.user_of {
                host.join_user()?;
            }
            // SAFETY: the forked child has one thread, and the new namespaces concern neither its
            // memory nor its descriptors.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET | UnshareFlags::NEWNS) }?;
            // What the machine mounts later shall appear on the host, but not the reverse.
            let follow = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
            rustix::mount::mount_change(c"/", follow)?;
            // sysfs shows the interfaces of the namespace it was mounted in. A container may forbid
            // the mount; /sys/class/net then shows the wrong interfaces, and nothing else breaks.
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            let _ = rustix::mount::mount(c"sysfs", c"/sys", c"sysfs", flags, None::<&CStr>);
            Ok(())
        };
        // SAFETY: `enter` makes system calls only; it neither allocates nor locks.
        unsafe { command.pre_exec(enter) };
    }
}

/// Makes `command` start on a host, as its root or, with `user`, under an ordinary user id.
/// With `die_with_parent` it is killed when the thread that starts it ends.
pub(crate) fn attach(
    command: &mut Command,
    namespaces: Namespaces,
    directory: CString,
    user: Option<IdMap>,
    die_with_parent: bool,
) {
    let enter = move || {
        namespaces.join(&directory)?;
        if let Some(map) = &user {
            map.enter()?;
        }
        if die_with_parent {
            // Last, because a change of credentials clears it.
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        }
        Ok(())
    };
    // SAFETY: `enter` makes system calls only; it neither allocates nor locks.
    unsafe { command.pre_exec(enter) };
}

/// Something a child does on a host.
#[derive(Debug)]
pub(crate) enum Step {
    /// Sends one rtnetlink request and waits for its acknowledgement.
    Netlink(Vec<u8>),
    /// Writes a file that exists, such as one below /proc/sys.
    Write(CString, Vec<u8>),
    /// Connects and closes at once, see connect(2).
    Connect(SocketAddr, Duration),
}

impl Step {
    /// System calls only.
    fn perform(&self) -> io::Result<()> {
        match self {
            Self::Netlink(message) => netlink::configure::send_acknowledged(message),
            Self::Write(path, value) => write_file(path, value),
            Self::Connect(address, timeout) => connect(*address, *timeout),
        }
    }
}

/// Performs the steps on a host, in order, in a child; one result for each.
pub(crate) fn perform(namespaces: &Namespaces, steps: &[Step]) -> io::Result<Vec<io::Result<()>>> {
    assert!(steps.len() <= MAX_STEPS, "invariant: results fit the pipe");
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let status = in_child(|| {
        namespaces.join(c"/")?;
        for step in steps {
            let errno = step.perform().err().map_or(0, |error| {
                error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())
            });
            rustix::io::write(&writer, &errno.to_ne_bytes())?;
        }
        Ok(())
    });
    drop(writer);
    status?;
    let mut bytes = Vec::new();
    File::from(reader).read_to_end(&mut bytes)?;
    let results = bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|raw| match i32::from_ne_bytes(*raw) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        });
    Ok(results.collect())
}

/// True where an ordinary user may create a user namespace here: tried, not assumed.
pub fn user_namespaces_usable() -> io::Result<()> {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let map = IdMap::single(0, uid, gid);
    in_child(|| map.enter())
}

/// Runs `work` in a forked child. It must make system calls only.
pub(crate) fn in_child(work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    // SAFETY: the child has one thread and may find locks of other threads held for ever; `work`
    // takes none (documented duty, kept by every caller in this file), and `_exit` runs no handler.
    let pid = unsafe { libc_fork() }?;
    let Some(child) = pid else {
        let code = match work() {
            Ok(()) => 0,
            Err(error) => error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
        };
        // SAFETY: ends the child without touching the state it shares with the parent's memory image.
        unsafe { libc::_exit(code) }
    };
    loop {
        match rustix::process::waitpid(Some(child), WaitOptions::empty()) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(None) => {}
            Ok(Some((_, status))) => {
                return match status.exit_status() {
                    Some(0) => Ok(()),
                    Some(errno) => Err(io::Error::from_raw_os_error(errno)),
                    None => Err(io::Error::other("the helper process was killed")),
                };
            }
        }
    }
}

/// fork(2): None in the child.
///
/// # Safety
/// The child must restrict itself to async-signal-safe work, see signal-safety(7).
unsafe fn libc_fork() -> io::Result<Option<Pid>> {
    // SAFETY: the caller keeps the child to async-signal-safe work.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Writes an existing file in one call.
fn write_file(path: &CStr, value: &[u8]) -> io::Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    if rustix::io::write(&file, value)? != value.len() {
        return Err(Errno::IO.into());
    }
    Ok(())
}

/// Connects within `timeout` and closes again.
fn connect(address: SocketAddr, timeout: Duration) -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => return Ok(()),
        Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let timeout = rustix::event::Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    let mut fds = [rustix::event::PollFd::new(
        &socket,
        rustix::event::PollFlags::OUT,
    )];
    if rustix::event::poll(&mut fds, Some(&timeout))? == 0 {
        return Err(Errno::TIMEDOUT.into());
    }
    rustix::net::sockopt::socket_error(&socket)??;
    Ok(())
}
