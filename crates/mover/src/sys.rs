//! The calls that std does not have: send with flags, sendfile and splice by their libc names, so that a preloaded library sees them;
//! memory in huge pages.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::slice;
use std::time::{Duration, Instant};

use io_uring::IoUring;

/// How long a call is made again that fails for want of memory or of room, and how long a peer may be silent.
pub const SILENCE: Duration = Duration::from_secs(30);
/// Between two such calls.
const PAUSE: Duration = Duration::from_millis(5);

/// Decides whether a call that failed is made again.
#[derive(Debug)]
pub struct Retry {
    since: Instant,
}

impl Retry {
    /// Before the first try.
    pub fn new() -> Self {
        Self {
            since: Instant::now(),
        }
    }

    /// After a signal always; where memory or room is short (soft errors, socket(7)) until it has been so for too
    /// long. A call that timed out by itself has used that time up.
    pub fn again(&self, error: &io::Error) -> bool {
        match error.raw_os_error() {
            Some(libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN) => {
                let is_early = self.since.elapsed() < SILENCE;
                if is_early {
                    std::thread::sleep(PAUSE);
                }
                is_early
            }
            _ => error.kind() == io::ErrorKind::Interrupted,
        }
    }
}

/// Makes a call again where that helps; that nothing moved is an error of its own.
pub fn retried(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    let retry = Retry::new();
    loop {
        match call() {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if retry.again(&error) => {}
            result => return result,
        }
    }
}

/// What a call moved.
fn moved(count: isize) -> io::Result<usize> {
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

fn signed(offset: u64) -> io::Result<i64> {
    i64::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

/// send(2) of bytes that others will follow at once; how many left.
pub fn send_before_more(to: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_MORE | libc::MSG_NOSIGNAL;
    // SAFETY: the descriptor and the bytes are borrowed for the call.
    moved(unsafe { libc::send(to.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) })
}

/// sendfile(2) from an offset; how many bytes left.
pub fn sendfile(
    to: BorrowedFd<'_>,
    from: BorrowedFd<'_>,
    offset: u64,
    len: usize,
) -> io::Result<usize> {
    let mut offset = signed(offset)?;
    // SAFETY: both descriptors are borrowed for the call, and the offset is a local.
    moved(unsafe { libc::sendfile64(to.as_raw_fd(), from.as_raw_fd(), &raw mut offset, len) })
}

/// splice(2), with offsets where there are any, and its flags.
pub fn splice(
    from: BorrowedFd<'_>,
    from_offset: Option<u64>,
    to: BorrowedFd<'_>,
    to_offset: Option<u64>,
    len: usize,
    flags: libc::c_uint,
) -> io::Result<usize> {
    let mut from_offset = from_offset.map(signed).transpose()?;
    let mut to_offset = to_offset.map(signed).transpose()?;
    let pointer = |offset: &mut Option<i64>| {
        offset
            .as_mut()
            .map_or(std::ptr::null_mut(), std::ptr::from_mut)
    };
    // SAFETY: both descriptors are borrowed for the call, and the offsets are locals, where there are any.
    moved(unsafe {
        libc::splice(
            from.as_raw_fd(),
            pointer(&mut from_offset),
            to.as_raw_fd(),
            pointer(&mut to_offset),
            len,
            flags,
        )
    })
}

/// splice(2) from a socket to an offset of a file, without a pipe, which only Shunt's sockets have: out of their receive
/// windows. `STRAIGHT` in `shim/src/calls/splice.rs` is this flag; the kernel answers EINVAL.
pub fn splice_straight(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: u64,
    len: usize,
) -> io::Result<usize> {
    const STRAIGHT: libc::c_uint = 1 << 30;
    splice(socket, None, file, Some(offset), len, STRAIGHT)
}

/// Asks the kernel to begin to write a range back (sync_file_range(2)); a wish.
pub fn begin_write_back(file: BorrowedFd<'_>, offset: u64, len: u64) {
    sync_range(file, offset, len, libc::SYNC_FILE_RANGE_WRITE);
}

/// Waits until a range is written back; where that cannot be had, nothing.
pub fn finish_write_back(file: BorrowedFd<'_>, offset: u64, len: u64) {
    let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_range(file, offset, len, all);
}

fn sync_range(file: BorrowedFd<'_>, offset: u64, len: u64, flags: u32) {
    if let (Ok(offset), Ok(len)) = (signed(offset), signed(len)) {
        // SAFETY: the descriptor is borrowed for the call; the rest are numbers.
        unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, flags) };
    }
}

