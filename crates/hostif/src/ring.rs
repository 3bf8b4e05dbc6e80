//! The descriptor ring: any number of producing threads of one process, one consumer in the other.
//!
//! A slot is eight words: seven of payload and a stamp. A producer reserves a position by advancing a
//! private counter, fills the slot and stores `position + 1` as its stamp; the consumer takes a slot
//! when the stamp is that of its own position, and publishes how far it came in the ring's first word.
//! So threads of a program need no lock to send, and a thread that is stopped between reserving and
//! stamping delays those behind it but corrupts nothing (`pop_final` skips its hole when the process
//! is gone).
//!
//! Neither side believes the other: a stamp or a consumer's index that cannot be is `Corrupt`. This
//! file wakes nobody; that is `doorbell`.

use core::marker::PhantomData;

use crate::cursor::Cells;
use crate::descriptor::{Descriptor, Malformed, WORDS, Words};
use crate::sync::{AtomicU64, Ordering};

/// Words before the slots; the first is the consumer's index.
const PREFIX_WORDS: usize = 8;
const SLOT_WORDS: usize = 8;
const HEAD: usize = 0;
const STAMP: usize = 7;
/// Payload words that are really copied: a model checks one in place of seven like it.
const COPIED_WORDS: usize = if cfg!(loom) { 1 } else { WORDS };

/// How often a producer looks at indexes that move while it looks.
const LOOKS: u32 = 64;

/// The other side wrote what no correct program writes; it has to be detached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// The consumer's index is ahead of what was produced or too far behind.
    #[error("the ring's consumer index is impossible")]
    Index,
    /// A slot's stamp belongs to no lap.
    #[error("a ring slot's stamp is impossible")]
    Stamp,
    /// A slot's payload is no descriptor of this ring.
    #[error(transparent)]
    Descriptor(#[from] Malformed),
}

/// Why a descriptor was not placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// No slot is free: ring the other side and try again.
    #[error("the ring is full")]
    Full,
    /// See [`Corrupt`].
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// Words that a ring of `entries` slots occupies.
#[must_use]
pub fn words_for(entries: u32) -> usize {
    PREFIX_WORDS + usize::try_from(entries).expect("invariant: 32 bits fit") * SLOT_WORDS
}

struct Shape {
    cells: Cells,
    capacity: u64,
}

impl Shape {
    fn new(cells: Cells) -> Shape {
        let slots = cells.len().saturating_sub(PREFIX_WORDS) / SLOT_WORDS;
        assert!(
            slots.is_power_of_two(),
            "invariant: layouts have powers of two"
        );
        Shape {
            cells,
            capacity: slots as u64,
        }
    }

    #[inline]
    fn slot(&self, position: u64) -> &[AtomicU64] {
        let start = self.start(position);
        &self.cells[start..start + SLOT_WORDS]
    }

    #[inline]
    fn stamp(&self, position: u64) -> &AtomicU64 {
        &self.cells[self.start(position) + STAMP]
    }

    #[inline]
    fn start(&self, position: u64) -> usize {
        let index = usize::try_from(position & (self.capacity - 1))
            .expect("invariant: a masked position is a slot");
        PREFIX_WORDS + index * SLOT_WORDS
    }
}

/// The filling end. Shared by all threads of a process; one process only.
pub struct Producer<T> {
    shape: Shape,
    tail: AtomicU64,
    seen_head: AtomicU64,
    kind: PhantomData<fn(T)>,
}

impl<T: Descriptor> Producer<T> {
    /// The filling end of a fresh (zeroed) ring.
    #[must_use]
    pub fn new(cells: Cells) -> Producer<T> {
        Producer {
            shape: Shape::new(cells),
            tail: AtomicU64::new(0),
            seen_head: AtomicU64::new(0),
            kind: PhantomData,
        }
    }

