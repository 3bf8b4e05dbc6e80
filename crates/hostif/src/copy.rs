//! Copies between windows, rings and buffers.
//!
//! `rep movsb`, by which libc copies 2 KiB and more on processors that say that they do it fast, is slow on AMD's Zen 3 and 4 where the
//! target begins a few bytes behind the source within a page: 3 GB/s in place of 50 (measured on an EPYC 7003 with the C library of
//! Debian 12). A stream's pieces come to lie like that by chance, again and again.
#![allow(unsafe_code)]

/// Below this libc copies by vector registers, everywhere.
const PIECE_BYTES: usize = 2048;
const PAGE_BYTES: usize = 4096;
/// A target so many bytes or fewer behind its source, within a page, is copied slowly.
const NEAR_BYTES: usize = 31;

/// Copies `len` bytes.
///
/// # Safety
/// As [`core::ptr::copy_nonoverlapping`].
#[inline]
pub(crate) unsafe fn copy(source: *const u8, target: *mut u8, len: usize) {
    if len <= PIECE_BYTES || !is_near(source.addr(), target.addr()) {
        // SAFETY: the caller's promise.
        return unsafe { core::ptr::copy_nonoverlapping(source, target, len) };
    }
    let mut at = 0;
    while at < len {
        let piece = PIECE_BYTES.min(len - at);
        // SAFETY: part of what the caller has promised.
        unsafe { core::ptr::copy_nonoverlapping(source.add(at), target.add(at), piece) };
        at += piece;
    }
}

/// Bytes of a line of the processor's cache.
const LINE_BYTES: usize = 64;

/// Copies `len` bytes with stores that do not fetch what they overwrite: all of it can be read by others when this returns.
///
/// # Safety
/// As [`core::ptr::copy_nonoverlapping`].
pub(crate) unsafe fn copy_past_cache(source: *const u8, target: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        const WORDS: usize = LINE_BYTES / size_of::<__m128i>();
        let head = target.align_offset(LINE_BYTES).min(len);
        let lines = (len - head) / LINE_BYTES;
        let tail = head + lines * LINE_BYTES;
        // SAFETY: parts of what the caller has promised; the lines begin where the target is aligned. Every x86-64 processor has
        // these instructions, and the last one orders the stores before whatever comes next, as Rust's memory model asks for.
        unsafe {
            core::ptr::copy_nonoverlapping(source, target, head);
            for line in 0..lines {
                let at = head + line * LINE_BYTES;
                let from: *const __m128i = source.add(at).cast();
                let to: *mut __m128i = target.add(at).cast();
                let words: [__m128i; WORDS] =
                    core::array::from_fn(|word| _mm_loadu_si128(from.add(word)));
                for (word, value) in words.into_iter().enumerate() {
                    _mm_stream_si128(to.add(word), value);
                }
            }
            core::ptr::copy_nonoverlapping(source.add(tail), target.add(tail), len - tail);
            _mm_sfence();
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's promise.
    unsafe {
        copy(source, target, len);
    }
}

/// As `target.copy_from_slice(source)`.
///
/// # Panics
/// Where the lengths differ.
#[inline]
pub fn copy_slice(source: &[u8], target: &mut [u8]) {
    assert_eq!(
        source.len(),
        target.len(),
        "invariant: the caller cuts both to one length"
    );
    // SAFETY: both are of that length, and a unique borrow overlaps no other.
    unsafe { copy(source.as_ptr(), target.as_mut_ptr(), source.len()) };
}

/// Whether a target lies so that `rep movsb` is slow.
fn is_near(source: usize, target: usize) -> bool {
    let behind = target.wrapping_sub(source) % PAGE_BYTES;
    (1..=NEAR_BYTES).contains(&behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_distance_within_a_page_is_copied_whole() {
        let source: Vec<u8> = (0..=250).cycle().take(3 * PAGE_BYTES).collect();
        let mut target = vec![0; 4 * PAGE_BYTES];
        for distance in (0..64).chain([2000, 4064, 4095]) {
            for len in [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES, 9000] {
                target.fill(0);
                let start = source.as_ptr().addr().wrapping_sub(target.as_ptr().addr());
                let start = (start + distance) % PAGE_BYTES;
                copy_slice(&source[..len], &mut target[start..start + len]);
                assert_eq!(target[start..start + len], source[..len]);
                assert!(target[..start].iter().all(|byte| *byte == 0));
                assert!(target[start + len..].iter().all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn near_is_behind_the_source_within_a_page() {
        assert!(!is_near(4096, 8192));
        assert!(is_near(4096, 8193));
        assert!(is_near(4096 + 4090, 8192 + 5));
        assert!(is_near(4096, 8192 + 31));
        assert!(!is_near(4096, 8192 + 32));
        assert!(!is_near(8193, 4096));
    }
}
