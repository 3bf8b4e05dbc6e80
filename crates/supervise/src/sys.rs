//! The unsafe of this crate: seccomp(2) and seccomp_unotify(2), the memory and descriptors of other processes,
//! forking, socket options by number, reading a socket into a send window. Nothing here decides anything.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr;

use bpf::classic::Instruction;
use client::SendSpace;
use hostif::supervision::{ANSWER, QUESTION};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use switch::backing;

/// A system call that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Its number, valid as long as it waits.
    pub id: u64,
    /// The thread that called.
    pub tid: u32,
    /// The call's number.
    pub number: i64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// Whether a supervisor of ours gets this process's calls.
pub fn is_supervised() -> bool {
    // SAFETY: the call takes numbers.
    unsafe { libc::syscall(libc::SYS_shutdown, -1, QUESTION) == ANSWER }
}

/// Forbids this process and its children to gain privileges by executing a file (prctl(2)).
pub fn forbid_privileges() -> Result<(), Errno> {
    // SAFETY: PR_SET_NO_NEW_PRIVS takes four numbers.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }).map(drop)
}

/// Puts this process under a filter; the descriptor on which its calls arrive.
pub fn listen(filter: &mut [Instruction]) -> Result<OwnedFd, Errno> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| Errno::INVAL)?,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program and its instructions live through the call, which copies them. A new descriptor
    // comes back, owned by nobody else.
    unsafe {
        let fd = check(libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        ))?;
        Ok(OwnedFd::from_raw_fd(number(fd)?))
    }
}

/// SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (Linux 6.6): the two sides wake each other on one processor, as only one
/// of them works at a time. Older kernels do without.
pub fn wake_in_step(listener: BorrowedFd<'_>) {
    const SYNC_WAKE_UP: u64 = 1;
    // SAFETY: the request takes its flags by value.
    unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS,
            SYNC_WAKE_UP,
        )
    };
}

/// The next call. ENOENT: the call is gone already.
pub fn receive(listener: BorrowedFd<'_>) -> Result<Notification, Errno> {
    // SAFETY: the structure is plain data, the kernel wants it zeroed and fills it in.
    let notification = unsafe {
        let mut place = MaybeUninit::<libc::seccomp_notif>::zeroed();
        check(libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_RECV,
            place.as_mut_ptr(),
        ))?;
        place.assume_init()
    };
    Ok(Notification {
        id: notification.id,
        tid: notification.pid,
        number: i64::from(notification.data.nr),
        arguments: notification.data.args,
    })
}

/// Lets the call return `value`, or fail, or (`None`) go on to the kernel.
pub fn answer(
    listener: BorrowedFd<'_>,
    id: u64,
    answer: Option<Result<i64, Errno>>,
) -> Result<(), Errno> {
    // A signal that came meanwhile takes the call back now, and not in the moment in which it is answered (`unheard`).
    if !waits(listener, id) {
        return Err(Errno::NOENT);
    }
    let response = libc::seccomp_notif_resp {
        id,
        val: match answer {
            Some(Ok(value)) => value,
            _ => 0,
        },
        error: match answer {
            Some(Err(errno)) => -errno.raw_os_error(),
            _ => 0,
        },
        flags: match answer {
            None => u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap_or(1),
            Some(_) => 0,
        },
    };
    // SAFETY: the structure lives through the call, which reads it.
    check(unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SEND,
            &raw const response,
        )
    })
    .map(drop)
}

/// Whether the call still waits: what was read of its process belongs to it.
pub fn waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the request reads one number.
    let result = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
            &raw const id,
        )
    };
    result == 0
}

/// Where a descriptor that is given to a process goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetFd {
    /// In place of what stands at this number.
    At(RawFd),
    /// At the lowest free number, which the call returns.
    Lowest,
}

/// Gives the caller a descriptor; its number there.
pub fn give(
    listener: BorrowedFd<'_>,
    id: u64,
    fd: BorrowedFd<'_>,
    place: TargetFd,
    close_on_exec: bool,
) -> Result<RawFd, Errno> {
    let (flags, at) = match place {
        TargetFd::At(at) => (libc::SECCOMP_ADDFD_FLAG_SETFD, at),
        TargetFd::Lowest => (libc::SECCOMP_ADDFD_FLAG_SEND, 0),
    };
    let request = libc::seccomp_notif_addfd {
        id,
        flags: u32::try_from(flags).map_err(|_| Errno::INVAL)?,
        srcfd: u32::try_from(fd.as_raw_fd()).map_err(|_| Errno::BADF)?,
        newfd: u32::try_from(at).map_err(|_| Errno::BADF)?,
        newfd_flags: if close_on_exec {
            libc::O_CLOEXEC.cast_unsigned()
        } else {
            0
        },
    };
    // SAFETY: the structure lives through the call, which reads it.
    check(unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ADDFD,
            &raw const request,
        )
    })
}

