//! Payload for a device that reads it from aligned addresses only ([`Caps::align`](crate::driver::Caps::align)).
//!
//! A segment begins where the last one ended, so its address is anything. What lies before the first aligned
//! address is copied, less than one unit; the rest stays where it is. A ring that wraps goes on at its own start, which
//! is aligned. No device here asks for it; `--payload-align` puts one in front that does.

use crate::driver::{MAX_FRAME_BYTES, TxFrame};
use crate::shared_slice::SharedSlice;

#[cfg(test)]
mod tests;

/// Most that a device can ask for: a page.
pub const ALIGN_MAX: u16 = 4096;

/// Where the heads of spans are copied to. One frame at a time.
#[derive(Debug, Default)]
pub struct Aligner {
    align: usize,
    /// Empty where nothing is ever copied.
    buffer: Vec<u8>,
    copied_bytes: u64,
}

impl Aligner {
    /// For a device that wants multiples of `align`, which counts as the next power of two.
    #[must_use]
    pub fn new(align: u16) -> Self {
        let align = usize::from(align.clamp(1, ALIGN_MAX).next_power_of_two());
        let is_needed = align > 1;
        Self {
            align,
            // An aligned place for a head, and one for as much as a frame can carry behind it.
            buffer: vec![
                0;
                if is_needed {
                    3 * align + MAX_FRAME_BYTES
                } else {
                    0
                }
            ],
            copied_bytes: 0,
        }
    }

    /// Whether the device takes any address.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.align == 1
    }

    /// Bytes copied since the beginning.
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    /// The frame with all payload at aligned addresses. Of its first span the head is copied; a further span that is
    /// not aligned is copied whole, with what follows it: none of a window is. Spans that only the kernel may
    /// read ([`SharedSlice::is_for_kernel`]) cannot be copied, so the frame stays as it is; the engine makes none where a
    /// device asks for alignment.
    pub fn align<'b, 'a: 'b>(&'b mut self, frame: &TxFrame<'a>) -> TxFrame<'b> {
        if self.align == 1
            || frame.payload_len() > MAX_FRAME_BYTES
            || frame.payload.iter().all(|span| self.missing(span) == 0)
            || frame.payload.iter().any(SharedSlice::is_for_kernel)
        {
            return *frame;
        }
        let [first, behind @ ..] = &frame.payload;
        let (head, kept) = first.split_at(self.missing(first));
        let is_aligned = |span| self.missing(span) == 0;
        let stays = behind.iter().all(is_aligned) && behind[1].is_empty();
        // An aligned place for the head, which is shorter than one unit, and the next for what cannot stay behind it.
        let base = self.buffer.as_ptr().addr().wrapping_neg() & (self.align - 1);
        let (place, room) = self.buffer[base..].split_at_mut(self.align);
        let mut copied = 0;
        for span in behind.iter().filter(|_| !stays) {
            copied += span.copy_to(&mut room[copied..]);
        }
        let head_len = head.copy_to(place);
        self.copied_bytes += (head_len + copied) as u64;
        let last = if stays {
            behind[0]
        } else {
            SharedSlice::from(&room[..copied])
        };
        TxFrame {
            payload: [SharedSlice::from(&place[..head_len]), kept, last],
            ..*frame
        }
    }

    /// Bytes before the first aligned address of a span; 0 for an empty one.
    fn missing(&self, span: &SharedSlice<'_>) -> usize {
        let missing = span.as_ptr().addr().wrapping_neg() & (self.align - 1);
        missing.min(span.len())
    }
}
