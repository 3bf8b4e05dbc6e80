//! A byte channel against a queue, hostile words, and loom's schedules.

use super::*;

fn byte_channel() -> ByteChannel {
    let byte_channel = ByteChannel::new(Cells::private(BYTE_CHANNEL_WORDS));
    byte_channel.reset();
    byte_channel
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
        fn a_byte_channel_behaves_as_a_bounded_queue(steps in proptest::collection::vec(step(), 1..200)) {
            let (byte_channel, size) = (byte_channel(), u64::from(BYTE_CHANNEL_BYTES));
            let (mut sent, mut received) = (0, 0);
            let (mut awaits_bytes, mut awaits_room) = (true, None);
            for step in steps {
                match step {
                    Step::Send(bytes) => {
                        let used = byte_channel.used(sent).unwrap();
                        prop_assert_eq!(used, sent - received);
                        sent += bytes.min(size - used);
                        prop_assert_eq!(byte_channel.publish(sent), awaits_bytes);
                        awaits_bytes = false;
                    }
                    Step::Receive(bytes) => {
                        let there = byte_channel.available(received).unwrap();
                        prop_assert_eq!(there, sent - received);
                        received += bytes.min(there);
                        let left = sent - received;
                        let told = byte_channel.free(received, there, left);
                        let is_enough = awaits_room.is_some_and(|used| left <= used);
                        prop_assert_eq!(told, is_enough && there >= WORTHWHILE);
                        if told {
                            awaits_room = None;
                        }
                    }
                    Step::AwaitBytes => {
                        byte_channel.want_bytes();
                        awaits_bytes = true;
                    }
                    Step::AwaitRoom(used) => {
                        byte_channel.want_capacity(used);
                        awaits_room = Some(used);
                    }
                }
            }
        }

        #[test]
        fn a_hostile_side_is_refused_or_believed_within_the_byte_channel(
            words in proptest::collection::vec(any::<u64>(), BYTE_CHANNEL_WORDS), own: u64
        ) {
            let cells = Cells::private(BYTE_CHANNEL_WORDS);
            for (cell, word) in cells.iter().zip(words) {
                cell.store(word, Ordering::Relaxed);
            }
            let byte_channel = ByteChannel::new(cells);
            for bytes in [byte_channel.used(own), byte_channel.available(own)].into_iter().flatten() {
                prop_assert!(bytes <= u64::from(BYTE_CHANNEL_BYTES));
            }
        }
    }

    #[test]
    fn a_byte_channel_is_opened_and_ended_once_somebody_reads() {
        let byte_channel = byte_channel();
        assert_eq!(
            (byte_channel.reader(), byte_channel.origin()),
            (Reader::Nobody, None)
        );
        byte_channel.begin();
        assert_eq!(byte_channel.reader(), Reader::Reads);
        byte_channel.open(0);
        assert_eq!(
            (byte_channel.origin(), byte_channel.is_ended()),
            (Some(0), false)
        );
        byte_channel.end();
        assert!(byte_channel.is_ended());
        byte_channel.leave();
        byte_channel.begin();
        assert_eq!(
            byte_channel.reader(),
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
    use crate::sync::mortal::{at_every_step, step};

    /// What an engine does for a byte channel: somebody is told, once for each time.
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
            let (byte_channel, bytes) = (byte_channel(), Cells::private(2));
            let bell = Arc::new(TestBell::default());
            let (their_byte_channel, their_bytes) = (byte_channel.clone(), bytes.clone());
            let their_bell = Arc::clone(&bell);
            let sender = thread::spawn(move || {
                for position in 0..2 {
                    their_bytes[position].store(7, Ordering::Relaxed);
                    if their_byte_channel.publish(position as u64 + 1) {
                        their_bell.ring();
                    }
                }
            });
            let mut received = 0;
            while received < 2 {
                let mut there = byte_channel.available(received as u64).unwrap();
                if there == 0 {
                    byte_channel.want_bytes();
                    there = byte_channel.available(received as u64).unwrap();
                }
                if there == 0 {
                    bell.sleep();
                    continue;
                }
                for _ in 0..there {
                    assert_eq!(bytes[received].load(Ordering::Relaxed), 7);
                    received += 1;
                }
                let _ = byte_channel.free(received as u64, there, 0);
            }
            sender.join().unwrap();
        });
    }

    /// The byte channel is full; the receiver empties it in two steps.
    #[test]
    fn loom_who_sleeps_for_room_is_told_of_it() {
        check(4, || {
            let (byte_channel, size) = (byte_channel(), u64::from(BYTE_CHANNEL_BYTES));
            let bell = Arc::new(TestBell::default());
            let _ = byte_channel.publish(size);
            let (their_byte_channel, their_bell) = (byte_channel.clone(), Arc::clone(&bell));
            let receiver = thread::spawn(move || {
                for consumed in [size / 2, size] {
                    let there = their_byte_channel.available(consumed - size / 2).unwrap();
                    if their_byte_channel.free(consumed, there, size - consumed) {
                        their_bell.ring();
                    }
                }
            });
            while byte_channel.used(size).unwrap() > size / 4 {
                byte_channel.want_capacity(size / 4);
                if byte_channel.used(size).unwrap() > size / 4 {
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
            let byte_channel = byte_channel();
            byte_channel.begin();
            let theirs = byte_channel.clone();
            let sender = thread::spawn(move || {
                let _ = theirs.publish(1);
                theirs.reader() == Reader::Gone
            });
            byte_channel.leave();
            let seen = byte_channel.available(0) == Ok(1);
            assert!(sender.join().unwrap() || seen);
        });
    }

    /// A sender is killed at any step. Its engine hears of that and tells the receiver, which finds every byte that was told of.
    #[test]
    fn loom_what_a_killed_sender_has_told_of_is_read() {
        at_every_step(3, |end| {
            let (byte_channel, byte) = (byte_channel(), Cells::private(1));
            let bell = Arc::new(TestBell::default());
            let gone = Arc::new(loom::sync::atomic::AtomicBool::new(false));
            let (theirs, their_byte, end) = (byte_channel.clone(), byte.clone(), end.clone());
            let (their_bell, is_gone) = (Arc::clone(&bell), Arc::clone(&gone));
            let sender = thread::spawn(move || {
                let told = end.run(|| {
                    their_byte[0].store(7, Ordering::Relaxed);
                    if theirs.publish(1) {
                        step();
                        their_bell.ring();
                    }
                });
                is_gone.store(true, Ordering::Release);
                their_bell.ring();
                told.is_some()
            });
            let mut is_there = false;
            while !is_there && !gone.load(Ordering::Acquire) {
                byte_channel.want_bytes();
                is_there = byte_channel.available(0) == Ok(1);
                if !is_there && !gone.load(Ordering::Acquire) {
                    bell.sleep();
                }
            }
            let told = sender.join().unwrap();
            is_there |= byte_channel.available(0) == Ok(1);
            assert!(is_there || !told);
            assert!(!is_there || byte[0].load(Ordering::Relaxed) == 7);
        });
    }

    /// A receiver is killed at any step, and its engine says for it that nobody reads: it sees the bytes that nobody took, or the sender
    /// sees that nobody reads.
    #[test]
    fn loom_bytes_for_a_killed_receiver_are_known_to_somebody() {
        at_every_step(3, |end| {
            let byte_channel = byte_channel();
            let (theirs, end) = (byte_channel.clone(), end.clone());
            let receiver = thread::spawn(move || {
                let read = end.run(|| {
                    theirs.begin();
                    theirs.want_bytes();
                    let there = theirs.available(0).unwrap();
                    let _ = theirs.free(there, there, 0);
                });
                // The engine, which knows no position of the receiver's but the one that it told.
                theirs.leave();
                let left = theirs.words[HEAD].load(Ordering::Acquire)
                    - theirs.words[TAIL].load(Ordering::Acquire);
                (read, left)
            });
            let told = byte_channel.publish(1);
            let is_gone = byte_channel.reader() == Reader::Gone;
            let (read, left) = receiver.join().unwrap();
            let is_taken = byte_channel.used(1) == Ok(0);
            assert!(is_gone || left == 1 || is_taken, "{told} {read:?}");
        });
    }
}
