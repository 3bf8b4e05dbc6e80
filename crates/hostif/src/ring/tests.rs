//! The ring against a queue, hostile words, and loom's schedules.

use super::*;

/// One word, so that a model stays small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Number(pub(super) u64);

impl Descriptor for Number {
    fn encode(&self) -> Words {
        [self.0, 0, 0, 0, 0, 0, 0]
    }

    fn decode(words: &Words) -> Result<Number, Malformed> {
        if words[0] == u64::MAX {
            Err(Malformed)
        } else {
            Ok(Number(words[0]))
        }
    }
}

pub(super) fn ring(entries: u32) -> (Producer<Number>, Consumer<Number>, Cells) {
    let cells = Cells::private(words_for(entries));
    (
        Producer::new(cells.clone()),
        Consumer::new(cells.clone()),
        cells,
    )
}

#[cfg(not(loom))]
mod plain {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_ring_behaves_as_a_bounded_queue(
            size in 1u32..5, pushes in proptest::collection::vec(any::<bool>(), 0..200)
        ) {
            let entries = 1 << size;
            let (producer, mut consumer, _) = ring(entries);
            let mut oracle = VecDeque::new();
            for (number, push) in pushes.into_iter().enumerate() {
                let number = number as u64;
                if push {
                    let outcome = producer.push(&Number(number));
                    if oracle.len() < entries as usize {
                        prop_assert!(outcome.is_ok());
                        oracle.push_back(number);
                    } else {
                        prop_assert_eq!(outcome, Err(PushError::Full));
                    }
                } else {
                    prop_assert_eq!(consumer.has_next(), !oracle.is_empty());
                    let popped = consumer.pop().unwrap().map(|item| item.0);
                    prop_assert_eq!(popped, oracle.pop_front());
                }
                prop_assert_eq!(producer.pending().unwrap(), oracle.len() as u64);
            }
        }

