//! Mappings of files, and the SIGBUS of those that are cut off: see sigaction(2) and mmap(2).

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Mappings at one time; whoever finds no place reads instead.
const PLACES: usize = 256;

/// The system maps so much around a place that is looked at, if the page cache has it (fault_around_bytes). To look once in
/// so many bytes costs a fifth less than MADV_POPULATE_READ, which asks for page after page.
const AROUND_BYTES: usize = 64 << 10;

/// Where a mapping lies, for the signal's handler. `start` is written last and cleared first.
struct MappedRange {
    is_taken: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    is_torn: AtomicBool,
}

static TABLE: [MappedRange; PLACES] = [const {
    MappedRange {
        is_taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        is_torn: AtomicBool::new(false),
    }
}; PLACES];

/// What the handler has to know beside them.
struct Installed {
    before: libc::sigaction,
    page_bytes: usize,
}

/// `None`: the handler could not be installed.
static INSTALLED: OnceLock<Option<Installed>> = OnceLock::new();

/// A part of a file, read only.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    place: usize,
    page_bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, and bytes have no thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes from `offset`, a multiple of a page.
    pub fn new(file: BorrowedFd<'_>, offset: u64, len: usize) -> Option<Self> {
        let page_bytes = INSTALLED.get_or_init(install).as_ref()?.page_bytes;
        let offset = i64::try_from(offset).ok()?;
        let place = TABLE
            .iter()
            .position(|place| !place.is_taken.swap(true, Ordering::AcqRel))?;
        // SAFETY: a new mapping at an address of the kernel's choice; the descriptor is borrowed for the call.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        let start = (base != libc::MAP_FAILED)
            .then(|| NonNull::new(base.cast::<u8>()))
            .flatten();
        let Some(start) = start else {
            TABLE[place].is_taken.store(false, Ordering::Release);
            return None;
        };
        let address = start.as_ptr() as usize;
        TABLE[place].is_torn.store(false, Ordering::Relaxed);
        TABLE[place].end.store(address + len, Ordering::Relaxed);
        TABLE[place].start.store(address, Ordering::Release);
        Some(Self {
            start,
            len,
            place,
            page_bytes,
        })
    }

    /// Some of its bytes, brought in; `None`: they are not there.
    pub fn bytes(&self, at: usize, len: usize) -> Option<&[u8]> {
        let last = at.checked_add(len).filter(|until| *until <= self.len)?;
        for place in (at..last).step_by(AROUND_BYTES).chain(last.checked_sub(1)) {
            // SAFETY: the place lies within the mapping; where the file has nothing there, the handler sees to it.
            unsafe { self.start.as_ptr().add(place).read_volatile() };
        }
        if self.is_torn() {
            return None;
        }
        // SAFETY: the range lies within the mapping, which lives as long as `self`. Its bytes are initialised: the
        // file's, or zeros that the handler put there. Somebody may write the file meanwhile: what is made of the
        // bytes is a hash, which is then wrong, and the receiver says so.
        Some(unsafe { slice::from_raw_parts(self.start.as_ptr().add(at), len) })
    }

    /// Takes the pages of a range out of the page tables; a wish.
    pub fn release(&self, at: usize, len: usize) {
        let first = at.next_multiple_of(self.page_bytes);
        let until = at.saturating_add(len).min(self.len);
        if first < until {
            // SAFETY: the range lies within the mapping; what it shows is the file's, before and after.
            unsafe {
                let from = self.start.as_ptr().add(first);
                libc::madvise(from.cast::<c_void>(), until - first, libc::MADV_DONTNEED);
            }
        }
    }

    /// Whether a page was gone when it was looked at.
    pub fn is_torn(&self) -> bool {
        TABLE[self.place].is_torn.load(Ordering::Acquire)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let place = &TABLE[self.place];
        place.start.store(0, Ordering::Release);
        // SAFETY: the mapping is ours and nobody borrows it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        place.is_taken.store(false, Ordering::Release);
    }
}

/// Asks the processor to fetch these bytes, where it can be asked: by itself it does not run ahead across pages.
pub fn prefetch(bytes: &[u8]) {
    const LINE_BYTES: usize = 64;
    for line in bytes.chunks(LINE_BYTES) {
        // SAFETY: a hint, which never faults.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(
                line.as_ptr().cast(),
            );
        }
    }
}

fn install() -> Option<Installed> {
    // SAFETY: all-zero bytes are a value of this plain structure: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void) = on_bus_error;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: as above.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both are locals; the handler does nothing but what signal-safety(7) allows.
    let result = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut before) };
    (result == 0).then(|| Installed {
        before,
        page_bytes: rustix::param::page_size(),
    })
}

/// Puts a page of zeros where a file's is gone; what is not ours goes to whoever had the signal before.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo_t to a handler with SA_SIGINFO, and SIGBUS has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    let place = TABLE.iter().find(|place| {
        let start = place.start.load(Ordering::Acquire);
        start != 0 && (start..place.end.load(Ordering::Relaxed)).contains(&address)
    });
    if let (Some(place), Some(Some(installed))) = (place, INSTALLED.get()) {
        let page_bytes = installed.page_bytes;
        // SAFETY: errno of this thread; the call below must not change it for whoever was interrupted.
        let errno = unsafe { *libc::__errno_location() };
        // SAFETY: the page lies in a mapping of this module, which the interrupted thread reads from and which so lives;
        // it takes the place of one that cannot be read.
        let page = unsafe {
            libc::mmap(
                (address - address % page_bytes) as *mut c_void,
                page_bytes,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
        if page != libc::MAP_FAILED {
            place.is_torn.store(true, Ordering::Release);
            return;
        }
    }
    pass_on(signal, info, context);
}

/// As if this handler was not there.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = INSTALLED.get().and_then(Option::as_ref);
    match before.map(|installed| installed.before) {
        Some(before)
            if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN =>
        {
            if before.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: that is what a handler installed with SA_SIGINFO is.
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void) =
                    unsafe { std::mem::transmute(before.sa_sigaction) };
                handler(signal, info, context);
            } else {
                // SAFETY: that is what a handler installed without SA_SIGINFO is.
                let handler: extern "C" fn(libc::c_int) =
                    unsafe { std::mem::transmute(before.sa_sigaction) };
                handler(signal);
            }
        }
        // The instruction runs again and ends the program.
        // SAFETY: sets a default.
        _ => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
    }
}
