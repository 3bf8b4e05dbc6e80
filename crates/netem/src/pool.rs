//! Reusable frame buffers, so that no frame costs an allocation after start.

use std::ops::{Deref, DerefMut};

/// A buffer out of a [`FramePool`], holding one frame.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PooledFrame(Vec<u8>);

impl Deref for PooledFrame {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for PooledFrame {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

/// Reusable frame buffers. At most `limit` exist at a time: [`FramePool::take`] refuses beyond it,
/// which is how the queues built on it are bounded.
#[derive(Debug)]
pub struct FramePool {
    free: Vec<PooledFrame>,
    frame_bytes: usize,
    in_use: usize,
    limit: usize,
}

impl FramePool {
    /// A pool of at most `limit` frames with room for `frame_bytes` each, made when first needed.
    #[must_use]
    pub fn new(frame_bytes: usize, limit: usize) -> Self {
        Self {
            free: Vec::new(),
            frame_bytes,
            in_use: 0,
            limit,
        }
    }

    /// An empty buffer, or `None` if all are in use.
    pub fn take(&mut self) -> Option<PooledFrame> {
        if self.in_use >= self.limit {
            return None;
        }
        self.in_use += 1;
        Some(match self.free.pop() {
            Some(mut frame) => {
                frame.clear();
                frame
            }
            None => PooledFrame(Vec::with_capacity(self.frame_bytes)),
        })
    }

    /// Takes a buffer back.
    pub fn give_back(&mut self, frame: PooledFrame) {
        self.in_use = self.in_use.saturating_sub(1);
        self.free.push(frame);
    }

    /// Buffers that are out.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.in_use
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_reuses_buffers_and_stops_at_its_limit() {
        let mut pool = FramePool::new(64, 2);
        let mut first = pool.take().unwrap();
        first.extend_from_slice(b"frame");
        let address = first.as_ptr();
        let _second = pool.take().unwrap();
        assert!(pool.take().is_none());
        pool.give_back(first);
        let again = pool.take().unwrap();
        assert!(again.is_empty());
        assert_eq!(again.as_ptr(), address);
        assert_eq!(pool.in_use(), 2);
    }
}
