//! The functions of libc whose entries lead to this library (`entries`), and where what they did can still be called.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The names of the functions whose entries lead here, each known by its index: [`OF_LIBC`] that libc itself calls, then those that
/// only a caller reaches who finds libc's own symbols first: a library that was loaded with RTLD_DEEPBIND (the modules of PHP),
/// dlsym(3) with a handle of libc's (foreign functions of Python, Java, C#).
pub const NAMES: [&CStr; OF_LIBC + 15] = [
    c"read",
    c"readv",
    c"write",
    c"writev",
    c"close",
    c"recv",
    c"recvfrom",
    c"recvmsg",
    c"recvmmsg",
    c"send",
    c"sendto",
    c"sendmsg",
    c"sendmmsg",
    c"poll",
    c"socket",
    c"connect",
    c"bind",
    c"getsockname",
    c"getpeername",
    c"getsockopt",
    c"setsockopt",
    c"shutdown",
    c"ioctl",
    c"__read_nocancel",
    c"__write_nocancel",
    c"__close_nocancel",
    c"dup2",
    c"dup3",
    c"posix_spawn",
    c"listen",
    c"accept",
    c"accept4",
    c"select",
    c"pselect",
    c"ppoll",
    c"epoll_create",
    c"epoll_create1",
    c"epoll_ctl",
    c"epoll_wait",
    c"epoll_pwait",
    c"epoll_pwait2",
    c"sendfile",
    c"splice",
    c"dup",
];

/// How many functions libc itself calls.
pub const OF_LIBC: usize = 29;

/// An entry that leads here, 0 for none, and what it was.
struct Replaced {
    entry: AtomicUsize,
    original: AtomicUsize,
}

static ENTRIES: [Replaced; NAMES.len()] = [const {
    Replaced {
        entry: AtomicUsize::new(0),
        original: AtomicUsize::new(0),
    }
}; NAMES.len()];
static FROZEN: AtomicBool = AtomicBool::new(false);

/// Before the entry leads here: what stood there is at `original`.
pub fn note(place: usize, entry: usize, original: usize) {
    let replaced = &ENTRIES[place];
    replaced.original.store(original, Ordering::Release);
    replaced.entry.store(entry, Ordering::Release);
}

/// The entry does not lead here after all.
pub fn forget(place: usize) {
    ENTRIES[place].entry.store(0, Ordering::Release);
}

/// From now on libc's entries are as they will stay.
pub fn freeze() {
    FROZEN.store(true, Ordering::Release);
}

/// Whether libc's entries are as they will stay, so that an [`original`] may be remembered.
pub fn is_frozen() -> bool {
    FROZEN.load(Ordering::Acquire)
}

/// What is to be called for a function of libc that was found at `address`.
pub fn original(address: *mut c_void) -> *mut c_void {
    let found = ENTRIES
        .iter()
        .find(|replaced| replaced.entry.load(Ordering::Acquire) == address.addr());
    found.map_or(address, |replaced| {
        ptr::with_exposed_provenance_mut(replaced.original.load(Ordering::Acquire))
    })
}
