//! loom's atomics for models in which a process is killed: a thread that was given so many steps stops in front of the next one
//! (`End`). What it has stored stays, and nothing of it runs any more.
//!
//! Who learns of the end (the engine of a program, the keeper of an engine) sees all that the killed process has stored, as after
//! waitpid(2): in a model, after `join`. Who does not know of it yet sees what the memory model lets it see.

use core::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Real};

use loom::sync::atomic as model;
pub(crate) use model::Ordering;

loom::thread_local! {
    /// Steps that are left; `None`: nobody kills the thread.
    static LEFT: Cell<Option<u32>> = Cell::new(None);
}

/// What a killed thread stops with.
struct Killed;

/// In front of whatever others could see.
pub(crate) fn step() {
    let is_over = LEFT.with(|left| match left.get() {
        Some(0) => true,
        Some(steps) => {
            left.set(Some(steps - 1));
            false
        }
        None => false,
    });
    if is_over {
        resume_unwind(Box::new(Killed));
    }
}

/// After how many steps a process is killed.
#[derive(Clone)]
pub(crate) struct End {
    steps: u32,
    came: Arc<AtomicBool>,
}

impl End {
    /// One after so many steps, for another thread of the same process.
    pub(crate) fn after(&self, steps: u32) -> End {
        End {
            steps,
            came: Arc::default(),
        }
    }

    /// What the thread does until its process is killed; `None`: it was.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        LEFT.with(|left| left.set(Some(self.steps)));
        let outcome = catch_unwind(AssertUnwindSafe(work));
        LEFT.with(|left| left.set(None));
        match outcome {
            Ok(value) => Some(value),
            Err(cause) if cause.is::<Killed>() => {
                self.came.store(true, Real::Relaxed);
                None
            }
            Err(cause) => resume_unwind(cause),
        }
    }
}

/// Checks the model with an end in front of each step, until no schedule has one left. How many there were.
pub(crate) fn at_every_step(
    preemptions: usize,
    body: impl Fn(&End) + Send + Sync + 'static,
) -> u32 {
    let body = Arc::new(body);
    for steps in 0.. {
        let end = End {
            steps,
            came: Arc::default(),
        };
        let (body, given) = (Arc::clone(&body), end.clone());
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.max_branches = 20_000;
        builder.check(move || body(&given));
        if !end.came.load(Real::Relaxed) {
            return steps;
        }
    }
    unreachable!("invariant: a model ends")
}

/// As `core::sync::atomic::fence`.
pub(crate) fn fence(order: Ordering) {
    step();
    model::fence(order);
}

macro_rules! mortal {
    ($name:ident, $value:ty) => {
        /// loom's, with a step in front of each access.
        #[derive(Debug, Default)]
        pub struct $name(model::$name);

        #[allow(dead_code)]
        impl $name {
            pub fn new(value: $value) -> $name {
                $name(model::$name::new(value))
            }

            pub fn load(&self, order: Ordering) -> $value {
                step();
                self.0.load(order)
            }

            pub fn store(&self, value: $value, order: Ordering) {
                step();
                self.0.store(value, order);
            }

            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.swap(value, order)
            }

            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_add(value, order)
            }

            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_sub(value, order)
            }

            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_or(value, order)
            }

            pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_and(value, order)
            }

            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                step();
                self.0.compare_exchange(current, new, success, failure)
            }

            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                step();
                self.0.compare_exchange_weak(current, new, success, failure)
            }
        }
    };
}

mortal!(AtomicU32, u32);
mortal!(AtomicU64, u64);
