//! What trials of the calibration say of the model itself: how much longer or shorter an exchange took than the fitted
//! costs make it, for each number of clients that was tried. A lone exchange is shorter, because a server clears away what
//! is left of a request while its answer is on its way; one of several can be longer, because Linux moves threads about.

use serde::{Deserialize, Serialize};

/// Trials with one number of clients, beside what the costs alone make of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// How many asked, each with one request under way.
    pub clients: usize,
    /// What the time between two answers was longer than the costs make it, in nanoseconds; less than nothing where it was shorter.
    pub more_ns: f64,
    /// How far the trials were off with that, as a part of their times: root of the mean square. Of those to which the costs were
    /// fitted, or of those to which nothing was, whichever is further.
    pub off: f64,
}

/// What trials say of so many requests under way: between those that were tried by the logarithm of their number, outside what
/// the nearest one says. Nothing where there were none.
pub fn between(trials: &[Trial], under_way: f64) -> Option<Trial> {
    let at = under_way.max(1.0);
    let above = trials.iter().find(|trial| trial.clients as f64 >= at);
    let below = trials.iter().rev().find(|trial| trial.clients as f64 <= at);
    let (below, above) = (below.or(above)?, above.or(below)?);
    let [low, high] = [below, above].map(|trial| (trial.clients.max(1) as f64).ln());
    let part = match high > low {
        true => (at.ln() - low) / (high - low),
        false => 0.0,
    };
    Some(Trial {
        clients: below.clients,
        more_ns: below.more_ns + part * (above.more_ns - below.more_ns),
        off: below.off + part * (above.off - below.off),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(clients: usize, more_ns: f64, off: f64) -> Trial {
        Trial {
            clients,
            more_ns,
            off,
        }
    }

    #[test]
    fn between_trials_it_is_by_the_logarithm_and_outside_as_the_nearest() {
        let trials = [trial(1, -4000.0, 0.02), trial(8, 800.0, 0.08)];
        let more = |under_way| between(&trials, under_way).unwrap().more_ns;
        assert!((more(1.0) + 4000.0).abs() < 1e-9 && (more(8.0) - 800.0).abs() < 1e-9);
        assert!((more(8f64.sqrt()) + 1600.0).abs() < 1e-6);
        assert!((more(0.2) + 4000.0).abs() < 1e-9 && (more(50.0) - 800.0).abs() < 1e-9);
        assert!((between(&trials, 8f64.sqrt()).unwrap().off - 0.05).abs() < 1e-9);
        assert_eq!(between(&[], 3.0), None);
    }
}
