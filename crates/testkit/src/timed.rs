//! How long something takes that is done over and over: for `cargo bench`, never a test that fails.

use std::time::{Duration, Instant};

use statistics::Summary;

/// Until caches, predictors and the processor's clock have settled.
const WARM_UP: Duration = Duration::from_millis(500);
/// How long one sample is taken.
const SAMPLE: Duration = Duration::from_millis(50);
const SAMPLES: usize = 50;

/// Does `body` many times and prints the time that each of its `operations` takes, and how many of them there are a second.
pub fn timed(name: &str, operations: u32, mut body: impl FnMut()) {
    let mut times: u32 = 0;
    let began = Instant::now();
    while began.elapsed() < WARM_UP {
        body();
        times += 1;
    }
    let in_a_sample = SAMPLE.as_secs_f64() / WARM_UP.as_secs_f64() * f64::from(times);
    let times = (1..=times).find(|&count| f64::from(count) >= in_a_sample);
    let times = times.unwrap_or(1);
    let samples: Vec<f64> = (0..SAMPLES)
        .map(|_| sample_ns(times, operations, &mut body))
        .collect();
    if let Some(ns) = Summary::of(&samples) {
        println!(
            "{name}: {:.1} ns (median of {SAMPLES}; {:.1} to {:.1}), {:.2} million a second",
            ns.median,
            ns.min,
            ns.max,
            1e3 / ns.median,
        );
    }
}

fn sample_ns(times: u32, operations: u32, body: &mut impl FnMut()) -> f64 {
    let began = Instant::now();
    for _ in 0..times {
        body();
    }
    began.elapsed().as_secs_f64() * 1e9 / f64::from(times) / f64::from(operations)
}
