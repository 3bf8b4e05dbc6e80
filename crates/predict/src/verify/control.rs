//! Whether the machine is as fast as when its costs were measured: a server on the kernel is asked the same while a stack is calibrated, and again
//! in turns with the runs that its predictions are held against. Whether a prediction fits has no part in it.
//!
//! What other machines on the same host take is seen by no counter of this one.

use std::collections::BTreeMap;

use anyhow::Context as _;
use load::trial::{Server, Stack, Testbed};
use statistics::Summary;

use super::BOUND;
use crate::calibrate::works::{BATCH, SMALL};

const PORT: u16 = 7008;
const CLIENTS: usize = 8;
/// Runs before a stack is calibrated, and as many after it.
const RUNS: usize = 3;
/// A machine that has changed by more than this is another one: half of the bound is the model's.
const CHANGE: f64 = BOUND / 2.0;

/// The server, and how many requests it answered each second while each stack was calibrated.
pub struct Control {
    server: Server,
    rates_per_s: BTreeMap<&'static str, Vec<f64>>,
}

impl Control {
    pub fn start(testbed: &Testbed) -> anyhow::Result<Self> {
        Ok(Self {
            server: testbed.serve_at(Stack::Kernel, PORT, SMALL)?,
            rates_per_s: BTreeMap::new(),
        })
    }

    /// Before or after a stack is calibrated.
    pub fn note(&mut self, testbed: &Testbed, stack: Stack) -> anyhow::Result<()> {
        for _ in 0..RUNS {
            let rate_per_s = self.run(testbed)?;
            let rates_per_s = self.rates_per_s.entry(stack.name()).or_default();
            rates_per_s.push(rate_per_s);
        }
        Ok(())
    }

    /// Requests that it answers each second now.
    pub fn run(&self, testbed: &Testbed) -> anyhow::Result<f64> {
        let seen = testbed.ask(&self.server, SMALL, CLIENTS, BATCH)?;
        Ok(seen.rate_per_s)
    }

    /// Why nothing is known of a stack beside which it answered at these rates.
    pub fn changed(&self, stack: Stack, now_per_s: &[f64]) -> anyhow::Result<Option<String>> {
        let median = |rates: &[f64]| Summary::of(rates).map(|summary| summary.median);
        let then = self.rates_per_s.get(stack.name());
        let then = then.and_then(|rates| median(rates));
        let then = then.context("invariant: a stack was calibrated before it is predicted")?;
        Ok(median(now_per_s).and_then(|now| said(now / then - 1.0)))
    }
}

fn said(change: f64) -> Option<String> {
    let how = if change < 0.0 { "slower" } else { "faster" };
    (change.abs() > CHANGE).then(|| {
        format!(
            "the machine had become {:.0} % {how} since its costs were measured: a server on the kernel that was asked the same then and now says so ({:.0} % are allowed)",
            100.0 * change.abs(),
            100.0 * CHANGE
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_has_changed_by_more_than_half_of_the_bound_is_named_with_the_direction() {
        assert_eq!(said(0.0), None);
        assert_eq!(said(-0.049), None);
        assert!(said(-0.2).unwrap().contains("20 % slower"));
        assert!(said(0.06).unwrap().contains("6 % faster"));
    }
}
