//! Many runs of one scenario as one result: pooled response times, a confidence interval from run to
//! run, processor time by level, and what must be said before anyone believes a mean.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Serialize};

use crate::{
    machine::{Busy, Machine, Outcome, Work, bounds::Bounds},
    scenario::{Kind, Scenario},
    statistics::histogram::Histogram,
    time::{Ns, as_ms, from_ms, round},
};

/// What the runs of a scenario say.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Summary {
    /// Runs made.
    pub runs: usize,
    /// Requests of all runs.
    pub requests: usize,
    /// Of these, answered.
    pub answered: usize,
    /// Of these, dropped somewhere.
    pub dropped: usize,
    /// Runs that were cut at the horizon.
    pub cut_runs: usize,
    /// Response time over everything answered.
    pub response: Option<Response>,
    /// Mean response over what was answered while load still arrived: a survivor's mean.
    pub during_load_mean_ms: Option<f64>,
    /// Share of the requests that were answered while load still arrived.
    pub during_load_share: f64,
    /// Answers in the second half of the load as a share of what was asked in it; above 1 a backlog
    /// was served, below 0.05 the stack has stopped answering.
    pub late_share: f64,
    /// Groups of answers more than 50 ms apart, per run.
    pub batches: f64,
    /// Interrupts per request.
    pub interrupts_per_request: f64,
    /// Processor time per request by level, in microseconds.
    pub busy_us_per_request: BTreeMap<Cow<'static, str>, f64>,
    /// Mean over the runs, by resource.
    pub resources: BTreeMap<String, Resource>,
    /// Most bytes that the NIC's memory held in any run.
    pub nic_memory_peak_bytes: f64,
    /// Losses of packets or exchanges.
    pub losses: u64,
    /// Resources that more is asked of than they can do, with that load; a mean of such a scenario
    /// depends on how long it was watched.
    pub overloaded: BTreeMap<Cow<'static, str>, f64>,
    /// Half of the confidence interval in percent of the mean, where `runs.until_percent` asked for less and
    /// `runs.most` runs were made first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wider_than_asked_percent: Option<f64>,
    /// Simulated events.
    pub events: u64,
}

/// Response times.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Response {
    /// Mean.
    pub mean_ms: f64,
    /// Half of the 95 % confidence interval of the mean, from run to run; none for a single run.
    pub mean_plus_minus_ms: Option<f64>,
    /// Median.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// 99.9th percentile.
    pub p999_ms: f64,
}

/// A resource, as a mean over runs.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Resource {
    /// Share of the time in which it was busy.
    pub utilisation: f64,
    /// Mean wait before work began.
    pub wait_mean_us: f64,
    /// 99th percentile of the wait, mean over the runs.
    pub wait_p99_us: f64,
}

/// 97.5th percentile of Student's t with this many degrees of freedom.
pub(crate) fn student_t(freedom: usize) -> f64 {
    const TABLE: [f64; 10] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    ];
    match freedom.checked_sub(1).and_then(|index| TABLE.get(index)) {
        Some(value) => *value,
        // Within 0.5 % of the table from eleven on.
        None => 1.96 + 2.5 / freedom.max(1) as f64,
    }
}

#[derive(Debug, Default)]
struct Pool {
    runs: usize,
    requests: usize,
    answered: usize,
    dropped: usize,
    cut_runs: usize,
    responses: Histogram,
    means_ms: Vec<f64>,
    survivors: (usize, u128),
    late: f64,
    batches: usize,
    interrupts: u64,
    busy: Busy,
    resources: BTreeMap<String, Resource>,
    memory_peak: f64,
    losses: u64,
    events: u64,
}

impl Pool {
    fn add(&mut self, outcome: &Outcome) {
        self.runs += 1;
        self.requests += outcome.requests();
        self.answered += outcome.answered;
        self.dropped += outcome.dropped;
        self.cut_runs += usize::from(outcome.cut);
        outcome.responses().for_each(|ns| self.responses.add(ns));
        self.means_ms.extend(outcome.mean_us().map(|us| us / 1e3));
        for response in outcome.responses_during_load() {
            self.survivors.0 += 1;
            self.survivors.1 += u128::from(response);
        }
        self.late += outcome.late_share();
        self.batches += outcome.batches();
        self.interrupts += outcome.causes.interrupts();
        self.busy.add(&outcome.busy);
        for (name, report) in &outcome.resources {
            let row = self.resources.entry(name.clone()).or_default();
            row.utilisation += report.utilisation;
            row.wait_mean_us += report.wait_mean_us;
            row.wait_p99_us += report.wait_p99_us;
        }
        self.memory_peak = self.memory_peak.max(outcome.nic_memory_peak_bytes);
        self.losses += outcome.losses;
        self.events += outcome.events;
    }

