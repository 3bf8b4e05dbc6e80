//! Pieces of the windows that a program and its engine share: room to be filled and sent, bytes that have arrived.
//!
//! A piece is borrowed from its half of the stream, which can do nothing else meanwhile, and is bounded by the
//! window. Dropping it sends, or takes, nothing.

use std::io;

use client::{Errno, ReceivedBytes, SendSpace};

use crate::error::from_errno;

/// Room in a send window.
pub struct Reserved<'a> {
    space: SendSpace<'a>,
}

impl<'a> Reserved<'a> {
    pub(crate) fn new(space: SendSpace<'a>) -> Reserved<'a> {
        Reserved { space }
    }

    /// Bytes that fit.
    #[must_use]
    pub fn len(&self) -> usize {
        self.space.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.space.is_empty()
    }

    /// The room, in the order of the stream: the second slice is empty unless the window wraps around. What is
    /// in it before is of no meaning.
    pub fn slices(&mut self) -> [&mut [u8]; 2] {
        self.space.slices()
    }

    /// Copies as much of `bytes` as fits, from byte `at` of the room on; returns how much that was.
    pub fn fill(&mut self, at: usize, bytes: &[u8]) -> usize {
        let [first, second] = self.slices();
        let from_first = at.min(first.len());
        let head = &mut first[from_first..];
        let in_head = bytes.len().min(head.len());
        head[..in_head].copy_from_slice(&bytes[..in_head]);
        let from_second = (at - from_first).min(second.len());
        let tail = &mut second[from_second..];
        let in_tail = (bytes.len() - in_head).min(tail.len());
        tail[..in_tail].copy_from_slice(&bytes[in_head..in_head + in_tail]);
        in_head + in_tail
    }

    /// Sends the first `bytes` of it; the rest is given back.
    ///
    /// # Errors
    /// EINVAL: more than was reserved, and nothing is sent; ECONNRESET: the engine is gone.
    pub fn commit(self, bytes: usize) -> io::Result<()> {
        if bytes > self.space.len() {
            return Err(from_errno(Errno::INVAL));
        }
        self.space.commit(bytes).map(drop).map_err(from_errno)
    }
}

/// Bytes that have arrived, where they lie.
pub struct Borrowed<'a> {
    bytes: ReceivedBytes<'a>,
}

impl<'a> Borrowed<'a> {
    pub(crate) fn new(bytes: ReceivedBytes<'a>) -> Borrowed<'a> {
        Borrowed { bytes }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes, in the order of the stream: the second slice is empty unless the window wraps around.
    #[must_use]
    pub fn slices(&self) -> [&[u8]; 2] {
        self.bytes.slices()
    }

    /// Is done with the first `bytes` of them: their place is free again. The rest comes again with the next call.
    ///
    /// # Errors
    /// EINVAL: more than was lent, and nothing is consumed; ECONNRESET: the engine is gone.
    pub fn consume(self, bytes: usize) -> io::Result<()> {
        if bytes > self.bytes.len() {
            return Err(from_errno(Errno::INVAL));
        }
        self.bytes.consume(bytes).map(drop).map_err(from_errno)
    }
}
