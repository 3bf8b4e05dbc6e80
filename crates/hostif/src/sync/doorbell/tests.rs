//! The sleep protocol under all of loom's schedules. The eventfd is a counter that a sleeper awaits;
//! a lost wake-up shows as a deadlock, which loom reports.

use std::sync::Arc;

use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::*;
use crate::descriptor::{Descriptor, Malformed, Words};
use crate::ring::{Consumer, Producer, words_for};
use crate::sync::mortal::{at_every_step, step};

struct Note;

impl Descriptor for Note {
    fn encode(&self) -> Words {
        [0; 7]
    }

    fn decode(_: &Words) -> Result<Note, Malformed> {
        Ok(Note)
    }
}

/// Level-triggered, as a polled eventfd is: every sleeper sees a ring until someone drains it.
#[derive(Default)]
struct TestBell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl TestBell {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_all();
    }

    /// Sleeps until it rings, and drains it.
    fn sleep(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
        *rung = false;
    }
}

fn check(bound: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound);
    builder.check(body);
}

#[test]
fn loom_a_single_sleeper_never_misses_a_descriptor() {
    check(4, || {
        let cells = Cells::private(words_for(2));
        let producer = Producer::<Note>::new(cells.clone());
        let mut consumer = Consumer::<Note>::new(cells);
        let word = SleepWord::new(Cells::private(1));
        let bell = Arc::new(TestBell::default());

        let (their_word, their_bell) = (word.clone(), Arc::clone(&bell));
        let ringer = thread::spawn(move || {
            for _ in 0..2 {
                producer.push(&Note).unwrap();
                if their_word.must_ring() {
                    their_bell.ring();
                }
            }
        });
        let mut taken = 0;
        while taken < 2 {
            if consumer.pop().unwrap().is_some() {
                taken += 1;
                continue;
            }
            word.announce();
            if !consumer.has_next() {
                bell.sleep();
            }
            word.withdraw();
        }
        ringer.join().unwrap();
    });
}

/// What the threads of a program poll: the shared bell, and a waker for each of them. Level-triggered;
/// a bell that someone else drained in time wakes nobody.
#[derive(Default)]
struct Polled {
    rung: bool,
    wakers: [bool; 2],
}

/// Two threads of one process: the first waits for one descriptor, the second for two. Whoever reaps
/// wakes those whose wait is over through their wakers, and only those.
struct Program {
    consumer: Mutex<Consumer<Note>>,
    taken: loom::sync::atomic::AtomicU64,
    word: SleepWord,
    sleepers: Sleepers,
    polled: Mutex<Polled>,
    changed: Condvar,
}

impl Program {
    fn reap(&self) {
        let mut consumer = self.consumer.lock().unwrap();
        while consumer.pop().unwrap().is_some() {
            let taken = 1 + self.taken.fetch_add(1, Ordering::SeqCst);
            let mut polled = self.polled.lock().unwrap();
            for (thread, waker) in polled.wakers.iter_mut().enumerate() {
                *waker |= thread as u64 + 1 <= taken;
            }
            self.changed.notify_all();
        }
    }

    fn ring(&self) {
        self.polled.lock().unwrap().rung = true;
        self.changed.notify_all();
    }

    fn wait(&self, thread: usize) {
        self.sleepers.enter(&self.word);
        loop {
            self.word.announce();
            self.reap();
            if self.taken.load(Ordering::SeqCst) >= thread as u64 + 1 {
                break;
            }
            let mut polled = self.polled.lock().unwrap();
            while !polled.rung && !polled.wakers[thread] {
                polled = self.changed.wait(polled).unwrap();
            }
            polled.rung = false;
        }
        if self.sleepers.leave(&self.word) {
            self.reap();
        }
    }
}

#[test]
fn loom_two_sleepers_of_one_process_are_both_woken() {
    check(3, || {
        let cells = Cells::private(words_for(2));
        let producer = Producer::<Note>::new(cells.clone());
        let program = Arc::new(Program {
            consumer: Mutex::new(Consumer::new(cells)),
            taken: loom::sync::atomic::AtomicU64::new(0),
            word: SleepWord::new(Cells::private(1)),
            sleepers: Sleepers::default(),
            polled: Mutex::default(),
            changed: Condvar::new(),
        });
        let waiting = [0, 1].map(|thread| {
            let program = Arc::clone(&program);
            thread::spawn(move || program.wait(thread))
        });
        for _ in 0..2 {
            producer.push(&Note).unwrap();
            if program.word.must_ring() {
                program.ring();
            }
        }
        for thread in waiting {
            thread.join().unwrap();
        }
    });
}

/// An engine is killed at any step of telling a program something, also between taking its word and ringing; the next one goes on, and
/// rings whoever was there, whatever the word says.
#[test]
fn loom_a_sleeper_is_woken_although_its_ringer_was_killed() {
    let steps = at_every_step(3, |end| {
        let cells = Cells::private(words_for(2));
        let mut consumer = Consumer::<Note>::new(cells.clone());
        let word = SleepWord::new(Cells::private(1));
        let bell = Arc::new(TestBell::default());
        let (their_word, their_bell, end) = (word.clone(), Arc::clone(&bell), end.clone());
        let engines = thread::spawn(move || {
            let tell = |producer: &Producer<Note>| {
                producer.push(&Note).unwrap();
                if their_word.must_ring() {
                    step();
                    their_bell.ring();
                }
            };
            let whole = end.run(|| tell(&Producer::new(cells.clone())));
            if whole.is_none() {
                let next = Producer::resume(cells);
                their_word.take_up();
                their_bell.ring();
                if next.tail() == 0 {
                    tell(&next);
                }
            }
        });
        let mut taken = 0;
        while taken < 1 {
            word.announce();
            match consumer.pop().unwrap() {
                Some(Note) => taken += 1,
                None => bell.sleep(),
            }
            word.withdraw();
        }
        engines.join().unwrap();
    });
    assert!(steps >= 8, "{steps} steps");
}

/// A program is killed at any step of telling its engine something. The engine hears of the end as of any other event, and takes what
/// was pushed.
#[test]
fn loom_an_engine_that_sleeps_takes_what_a_killed_program_has_pushed() {
    at_every_step(3, |end| {
        let cells = Cells::private(words_for(2));
        let producer = Producer::<Note>::new(cells.clone());
        let mut consumer = Consumer::<Note>::new(cells);
        let word = SleepWord::new(Cells::private(1));
        // The doorbell and the control channel, which hangs up: one set of descriptors.
        let bell = Arc::new(TestBell::default());
        let gone = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        let (their_word, their_bell, end) = (word.clone(), Arc::clone(&bell), end.clone());
        let theirs = Arc::clone(&gone);
        let program = thread::spawn(move || {
            let pushed = end.run(|| {
                producer.push(&Note).unwrap();
                if their_word.must_ring() {
                    step();
                    their_bell.ring();
                }
            });
            theirs.store(true, Ordering::Release);
            their_bell.ring();
            pushed.is_some()
        });
        let mut taken = 0;
        while !gone.load(Ordering::Acquire) {
            word.announce();
            match consumer.pop().unwrap() {
                Some(Note) => taken += 1,
                None if gone.load(Ordering::Acquire) => {}
                None => bell.sleep(),
            }
            word.withdraw();
        }
        let pushed = program.join().unwrap();
        while consumer.pop_final().unwrap().is_some() {
            taken += 1;
        }
        assert!(taken == 1 || taken == 0 && !pushed);
    });
}
