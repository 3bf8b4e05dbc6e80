//! Runs for a caller that waits: with a bound of their own, that can be stopped, and that can be watched.

use super::{MOST_EVENTS, Machine, Ns, Outcome, Scenario, Timeline, lengths::Watch};

/// Events between two questions whether to stop: some ten milliseconds.
const BETWEEN: u64 = 1 << 16;

/// How much a run may take.
#[derive(Clone, Copy)]
pub struct Bounds<'a> {
    /// Most events; a run that needs more is cut, and says so.
    pub events: u64,
    /// True when nobody waits for the result any more; asked every few milliseconds. The run is then
    /// cut where it is.
    pub stopped: &'a dyn Fn() -> bool,
}

impl Default for Bounds<'_> {
    fn default() -> Self {
        Self {
            events: MOST_EVENTS,
            stopped: &|| false,
        }
    }
}

impl std::fmt::Debug for Bounds<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bounds")
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

impl<'a> Machine<'a> {
    /// Runs a scenario once, with this seed, after this much of the background's first slice.
    pub fn run(scenario: &'a Scenario, seed: u64, background_phase: Ns) -> Outcome {
        Self::run_within(scenario, seed, background_phase, Bounds::default())
    }

    /// As [`Machine::run`], within bounds.
    pub fn run_within(scenario: &'a Scenario, seed: u64, phase: Ns, bounds: Bounds) -> Outcome {
        let mut machine = Self::new(scenario, seed);
        machine.start(phase);
        machine.simulate::<false>(bounds);
        machine.finish_up()
    }

    /// As [`Machine::run`], with at most this many spans of who ran what, and the queues' lengths.
    pub fn run_with_timeline(
        scenario: &'a Scenario,
        seed: u64,
        background_phase: Ns,
        spans: usize,
    ) -> Outcome {
        let bounds = Bounds::default();
        Self::watch_within(scenario, seed, background_phase, bounds, spans)
    }

    /// As [`Machine::run_with_timeline`], within bounds.
    pub fn watch_within(
        scenario: &'a Scenario,
        seed: u64,
        phase: Ns,
        bounds: Bounds,
        spans: usize,
    ) -> Outcome {
        let mut machine = Self::new(scenario, seed);
        machine.timeline = Timeline::new(spans);
        machine.watch = Some(Watch::new());
        machine.start(phase);
        machine.simulate::<true>(bounds);
        machine.finish_up()
    }

    fn simulate<const WATCHED: bool>(&mut self, bounds: Bounds) {
        let most = bounds.events.min(MOST_EVENTS);
        loop {
            self.most_events = self.events_done.saturating_add(BETWEEN).min(most);
            self.do_events::<WATCHED>();
            let ended = self.events_done < self.most_events || self.events_done >= most;
            if ended || (bounds.stopped)() {
                break;
            }
        }
        for core in 0..self.cores.len() {
            self.stop(core);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Some 300,000 events.
    fn long() -> Scenario {
        let mut scenario = Scenario::default();
        scenario.workload.clients = 2;
        scenario.workload.requests_per_client = 20_000;
        scenario.workload.horizon_s = 1000.0;
        scenario
    }

    #[test]
    fn a_run_is_the_same_whether_it_is_watched_or_bounded() {
        let scenario = long();
        let plain = Machine::run(&scenario, 1, 0);
        let watched = Machine::run_with_timeline(&scenario, 1, 0, 10);
        assert!(!plain.cut);
        assert_eq!(plain.events, watched.events);
        assert!(plain.times().eq(watched.times()));
    }

    #[test]
    fn events_beyond_the_bound_are_not_simulated_and_the_cut_is_said() {
        let bounds = Bounds {
            events: 100_000,
            ..Bounds::default()
        };
        let outcome = Machine::run_within(&long(), 1, 0, bounds);
        assert_eq!((outcome.events, outcome.cut), (100_000, true));
    }

    #[test]
    fn a_run_stops_when_nobody_waits_for_it() {
        let asked = Cell::new(0);
        let bounds = Bounds {
            stopped: &|| {
                asked.set(asked.get() + 1);
                asked.get() == 2
            },
            ..Bounds::default()
        };
        let outcome = Machine::run_within(&long(), 1, 0, bounds);
        assert_eq!((outcome.events, outcome.cut), (2 * BETWEEN, true));
    }
}