    /// As [`Producer::new`], for whoever goes on with a ring that another has filled: behind the last slot that is
    /// stamped. What the words say is not believed: a ring that makes no sense is at worst useless to the program that
    /// spoilt it.
    #[must_use]
    pub fn resume(cells: Cells) -> Producer<T> {
        let shape = Shape::new(cells);
        let head = shape.cells[HEAD].load(Ordering::Acquire);
        let is_filled = |position: u64| {
            shape.slot(position)[STAMP].load(Ordering::Acquire) == position.wrapping_add(1)
        };
        let filled = (0..shape.capacity).take_while(|at| is_filled(head.wrapping_add(*at)));
        let tail = head.wrapping_add(filled.count() as u64);
        Producer {
            shape,
            tail: AtomicU64::new(tail),
            seen_head: AtomicU64::new(head),
            kind: PhantomData,
        }
    }

    /// The position of the next descriptor.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.tail.load(Ordering::Relaxed)
    }

    /// Places a descriptor and returns its position. Ring the other side afterwards if it sleeps.
    pub fn push(&self, item: &T) -> Result<u64, PushError> {
        let position = self.reserve()?;
        let slot = self.shape.slot(position);
        let words = item.encode();
        for (cell, word) in slot.iter().zip(words).take(COPIED_WORDS) {
            cell.store(word, Ordering::Relaxed);
        }
        slot[STAMP].store(position.wrapping_add(1), Ordering::Release);
        Ok(position)
    }

    fn reserve(&self) -> Result<u64, PushError> {
        let capacity = self.shape.capacity;
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            // Acquire: whoever stored this index had seen the consumer leave the slot.
            if tail.wrapping_sub(self.seen_head.load(Ordering::Acquire)) >= capacity {
                let (head, used) = self.look()?;
                self.seen_head.store(head, Ordering::Release);
                if used >= capacity {
                    return Err(PushError::Full);
                }
                tail = head.wrapping_add(used);
            }
            // Release: who sees this position also sees the consumer's index that made room for it.
            match self.tail.compare_exchange_weak(
                tail,
                tail.wrapping_add(1),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(position) => return Ok(position),
                Err(current) => tail = current,
            }
        }
    }

    /// The consumer's index and how many slots were in use when it had that value.
    #[inline]
    fn look(&self) -> Result<(u64, u64), Corrupt> {
        let head = self.shape.cells[HEAD].load(Ordering::Acquire);
        // After the head: a correct consumer's index is never ahead of this.
        let used = self.tail.load(Ordering::Acquire).wrapping_sub(head);
        if used <= self.shape.capacity {
            return Ok((head, used));
        }
        self.look_again(head)
    }

    /// As `look`, after one in vain.
    #[inline(never)]
    fn look_again(&self, mut head: u64) -> Result<(u64, u64), Corrupt> {
        for _ in 0..LOOKS {
            // After the head: a correct consumer's index is never ahead of this.
            let used = self.tail.load(Ordering::Acquire).wrapping_sub(head);
            if used <= self.shape.capacity {
                return Ok((head, used));
            }
            // Either the consumer moved and other threads pushed meanwhile, or the index is wrong.
            let again = self.shape.cells[HEAD].load(Ordering::Acquire);
            if again == head {
                return Err(Corrupt::Index);
            }
            head = again;
        }
        // As busy as that, it is full for this caller.
        Ok((head, self.shape.capacity))
    }

    /// How many descriptors the consumer has not taken (a snapshot).
    pub fn pending(&self) -> Result<u64, Corrupt> {
        self.look().map(|(_, used)| used)
    }

    /// Whether the consumer has taken the descriptor at `position`. An engine that wants to leave out
    /// an `Event` because one for the same socket still waits in the ring first stores the header, then
    /// fences (SeqCst), then asks this.
    #[must_use]
    pub fn is_taken(&self, position: u64) -> bool {
        let head = self.shape.cells[HEAD].load(Ordering::Acquire);
        let tail = self.tail.load(Ordering::Relaxed);
        tail.wrapping_sub(head) <= tail.wrapping_sub(position.wrapping_add(1))
    }

    /// Number of slots.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.shape.capacity
    }
}

