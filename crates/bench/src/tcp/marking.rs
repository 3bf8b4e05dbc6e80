//! DCTCP from Shunt to Shunt on cables that mark what waits too long instead of dropping it (RFC 8257).
//!
//! The kernel is not beside it: it allows DCTCP in no namespace but the first.

use serde::Serialize;
use std::time::Instant;

use load::interrupt::Interrupt;

use super::{
    estimate::Estimate,
    grid::{Cell, Combination, Job, Stack},
    testbed::Testbed,
};

/// Rate and round trip of the cables.
const CABLES: [(u64, u64); 4] = [(10, 20), (10, 100), (1000, 0), (1000, 20)];
/// Marks are not asked for by default: with accurate ECN a sender hears of each.
const ENGINE_FLAGS: [&str; 2] = ["--ecn", "3"];
/// Frames that wait unmarked at least.
const FRAMES_LEAST: u64 = 20;

/// What DCTCP reached on one cable.
#[derive(Debug, Serialize)]
pub struct Marked {
    pub cell: Cell,
    pub goodput_mbit: Option<Estimate>,
    pub completion_s: Option<Estimate>,
    pub failures: Vec<String>,
}

/// Measures the cables of which `is_wanted` approves, one after the other on one testbed; what there is until
/// somebody interrupts.
pub fn measure(
    seeds: u64,
    is_wanted: impl Fn(&Cell) -> bool,
    interrupt: &Interrupt,
    begun: Instant,
) -> anyhow::Result<Vec<Marked>> {
    if seeds == 0 {
        return Ok(Vec::new());
    }
    let name = format!("tcp-{}-mark", std::process::id());
    let mut testbed = Testbed::create(&name, &ENGINE_FLAGS, interrupt)?;
    let mut all = Vec::new();
    for (rate_mbit, rtt_ms) in CABLES {
        let cell = Cell {
            ecn_bytes: Some(threshold_bytes(rate_mbit, rtt_ms)),
            ..Cell::new(0.0, rtt_ms, rate_mbit)
        };
        if !is_wanted(&cell) {
            continue;
        }
        let (mut goodput, mut seconds, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        for seed in 0..seeds {
            let job = Job {
                cell,
                congestion: "dctcp".to_owned(),
                combination: Combination::of(Stack::Shunt, Stack::Shunt),
                seed,
            };
            let outcome = testbed.transfer(&job);
            if interrupt.came() {
                return Ok(all);
            }
            let error = match outcome {
                Ok(outcome) if outcome.error.is_none() => {
                    goodput.push(outcome.bytes as f64 * 8.0 / outcome.seconds / 1e6);
                    seconds.push(outcome.seconds);
                    continue;
                }
                Ok(outcome) => outcome.error.unwrap_or_default(),
                Err(error) => format!("{error:#}"),
            };
            failures.push(error);
            drop(testbed);
            testbed = Testbed::create(&name, &ENGINE_FLAGS, interrupt)?;
        }
        note!(
            "[{:>4} s] DCTCP: {rate_mbit} Mbit/s, {rtt_ms} ms",
            begun.elapsed().as_secs()
        );
        all.push(Marked {
            cell,
            goodput_mbit: Estimate::of(&goodput),
            completion_s: Estimate::of(&seconds),
            failures,
        });
    }
    Ok(all)
}

/// From where on frames are marked: a seventh of what the path holds keeps it busy (Alizadeh et al. 2010 §3.4).
fn threshold_bytes(rate_mbit: u64, rtt_ms: u64) -> u64 {
    (rate_mbit * 125 * rtt_ms / 7).max(FRAMES_LEAST * 1514)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_begin_long_before_the_buffer_ends() {
        for (rate_mbit, rtt_ms) in CABLES {
            let buffer_bytes = Cell::new(0.0, rtt_ms, rate_mbit).queue_bytes;
            assert!(2 * threshold_bytes(rate_mbit, rtt_ms) <= buffer_bytes);
        }
    }
}