/// Copies memory of another process; how many bytes of it could be read.
pub fn read_memory(tid: u32, address: u64, into: &mut [u8]) -> Result<usize, Errno> {
    let ours = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    // SAFETY: our side is a valid buffer; the other side is checked by the kernel.
    unsafe { copy_memory(libc::SYS_process_vm_readv, tid, address, &ours) }
}

/// The other way round.
pub fn write_memory(tid: u32, address: u64, bytes: &[u8]) -> Result<usize, Errno> {
    let ours = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: our side is a valid buffer that is only read; the other side is checked by the kernel.
    unsafe { copy_memory(libc::SYS_process_vm_writev, tid, address, &ours) }
}

/// # Safety
/// `ours` describes memory of this process that the call may read, or write.
unsafe fn copy_memory(
    call: libc::c_long,
    tid: u32,
    address: u64,
    ours: &libc::iovec,
) -> Result<usize, Errno> {
    let theirs = libc::iovec {
        iov_base: ptr::without_provenance_mut(usize::try_from(address).map_err(|_| Errno::FAULT)?),
        iov_len: ours.iov_len,
    };
    // SAFETY: one entry on each side; ours is the caller's duty.
    let copied = unsafe {
        libc::syscall(
            call,
            tid,
            ptr::from_ref(ours),
            1_usize,
            &raw const theirs,
            1_usize,
            0_usize,
        )
    };
    usize::try_from(check(copied)?).map_err(|_| Errno::IO)
}

/// bind(2) with a name as a program gave it.
pub fn bind(fd: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    let len = libc::socklen_t::try_from(name.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel reads `len` bytes of the buffer, and minds neither their alignment nor what they are.
    check(unsafe { libc::bind(fd.as_raw_fd(), name.as_ptr().cast(), len) }).map(drop)
}

/// Receives from a socket straight into a send window, without waiting and with these flags; 0: the end, or no free space.
pub fn receive_into(fd: BorrowedFd<'_>, space: &SendSpace<'_>, flags: i32) -> Result<usize, Errno> {
    let mut parts = space.spans().map(|(start, len)| libc::iovec {
        iov_base: start.cast(),
        iov_len: len,
    });
    // SAFETY: the header is plain data, of which null and 0 leave things out. The spans are memory of the
    // window that the space holds locked, and nobody else writes there until it is committed.
    let received = unsafe {
        let mut message: libc::msghdr = MaybeUninit::zeroed().assume_init();
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len();
        libc::recvmsg(fd.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT | flags)
    };
    usize::try_from(received).map_err(|_| last_error())
}

/// One of the requests of ioctl(2) that answer with an int: FIONREAD, SIOCOUTQ, SIOCATMARK.
pub fn ask(fd: BorrowedFd<'_>, request: u32) -> Result<i32, Errno> {
    let mut answer: libc::c_int = 0;
    // SAFETY: these requests write one int, which lives through the call.
    check(unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            libc::c_ulong::from(request),
            &raw mut answer,
        )
    })?;
    Ok(answer)
}

/// kcmp(2): whether what stands at `fd` of a thread is known under that number to its epoll set at `set`;
/// `None`: this kernel does not say.
pub fn is_known_to(tid: u32, set: RawFd, fd: RawFd) -> Option<bool> {
    const EPOLL_TARGET: libc::c_int = 7;
    #[repr(C)]
    struct Slot {
        set: u32,
        target: u32,
        offset: u32,
    }
    let slot = Slot {
        set: set.cast_unsigned(),
        target: fd.cast_unsigned(),
        offset: 0,
    };
    // SAFETY: the slot lives through the call, which reads it.
    let compared = unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            tid,
            tid,
            EPOLL_TARGET,
            libc::c_long::from(fd),
            &raw const slot,
        )
    };
    match check(compared) {
        Ok(order) => Some(order == 0),
        Err(Errno::NOENT) => Some(false),
        Err(_) => None,
    }
}

/// epoll_ctl(2) with an event as another process has it.
pub fn epoll_add(epoll: BorrowedFd<'_>, fd: RawFd, events: u32, data: u64) -> Result<(), Errno> {
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: the event lives through the call, which reads it.
    check(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) })
        .map(drop)
}