/// The emptying end.
pub struct Consumer<T> {
    shape: Shape,
    head: u64,
    /// As far as the producer knows.
    released: u64,
    kind: PhantomData<fn() -> T>,
}

enum RingSlot {
    Ready,
    NotYet,
    Impossible,
}

impl<T: Descriptor> Consumer<T> {
    /// The emptying end of a fresh (zeroed) ring; there must be one only.
    #[must_use]
    pub fn new(cells: Cells) -> Consumer<T> {
        Consumer {
            shape: Shape::new(cells),
            head: 0,
            released: 0,
            kind: PhantomData,
        }
    }

    /// As [`Consumer::new`], for whoever goes on with a ring that another has emptied.
    #[must_use]
    pub fn resume(cells: Cells) -> Consumer<T> {
        let shape = Shape::new(cells);
        let head = shape.cells[HEAD].load(Ordering::Acquire);
        Consumer {
            shape,
            head,
            released: head,
            kind: PhantomData,
        }
    }

    /// As `pop`, but the slot stays the reader's until [`Consumer::release`]: whoever goes on with the ring after a crash
    /// reads it again.
    pub fn read(&mut self) -> Result<Option<T>, Corrupt> {
        match self.look(self.head) {
            RingSlot::Ready => self.copy().map(Some),
            RingSlot::NotYet => Ok(None),
            RingSlot::Impossible => Err(Corrupt::Stamp),
        }
    }

    /// All that was read is dealt with: the producer may fill the slots again.
    pub fn release(&mut self) {
        if self.released != self.head {
            self.publish();
        }
    }

    /// Position of what is read next.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.head
    }

    #[inline]
    fn look(&self, position: u64) -> RingSlot {
        let stamp = self.shape.stamp(position).load(Ordering::Acquire);
        let wanted = position.wrapping_add(1);
        if stamp == wanted {
            RingSlot::Ready
        } else if stamp == wanted.saturating_sub(self.shape.capacity) {
            RingSlot::NotYet
        } else {
            RingSlot::Impossible
        }
    }

    /// Whether `pop` has something to say. Check this between announcing sleep and sleeping.
    #[inline]
    #[must_use]
    pub fn has_next(&self) -> bool {
        !matches!(self.look(self.head), RingSlot::NotYet)
    }

    /// Takes the next descriptor; `None` when there is none yet.
    pub fn pop(&mut self) -> Result<Option<T>, Corrupt> {
        match self.look(self.head) {
            RingSlot::Ready => self.take().map(Some),
            RingSlot::NotYet => Ok(None),
            RingSlot::Impossible => Err(Corrupt::Stamp),
        }
    }

    /// As `pop`, for a ring whose producing process is gone: skips positions that were reserved and
    /// never filled.
    pub fn pop_final(&mut self) -> Result<Option<T>, Corrupt> {
        let taken = self.read_final();
        self.release();
        taken
    }

    /// As `read`, for such a ring.
    pub fn read_final(&mut self) -> Result<Option<T>, Corrupt> {
        let end = self.head.wrapping_add(self.shape.capacity);
        let mut position = self.head;
        while position != end {
            if matches!(self.look(position), RingSlot::Ready) {
                self.head = position;
                return self.copy().map(Some);
            }
            position = position.wrapping_add(1);
        }
        Ok(None)
    }

    fn take(&mut self) -> Result<T, Corrupt> {
        let taken = self.copy();
        self.publish();
        taken
    }

    fn copy(&mut self) -> Result<T, Corrupt> {
        let mut words: Words = [0; WORDS];
        let slot = self.shape.slot(self.head);
        for (word, cell) in words.iter_mut().zip(slot).take(COPIED_WORDS) {
            *word = cell.load(Ordering::Relaxed);
        }
        self.head = self.head.wrapping_add(1);
        Ok(T::decode(&words)?)
    }

    fn publish(&mut self) {
        self.released = self.head;
        // Release: what was loaded from the slots comes before the producer may fill them again.
        self.shape.cells[HEAD].store(self.head, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;

#[cfg(all(test, loom))]
mod ends;
