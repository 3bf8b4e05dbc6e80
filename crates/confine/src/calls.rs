//! The system calls of an engine after its start, each with its reason, and those of the thread that writes its log.
//!
//! What is not here and why: no call that executes a program, makes a process, reaches into another one or sends it a signal,
//! makes a namespace, mounts, changes credentials or this filter's like; no memory becomes executable; no io_uring, whose calls no
//! filter sees.

use crate::filter::{Call, Check};

/// Protections of memory and kinds of memory that make bytes code.
const EXECUTABLE: Check = Check::Without(2, libc::PROT_EXEC.cast_unsigned());
/// Flags of a thread, which a process does not have.
const THREAD: Check = Check::With(
    0,
    (libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD).cast_unsigned(),
);
/// Families of sockets that an engine makes.
const FAMILIES: Check = Check::OneOf(
    0,
    &[
        libc::AF_PACKET.cast_unsigned(),
        libc::AF_XDP.cast_unsigned(),
        libc::AF_NETLINK.cast_unsigned(),
        libc::AF_UNIX.cast_unsigned(),
        libc::AF_INET.cast_unsigned(),
        libc::AF_INET6.cast_unsigned(),
    ],
);
/// A thread's name, and how exact its timers are; how libc names its memory; what the kernel told of this machine at the start.
const ATTRIBUTES: Check = Check::OneOf(
    0,
    &[
        libc::PR_SET_NAME.cast_unsigned(),
        libc::PR_SET_TIMERSLACK.cast_unsigned(),
        libc::PR_SET_VMA.cast_unsigned(),
        0x4155_5856, // PR_GET_AUXV, linux/prctl.h
    ],
);
/// Not waiting; name, MTU, flags, address and offloads of an interface; which namespace a socket is of; a TAP's interface.
const REQUESTS: Check = Check::OneOf(
    1,
    &[
        0x5421,      // FIONBIO, asm-generic/ioctls.h
        0x8910,      // SIOCGIFNAME, linux/sockios.h
        0x8921,      // SIOCGIFMTU
        0x8922,      // SIOCSIFMTU
        0x8913,      // SIOCGIFFLAGS
        0x8914,      // SIOCSIFFLAGS
        0x8927,      // SIOCGIFHWADDR
        0x8933,      // SIOCGIFINDEX
        0x8946,      // SIOCETHTOOL
        0x894c,      // SIOCGSKNS
        0x4004_54ca, // TUNSETIFF, linux/if_tun.h
        0x8004_54d2, // TUNGETIFF
        0x4004_54d0, // TUNSETOFFLOAD
        0x4004_54d8, // TUNSETVNETHDRSZ
    ],
);

macro_rules! call {
    ($constant:ident, $why:literal) => {
        call!($constant, Check::Any, $why)
    };
    ($constant:ident, $check:expr, $why:literal) => {
        Call {
            constant: stringify!($constant),
            number: libc::$constant,
            check: $check,
            why: $why,
        }
    };
}

/// All threads of an engine but the log's.
pub fn engine() -> Vec<Call> {
    let mut calls = packets();
    calls.extend(sockets());
    calls.extend(files());
    calls.extend(memory());
    calls.extend(threads());
    #[cfg(target_arch = "x86_64")]
    calls.extend(older());
    calls
}

/// The thread that writes the log.
pub fn writer() -> Vec<Call> {
    let mut calls = vec![
        call!(SYS_write, "a line"),
        call!(SYS_ppoll, "waits for whoever reads standard error"),
    ];
    calls.extend(memory());
    calls.extend(threads());
    #[cfg(target_arch = "x86_64")]
    calls.push(call!(SYS_poll, "as ppoll"));
    calls
}

/// Those of every turn, first in the filter.
fn packets() -> Vec<Call> {
    vec![
        call!(SYS_sendto, "frames, doorbells of AF_XDP rings"),
        call!(SYS_sendmsg, "frames; answers to programs, with descriptors"),
        call!(SYS_recvfrom, "wakes the device; netlink"),
        call!(
            SYS_recvmsg,
            "requests of programs, with descriptors; errors of a device"
        ),
        call!(SYS_read, "TAP's frames, eventfds, settings"),
        call!(SYS_write, "TAP's frames, eventfds, reports"),
        call!(SYS_readv, "TAP's frames"),
        call!(SYS_writev, "TAP's frames, captures"),
        call!(SYS_epoll_pwait, "sleeps"),
        call!(SYS_epoll_pwait2, "sleeps"),
        call!(SYS_ppoll, "waits for a descriptor"),
    ]
}

fn sockets() -> Vec<Call> {
    vec![
        call!(SYS_accept4, "programs that attach"),
        call!(
            SYS_socket,
            FAMILIES,
            "device and netlink again, backing sockets"
        ),
        call!(SYS_socketpair, "control channels to other cores"),
        call!(
            SYS_bind,
            "the packet or AF_XDP socket, netlink, ports of ending connections"
        ),
        call!(SYS_connect, "ends what a backing socket holds (AF_UNSPEC)"),
        call!(SYS_listen, "backing sockets where addresses are shared"),
        call!(SYS_shutdown, "backing sockets, control channels"),
        call!(SYS_getsockname, "which port the kernel gave to a program"),
        call!(
            SYS_getsockopt,
            "what a program's descriptor is, who attaches, drops of the device"
        ),
        call!(
            SYS_setsockopt,
            "rings and filters of the device, backing sockets"
        ),
        call!(
            SYS_ioctl,
            REQUESTS,
            "interfaces, which namespace a socket is of"
        ),
        call!(
            SYS_bpf,
            "maps of the flows; programs when the device comes back"
        ),
    ]
}

