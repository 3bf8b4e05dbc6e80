//! [`SharedSlice`], a span of memory that another process may be writing. This file does not map memory; whoever maps a
//! region makes the spans.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// A span of readable memory whose bytes may change at any time, because another process can write
/// them. It is never turned into a `&[u8]`: it can only be copied out, or given to the system.
#[derive(Clone, Copy)]
pub struct SharedSlice<'a> {
    start: *const u8,
    len: usize,
    /// Only the kernel may read it: it lies in a mapped file, which somebody can cut short.
    is_for_kernel: bool,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> SharedSlice<'a> {
    /// A span of memory that may be shared with another process.
    ///
    /// # Safety
    /// `start..start + len` must stay mapped and readable for `'a`, and must not be written
    /// through a Rust reference of this process meanwhile. Writes by another process, or through
    /// atomics and raw pointers, are allowed: they change which bytes are sent, nothing else.
    #[must_use]
    pub unsafe fn from_raw(start: *const u8, len: usize) -> Self {
        Self {
            start,
            len,
            is_for_kernel: false,
            memory: PhantomData,
        }
    }

    /// The same span, which only the kernel may read (see `Caps::payload_by_address`).
    #[must_use]
    pub fn for_kernel(self) -> Self {
        Self {
            is_for_kernel: true,
            ..self
        }
    }

    /// Whether only the kernel may read it.
    #[must_use]
    pub fn is_for_kernel(&self) -> bool {
        self.is_for_kernel
    }

    /// Bytes in the span.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the span has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it begins at a multiple of `align`, as [`Caps::align`](crate::driver::Caps::align) may ask.
    #[must_use]
    pub fn is_at_multiple_of(&self, align: u16) -> bool {
        self.start.addr().is_multiple_of(usize::from(align.max(1)))
    }

    /// Copies the whole span to the start of `target` and returns how many bytes that was.
    ///
    /// # Panics
    /// If `target` is shorter than the span.
    pub fn copy_to(&self, target: &mut [u8]) -> usize {
        // SAFETY: bytes that were written are a valid case of bytes that may not have been, and none is made unwritten.
        self.copy_to_unwritten(unsafe {
            &mut *(std::ptr::from_mut(target) as *mut [MaybeUninit<u8>])
        })
    }

    /// As [`Self::copy_to`], to where nothing was written yet.
    ///
    /// # Panics
    /// As there.
    #[inline]
    pub fn copy_to_unwritten(&self, target: &mut [MaybeUninit<u8>]) -> usize {
        let target = &mut target[..self.len];
        // SAFETY: the source is mapped and readable for `'a` (from_raw, or a borrow of a slice),
        // the target is a unique borrow of exactly `len` bytes, so the two cannot overlap. A
        // racing writer changes which bytes are copied; nothing is decided on the source's bytes.
        unsafe { std::ptr::copy_nonoverlapping(self.start, target.as_mut_ptr().cast(), self.len) };
        self.len
    }

    /// Appends the whole span to `target`; allocates only if the capacity does not suffice.
    pub fn append_to(&self, target: &mut Vec<u8>) {
        let before = target.len();
        target.resize(before + self.len, 0);
        self.copy_to(&mut target[before..]);
    }

    /// The first `at` bytes and the rest, or the whole span and nothing if it is shorter.
    #[must_use]
    pub fn split_at(self, at: usize) -> (SharedSlice<'a>, SharedSlice<'a>) {
        let at = at.min(self.len);
        // SAFETY: `at <= len`, so it lies inside this span or at its end.
        let middle = unsafe { self.start.add(at) };
        let part = |start, len| Self { start, len, ..self };
        (part(self.start, at), part(middle, self.len - at))
    }

    /// The span as the system's gather calls take it; it is read by the kernel only.
    #[must_use]
    pub(crate) fn as_iovec(&self) -> libc::iovec {
        libc::iovec {
            iov_base: self.start.cast_mut().cast(),
            iov_len: self.len,
        }
    }

    /// The start of the span, for copies into shared memory in a driver's `sys.rs`.
    #[must_use]
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.start
    }
}

impl<'a> From<&'a [u8]> for SharedSlice<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        // SAFETY: a borrowed slice is mapped, readable and unwritten for its lifetime.
        unsafe { Self::from_raw(bytes.as_ptr(), bytes.len()) }
    }
}

impl Default for SharedSlice<'_> {
    fn default() -> Self {
        Self::from(&[][..])
    }
}

impl fmt::Debug for SharedSlice<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SharedSlice({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_copied_whole_and_in_order() {
        let source = [1_u8, 2, 3, 4, 5];
        let span = SharedSlice::from(&source[..]);
        let mut target = [9_u8; 7];
        assert_eq!(span.copy_to(&mut target), 5);
        assert_eq!(target, [1, 2, 3, 4, 5, 9, 9]);
        let mut list = vec![0_u8];
        span.append_to(&mut list);
        assert_eq!(list, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn a_short_target_is_refused() {
        let mut target = [0_u8; 2];
        SharedSlice::from(&[1_u8, 2, 3][..]).copy_to(&mut target);
    }

    #[test]
    fn splitting_past_the_end_leaves_the_rest_empty() {
        let source = [1_u8, 2, 3];
        let (left, right) = SharedSlice::from(&source[..]).split_at(2);
        assert_eq!((left.len(), right.len()), (2, 1));
        let mut byte = [0_u8];
        right.copy_to(&mut byte);
        assert_eq!(byte, [3]);
        let (left, right) = SharedSlice::from(&source[..]).split_at(9);
        assert_eq!((left.len(), right.is_empty()), (3, true));
    }
}
