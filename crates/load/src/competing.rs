//! Programs that only compute, one or more for each processor: the other load of a machine, and a measure of what it has left.

use std::{
    hint::black_box,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Steps of a computation between looks at whether it shall end.
const STEPS: u64 = 2000;

/// Runs something beside as many computations as there are processors; what it gave, and how many computations were made
/// each second.
pub fn beside<T>(run: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, f64)> {
    beside_many(1, run)
}

/// As [`beside`], with so many computations for each processor.
pub fn beside_many<T>(
    per_processor: usize,
    run: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, f64)> {
    let (is_over, made) = (AtomicBool::new(false), AtomicU64::new(0));
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let began = Instant::now();
    let result = thread::scope(|scope| {
        for _ in 0..per_processor * processors {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    black_box(
                        (0..STEPS).fold(1_u64, |sum, step| black_box(sum.rotate_left(5) ^ step)),
                    );
                    made.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let result = run();
        is_over.store(true, Ordering::Relaxed);
        result
    });
    let seconds = began.elapsed().as_secs_f64();
    Ok((result?, made.into_inner() as f64 / seconds))
}

/// How many computations are made each second beside nothing.
pub fn alone(time: Duration) -> anyhow::Result<f64> {
    let ((), per_s) = beside(|| {
        thread::sleep(time);
        Ok(())
    })?;
    Ok(per_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computations_are_made_beside_what_runs_and_end_with_it() {
        assert_eq!(beside(|| Ok(7)).unwrap().0, 7);
        assert!(alone(Duration::from_millis(20)).unwrap() > 0.0);
        assert!(beside(|| anyhow::bail!("broken") as anyhow::Result<()>).is_err());
    }
}
