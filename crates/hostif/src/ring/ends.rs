//! Either side of a ring is killed at any step, under all of loom's schedules (`sync/mortal.rs`).

use std::sync::Arc;
use std::sync::Mutex as Observed;

use loom::thread;

use super::tests::{Number, ring};
use super::*;
use crate::sync::mortal::at_every_step;

/// What was dealt with, in that order. The model does not see it: it has no part in the order of things.
type Seen = Arc<Observed<Vec<u64>>>;

fn all(seen: &Seen) -> Vec<u64> {
    seen.lock().unwrap().clone()
}

/// Two threads of a program push, and each stops wherever the kill finds it. Its engine takes what is there meanwhile, and what is
/// left once it has heard of the end: all that was pushed, nothing twice, nothing else.
#[test]
fn loom_what_a_killed_program_has_pushed_is_taken_once() {
    for first in 0..7 {
        at_every_step(2, move |end| {
            let (producer, mut consumer, _) = ring(2);
            let producer = Arc::new(producer);
            let pushing = [(1, end.clone()), (2, end.after(first))].map(|(number, end)| {
                let producer = Arc::clone(&producer);
                thread::spawn(move || end.run(|| producer.push(&Number(number)).unwrap()))
            });
            let mut got = Vec::new();
            for _ in 0..2 {
                got.extend(consumer.pop().unwrap());
            }
            let pushed = pushing.map(|pushing| pushing.join().unwrap().is_some());
            while let Some(number) = consumer.pop_final().unwrap() {
                got.push(number);
            }
            for (number, pushed) in [1, 2].into_iter().zip(pushed) {
                let times = got.iter().filter(|one| one.0 == number).count();
                assert!(times == 1 || times == 0 && !pushed, "{number}: {times}");
            }
            assert!(got.iter().all(|one| [1, 2].contains(&one.0)), "{got:?}");
        });
    }
}

/// An engine reads, deals with what it read, and gives the slots back; it is killed at any step, and the next one goes on. All
/// is dealt with in order; again only what the one before had not given back.
#[test]
fn loom_the_next_engine_reads_on_where_one_was_killed() {
    let steps = at_every_step(2, |end| {
        let (producer, mut consumer, cells) = ring(2);
        let seen = Seen::default();
        let pushing = thread::spawn(move || {
            for number in 1..=3 {
                while let Err(error) = producer.push(&Number(number)) {
                    assert_eq!(error, PushError::Full);
                    thread::yield_now();
                }
            }
        });
        let mine = Arc::clone(&seen);
        let before = end.clone();
        let read = move |consumer: &mut Consumer<Number>, seen: &Seen| {
            while seen.lock().unwrap().last() != Some(&3) {
                match consumer.read().unwrap() {
                    Some(Number(value)) => seen.lock().unwrap().push(value),
                    None => thread::yield_now(),
                }
                consumer.release();
            }
        };
        let killed = thread::spawn(move || before.run(|| read(&mut consumer, &mine)));
        let was_killed = killed.join().unwrap().is_none();
        let old = all(&seen);
        assert_eq!(old, (1..=old.len() as u64).collect::<Vec<_>>());
        if was_killed {
            let mut next = Consumer::resume(cells);
            let begin = next.position();
            let new = Seen::default();
            read(&mut next, &new);
            let new = all(&new);
            assert_eq!(new, (begin + 1..=3).collect::<Vec<_>>());
            assert!(begin <= old.len() as u64 && begin + 1 >= old.len() as u64);
        }
        pushing.join().unwrap();
    });
    assert!(steps >= 12, "{steps} steps");
}

/// An engine is killed while it tells a program something; the next one tells what the program was not told, behind it. The program sees
/// neither a half nor a hole.
#[test]
fn loom_the_next_engine_fills_on_where_one_was_killed() {
    let steps = at_every_step(3, |end| {
        let (producer, mut consumer, cells) = ring(2);
        let end = end.clone();
        let engines = thread::spawn(move || {
            let told = Seen::default();
            let mine = Arc::clone(&told);
            let push = |producer: &Producer<Number>, number| {
                while producer.push(&Number(number)).is_err() {
                    thread::yield_now();
                }
            };
            let whole = end.run(|| {
                for number in 1..=2 {
                    push(&producer, number);
                    mine.lock().unwrap().push(number);
                }
            });
            let producer = match whole {
                Some(()) => producer,
                None => Producer::resume(cells),
            };
            let told = all(&told).len() as u64;
            assert!(producer.tail() == told || producer.tail() == told + 1);
            for number in producer.tail() + 1..=3 {
                push(&producer, number);
            }
        });
        let mut got = Vec::new();
        while got.len() < 3 {
            match consumer.pop().unwrap() {
                Some(Number(value)) => got.push(value),
                None => thread::yield_now(),
            }
        }
        assert_eq!(got, [1, 2, 3]);
        engines.join().unwrap();
        assert_eq!(consumer.pop(), Ok(None));
    });
    assert!(steps >= 10, "{steps} steps");
}
