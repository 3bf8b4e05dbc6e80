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
            if !self.turns.let_go() {
                return;
            }
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

/// Who takes the lock for work that answers no request leaves the requests of others to be answered.
#[test]
fn loom_work_that_answers_no_request_leaves_none_lying() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(|| {
        let engine = Arc::new(Engine::default());
        let other = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                engine.pushed.fetch_add(1, Ordering::Relaxed);
                engine.turns.request();
                engine.run();
            })
        };
        if engine.turns.try_take_unrequested() {
            assert_eq!(engine.inside.fetch_add(1, Ordering::Relaxed), 0);
            engine.inside.fetch_sub(1, Ordering::Relaxed);
            if engine.turns.let_go() {
                engine.run();
            }
        }
        other.join().unwrap();
        assert_eq!(engine.seen.load(Ordering::Relaxed), 1);
    });
}
