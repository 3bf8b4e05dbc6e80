//! Views of shared memory: words as atomics, window bytes as raw spans.
//!
//! Everything unsafe about reading memory that another process writes is here. Words are atomics, so
//! any value is fine and races are defined. Bytes are copied with raw pointers, never through
//! references, because the other side may write them at the same time. This file maps nothing.
#![allow(unsafe_code)]

use core::any::Any;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use std::sync::Arc;

use crate::copy::{copy, copy_past_cache};
use crate::sync::AtomicU64;

/// A run of shared words that keeps the memory it lies in alive.
pub struct Cells {
    first: NonNull<AtomicU64>,
    len: usize,
    owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the words are atomics and the owner is Send and Sync.
unsafe impl Send for Cells {}
// SAFETY: as above.
unsafe impl Sync for Cells {}

impl Cells {
    /// Words at `first`, which stay valid while `owner` lives.
    ///
    /// # Safety
    /// `first` is aligned for a word and `len` words from it stay mapped until `owner`
    /// is dropped, and writable unless nobody here stores to them; nobody in this process accesses them other than as atomics.
    #[cfg(not(loom))]
    pub(crate) unsafe fn from_raw(
        owner: Arc<dyn Any + Send + Sync>,
        first: NonNull<AtomicU64>,
        len: usize,
    ) -> Cells {
        Cells { first, len, owner }
    }

    /// Words of private memory, for tests and for engines inside their program.
    #[must_use]
    pub fn private(len: usize) -> Cells {
        let words: Box<[AtomicU64]> = (0..len).map(|_| AtomicU64::new(0)).collect();
        let owner = Arc::new(words);
        let first = NonNull::from(&**owner).cast();
        Cells { first, len, owner }
    }
}

impl Clone for Cells {
    fn clone(&self) -> Cells {
        Cells {
            first: self.first,
            len: self.len,
            owner: Arc::clone(&self.owner),
        }
    }
}

impl Deref for Cells {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the maker promised `len` aligned words that live as long as `owner`, which this
        // value holds; atomics need no exclusive access.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

/// Bytes that another process may write meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct SharedBytes<'a> {
    first: NonNull<u8>,
    len: usize,
    memory: PhantomData<&'a [core::cell::UnsafeCell<u8>]>,
}

// SAFETY: only raw copies are made of the bytes; whoever makes them races with other processes anyway,
// and every value of a byte is valid.
unsafe impl Send for SharedBytes<'_> {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes<'_> {}

#[cfg_attr(loom, allow(dead_code))]
impl<'s> SharedBytes<'s> {
    /// # Safety
    /// `len` bytes from `first` stay mapped and writable for the lifetime.
    pub(crate) unsafe fn from_raw<'a>(first: NonNull<u8>, len: usize) -> SharedBytes<'a> {
        SharedBytes {
            first,
            len,
            memory: PhantomData,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Address of byte `at`; `at` may be the end.
    pub(crate) fn address(&self, at: usize) -> *mut u8 {
        assert!(
            at <= self.len,
            "invariant: positions are masked before they come here"
        );
        // SAFETY: `at` is within the span or at its end.
        unsafe { self.first.as_ptr().add(at) }
    }

    /// `len` bytes from `at` on.
    pub(crate) fn part(&self, at: usize, len: usize) -> SharedBytes<'s> {
        assert!(
            at <= self.len && len <= self.len - at,
            "invariant: positions are masked before they come here"
        );
        // SAFETY: within the span, whose bytes the maker has vouched for.
        let first = unsafe { self.first.add(at) };
        SharedBytes {
            first,
            len,
            memory: PhantomData,
        }
    }

    /// Copies `data` to position `at`; what does not fit is left out.
    pub(crate) fn copy_in(&self, at: usize, data: &[u8]) {
        let len = data.len().min(self.len.saturating_sub(at));
        // SAFETY: the destination is `len` mapped bytes; `data` is this process's own memory and
        // cannot overlap a mapping that no reference covers.
        unsafe { copy(data.as_ptr(), self.address(at.min(self.len)), len) }
    }

    /// As [`SharedBytes::copy_in`], with stores that do not fetch what they overwrite.
    pub(crate) fn copy_in_past_cache(&self, at: usize, data: &[u8]) {
        let len = data.len().min(self.len.saturating_sub(at));
        // SAFETY: as above.
        unsafe { copy_past_cache(data.as_ptr(), self.address(at.min(self.len)), len) }
    }

    /// Copies from position `at` into `data`; what lies beyond the end is left out.
    pub(crate) fn copy_out(&self, at: usize, data: &mut [u8]) {
        let len = data.len().min(self.len.saturating_sub(at));
        // SAFETY: the source is `len` mapped bytes and `data` is exclusively ours.
        unsafe { copy(self.address(at.min(self.len)), data.as_mut_ptr(), len) }
    }
}
