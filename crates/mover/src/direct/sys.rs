//! The ring and the memory that it writes from.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, types};

use crate::sys::{Memory, submit};

/// A write that has ended: the buffer that is free again, and what the system said.
#[derive(Debug)]
pub struct Written {
    pub buffer: usize,
    /// Bytes written, or why not.
    pub result: io::Result<usize>,
}

/// Buffers and the writes out of them that are under way.
pub struct DirectWriter {
    // Dropped first: see `Drop`.
    ring: IoUring,
    memory: Memory,
    buffer_bytes: usize,
    in_flight: Vec<bool>,
}

impl std::fmt::Debug for DirectWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectWriter")
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

impl DirectWriter {
    /// So many buffers of so many bytes, a multiple of 4 KiB. An error: io_uring is not to be had.
    pub fn new(buffers: u16, buffer_bytes: usize) -> io::Result<Self> {
        Ok(Self {
            ring: IoUring::new(u32::from(buffers))?,
            memory: Memory::new(usize::from(buffers) * buffer_bytes)?,
            buffer_bytes,
            in_flight: vec![false; usize::from(buffers)],
        })
    }

    /// A buffer that no write is reading from; `None`: all are.
    pub fn free(&self) -> Option<usize> {
        self.in_flight.iter().position(|busy| !busy)
    }

    /// Whether a write is under way.
    pub fn is_busy(&self) -> bool {
        self.in_flight.contains(&true)
    }

    /// A free buffer's bytes.
    pub fn buffer(&mut self, index: usize) -> &mut [u8] {
        assert!(
            !self.in_flight[index],
            "invariant: only free buffers are filled"
        );
        let at = index * self.buffer_bytes;
        &mut self.memory.bytes()[at..at + self.buffer_bytes]
    }

    /// Copies bytes to a place in a free buffer past the processor's caches: see [`stream`].
    pub fn fill(&mut self, index: usize, at: usize, bytes: &[u8]) {
        stream(&mut self.buffer(index)[at..at + bytes.len()], bytes);
    }

    /// Begins to write the first `len` bytes of a buffer to an offset of a file.
    pub fn write(
        &mut self,
        index: usize,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> io::Result<()> {
        let bytes = &self.buffer(index)[..len];
        let len = u32::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        let entry = opcode::Write::new(types::Fd(file.as_raw_fd()), bytes.as_ptr(), len)
            .offset(offset)
            .build()
            .user_data(index as u64);
        self.in_flight[index] = true;
        // SAFETY: the buffer lies in `memory`, which outlives every write (`Drop` waits for them), and `in_flight`
        // keeps `buffer` from handing it out before the write has ended. The kernel takes a reference to the file
        // at submission, which is here. There are as many entries in the queue as buffers.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        let result = match pushed {
            Ok(()) => submit(&self.ring, 0),
            Err(_) => Err(io::ErrorKind::WouldBlock.into()),
        };
        if result.is_err() {
            self.in_flight[index] = false;
        }
        result
    }

    /// Takes one write that has ended; with `wait`, one that is about to. `None`: none has.
    pub fn ended(&mut self, wait: bool) -> io::Result<Option<Written>> {
        let next = self.ring.completion().next();
        let next = match next {
            None if wait && self.is_busy() => {
                submit(&self.ring, 1)?;
                self.ring.completion().next()
            }
            next => next,
        };
        Ok(next.map(|entry| {
            let buffer = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
            self.in_flight[buffer] = false;
            let result = usize::try_from(entry.result())
                .map_err(|_| io::Error::from_raw_os_error(-entry.result()));
            Written { buffer, result }
        }))
    }
}

/// Copies with stores that do not fetch what they overwrite. The disk has read these lines last: where a virtual
/// machine's host did that, they lie with another processor, and to own them again costs several times the copy.
fn stream(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "invariant: a copy");
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        const WORD_BYTES: usize = size_of::<__m128i>();
        let is_aligned = to.as_ptr().align_offset(WORD_BYTES) == 0;
        if is_aligned && to.len().is_multiple_of(WORD_BYTES) {
            for (to, from) in to
                .chunks_exact_mut(WORD_BYTES)
                .zip(from.chunks_exact(WORD_BYTES))
            {
                // SAFETY: both chunks are as long as a word and `to` is aligned to one. Every x86-64 processor has
                // these instructions.
                unsafe {
                    _mm_stream_si128(
                        to.as_mut_ptr().cast(),
                        _mm_loadu_si128(from.as_ptr().cast()),
                    )
                };
            }
            // SAFETY: orders the stores above before whatever comes next, as Rust's memory model asks for.
            unsafe { _mm_sfence() };
            return;
        }
    }
    to.copy_from_slice(from);
}

impl AsFd for DirectWriter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's descriptor is open as long as the ring.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl Drop for DirectWriter {
    fn drop(&mut self) {
        // The kernel must not read memory that is gone.
        while self.is_busy() && self.ended(true).is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied_wherever_it_lies_and_none_beside_it() {
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(5_000).collect();
        for (at, len) in [
            (0, 4_096),
            (16, 4_080),
            (0, 4_095),
            (3, 4_096),
            (16, 0),
            (7, 1),
        ] {
            for from in [0, 5] {
                let mut memory = Memory::new(8_192).unwrap();
                stream(&mut memory.bytes()[at..at + len], &bytes[from..from + len]);
                let (before, rest) = memory.bytes().split_at(at);
                let (copied, behind) = rest.split_at(len);
                assert!(copied == &bytes[from..from + len], "{at} {len} {from}");
                assert!(before.iter().chain(behind).all(|byte| *byte == 0));
            }
        }
    }
}
