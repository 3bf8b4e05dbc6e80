//! A lane against a queue, hostile words, and loom's schedules.

use super::*;

fn lane() -> Lane {
    let lane = Lane::new(Cells::private(LANE_WORDS));
    lane.reset();
    lane
}

#[cfg(not(loom))]
mod plain {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Send(u64),
        Receive(u64),
        AwaitBytes,
        AwaitRoom(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1..100_000_u64).prop_map(Step::Send),
            (1..150_000_u64).prop_map(Step::Receive),
            Just(Step::AwaitBytes),
            (0..150_000_u64).prop_map(Step::AwaitRoom),
        ]
    }

    proptest! {
        /// Positions against two plain counters; and who waits is told of the next step of the other side that
        /// matters, once.
        #[test]
        fn a_lane_behaves_as_a_bounded_queue(steps in proptest::collection::vec(step(), 1..200)) {
            let (lane, size) = (lane(), u64::from(LANE_BYTES));
            let (mut sent, mut received) = (0, 0);
            let (mut awaits_bytes, mut awaits_room) = (true, None);
            for step in steps {
                match step {
                    Step::Send(bytes) => {
                        let used = lane.used(sent).unwrap();
                        prop_assert_eq!(used, sent - received);
                        sent += bytes.min(size - used);
                        prop_assert_eq!(lane.publish(sent), awaits_bytes);
                        awaits_bytes = false;
                    }
                    Step::Receive(bytes) => {
                        let there = lane.available(received).unwrap();
                        prop_assert_eq!(there, sent - received);
                        received += bytes.min(there);
                        let left = sent - received;
                        let told = lane.free(received, there, left);
                        let is_enough = awaits_room.is_some_and(|used| left <= used);
                        prop_assert_eq!(told, is_enough && there >= WORTHWHILE);
                        if told {
                            awaits_room = None;
                        }
                    }
                    Step::AwaitBytes => {
                        lane.want_bytes();
                        awaits_bytes = true;
                    }
                    Step::AwaitRoom(used) => {
                        lane.want_room(used);
                        awaits_room = Some(used);
                    }
                }
            }
        }

        #[test]
        fn a_hostile_side_is_refused_or_believed_within_the_lane(
            words in proptest::collection::vec(any::<u64>(), LANE_WORDS), own: u64
        ) {
            let cells = Cells::private(LANE_WORDS);
            for (cell, word) in cells.iter().zip(words) {
                cell.store(word, Ordering::Relaxed);
            }
            let lane = Lane::new(cells);
            for bytes in [lane.used(own), lane.available(own)].into_iter().flatten() {
                prop_assert!(bytes <= u64::from(LANE_BYTES));
            }
        }
    }

    #[test]
    fn a_lane_is_opened_and_ended_once_somebody_reads() {
        let lane = lane();
        assert_eq!((lane.reader(), lane.origin()), (Reader::Nobody, None));
        lane.begin();
        assert_eq!(lane.reader(), Reader::Reads);
        lane.open(0);
        assert_eq!((lane.origin(), lane.is_ended()), (Some(0), false));
        lane.end();
        assert!(lane.is_ended());
        lane.leave();
        lane.begin();
        assert_eq!(
            lane.reader(),
            Reader::Gone,
            "who has left does not come back"
        );
    }
}

#[cfg(loom)]
mod models {
    use std::sync::Arc;

    use loom::sync::{Condvar, Mutex};
    use loom::thread;

    use super::*;

    /// What an engine does for a lane: somebody is told, once for each time.
    #[derive(Default)]
    struct Bell {
        rung: Mutex<bool>,
        changed: Condvar,
    }

    impl Bell {
        fn ring(&self) {
            *self.rung.lock().unwrap() = true;
            self.changed.notify_all();
        }

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

    /// A lost wake-up is a deadlock, which loom reports; the byte is there when its position is.
    #[test]
    fn loom_who_sleeps_for_bytes_is_told_of_them() {
        check(4, || {
            let (lane, bytes) = (lane(), Cells::private(2));
            let bell = Arc::new(Bell::default());
            let (their_lane, their_bytes) = (lane.clone(), bytes.clone());
            let their_bell = Arc::clone(&bell);
            let sender = thread::spawn(move || {
                for position in 0..2 {
                    their_bytes[position].store(7, Ordering::Relaxed);
                    if their_lane.publish(position as u64 + 1) {
                        their_bell.ring();
                    }
                }
            });
            let mut received = 0;
            while received < 2 {
                let mut there = lane.available(received as u64).unwrap();
                if there == 0 {
                    lane.want_bytes();
                    there = lane.available(received as u64).unwrap();
                }
                if there == 0 {
                    bell.sleep();
                    continue;
                }
                for _ in 0..there {
                    assert_eq!(bytes[received].load(Ordering::Relaxed), 7);
                    received += 1;
                }
                let _ = lane.free(received as u64, there, 0);
            }
            sender.join().unwrap();
        });
    }

    /// The lane is full; the receiver empties it in two steps.
    #[test]
    fn loom_who_sleeps_for_room_is_told_of_it() {
        check(4, || {
            let (lane, size) = (lane(), u64::from(LANE_BYTES));
            let bell = Arc::new(Bell::default());
            let _ = lane.publish(size);
            let (their_lane, their_bell) = (lane.clone(), Arc::clone(&bell));
            let receiver = thread::spawn(move || {
                for consumed in [size / 2, size] {
                    let there = their_lane.available(consumed - size / 2).unwrap();
                    if their_lane.free(consumed, there, size - consumed) {
                        their_bell.ring();
                    }
                }
            });
            while lane.used(size).unwrap() > size / 4 {
                lane.want_room(size / 4);
                if lane.used(size).unwrap() > size / 4 {
                    bell.sleep();
                }
            }
            receiver.join().unwrap();
        });
    }

    /// Either the one who leaves sees the bytes, or their sender sees that nobody reads.
    #[test]
    fn loom_bytes_that_nobody_reads_are_known_to_somebody() {
        check(4, || {
            let lane = lane();
            lane.begin();
            let theirs = lane.clone();
            let sender = thread::spawn(move || {
                let _ = theirs.publish(1);
                theirs.reader() == Reader::Gone
            });
            lane.leave();
            let seen = lane.available(0) == Ok(1);
            assert!(sender.join().unwrap() || seen);
        });
    }
}
