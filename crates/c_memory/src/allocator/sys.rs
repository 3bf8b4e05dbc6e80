//! The allocator of everything in whatever links this crate.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{MapFlags, MremapFlags, ProtFlags};

use super::{BLOCK, PAGE, SIZES, SMALLEST, size_of_piece};

#[global_allocator]
static OURS: Ours = Ours {
    is_taken: AtomicBool::new(false),
    state: UnsafeCell::new(State {
        free: [ptr::null_mut(); SIZES],
        next: ptr::null_mut(),
        left: 0,
    }),
};

/// How often a thread looks whether the lock is free before it lets others run.
const LOOKS: u32 = 100;

struct Ours {
    is_taken: AtomicBool,
    state: UnsafeCell<State>,
}

struct State {
    /// Pieces of each size that are free; each begins with the address of the next.
    free: [*mut u8; SIZES],
    /// What is left of the newest block.
    next: *mut u8,
    left: usize,
}

// SAFETY: the state is touched only by who has taken the lock.
unsafe impl Sync for Ours {}

/// Before fork(2): no other thread is in the middle of an allocation in the child.
pub fn hold() {
    OURS.lock();
}

/// After it, in both.
pub fn release() {
    OURS.unlock();
}

impl Ours {
    fn lock(&self) {
        let mut looks = 0_u32;
        while self.is_taken.swap(true, Ordering::Acquire) {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS) {
                rustix::thread::sched_yield();
            }
            core::hint::spin_loop();
        }
    }

    fn unlock(&self) {
        self.is_taken.store(false, Ordering::Release);
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        self.lock();
        // SAFETY: the lock is taken; nothing in `work` allocates.
        let result = work(unsafe { &mut *self.state.get() });
        self.unlock();
        result
    }
}

impl State {
    fn take(&mut self, size: usize) -> *mut u8 {
        let first = self.free[size];
        if !first.is_null() {
            // SAFETY: a free piece begins with the address of the next one.
            self.free[size] = unsafe { first.cast::<*mut u8>().read() };
            return first;
        }
        let bytes = SMALLEST << size;
        // Blocks begin on a page, so that a piece of at most a page lies at a multiple of its size; what is left over by
        // that stays unused.
        let skipped = self.next.align_offset(bytes.min(PAGE));
        if self.left < skipped + bytes {
            let Some(block) = map(BLOCK) else {
                return ptr::null_mut();
            };
            (self.next, self.left) = (block, BLOCK);
            return self.cut(0, bytes);
        }
        self.cut(skipped, bytes)
    }

    fn cut(&mut self, skipped: usize, bytes: usize) -> *mut u8 {
        let piece = self.next.wrapping_add(skipped);
        self.next = piece.wrapping_add(bytes);
        self.left -= skipped + bytes;
        piece
    }

    fn give_back(&mut self, piece: *mut u8, size: usize) {
        // SAFETY: the piece is free and has room for an address.
        unsafe { piece.cast::<*mut u8>().write(self.free[size]) };
        self.free[size] = piece;
    }
}

/// New memory full of zeros, at the start of a page.
fn map(bytes: usize) -> Option<*mut u8> {
    // SAFETY: a new private mapping, wherever the system likes.
    let mapped = unsafe {
        rustix::mm::mmap_anonymous(
            ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    };
    mapped.ok().map(<*mut std::ffi::c_void>::cast)
}

// SAFETY: pieces and mappings are as long as asked for and nobody else's until they are given back; a piece of at most a page
// lies at a multiple of its size, and larger ones and mappings at the start of a page, which is all the alignment that is granted.
unsafe impl GlobalAlloc for Ours {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > PAGE {
            return ptr::null_mut();
        }
        match size_of_piece(layout.size(), layout.align()) {
            Some(size) => self.with(|state| state.take(size)),
            None => map(layout.size()).unwrap_or(ptr::null_mut()),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        let place = unsafe { self.alloc(layout) };
        let is_piece = size_of_piece(layout.size(), layout.align()).is_some();
        if is_piece && !place.is_null() {
            // SAFETY: as long as asked for.
            unsafe { ptr::write_bytes(place, 0, layout.size()) };
        }
        place
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        match size_of_piece(layout.size(), layout.align()) {
            Some(size) => self.with(|state| state.give_back(place, size)),
            // SAFETY: mapped by `alloc` with this length, and used by nobody any more.
            None => unsafe {
                let _ = rustix::mm::munmap(place.cast(), layout.size());
            },
        }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let (old, new) = (
            size_of_piece(layout.size(), layout.align()),
            size_of_piece(bytes, layout.align()),
        );
        if old.is_some() && old == new {
            return place;
        }
        if old.is_none() && new.is_none() {
            // SAFETY: mapped by `alloc` with this length, and used at its new place from now on.
            let moved = unsafe {
                rustix::mm::mremap(place.cast(), layout.size(), bytes, MremapFlags::MAYMOVE)
            };
            return moved.map_or(ptr::null_mut(), <*mut std::ffi::c_void>::cast);
        }
        // SAFETY: the caller's contract: the new size is not 0 and, rounded up to the alignment, no overflow.
        let next = unsafe { self.alloc(Layout::from_size_align_unchecked(bytes, layout.align())) };
        if !next.is_null() {
            // SAFETY: both are as long as what is copied, and different.
            unsafe {
                ptr::copy_nonoverlapping(place, next, layout.size().min(bytes));
                self.dealloc(place, layout);
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn memory_of_all_sizes_is_whole_and_grows() {
        for bytes in [1_usize, 15, 17, 4000, 32_768, 32_769, 1 << 20] {
            let mut grown: Vec<u8> = vec![0; bytes];
            assert!(grown.iter().all(|byte| *byte == 0));
            grown.fill(7);
            grown.extend_from_slice(&vec![9; 2 * bytes]);
            assert!(grown[..bytes].iter().all(|byte| *byte == 7));
            assert!(grown[bytes..].iter().all(|byte| *byte == 9));
            grown.truncate(bytes);
            grown.shrink_to_fit();
            assert!(grown.iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn threads_never_share_a_piece() {
        std::thread::scope(|scope| {
            for mark in 0..4_u8 {
                scope.spawn(move || {
                    let mut held: Vec<Vec<u8>> = Vec::new();
                    for turn in 0..5_000_usize {
                        held.push(vec![mark; 1 + turn * 7 % 300]);
                        if turn % 3 == 0 {
                            let one = held.swap_remove(turn % held.len());
                            assert!(one.iter().all(|byte| *byte == mark));
                        }
                    }
                    assert!(held.iter().flatten().all(|byte| *byte == mark));
                });
            }
        });
    }
}