/// Waits until one of the two is readable; which ones are.
pub fn poll_two(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> io::Result<(bool, bool)> {
    let entry = |fd: BorrowedFd<'_>| libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut both = [entry(one), entry(other)];
    let retry = Retry::new();
    loop {
        // SAFETY: an array of two entries, borrowed for the call.
        if unsafe { libc::poll(both.as_mut_ptr(), 2, -1) } >= 0 {
            return Ok((both[0].revents != 0, both[1].revents != 0));
        }
        let error = io::Error::last_os_error();
        if !retry.again(&error) {
            return Err(error);
        }
    }
}

/// Bytes that can be read from a socket without waiting (FIONREAD); `None`: it cannot say.
fn readable_bytes(socket: BorrowedFd<'_>) -> Option<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the descriptor is borrowed for the call, and the count is a local.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &raw mut count) };
    (result == 0).then(|| usize::try_from(count).unwrap_or(0))
}

fn set_low_water(socket: BorrowedFd<'_>, bytes: usize) -> bool {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVLOWAT);
    set_option(socket, level, name, &bytes.to_ne_bytes()).is_ok()
}

/// setsockopt(2) with a value of these bytes.
pub fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &[u8],
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(value.len()).unwrap_or(0);
    // SAFETY: the descriptor is borrowed for the call, and the value has the length that is said.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), len) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Has a socket send without pacing, where its path has no length: reno, which every kernel has and lets everybody choose
/// (tcp(7)). A wish.
pub fn do_not_pace(socket: BorrowedFd<'_>) {
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
    let _ = set_option(socket, level, name, b"reno");
}

/// Hands what is queued to the kernel and waits for so many completions, past signals and soft errors.
pub fn submit(ring: &IoUring, wanted: usize) -> io::Result<()> {
    let retry = Retry::new();
    loop {
        match ring.submit_and_wait(wanted) {
            Ok(_) => return Ok(()),
            Err(error) if retry.again(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Where fewer than `enough` bytes can be read, waits until `wanted` of them are there or the connection ends
/// (SO_RCVLOWAT, socket(7)): to be woken for each segment costs more than to copy it. So many must be certain to come.
pub fn gather(socket: BorrowedFd<'_>, enough: usize, wanted: usize) -> io::Result<()> {
    let is_there = readable_bytes(socket).is_none_or(|count| count >= enough);
    if is_there || !set_low_water(socket, wanted) {
        return Ok(());
    }
    let waited = await_readable(socket);
    set_low_water(socket, 1);
    waited
}

/// Has the system make a receiving window this wide, as far as it lets (tcp_rmem, tcp(7)): it does for a low-water mark,
/// and goes on to tune it, which it does not after SO_RCVBUF. A wish.
pub fn widen(socket: BorrowedFd<'_>, bytes: usize) {
    if set_low_water(socket, bytes) {
        set_low_water(socket, 1);
    }
}

fn await_readable(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut entry = libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let retry = Retry::new();
    loop {
        // SAFETY: one entry, borrowed for the call.
        if unsafe { libc::poll(&raw mut entry, 1, -1) } >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if !retry.again(&error) {
            return Err(error);
        }
    }
}

/// Processor time of the calling thread, in microseconds.
pub fn thread_cpu_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * 1_000_000 + part(time.tv_nsec) / 1_000
}

/// What a thread has used so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Processor time.
    pub cpu: Duration,
    /// Times that it gave its processor away, because it had to wait.
    pub voluntary_switches: u64,
    /// Times that its processor was taken away.
    pub involuntary_switches: u64,
}

impl Spent {
    /// Of the calling thread.
    pub fn of_thread() -> Self {
        // SAFETY: all-zero bytes are a value of this plain structure.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is a local that the call fills; it cannot fail with these arguments.
        unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
        let count = |value: i64| u64::try_from(value).unwrap_or(0);
        Self {
            cpu: Duration::from_micros(thread_cpu_us()),
            voluntary_switches: count(usage.ru_nvcsw),
            involuntary_switches: count(usage.ru_nivcsw),
        }
    }
}

impl std::ops::Sub for Spent {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            voluntary_switches: self.voluntary_switches - before.voluntary_switches,
            involuntary_switches: self.involuntary_switches - before.involuntary_switches,
        }
    }
}

/// Memory of its own mapping, aligned to a huge page where it is that long.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    len: usize,
}

/// Bytes of a huge page.
const HUGE_BYTES: usize = 2 << 20;

// SAFETY: the mapping belongs to this value alone, and bytes have no thread.
unsafe impl Send for Memory {}

impl Memory {
    /// So many bytes, zero; in huge pages where the system has any.
    pub fn new(len: usize) -> io::Result<Self> {
        let whole = len.next_multiple_of(HUGE_BYTES) + HUGE_BYTES;
        // SAFETY: an anonymous mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                whole,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let begin = base as usize;
        let aligned = begin.next_multiple_of(HUGE_BYTES);
        let kept = len.next_multiple_of(HUGE_BYTES);
        // SAFETY: the two ranges are the parts of the mapping outside the aligned one; nobody has seen them.
        unsafe {
            if aligned > begin {
                libc::munmap(base, aligned - begin);
            }
            let rest = begin + whole - (aligned + kept);
            if rest > 0 {
                libc::munmap((aligned + kept) as *mut c_void, rest);
            }
            // A wish; without it the pages are small.
            libc::madvise(aligned as *mut c_void, kept, libc::MADV_HUGEPAGE);
        }
        let start = NonNull::new(aligned as *mut u8).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is that long, initialised, and borrowed through `self` alone. Callers keep a part
        // that a direct write reads from out of others' hands: see `DirectWriter`.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let len = self.len.next_multiple_of(HUGE_BYTES);
        // SAFETY: the mapping is ours and nobody borrows it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), len) };
    }
}
