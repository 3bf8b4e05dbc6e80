//! Taking turns under all of loom's schedules.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64 as Count, Ordering};
use loom::thread;

use super::*;

#[derive(Default)]
struct Engine {
    turns: PollLock,
    pushed: Count,
    /// Only who has the turn changes it, so that relaxed halves of a change are enough.
    seen: Count,
    inside: Count,
}

impl Engine {
    fn run(&self) {
        loop {
            if !self.turns.try_take() {
                return;
            }
            assert_eq!(self.inside.fetch_add(1, Ordering::Relaxed), 0);
            let pushed = self.pushed.load(Ordering::Relaxed);
            let seen = self.seen.load(Ordering::Relaxed);
            self.seen.store(seen.max(pushed), Ordering::Relaxed);
            self.inside.fetch_sub(1, Ordering::Relaxed);
            if !self.turns.let_go() || !self.turns.leave_to_waiters() {
                return;
            }
        }
    }

    /// Has the lock, and polls nothing.
    fn work(&self) {
        assert_eq!(self.inside.fetch_add(1, Ordering::Relaxed), 0);
        self.inside.fetch_sub(1, Ordering::Relaxed);
        if self.turns.let_go() && self.turns.leave_to_waiters() {
            self.run();
        }
    }
}

/// Whoever pushed and went away finds its note taken once everybody has gone.
#[test]
fn loom_no_note_is_left_lying_when_all_have_let_go() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(|| {
        let engine = Arc::new(Engine::default());
        let push = |engine: Arc<Engine>| {
            move || {
                engine.pushed.fetch_add(1, Ordering::Relaxed);
                engine.turns.request();
                engine.run();
            }
        };
        let other = thread::spawn(push(Arc::clone(&engine)));
        push(Arc::clone(&engine))();
        other.join().unwrap();
        let seen = engine.seen.load(Ordering::Relaxed);
        assert_eq!(seen, 2);
    });
}

/// A thread pushes, and another one does something else.
fn beside_a_note(other_work: fn(&Engine)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(move || {
        let engine = Arc::new(Engine::default());
        let other = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                engine.pushed.fetch_add(1, Ordering::Relaxed);
                engine.turns.request();
                engine.run();
            })
        };
        other_work(&engine);
        other.join().unwrap();
        assert_eq!(engine.seen.load(Ordering::Relaxed), 1);
    });
}

/// Who takes the lock for work that answers no request leaves the requests of others to be answered.
#[test]
fn loom_work_that_answers_no_request_leaves_none_lying() {
    beside_a_note(|engine| {
        if engine.turns.try_take_unrequested() {
            engine.work();
        }
    });
}

/// So does who waits for the lock, and gives up or has it.
#[test]
fn loom_who_waits_for_the_lock_leaves_no_request_lying() {
    beside_a_note(|engine| {
        let waiting = engine.turns.wait();
        let taken = engine.turns.try_take_for_work();
        drop(waiting);
        if taken {
            engine.work();
        }
    });
}