    /// Half of the confidence interval of the mean over runs.
    fn plus_minus_ms(&self) -> Option<f64> {
        let n = self.means_ms.len();
        if n < 2 {
            return None;
        }
        let mean = self.means_ms.iter().sum::<f64>() / n as f64;
        let squares: f64 = self.means_ms.iter().map(|m| (m - mean).powi(2)).sum();
        let deviation = (squares / (n - 1) as f64).sqrt();
        Some(student_t(n - 1) * deviation / (n as f64).sqrt())
    }

    /// The same in percent of the mean.
    fn plus_minus_percent(&self) -> Option<f64> {
        let mean = self.responses.mean() / 1e6;
        self.plus_minus_ms().map(|half| 100.0 * half / mean)
    }

    fn precise_enough(&self, percent: f64) -> bool {
        self.plus_minus_percent()
            .is_some_and(|half| half <= percent)
    }

    fn summary(mut self, scenario: &Scenario) -> Summary {
        let runs = self.runs.max(1) as f64;
        let per_request = self.requests.max(1) as f64;
        for row in self.resources.values_mut() {
            row.utilisation /= runs;
            row.wait_mean_us /= runs;
            row.wait_p99_us /= runs;
        }
        let response = (self.responses.count() > 0).then(|| Response {
            mean_ms: self.responses.mean() / 1e6,
            mean_plus_minus_ms: self.plus_minus_ms(),
            p50_ms: as_ms(self.responses.quantile(0.5)),
            p99_ms: as_ms(self.responses.quantile(0.99)),
            p999_ms: as_ms(self.responses.quantile(0.999)),
        });
        let asked = scenario.runs.until_percent;
        let wide = asked > 0.0 && !self.precise_enough(asked);
        let wider_than_asked_percent = self.plus_minus_percent().filter(|_| wide);
        let (survivors, sum) = self.survivors;
        let busy = self.busy.named_us();
        Summary {
            runs: self.runs,
            requests: self.requests,
            answered: self.answered,
            dropped: self.dropped,
            cut_runs: self.cut_runs,
            response,
            during_load_mean_ms: (survivors > 0).then(|| sum as f64 / survivors as f64 / 1e6),
            during_load_share: survivors as f64 / per_request,
            late_share: self.late / runs,
            batches: self.batches as f64 / runs,
            interrupts_per_request: self.interrupts as f64 / per_request,
            busy_us_per_request: busy
                .into_iter()
                .map(|(name, us)| (name.into(), us / per_request))
                .collect(),
            resources: self.resources,
            nic_memory_peak_bytes: self.memory_peak,
            losses: self.losses,
            overloaded: offered_loads(scenario)
                .into_iter()
                .filter(|(_, load)| *load >= 1.0)
                .map(|(name, load)| (name.into(), load))
                .collect(),
            wider_than_asked_percent,
            events: self.events,
        }
    }
}

/// Runs a scenario as often as it asks.
pub fn replicate(scenario: &Scenario) -> Summary {
    replicate_with(scenario, |_, _| {})
}

/// As [`replicate`]; hands every run's number and outcome over, in order.
pub fn replicate_with(scenario: &Scenario, each: impl FnMut(usize, &Outcome)) -> Summary {
    // A run's own bound holds for each: only a caller that waits bounds them together.
    let unbounded = Bounds {
        events: u64::MAX,
        ..Bounds::default()
    };
    replicate_within(scenario, unbounded, each)
}

/// As [`replicate_with`], where the bounds hold for all runs together: those beyond are not made, and
/// the one that reaches them is cut.
pub fn replicate_within(
    scenario: &Scenario,
    bounds: Bounds,
    mut each: impl FnMut(usize, &Outcome),
) -> Summary {
    let mut pool = Pool::default();
    let runs = &scenario.runs;
    let mut wanted = runs.replications;
    while pool.runs < wanted
        && pool.events < bounds.events
        && !(pool.runs > 0 && (bounds.stopped)())
    {
        let index = pool.runs;
        let left = Bounds {
            events: bounds.events - pool.events,
            ..bounds
        };
        let seed = runs.seed.wrapping_add(index as u64);
        let outcome = Machine::run_within(scenario, seed, background_phase(scenario, index), left);
        pool.add(&outcome);
        each(index, &outcome);
        let more = runs.until_percent > 0.0 && !pool.precise_enough(runs.until_percent);
        if pool.runs == wanted && more && wanted < runs.most {
            wanted += 1;
        }
    }
    pool.summary(scenario)
}

