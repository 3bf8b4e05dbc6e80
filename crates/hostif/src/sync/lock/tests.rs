//! The lock among threads, and in models in which its holder is killed at any step.

use super::*;

#[cfg(not(loom))]
mod plain {
    use core::sync::atomic::AtomicBool;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_holder_that_copies_and_does_not_go_on_is_not_waited_for() {
        let word = AtomicU32::new(0);
        let lock = RegionLock::new(&word);
        assert!(lock.lock_to_copy(7, &mut || true));
        assert!(lock.lock_to_copy(8, &mut || true));
        assert!(lock.is_held_by(8));
        lock.unlock(7);
        assert!(
            lock.is_held_by(8),
            "what was taken over is not given back by the other"
        );
        lock.unlock(8);
        assert!(lock.try_lock(7));
        let mut asked = 0;
        let taken = lock.lock_to_copy(8, &mut || {
            asked += 1;
            asked <= 2 * WAITS
        });
        assert!(!taken, "of one who does not copy it is not taken");
        lock.unlock(7);
        assert!(lock.lock_to_copy(7, &mut || true));
        assert!(!lock.lock(8, &mut || false), "nor by one who does not");
    }

    #[test]
    fn threads_that_contend_exclude_each_other() {
        let word = AtomicU32::new(0);
        let (mut inside, counter) = (0u32, AtomicU32::new(0));
        let inside_pointer = &AtomicU32::new(0);
        std::thread::scope(|scope| {
            for session in 1..=3 {
                let (word, counter) = (&word, &counter);
                scope.spawn(move || {
                    let lock = RegionLock::new(word);
                    for _ in 0..5000 {
                        assert!(lock.lock(session, &mut || true));
                        assert_eq!(inside_pointer.fetch_add(1, Ordering::Relaxed), 0);
                        counter.fetch_add(1, Ordering::Relaxed);
                        inside_pointer.fetch_sub(1, Ordering::Relaxed);
                        lock.unlock(session);
                    }
                });
            }
        });
        inside += counter.load(Ordering::Relaxed);
        assert_eq!(inside, 15000);
        assert_eq!(word.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_death_of_the_holder_frees_its_waiter() {
        let word = AtomicU32::new(0);
        assert!(RegionLock::new(&word).try_lock(7));
        let (send, receive) = mpsc::channel();
        std::thread::scope(|scope| {
            let word = &word;
            scope.spawn(move || {
                let mut told = false;
                let taken = RegionLock::new(word).lock(8, &mut || {
                    if !told {
                        send.send(()).unwrap();
                        told = true;
                    }
                    true
                });
                assert!(taken);
            });
            receive.recv().unwrap();
            assert!(!RegionLock::new(word).release_dead(6));
            assert!(RegionLock::new(word).release_dead(7));
        });
        assert_eq!(word.load(Ordering::Relaxed) & !WAITERS, 8);
    }

    #[test]
    fn waiting_ends_when_the_caller_says_so() {
        let word = AtomicU32::new(9);
        let asked = AtomicBool::new(false);
        let taken = RegionLock::new(&word).lock(1, &mut || !asked.swap(true, Ordering::Relaxed));
        assert!(!taken);
        RegionLock::new(&word).unlock(1);
        assert_eq!(
            word.load(Ordering::Relaxed) & !WAITERS,
            9,
            "only the holder unlocks"
        );
    }
}

#[cfg(loom)]
mod ends {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32 as Seen;

    use loom::thread;

    use super::*;
    use crate::sync::mortal::{at_every_step, step};

    /// Who is inside, of those that live; 0: nobody. The model does not see it: it has no part in the order of things.
    #[derive(Default)]
    struct Inside(Seen);

    impl Inside {
        fn enter(&self, session: u32) {
            let before = self.0.swap(session, std::sync::atomic::Ordering::SeqCst);
            assert_eq!(before, 0, "session {session} is not alone");
        }

        fn leave(&self) {
            self.0.store(0, std::sync::atomic::Ordering::SeqCst);
        }
    }

    /// The holder is killed at any step, from the first look at the word to the last of giving it back; its engine frees what it held, and
    /// nothing else. Who waits has the lock then, and is alone with it.
    #[test]
    fn loom_who_waits_has_the_lock_wherever_its_holder_was_killed() {
        let steps = at_every_step(3, |end| {
            let (word, inside) = (Arc::new(AtomicU32::new(0)), Arc::new(Inside::default()));
            let (theirs, seen, end) = (Arc::clone(&word), Arc::clone(&inside), end.clone());
            let holder = thread::spawn(move || {
                let lock = RegionLock::new(&theirs);
                let whole = end.run(|| {
                    assert!(lock.lock(1, &mut || true));
                    seen.enter(1);
                    step();
                    seen.leave();
                    lock.unlock(1);
                });
                let is_inside = seen.0.load(std::sync::atomic::Ordering::SeqCst) == 1;
                if whole.is_none() && is_inside {
                    seen.leave();
                }
            });
            let (theirs, seen) = (Arc::clone(&word), Arc::clone(&inside));
            let waiter = thread::spawn(move || {
                let lock = RegionLock::new(&theirs);
                assert!(lock.lock(2, &mut || true));
                seen.enter(2);
                thread::yield_now();
                seen.leave();
                assert!(lock.is_held_by(2), "it was given back by somebody else");
                lock.unlock(2);
            });
            holder.join().unwrap();
            // The engine hears of the end, and does not know whether it held anything.
            RegionLock::new(&word).release_dead(1);
            waiter.join().unwrap();
            assert_eq!(word.load(Ordering::Relaxed) & !WAITERS, 0);
        });
        assert!(steps >= 4, "{steps} steps");
    }

    /// Who only copies publishes by comparing: wherever it is killed, or slow and taken over, each number is published once.
    #[test]
    fn loom_who_copies_publishes_once_wherever_another_that_copies_was_killed() {
        at_every_step(2, |end| {
            let (word, published) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
            let copies = |session: u32, word: &AtomicU32, published: &AtomicU32| {
                let lock = RegionLock::new(word);
                let mut mine = 0;
                while mine == 0 {
                    assert!(lock.lock_to_copy(session, &mut || true));
                    let before = published.load(Ordering::Acquire);
                    let (set, get) = (Ordering::AcqRel, Ordering::Relaxed);
                    if published
                        .compare_exchange(before, before + 1, set, get)
                        .is_ok()
                    {
                        mine = before + 1;
                    }
                    lock.unlock(session);
                }
                mine
            };
            let (theirs, out, end) = (Arc::clone(&word), Arc::clone(&published), end.clone());
            let other = thread::spawn(move || end.run(|| copies(1, &theirs, &out)));
            let mine = copies(2, &word, &published);
            let others = other.join().unwrap();
            RegionLock::new(&word).release_dead(1);
            let all = published.load(Ordering::Relaxed);
            assert!(others != Some(mine) && (1..=2).contains(&all) && mine <= all);
            assert!(
                RegionLock::new(&word).lock_to_copy(3, &mut || true),
                "it is free"
            );
        });
    }
}