fn files() -> Vec<Call> {
    vec![
        call!(
            SYS_openat,
            "settings in /proc, devices; Landlock says which"
        ),
        call!(SYS_close, "descriptors of programs"),
        call!(SYS_pread64, "what a file system is asked"),
        call!(SYS_pwrite64, "captures"),
        call!(SYS_lseek, "reports"),
        call!(SYS_fstat, "what a program has passed"),
        call!(SYS_newfstatat, "what a path is"),
        call!(SYS_statx, "as fstat, by std"),
        call!(SYS_fstatfs, "on which file system a program's file lies"),
        call!(SYS_readlinkat, "which namespace it is"),
        call!(SYS_getdents64, "which queues an interface has"),
        call!(SYS_fcntl, "flags and seals of descriptors, duplicates"),
        call!(SYS_dup, "duplicates"),
        call!(SYS_dup3, "a device's descriptor takes the old one's number"),
        call!(SYS_ftruncate, "size of a region"),
        call!(SYS_fallocate, "memory of idle windows goes back"),
        call!(SYS_memfd_create, "regions, reports"),
        call!(SYS_unlinkat, "the control socket at the end"),
        call!(SYS_eventfd2, "doorbells"),
        call!(SYS_pipe2, "between threads"),
        call!(SYS_epoll_create1, "one for a core"),
        call!(SYS_epoll_ctl, "descriptors that are watched"),
        call!(SYS_pidfd_open, "whether a program lives, for --until-idle"),
    ]
}

fn memory() -> Vec<Call> {
    vec![
        call!(
            SYS_mmap,
            EXECUTABLE,
            "regions, windows, the heap; never code"
        ),
        call!(SYS_mprotect, EXECUTABLE, "stacks of threads; never code"),
        call!(SYS_munmap, "regions of programs that ended"),
        call!(SYS_mremap, "the heap"),
        call!(SYS_madvise, "memory of idle windows goes back"),
        call!(SYS_brk, "the heap"),
        call!(SYS_getrandom, "secrets, keys of hash tables"),
    ]
}

fn threads() -> Vec<Call> {
    let own = std::process::id();
    vec![
        call!(
            SYS_futex,
            "locks, channels, doorbells of programs that sleep"
        ),
        call!(SYS_clock_gettime, "where the vDSO has no clock"),
        call!(SYS_clock_nanosleep, "short waits"),
        call!(SYS_nanosleep, "short waits"),
        call!(SYS_sched_yield, "gives way"),
        call!(SYS_sched_setaffinity, "--cpu"),
        call!(SYS_sched_getaffinity, "how many processors there are"),
        call!(SYS_sysinfo, "how large a receive ring may be"),
        call!(
            SYS_clone,
            THREAD,
            "threads for cores and users; no process, no namespace"
        ),
        call!(
            SYS_clone3,
            Check::Absent,
            "its flags are in memory, which no filter sees: libc uses clone"
        ),
        call!(SYS_set_robust_list, "a thread's beginning"),
        call!(SYS_rseq, "a thread's beginning"),
        call!(SYS_set_tid_address, "a thread's beginning"),
        call!(SYS_sigaltstack, "a thread's stack for signals"),
        call!(SYS_rt_sigprocmask, "a thread's signals while it begins"),
        call!(SYS_rt_sigaction, "an abort"),
        call!(SYS_rt_sigreturn, "the end of a handler"),
        call!(SYS_restart_syscall, "a sleep that was stopped goes on"),
        call!(SYS_prctl, ATTRIBUTES, "a thread's name and timer slack"),
        call!(SYS_prlimit64, "how many descriptors it may have"),
        call!(SYS_getpid, "reports"),
        call!(SYS_gettid, "an abort"),
        call!(SYS_geteuid, "whether a program is of its own user"),
        call!(SYS_getuid, "the same"),
        call!(
            SYS_tgkill,
            Check::Is(0, own),
            "an abort of itself, nobody else"
        ),
        call!(SYS_exit, "a thread's end"),
        call!(SYS_exit_group, "the end"),
    ]
}

/// Calls that newer architectures have under their other numbers only.
#[cfg(target_arch = "x86_64")]
fn older() -> Vec<Call> {
    vec![
        call!(SYS_epoll_wait, "as epoll_pwait"),
        call!(SYS_poll, "as ppoll"),
        call!(SYS_open, "as openat"),
        call!(SYS_unlink, "as unlinkat"),
        call!(SYS_readlink, "as readlinkat"),
    ]
}

/// Names of calls that are not allowed, for the log.
pub const KNOWN: &[(&str, libc::c_long)] = &[
    ("execve", libc::SYS_execve),
    ("execveat", libc::SYS_execveat),
    ("ptrace", libc::SYS_ptrace),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("kill", libc::SYS_kill),
    ("chdir", libc::SYS_chdir),
    ("setns", libc::SYS_setns),
    ("unshare", libc::SYS_unshare),
    ("mount", libc::SYS_mount),
    ("capset", libc::SYS_capset),
    ("setuid", libc::SYS_setuid),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("recvmmsg", libc::SYS_recvmmsg),
    ("sendmmsg", libc::SYS_sendmmsg),
    ("sendfile", libc::SYS_sendfile),
    ("splice", libc::SYS_splice),
    ("getpeername", libc::SYS_getpeername),
    ("socketpair", libc::SYS_socketpair),
    ("timerfd_create", libc::SYS_timerfd_create),
    ("membarrier", libc::SYS_membarrier),
    ("fsync", libc::SYS_fsync),
    ("fdatasync", libc::SYS_fdatasync),
    ("fchmod", libc::SYS_fchmod),
    ("mlock", libc::SYS_mlock),
    ("statfs", libc::SYS_statfs),
    ("faccessat", libc::SYS_faccessat),
];
