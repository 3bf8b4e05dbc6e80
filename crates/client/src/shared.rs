//! A place for a value that threads read while others replace it. Readers take no lock, wait for nobody, and touch nothing of
//! their thread's: a first use in a thread allocates nothing, so that handlers of signals may read.
//!
//! A word holds where the value is and how many readers have taken it from there. Who replaces it hands that number over to
//! the value's own count, and the last reader frees it (differential reference counts: A. Williams, "C++ Concurrency in
//! Action", §7.2.4).

mod sys;

pub use sys::{Loaded, Shared};

use std::sync::Arc;

impl<T> Shared<T> {
    /// The value with a reference of its own.
    pub fn load_full(&self) -> Option<Arc<T>> {
        self.load().cloned()
    }

    /// Puts another value there, or none.
    pub fn store(&self, value: Option<Arc<T>>) {
        drop(self.swap(value));
    }

    /// Replaces the value by what `change` makes of it, which is asked anew where somebody else was faster.
    pub fn change(&self, mut change: impl FnMut(Option<&Arc<T>>) -> Option<Arc<T>>) {
        loop {
            let seen = self.load();
            let next = change(seen.as_ref());
            if self.replace(&seen, next) {
                return;
            }
        }
    }
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Shared::empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Counted<'a>(&'a AtomicUsize, usize);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_value_lives_as_long_as_somebody_reads_it() {
        let dropped = AtomicUsize::new(0);
        let place = Shared::empty();
        assert!(place.load().is_none());
        place.store(Some(Arc::new(Counted(&dropped, 1))));
        let first = place.load();
        let second = place.load();
        place.store(Some(Arc::new(Counted(&dropped, 2))));
        assert_eq!(first.as_ref().map(|one| one.1), Some(1));
        drop(first);
        assert_eq!(dropped.load(Ordering::Relaxed), 0);
        drop(second);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        let kept = place.swap(None);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        drop((kept, place));
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_place_that_is_dropped_lets_go_of_its_value() {
        let dropped = AtomicUsize::new(0);
        let place = Shared::empty();
        place.store(Some(Arc::new(Counted(&dropped, 1))));
        drop(place.load());
        drop(place);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn more_readers_than_the_word_can_count_are_counted() {
        let dropped = AtomicUsize::new(0);
        let place = Shared::empty();
        place.store(Some(Arc::new(Counted(&dropped, 7))));
        let readers: Vec<_> = (0..200_000).map(|_| place.load()).collect();
        place.store(None);
        assert!(
            readers
                .iter()
                .all(|one| one.as_ref().is_some_and(|one| one.1 == 7))
        );
        assert_eq!(dropped.load(Ordering::Relaxed), 0);
        drop(readers);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn changes_of_many_threads_are_all_made_beside_readers() {
        let dropped = AtomicUsize::new(0);
        let place = Shared::empty();
        place.store(Some(Arc::new(Counted(&dropped, 0))));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        place.change(|seen| seen.map(|one| Arc::new(Counted(one.0, one.1 + 1))));
                    }
                });
                scope.spawn(|| {
                    let mut last = 0;
                    for _ in 0..5_000 {
                        let seen = place.load().as_ref().map_or(0, |one| one.1);
                        assert!(seen >= last);
                        last = seen;
                    }
                });
            }
        });
        assert_eq!(place.load_full().map(|one| one.1), Some(6_000));
        let made = dropped.load(Ordering::Relaxed);
        drop(place);
        assert_eq!(dropped.load(Ordering::Relaxed), made + 1);
    }
}