        #[test]
        fn arbitrary_words_never_panic_and_never_pop_more_than_the_capacity(
            words in proptest::collection::vec(any::<u64>(), 8 + 8 * 4),
            stamps in proptest::collection::vec(0u64..6, 4),
        ) {
            let (producer, mut consumer, cells) = ring(4);
            for (cell, word) in cells.iter().zip(&words) {
                cell.store(*word, Ordering::Relaxed);
            }
            for (slot, stamp) in stamps.iter().enumerate() {
                cells[PREFIX_WORDS + slot * SLOT_WORDS + STAMP].store(*stamp, Ordering::Relaxed);
            }
            let mut popped = 0;
            while let Ok(Some(_)) = consumer.pop() {
                popped += 1;
                prop_assert!(popped <= 4);
            }
            while let Ok(Some(_)) = consumer.pop_final() {
                popped += 1;
                prop_assert!(popped <= 8);
            }
            let _ = producer.push(&Number(0));
            let _ = producer.is_taken(words[0]);
        }
    }

    #[test]
    fn an_impossible_consumer_index_is_corrupt() {
        let (producer, _, cells) = ring(2);
        producer.push(&Number(1)).unwrap();
        producer.push(&Number(2)).unwrap();
        cells[HEAD].store(7, Ordering::Relaxed);
        assert_eq!(producer.push(&Number(3)), Err(Corrupt::Index.into()));
        assert_eq!(producer.pending(), Err(Corrupt::Index));
    }

    #[test]
    fn an_impossible_stamp_is_corrupt() {
        let (producer, mut consumer, cells) = ring(2);
        producer.push(&Number(1)).unwrap();
        cells[PREFIX_WORDS + STAMP].store(99, Ordering::Relaxed);
        assert!(consumer.has_next());
        assert_eq!(consumer.pop(), Err(Corrupt::Stamp));
    }

    #[test]
    fn a_malformed_descriptor_is_corrupt() {
        let (producer, mut consumer, _) = ring(2);
        producer.push(&Number(u64::MAX)).unwrap();
        assert_eq!(consumer.pop(), Err(Corrupt::Descriptor(Malformed)));
    }

    #[test]
    fn a_hole_left_by_a_dead_thread_is_skipped_at_the_end() {
        let (producer, mut consumer, _) = ring(8);
        producer.push(&Number(1)).unwrap();
        let hole = producer.reserve().unwrap();
        producer.push(&Number(3)).unwrap();
        assert_eq!(consumer.pop(), Ok(Some(Number(1))));
        assert_eq!(consumer.pop(), Ok(None));
        assert!(!producer.is_taken(hole));
        assert_eq!(consumer.pop_final(), Ok(Some(Number(3))));
        assert_eq!(consumer.pop_final(), Ok(None));
    }

    #[test]
    fn is_taken_follows_the_consumer() {
        let (producer, mut consumer, _) = ring(2);
        let first = producer.push(&Number(1)).unwrap();
        let second = producer.push(&Number(2)).unwrap();
        assert!(!producer.is_taken(first));
        consumer.pop().unwrap();
        assert!(producer.is_taken(first) && !producer.is_taken(second));
        consumer.pop().unwrap();
        assert!(producer.is_taken(second));
    }

    #[test]
    fn threads_that_push_at_once_lose_and_duplicate_nothing() {
        const EACH: u64 = 20_000;
        let (producer, mut consumer, _) = ring(16);
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let producer = &producer;
                scope.spawn(move || {
                    for number in 0..EACH {
                        while let Err(error) = producer.push(&Number(thread << 32 | number)) {
                            assert_eq!(error, PushError::Full);
                            assert!(producer.pending().is_ok());
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let mut next = [0u64; 3];
            while next.iter().sum::<u64>() < 3 * EACH {
                match consumer.pop().unwrap() {
                    Some(Number(value)) => {
                        let thread = usize::try_from(value >> 32).unwrap();
                        assert_eq!(value & 0xffff_ffff, next[thread]);
                        next[thread] += 1;
                    }
                    None => std::thread::yield_now(),
                }
            }
        });
        assert_eq!(consumer.pop(), Ok(None));
    }
}

#[cfg(loom)]
mod model {
    use loom::thread;
    use std::sync::Arc;

    use super::*;

    fn check(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.max_branches = 20_000;
        builder.check(body);
    }

    fn push(producer: &Producer<Number>, number: u64) {
        while let Err(error) = producer.push(&Number(number)) {
            assert_eq!(error, PushError::Full);
            thread::yield_now();
        }
    }

    fn pop(consumer: &mut Consumer<Number>) -> u64 {
        loop {
            match consumer.pop().unwrap() {
                Some(Number(value)) => return value,
                None => thread::yield_now(),
            }
        }
    }

    #[test]
    fn loom_one_producer_keeps_order_through_wrap_around() {
        check(3, || {
            let (producer, mut consumer, _) = ring(2);
            let pushing = thread::spawn(move || (1..=3).for_each(|n| push(&producer, n)));
            assert_eq!([1, 2, 3], core::array::from_fn(|_| pop(&mut consumer)));
            pushing.join().unwrap();
            assert_eq!(consumer.pop(), Ok(None));
        });
    }

    #[test]
    fn loom_two_producers_lose_and_duplicate_nothing() {
        check(3, || {
            let (producer, mut consumer, _) = ring(2);
            let producer = Arc::new(producer);
            let other = Arc::clone(&producer);
            let first = thread::spawn(move || push(&other, 1));
            let second = thread::spawn(move || (2..=3).for_each(|n| push(&producer, n)));
            let mut got: [u64; 3] = core::array::from_fn(|_| pop(&mut consumer));
            let at = |n| got.iter().position(|x| *x == n).unwrap();
            assert!(at(2) < at(3));
            got.sort_unstable();
            assert_eq!(got, [1, 2, 3]);
            first.join().unwrap();
            second.join().unwrap();
        });
    }

    #[test]
    fn loom_a_ring_that_moves_while_it_is_looked_at_is_not_corrupt() {
        check(3, || {
            let (producer, mut consumer, _) = ring(2);
            (1..=2).for_each(|n| push(&producer, n));
            let producer = Arc::new(producer);
            let attempts = [3, 4].map(|n| {
                let producer = Arc::clone(&producer);
                thread::spawn(move || producer.push(&Number(n)).map(|_| n))
            });
            assert_eq!(consumer.pop(), Ok(Some(Number(1))));
            let outcomes = attempts.map(|attempt| attempt.join().unwrap());
            for outcome in &outcomes {
                assert!(
                    matches!(outcome, Ok(_) | Err(PushError::Full)),
                    "{outcome:?}"
                );
            }
            assert_eq!(consumer.pop(), Ok(Some(Number(2))));
            let pushed: Vec<u64> = outcomes.into_iter().flatten().collect();
            assert!(pushed.len() <= 1, "the ring held more than two");
            let left = consumer.pop().unwrap().map(|item| item.0);
            assert_eq!(left, pushed.first().copied());
        });
    }
}
