//! How far the processors of this machine are from each other: the time in which one word travels to
//! another processor and back through the caches.
//!
//! Programs and engine hand each other work through such words, so this is the floor of what an
//! engine on another processor costs.

use std::{
    hint,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Partners of the first processor that are tried; machines with hundreds repeat themselves.
const MAX_PARTNERS: usize = 16;

/// Processors of a machine on which any two tell how far programs are from each other.
const FEW: usize = 4;

/// How long one pair is watched. A virtual machine may take a processor away for a while, hence a
/// time and not a count.
const PAIR_TIME: Duration = Duration::from_millis(20);

/// Round trips between looks at the clock.
const BATCH: u32 = 500;

/// Said by the first processor when the measurement is over.
const END: u32 = u32::MAX;

/// Round trips between the first processor and its nearest and farthest partner.
#[derive(Debug, Clone, Copy)]
pub struct CoreDistance {
    /// Nanoseconds to the nearest partner and back.
    pub nearest_ns: f64,
    /// Nanoseconds to the farthest partner and back.
    pub farthest_ns: f64,
}

/// The processor that an engine gets for itself while it is measured: the last one, where there are
/// several.
pub fn for_engine() -> Option<usize> {
    for_engines().next()
}

/// The processors of several engines, one after the other: from the last one to the first. None where there is one alone.
pub fn for_engines() -> impl Iterator<Item = usize> {
    let allowed = sched_getaffinity(None).ok();
    let usable = (0..CpuSet::MAX_CPU).rev();
    let usable = usable.filter(|&cpu| allowed.as_ref().is_some_and(|set| set.is_set(cpu)));
    let usable: Vec<usize> = usable.collect();
    let is_enough = usable.len() > 1;
    usable.into_iter().filter(move |_| is_enough)
}

impl CoreDistance {
    /// Nanoseconds to the nearest partner and back, where there are few: quick enough to be asked beside each run.
    pub fn of_few() -> Option<f64> {
        let allowed = sched_getaffinity(None).ok()?;
        let usable = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
        let is_few = usable.count() <= FEW;
        is_few.then(Self::measure)?.map(|far| far.nearest_ns)
    }

    /// Measures; None where this process may use one processor only.
    pub fn measure() -> Option<Self> {
        let allowed = sched_getaffinity(None).ok()?;
        let mut usable = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
        let first = usable.next()?;
        let times: Vec<f64> = usable
            .take(MAX_PARTNERS)
            .filter_map(|partner| round_trip_ns(first, partner))
            .collect();
        Some(Self {
            nearest_ns: times.iter().copied().min_by(f64::total_cmp)?,
            farthest_ns: times.iter().copied().max_by(f64::total_cmp)?,
        })
    }
}

/// The best batch: every other one was disturbed.
fn round_trip_ns(first: usize, partner: usize) -> Option<f64> {
    let word = Arc::new(AtomicU32::new(0));
    let answering = Arc::clone(&word);
    let answerer = thread::spawn(move || {
        if !stay_on(partner) {
            answering.store(END, Ordering::Release);
            return;
        }
        answer(&answering);
    });
    let asker = thread::spawn(move || {
        let best = if stay_on(first) { ask(&word) } else { None };
        word.store(END, Ordering::Release);
        best
    });
    let best = asker.join().ok()?;
    answerer.join().ok()?;
    best
}

/// Odd values are questions, the even one after each is its answer.
fn ask(word: &AtomicU32) -> Option<f64> {
    let deadline = Instant::now() + PAIR_TIME;
    let mut best: Option<f64> = None;
    let mut value = 0;
    while Instant::now() < deadline {
        let begun = Instant::now();
        for _ in 0..BATCH {
            word.store(value + 1, Ordering::Release);
            value += 2;
            loop {
                match word.load(Ordering::Acquire) {
                    END => return None,
                    seen if seen == value => break,
                    _ => hint::spin_loop(),
                }
                if begun.elapsed() > PAIR_TIME {
                    return best;
                }
            }
        }
        let each = begun.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH);
        best = Some(best.map_or(each, |best| best.min(each)));
    }
    best
}

fn answer(word: &AtomicU32) {
    loop {
        match word.load(Ordering::Acquire) {
            END => return,
            question if question % 2 == 1 => {
                // The asker may have said the end meanwhile, which must stand.
                let _ = word.compare_exchange(
                    question,
                    question + 1,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                );
            }
            _ => hint::spin_loop(),
        }
    }
}

fn stay_on(cpu: usize) -> bool {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processors_are_some_nanoseconds_apart() {
        let Some(distance) = CoreDistance::measure() else {
            testkit::world::skip(module_path!(), "one processor only");
            return;
        };
        assert!(distance.nearest_ns > 1.0 && distance.nearest_ns <= distance.farthest_ns);
    }
}
