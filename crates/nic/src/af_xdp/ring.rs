//! The arithmetic of a ring between kernel and user space: two counters that run freely and wrap, one of them
//! ours. Read first: `Documentation/networking/af_xdp.rst` of the kernel, "Rings".
//!
//! No memory is touched here: `sys.rs` reads the other side's counter and this says what may be done. A
//! counter that cannot be is a fault of the other side, and said.

use std::num::Wrapping;

/// The other side's counter is where it cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a ring of {size} shows {shown} entries")]
pub(super) struct Broken {
    size: u32,
    shown: u32,
}

/// The producer's view: what it has put in, and what the other side has taken as far as is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Producer {
    size: u32,
    ours: Wrapping<u32>,
    theirs: Wrapping<u32>,
}

/// The consumer's view: what it has taken, and what the other side has put in as far as is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Consumer {
    size: u32,
    ours: Wrapping<u32>,
    theirs: Wrapping<u32>,
}

/// Where entry `counter` lies; sizes are powers of two.
fn index(counter: Wrapping<u32>, size: u32) -> u32 {
    counter.0 & (size - 1)
}

impl Producer {
    /// An empty ring of `size` entries, a power of two, whose counters both show `start`.
    pub(super) fn new(size: u32, start: u32) -> Self {
        assert!(size.is_power_of_two(), "invariant: checked when opened");
        let start = Wrapping(start);
        Self {
            size,
            ours: start,
            theirs: start,
        }
    }

    /// The consumer's counter as it is now.
    pub(super) fn see(&mut self, theirs: u32) -> Result<(), Broken> {
        let (size, theirs) = (self.size, Wrapping(theirs));
        let shown = (self.ours - theirs).0;
        if shown > size {
            return Err(Broken { size, shown });
        }
        self.theirs = theirs;
        Ok(())
    }

    /// Entries that can be put in.
    pub(super) fn free(&self) -> u32 {
        self.size - self.waiting()
    }

    /// Entries that the other side has not taken.
    pub(super) fn waiting(&self) -> u32 {
        (self.ours - self.theirs).0
    }

    /// Where the next entry goes, if there is room.
    pub(super) fn put(&mut self) -> Option<u32> {
        if self.free() == 0 {
            return None;
        }
        let at = index(self.ours, self.size);
        self.ours += 1;
        Some(at)
    }

    /// Our counter, to be published.
    pub(super) fn counter(&self) -> u32 {
        self.ours.0
    }
}

impl Consumer {
    /// As [`Producer::new`].
    pub(super) fn new(size: u32, start: u32) -> Self {
        assert!(size.is_power_of_two(), "invariant: checked when opened");
        let start = Wrapping(start);
        Self {
            size,
            ours: start,
            theirs: start,
        }
    }

    /// The producer's counter as it is now.
    pub(super) fn see(&mut self, theirs: u32) -> Result<(), Broken> {
        let (size, theirs) = (self.size, Wrapping(theirs));
        let shown = (theirs - self.ours).0;
        if shown > size {
            return Err(Broken { size, shown });
        }
        self.theirs = theirs;
        Ok(())
    }

    /// Entries that can be taken.
    pub(super) fn available(&self) -> u32 {
        (self.theirs - self.ours).0
    }

    /// Where the next entry lies, if there is one; it is taken.
    pub(super) fn take(&mut self) -> Option<u32> {
        if self.available() == 0 {
            return None;
        }
        let at = index(self.ours, self.size);
        self.ours += 1;
        Some(at)
    }

    /// Our counter, to be published.
    pub(super) fn counter(&self) -> u32 {
        self.ours.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Put,
        Publish,
        See,
        Take,
        Release,
        Look,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Put),
            2 => Just(Step::Publish),
            2 => Just(Step::See),
            4 => Just(Step::Take),
            2 => Just(Step::Release),
            2 => Just(Step::Look),
        ]
    }

    proptest! {
        /// Both sides over a shared array, against a queue: nothing is lost, doubled, reordered or overwritten.
        #[test]
        fn a_ring_is_a_bounded_queue(
            start in prop_oneof![Just(0_u32), Just(u32::MAX - 3), any::<u32>()],
            size in prop_oneof![Just(1_u32), Just(2), Just(8)],
            steps in proptest::collection::vec(step(), 0..200),
        ) {
            let mut producer = Producer::new(size, start);
            let mut consumer = Consumer::new(size, start);
            let mut slots = vec![u32::MAX; usize::try_from(size).unwrap()];
            let (mut put_in, mut taken_out) = (start, start);
            let mut oracle = VecDeque::new();
            let mut next = 0_u32;
            for step in steps {
                match step {
                    Step::Put => match producer.put() {
                        Some(at) => {
                            slots[usize::try_from(at).unwrap()] = next;
                            oracle.push_back(next);
                            next += 1;
                        }
                        None => prop_assert_eq!(producer.waiting(), size),
                    },
                    Step::Publish => put_in = producer.counter(),
                    Step::See => prop_assert_eq!(consumer.see(put_in), Ok(())),
                    Step::Take => if let Some(at) = consumer.take() {
                        prop_assert_eq!(Some(slots[usize::try_from(at).unwrap()]), oracle.pop_front());
                    },
                    Step::Release => taken_out = consumer.counter(),
                    Step::Look => prop_assert_eq!(producer.see(taken_out), Ok(())),
                }
                prop_assert!(producer.waiting() <= size && consumer.available() <= size);
                prop_assert!(oracle.len() <= usize::try_from(producer.waiting()).unwrap());
            }
        }

        #[test]
        fn a_counter_that_cannot_be_is_refused_and_nothing_moves(start: u32, far: u32) {
            let mut producer = Producer::new(4, start);
            let mut consumer = Consumer::new(4, start);
            producer.put();
            let theirs = start.wrapping_add(far);
            let possible = far <= 1 || far >= u32::MAX - 2;
            prop_assert_eq!(producer.see(theirs).is_ok(), possible);
            prop_assert_eq!(consumer.see(theirs).is_ok(), far <= 4);
            prop_assert!(producer.free() <= 3 && consumer.available() <= 4);
        }
    }
}
