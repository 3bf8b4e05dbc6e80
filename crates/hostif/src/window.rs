//! A stream's bytes in shared memory: byte `k` of the stream lies at `offset + ((k - base) mod size)`, where the stream offset `base`
//! lies at the beginning of the window; 0, unless it has begun anew.
//!
//! A window holds the last `size` bytes of a stream, in order or not; which of them are valid is known
//! from the positions in headers and descriptors, not here. Bytes are copied or handed out as raw spans
//! for gather I/O, since the other side may write them meanwhile.

use crate::cursor::SharedBytes;

/// Where a window lies in its region. Comes from the engine; checked by `Region::window`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WindowSpan {
    /// Byte offset in the region.
    pub offset: u64,
    /// Bytes; a power of two.
    pub size: u32,
}

/// Bytes of a window, by address: for calls that gather or scatter. The other side may write them at any time, so
/// that nobody makes a reference of them.
#[derive(Clone, Copy)]
pub struct Span<'a> {
    bytes: SharedBytes<'a>,
}

impl Span<'_> {
    /// Where they are; valid, readable and writable, for the lifetime of the span.
    #[must_use]
    pub fn start(&self) -> *mut u8 {
        self.bytes.address(0)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address and length.
    #[must_use]
    pub fn raw(self) -> (*mut u8, usize) {
        (self.start(), self.len())
    }
}

/// A checked window.
#[derive(Clone, Copy)]
pub struct Window<'a> {
    bytes: SharedBytes<'a>,
    base: u64,
}

impl<'a> Window<'a> {
    /// The caller has checked that the length is a power of two.
    pub(crate) fn new(bytes: SharedBytes<'a>) -> Window<'a> {
        Window { bytes, base: 0 }
    }

    /// The same memory, for a stream whose offset `base` lies at its beginning.
    #[must_use]
    #[inline(always)]
    pub fn beginning_at(self, base: u64) -> Self {
        Self { base, ..self }
    }

    /// Bytes that the window holds.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Position of a stream offset, and how many of `len` bytes lie there before the wrap and after it.
    #[inline]
    fn split(&self, offset: u64, len: usize) -> (usize, usize, usize) {
        let size = self.bytes.len();
        let at = usize::try_from(offset.wrapping_sub(self.base) & (size as u64 - 1))
            .expect("invariant: a masked offset is below the size");
        let len = len.min(size);
        let first = len.min(size - at);
        (at, first, len - first)
    }

    /// Places `data` at a stream offset and returns how many bytes that was: no more than the size.
    #[inline(always)]
    pub fn copy_in(&self, offset: u64, data: &[u8]) -> usize {
        let (at, first, second) = self.split(offset, data.len());
        self.bytes.copy_in(at, &data[..first]);
        if second > 0 {
            self.bytes.copy_in(0, &data[first..first + second]);
        }
        first + second
    }

    /// As [`Window::copy_in`], with stores that do not fetch what they overwrite.
    pub fn copy_in_past_cache(&self, offset: u64, data: &[u8]) -> usize {
        let (at, first, second) = self.split(offset, data.len());
        self.bytes.copy_in_past_cache(at, &data[..first]);
        if second > 0 {
            self.bytes
                .copy_in_past_cache(0, &data[first..first + second]);
        }
        first + second
    }

    /// Reads bytes at a stream offset into `data` and returns how many: no more than the size.
    pub fn copy_out(&self, offset: u64, data: &mut [u8]) -> usize {
        let (at, first, second) = self.split(offset, data.len());
        self.bytes.copy_out(at, &mut data[..first]);
        if second > 0 {
            self.bytes.copy_out(0, &mut data[first..first + second]);
        }
        first + second
    }

    /// The addresses of `len` bytes at a stream offset (no more than the size), for gather I/O. The
    /// second span is empty unless they wrap.
    #[must_use]
    pub fn spans(&self, offset: u64, len: usize) -> [Span<'a>; 2] {
        let (at, first, second) = self.split(offset, len);
        [(at, first), (0, second)].map(|(at, len)| Span {
            bytes: self.bytes.part(at, len),
        })
    }
}

/// Whether a socket counts as writable with `used` of `size` bytes of its send window taken: as in
/// Linux, when at least half as much is free as is used (`sk_stream_is_writeable`).
#[must_use]
pub fn is_writable(size: u32, used: u64) -> bool {
    u64::from(size).saturating_sub(used) >= used / 2 && used < u64::from(size)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Region;

    proptest! {
        #[test]
        fn a_window_behaves_as_a_modular_array(
            start: u64,
            base: u64,
            writes in proptest::collection::vec((0u64..9000, 0usize..5000), 1..8),
        ) {
            let region = Region::small(4096);
            let (span, _) = region.window_pair(1).unwrap();
            let window = region.window(span).unwrap().beginning_at(base);
            let mut oracle = vec![0u8; 4096];
            for (number, (delta, len)) in writes.into_iter().enumerate() {
                let offset = start.wrapping_add(delta);
                let data: Vec<u8> = (0..len).map(|i| (i * 7 + number + 1).to_le_bytes()[0]).collect();
                let copied = match number % 2 {
                    0 => window.copy_in(offset, &data),
                    _ => window.copy_in_past_cache(offset, &data),
                };
                prop_assert_eq!(copied, len.min(4096));
                for (i, byte) in data.iter().take(copied).enumerate() {
                    let at = offset.wrapping_add(i as u64).wrapping_sub(base) % 4096;
                    let at = usize::try_from(at).unwrap();
                    oracle[at] = *byte;
                }
                let spans = window.spans(offset, len);
                prop_assert_eq!(spans[0].len() + spans[1].len(), copied);
            }
            let mut all = vec![0u8; 4096];
            window.copy_out(base, &mut all);
            prop_assert_eq!(all, oracle);
        }
    }

    #[test]
    fn writable_needs_half_of_what_is_used_to_be_free() {
        assert!(is_writable(4096, 0));
        assert!(is_writable(3000, 2000));
        assert!(!is_writable(3000, 2004));
        assert!(!is_writable(4096, 4096));
        assert!(!is_writable(0, 0));
        assert!(!is_writable(4096, u64::MAX));
    }
}
