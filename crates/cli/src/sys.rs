//! The system calls that no safe crate offers: interface lists, bpf and starting a process in
//! a session of its own, see getifaddrs(3), netdevice(7), bpf(2), setsid(2).

#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::{
        fd::{FromRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    process::Command,
    ptr,
};

/// An interface as the C library lists it.
#[derive(Debug, Clone)]
pub struct Interface {
    pub name: String,
    /// Switched on by the administrator.
    pub up: bool,
    /// The loopback interface.
    pub loopback: bool,
    /// Addresses with their prefix lengths.
    pub addresses: Vec<(IpAddr, u32)>,
}

/// All interfaces of this network namespace.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut list: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: `list` is a valid place for the result, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut next = list;
    // SAFETY: getifaddrs returned a list that ends with null and lives until freeifaddrs.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: ifa_name is a NUL-terminated string of the same lifetime.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }
            .to_string_lossy()
            .into_owned();
        let flags = entry.ifa_flags;
        let has = |flag: libc::c_int| flags & flag.unsigned_abs() != 0;
        let known = interfaces
            .iter()
            .position(|interface| interface.name == name);
        let index = known.unwrap_or_else(|| {
            interfaces.push(Interface {
                name,
                up: has(libc::IFF_UP),
                loopback: has(libc::IFF_LOOPBACK),
                addresses: Vec::new(),
            });
            interfaces.len() - 1
        });
        if let (Some(address), Some(mask)) = (ip(entry.ifa_addr), ip(entry.ifa_netmask)) {
            let prefix_len = match mask {
                IpAddr::V4(mask) => mask.to_bits().count_ones(),
                IpAddr::V6(mask) => mask.to_bits().count_ones(),
            };
            interfaces[index].addresses.push((address, prefix_len));
        }
    }
    // SAFETY: the list came from getifaddrs and no reference into it is left.
    unsafe { libc::freeifaddrs(list) };
    Ok(interfaces)
}

fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: null or a sockaddr of the list above, whose family says what it is.
    let family = i32::from(unsafe { address.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: an AF_INET entry is a sockaddr_in; it may be less aligned than that type asks for.
            let internet = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let bits = u32::from_be(internet.sin_addr.s_addr);
            Some(Ipv4Addr::from_bits(bits).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an AF_INET6 entry is a sockaddr_in6, as above.
            let internet = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from_octets(internet.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

/// The number of an interface, by which programs name it beside link-local addresses; 0: there is none.
pub fn interface_index(name: &str) -> u32 {
    let Ok(name) = CString::new(name) else {
        return 0;
    };
    // SAFETY: a NUL-terminated string that lives through the call.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

/// The number of a group, by its name; `None`: there is none. Not for several threads.
pub fn group_of_name(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: a NUL-terminated string that lives through the call.
    let group = unsafe { libc::getgrnam(name.as_ptr()) };
    // SAFETY: null, or an entry that stands until the next such call.
    unsafe { group.as_ref() }.map(|group| group.gr_gid)
}

/// Creates and drops a BPF array of one entry: whether this process may load BPF objects.
pub fn try_bpf() -> io::Result<()> {
    const BPF_MAP_CREATE: libc::c_long = 0;
    const BPF_MAP_TYPE_ARRAY: u32 = 2;
    // union bpf_attr for BPF_MAP_CREATE: type, key size, value size, entries, flags.
    let attributes: [u32; 5] = [BPF_MAP_TYPE_ARRAY, 4, 4, 1, 0];
    // SAFETY: the kernel reads as many bytes as it is told and knows the rest to be zero.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_MAP_CREATE,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    };
    match i32::try_from(result) {
        Ok(fd) if fd >= 0 => {
            // SAFETY: a fresh descriptor that nobody else knows.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            Ok(())
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets the command start in a session of its own: no terminal reaches it with signals.
pub fn start_in_new_session(command: &mut Command) {
    // SAFETY: the closure makes one system call and neither allocates nor locks, as the time
    // between fork and exec demands.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
}

/// What the command starts shall not have the library, which an outer `shunt run` has preloaded here and would put back (docs/decisions/0110).
pub fn without_library(command: &mut Command) -> &mut Command {
    command
        .env_remove("LD_PRELOAD")
        .env(hostif::LIBRARY_VARIABLE, "")
}

/// A descriptor that whoever started this process has left for it, of that number.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes a number; of one that is not open it says EBADF.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and this process, which has just begun, has made no value of that number.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Lets this thread hear every signal, whatever whoever started it held back.
pub fn unblock_signals() {
    // SAFETY: the set is a local that is made empty before it is used.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

/// Signals that wait until this process asks for them: its children's ends, and what asks it to end.
pub struct HeldBack {
    signals: libc::sigset_t,
    before: libc::sigset_t,
}

/// Holds them back, for this process's only thread.
pub fn hold_signals_back() -> io::Result<HeldBack> {
    let all = [
        libc::SIGCHLD,
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGHUP,
        libc::SIGUSR1,
    ];
    // SAFETY: both sets are locals; the first is made empty before it is used, and the call fills the second.
    unsafe {
        let (mut signals, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&raw mut signals);
        for signal in all {
            libc::sigaddset(&raw mut signals, signal);
        }
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const signals, &raw mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(HeldBack { signals, before })
    }
}

impl HeldBack {
    /// The next one, and the process and user that sent it by kill(2), of whom the kernel tells; 0: another way.
    pub fn wait(&self) -> io::Result<(libc::c_int, libc::pid_t, libc::uid_t)> {
        loop {
            // SAFETY: both are valid, and all zero is a valid value of the second, which the call fills.
            let (signal, info) = unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                let signal = libc::sigwaitinfo(&raw const self.signals, &raw mut info);
                (signal, info)
            };
            if signal > 0 && info.si_code == libc::SI_USER {
                // SAFETY: a signal that kill(2) has sent has both.
                return Ok(unsafe { (signal, info.si_pid(), info.si_uid()) });
            }
            if signal > 0 {
                return Ok((signal, 0, 0));
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

impl HeldBack {
    /// Signals come as they did before.
    pub fn let_go(&self) {
        // SAFETY: the set came from the kernel.
        unsafe {
            libc::sigprocmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut());
        }
    }
}

/// fork(2), of a process that has one thread; in the child `None`.
pub fn fork() -> io::Result<Option<rustix::process::Pid>> {
    // SAFETY: no other thread holds a lock that the child could need.
    match unsafe { libc::fork() } {
        0 => Ok(None),
        child if child > 0 => Ok(rustix::process::Pid::from_raw(child)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A few bytes that a process shares with those that it forks, who leave something there before they end.
pub struct Shared(*mut u8);

impl Shared {
    pub const BYTES: usize = 4096;

    /// All zero.
    pub fn new() -> io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base =
            unsafe { mmap_anonymous(ptr::null_mut(), Self::BYTES, access, MapFlags::SHARED) }?;
        Ok(Self(base.cast()))
    }

    /// Leaves as much of `bytes` as there is room for.
    pub fn put(&self, bytes: &[u8]) {
        let len = bytes.len().min(Self::BYTES);
        // SAFETY: the mapping has so many bytes and is never undone; whoever reads them waits for this process's end.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, len) };
    }

    /// What is there, up to the first zero.
    pub fn bytes(&self) -> Vec<u8> {
        // SAFETY: as above.
        let all = unsafe { std::slice::from_raw_parts(self.0, Self::BYTES) };
        all.iter().copied().take_while(|byte| *byte != 0).collect()
    }
}

/// Descriptors below that number stay open where this process executes another program.
pub fn keep_over_exec(end: RawFd) {
    set_flags(0..end, 0);
}

/// Only standard input, output and errors do. Linux before 5.11 is told of each of `open`.
pub fn close_at_exec(open: impl FnOnce() -> io::Result<Vec<RawFd>>) -> io::Result<()> {
    let first = libc::STDERR_FILENO + 1;
    // SAFETY: the call marks descriptors and closes none.
    let marked = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if marked != 0 {
        let numbers = open()?.into_iter().filter(|number| *number >= first);
        set_flags(numbers, libc::FD_CLOEXEC);
    }
    Ok(())
}

fn set_flags(numbers: impl Iterator<Item = RawFd>, flags: libc::c_int) {
    for number in numbers {
        // SAFETY: the call takes a number; of one that is not open it says EBADF.
        unsafe { libc::fcntl(number, libc::F_SETFD, flags) };
    }
}

/// Starts a child that shares this process's descriptors, and dies with it; in the child `None`, and it hears signals as they
/// were heard before. This process must have one thread.
pub fn start_beside(signals: &HeldBack) -> io::Result<Option<rustix::process::Pid>> {
    let parent = rustix::process::getpid();
    let flags = libc::c_long::from(libc::CLONE_FILES | libc::SIGCHLD);
    let nothing: libc::c_long = 0;
    // SAFETY: as fork(2), with a copy of this memory and stack, but for the descriptors, which both have; the C library keeps
    // no number of this thread that it would use in the child, and no other thread holds a lock.
    let child =
        unsafe { libc::syscall(libc::SYS_clone, flags, nothing, nothing, nothing, nothing) };
    match libc::pid_t::try_from(child) {
        Ok(0) => {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            if rustix::process::getppid() != Some(parent) {
                return Err(io::Error::from(io::ErrorKind::BrokenPipe));
            }
            signals.let_go();
            Ok(None)
        }
        Ok(child) if child > 0 => Ok(rustix::process::Pid::from_raw(child)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ignores signals, also in what this process starts.
pub fn ignore_signals(signals: &[libc::c_int]) -> io::Result<()> {
    for &signal in signals {
        // SAFETY: no handler is installed, so nothing runs at a signal.
        if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