/// How much of the first background slice is over when a run begins: the runs divide the slice
/// evenly, and further ones fill the gaps by the golden ratio.
pub fn background_phase(scenario: &Scenario, run: usize) -> Ns {
    if let Some(phase) = scenario.host.background_phase_ms {
        return from_ms(phase);
    }
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let planned = scenario.runs.replications;
    let share = if run < planned {
        (run as f64 + 0.5) / planned as f64
    } else {
        ((run as f64 + 0.5) * GOLDEN).fract()
    };
    round(share * scenario.host.quantum_ms * 1e6)
}

/// What a sustained load asks of each resource, as a share of what it can do.
///
/// On the host, endless computations take an equal share of the time that interrupts and bottom
/// halves leave, so a process's work weighs that much more.
pub fn offered_loads(scenario: &Scenario) -> BTreeMap<&'static str, f64> {
    let work = Work::new(scenario);
    let rate = scenario.workload.clients as f64 / (scenario.workload.period_ms / 1e3);
    let share = 1.0 + scenario.host.background as f64;
    let packets = work.packets as f64;
    let protocol = packets * work.receive as f64 + work.segment as f64;
    let announced = (work.interrupt + work.announced) as f64;
    let process = (work.serve + work.compute) as f64;
    let host = match scenario.stack.kind {
        Kind::Kernel => packets * announced + protocol + process * share,
        Kind::User if work.in_interrupt => packets * announced + protocol + process * share,
        Kind::User if scenario.stack.busy_poll => (protocol + process) * share,
        Kind::User => packets * announced + (protocol + process) * share,
        Kind::Nic => announced + process * share,
    };
    let mut loads = BTreeMap::new();
    loads.insert("host", rate * host / 1e9 / scenario.host.cores as f64);
    if scenario.stack.kind == Kind::Nic {
        let nic = protocol + work.transmit as f64;
        loads.insert("NIC", rate * nic / 1e9 / scenario.nic.cores as f64);
    }
    if scenario.network.link_queue {
        let bits = scenario.workload.response_bytes * 8.0;
        loads.insert("link", rate * bits / scenario.network.rates_mbps[0] / 1e6);
    }
    loads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replications_differ_and_the_interval_covers_their_spread() {
        let scenario = Scenario::default();
        let mut means = Vec::new();
        let summary = replicate_with(&scenario, |_, outcome| means.extend(outcome.mean_us()));
        assert_eq!((summary.runs, means.len()), (8, 8));
        let response = summary.response.unwrap();
        assert!(response.mean_plus_minus_ms.unwrap() > 0.0);
        assert!(response.p50_ms <= response.p99_ms && response.p99_ms <= response.p999_ms);
    }

    #[test]
    fn runs_are_added_until_the_interval_is_narrow_or_there_are_too_many() {
        let mut scenario = Scenario::default();
        scenario.runs.replications = 3;
        scenario.runs.until_percent = 5.0;
        let narrow = replicate(&scenario);
        assert!(narrow.runs > 3 && narrow.runs < 200, "{}", narrow.runs);
        let response = narrow.response.unwrap();
        assert!(response.mean_plus_minus_ms.unwrap() <= 0.05 * response.mean_ms);
        scenario.runs.until_percent = 1e-9;
        scenario.runs.most = 6;
        assert_eq!(narrow.wider_than_asked_percent, None);
        let wide = replicate(&scenario);
        assert_eq!(wide.runs, 6);
        assert!(wide.wider_than_asked_percent.unwrap() > 1.0);
    }

    #[test]
    fn overload_is_named_with_its_load() {
        let mut scenario = Scenario::default();
        scenario.workload.clients = 9;
        scenario.stack.kind = Kind::Nic;
        scenario.nic.clock_mhz = 200.0;
        let loads = replicate(&scenario).overloaded;
        // 900/s need 527 MHz.
        assert!((loads["NIC"] - 527.4 / 200.0).abs() < 0.01, "{loads:?}");
        assert!(!loads.contains_key("host"));
    }

    #[test]
    fn students_t_at_the_ends_of_its_table() {
        assert!((student_t(1) - 12.706).abs() < 1e-9);
        assert!((student_t(10) - 2.228).abs() < 1e-9);
        assert!((student_t(30) - 2.042).abs() < 0.01);
    }
}
