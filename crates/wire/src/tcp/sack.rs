//! The blocks of a selective acknowledgment (RFC 2018 §3): a list of at most four without heap.
//!
//! Blocks are pairs of numbers here; which of them are plausible is decided in `tcp`.

/// Up to [`SackBlocks::MAX`] blocks, each the first sequence number of a received run and the one
/// after its last. The first block is the most recent (RFC 2018 §4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SackBlocks {
    /// Those at `len` and beyond stay (0, 0), so that equal lists compare equal.
    blocks: [(u32, u32); SackBlocks::MAX],
    len: u8,
}

impl SackBlocks {
    /// The most blocks that fit into the options of a segment.
    pub const MAX: usize = 4;

    /// No blocks.
    #[must_use]
    pub const fn new() -> SackBlocks {
        SackBlocks {
            blocks: [(0, 0); SackBlocks::MAX],
            len: 0,
        }
    }

    /// Appends a block; returns whether there was room for it.
    pub fn push(&mut self, left: u32, right: u32) -> bool {
        match self.blocks.get_mut(usize::from(self.len)) {
            Some(free) => {
                *free = (left, right);
                self.len += 1;
                true
            }
            None => false,
        }
    }

    /// The blocks, first to last.
    pub fn iter(
        &self,
    ) -> impl ExactSizeIterator<Item = (u32, u32)> + DoubleEndedIterator + Clone + '_ {
        self.blocks[..self.len()].iter().copied()
    }

    /// How many blocks there are.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}
