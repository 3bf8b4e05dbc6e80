//! Whose each chunk of the UMEM is: the kernel's, to receive into or until it has sent it, or ours. No memory
//! is touched here.
//!
//! The first chunks are for receiving and are the kernel's whenever nobody looks at a frame; the others are
//! for sending and ours until a frame is on its way. What the kernel's rings name is checked against this.

use super::sys::CHUNK_BYTES;

/// Number of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk(u32);

impl Chunk {
    /// Where it starts in the UMEM.
    pub(super) fn address(self) -> u64 {
        u64::from(self.0) * CHUNK_BYTES as u64
    }
}

/// All chunks of a UMEM.
pub(super) struct Chunks {
    receiving: u32,
    /// By number: it is the kernel's.
    lent: Vec<bool>,
    /// Ours, for sending; the last used first, while the cache has it.
    free: Vec<Chunk>,
}

impl Chunks {
    pub(super) fn new(receiving: u32, sending: u32) -> Self {
        let count = usize::try_from(receiving + sending).expect("invariant: bounded when opened");
        Self {
            receiving,
            lent: vec![false; count],
            free: (receiving..receiving + sending).map(Chunk).collect(),
        }
    }

    /// Every chunk for receiving, for the start.
    pub(super) fn for_receiving(&self) -> impl Iterator<Item = Chunk> + use<> {
        (0..self.receiving).map(Chunk)
    }

    /// Chunks for sending that are ours.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Lends a chunk for receiving to the kernel.
    pub(super) fn lend(&mut self, chunk: Chunk) {
        *self.slot(chunk) = true;
    }

    /// The chunk in which the kernel says it has received `len` bytes from `address` on; it is ours now.
    /// `None`: it cannot have.
    pub(super) fn received(&mut self, address: u64, len: u32) -> Option<Chunk> {
        let chunk = self.lent_at(address)?;
        let end = (address - chunk.address()).checked_add(u64::from(len))?;
        if chunk.0 >= self.receiving || end > CHUNK_BYTES as u64 {
            return None;
        }
        *self.slot(chunk) = false;
        Some(chunk)
    }

    /// A chunk to send from, the kernel's from now on.
    pub(super) fn send(&mut self) -> Option<Chunk> {
        let chunk = self.free.pop()?;
        *self.slot(chunk) = true;
        Some(chunk)
    }

    /// The kernel has sent the chunk at `address`. Whether that can be.
    pub(super) fn sent(&mut self, address: u64) -> bool {
        match self.lent_at(address) {
            Some(chunk) if chunk.0 >= self.receiving => {
                *self.slot(chunk) = false;
                self.free.push(chunk);
                true
            }
            _ => false,
        }
    }

    fn lent_at(&self, address: u64) -> Option<Chunk> {
        let number = u32::try_from(address / CHUNK_BYTES as u64).ok()?;
        let is_lent = *self.lent.get(usize::try_from(number).ok()?)?;
        is_lent.then_some(Chunk(number))
    }

    fn slot(&mut self, chunk: Chunk) -> &mut bool {
        let number = usize::try_from(chunk.0).expect("invariant: usize has 32 bits at least");
        &mut self.lent[number]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: u64 = CHUNK_BYTES as u64;
    const LEN: u32 = 4096;

    #[test]
    fn a_chunk_is_received_once_until_it_is_lent_again() {
        let mut chunks = Chunks::new(2, 1);
        assert_eq!(chunks.received(256, 60), None, "nothing was lent");
        for chunk in chunks.for_receiving() {
            chunks.lend(chunk);
        }
        let first = chunks.received(256, 60).unwrap();
        assert_eq!(first.address(), 0);
        assert_eq!(chunks.received(256, 60), None);
        chunks.lend(first);
        assert_eq!(chunks.received(300, 60), Some(first));
        assert_eq!(chunks.received(PAGE, LEN + 1), None, "past its end");
        assert!(chunks.received(PAGE, LEN).is_some());
    }

    #[test]
    fn a_chunk_is_sent_once_and_the_last_one_is_used_first() {
        let mut chunks = Chunks::new(1, 3);
        assert_eq!(chunks.free(), 3);
        let (one, two) = (chunks.send().unwrap(), chunks.send().unwrap());
        assert!(chunks.sent(one.address()));
        assert!(!chunks.sent(one.address()), "twice");
        assert!(!chunks.sent(0), "for receiving");
        assert!(!chunks.sent(u64::MAX), "nowhere");
        assert_eq!(chunks.send(), Some(one));
        assert!(chunks.sent(two.address()) && chunks.send().is_some() && chunks.send().is_some());
        assert_eq!(chunks.send(), None);
    }

    proptest! {
        /// Whatever a ring shows, no chunk is in two places.
        #[test]
        fn no_chunk_is_doubled(steps in proptest::collection::vec((0_u8..4, any::<u64>(), any::<u32>()), 0..300)) {
            let mut chunks = Chunks::new(4, 4);
            let (mut ours, mut sending) = (chunks.for_receiving().collect::<Vec<_>>(), 0_usize);
            for (step, address, len) in steps {
                let near = address % (10 * PAGE);
                match step {
                    0 => if let Some(chunk) = chunks.received(near, len % 5_000) {
                        prop_assert!(!ours.contains(&chunk) && chunk.address() < 4 * PAGE);
                        ours.push(chunk);
                    },
                    1 => if let Some(chunk) = ours.pop() { chunks.lend(chunk) },
                    2 => if chunks.send().is_some() { sending += 1 },
                    _ => if chunks.sent(near) { sending -= 1 },
                }
                prop_assert_eq!(chunks.free() + sending, 4);
            }
        }
    }
}