/// Takes a number out of an epoll set.
pub fn epoll_delete(epoll: BorrowedFd<'_>, fd: RawFd) -> Result<(), Errno> {
    // SAFETY: deleting takes no event.
    check(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, ptr::null_mut()) })
        .map(drop)
}

/// Asks `question` while `file` stands at a number of this process, which must have one thread; what stood
/// there is put back.
pub fn at_number<T>(
    number: RawFd,
    file: BorrowedFd<'_>,
    question: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    if file.as_raw_fd() == number {
        return question();
    }
    // SAFETY: the duplicate is nobody else's. EBADF: nothing stands at the number.
    let saved = unsafe {
        match check(libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3)) {
            Ok(saved) => Some(OwnedFd::from_raw_fd(saved)),
            Err(Errno::BADF) => None,
            Err(error) => return Err(error),
        }
    };
    replace(number, file)?;
    let answer = question();
    match saved {
        Some(saved) => replace(number, saved.as_fd())?,
        // SAFETY: the number was free before and stands for the duplicate that was put there.
        None => drop(unsafe { OwnedFd::from_raw_fd(number) }),
    }
    answer
}

/// Puts a file at a number, in place of what stood there: the caller is responsible for that.
pub fn replace(number: RawFd, file: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: a duplicate comes into being; its number's owner keeps owning it.
    check(unsafe { libc::dup3(file.as_raw_fd(), number, libc::O_CLOEXEC) }).map(drop)
}

/// What poll(2) says of a descriptor now.
pub fn poll_now(fd: RawFd) -> i16 {
    poll_for(fd, libc::POLLIN)
}

/// As `poll_now`, of these events.
pub fn poll_for(fd: RawFd, events: i16) -> i16 {
    let mut entry = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    // SAFETY: one entry, which lives through the call.
    unsafe { libc::poll(&raw mut entry, 1, 0) };
    entry.revents
}

/// Runs `child` in a process that is nobody's child: not this process's either, which may wait for all it has.
/// It ends with what `child` returns.
pub fn detach(child: impl FnOnce() -> i32) -> Result<(), Errno> {
    // SAFETY: the process has a single thread, so the child may do whatever this could. Between the two
    // forks nothing is done but to fork and end.
    let first = unsafe {
        let first = check(libc::fork())?;
        if first == 0 {
            match libc::fork() {
                0 => libc::_exit(child()),
                failed if failed < 0 => libc::_exit(1),
                _ => libc::_exit(0),
            }
        }
        first
    };
    let mut status = 0;
    // SAFETY: the status is ours.
    while unsafe { libc::waitpid(first, &raw mut status, 0) } < 0 {
        if last_error() != Errno::INTR {
            return Err(last_error());
        }
    }
    if status == 0 {
        Ok(())
    } else {
        Err(Errno::AGAIN)
    }
}

/// A session of its own, so that the terminal's signals are the program's alone, and a name in process lists.
pub fn stand_alone(name: &std::ffi::CStr) {
    // SAFETY: neither call touches memory, but for the name that it reads.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
    }
}

/// Closes every descriptor but the standard ones and `kept`.
pub fn close_others(kept: RawFd) {
    let kept = libc::c_uint::try_from(kept).unwrap_or(libc::c_uint::MAX);
    for (first, last) in [
        (3, kept.saturating_sub(1)),
        (kept.saturating_add(1), libc::c_uint::MAX),
    ] {
        if first <= last {
            // SAFETY: called in a forked child that uses none of these descriptors again and ends without
            // dropping their owners.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
}

/// What a system call returned, or its errno.
pub fn check<T: Into<i64> + Copy>(result: T) -> Result<T, Errno> {
    if result.into() < 0 {
        Err(last_error())
    } else {
        Ok(result)
    }
}

fn number(fd: libc::c_long) -> Result<RawFd, Errno> {
    RawFd::try_from(fd).map_err(|_| Errno::BADF)
}

fn last_error() -> Errno {
    // SAFETY: the location is valid for the life of the thread.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}

/// A number that no other socket has (SO_COOKIE).
pub fn cookie(socket: impl AsFd) -> Result<u64, Errno> {
    let mut value = [0; 8];
    backing::option(
        socket.as_fd(),
        libc::SOL_SOCKET,
        libc::SO_COOKIE,
        &mut value,
    )?;
    Ok(u64::from_ne_bytes(value))
}
