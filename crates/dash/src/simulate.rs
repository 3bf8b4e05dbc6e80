//! Simulations for a page that waits: bounded, and given up when nobody waits any more.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde::Serialize;
use sim::{
    formula::{
        PerRequest, burst_knee_mhz, livelock_clients, nic_work_us, packet_error_rate, sustained_mhz,
    },
    machine::{Machine, Outcome, QUEUES, Span, Work, bounds::Bounds},
    report,
    scenario::{Axis, AxisError, FileError, PointsError, Scenario, points, with_settings},
    statistics::summary::{Summary, background_phase, offered_loads, replicate_within},
    time::as_us,
};
use thiserror::Error;

use crate::text::to_toml;

/// Most events of one answer: some seconds.
const MOST_EVENTS: u64 = 20_000_000;
/// Most events of a run that is watched.
const MOST_WATCHED_EVENTS: u64 = 2_000_000;
/// Most spans and requests of a timeline: what a browser draws at once.
const MOST_SPANS: usize = 20_000;
const MOST_SHOWN_REQUESTS: usize = 5_000;
/// Most points of a curve.
const MOST_POINTS: usize = 64;
/// Most packets of a run, which lie in memory.
const MOST_PACKETS: usize = 400_000;
/// Most connections that are set up.
const MOST_CONNECTIONS: usize = 100_000;

/// Why there is no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// A scenario that cannot be.
    #[error(transparent)]
    Scenario(#[from] FileError),
    /// An axis that cannot be.
    #[error(transparent)]
    Axis(#[from] AxisError),
    /// Axes that span no curve.
    #[error(transparent)]
    Points(#[from] PointsError),
    /// More than a page waits for.
    #[error("{key}: {wanted} is more than the page simulates ({most}); `shunt sim run` does")]
    TooMuch {
        /// What is too large.
        key: &'static str,
        /// How much was asked.
        wanted: usize,
        /// How much may be.
        most: usize,
    },
}

/// Says to a simulation that nobody waits for it any more.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Nobody waits any more.
    pub fn stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Stops the simulation when it is dropped: with the request whose answer nobody reads.
#[derive(Debug, Default)]
pub struct StopOnDrop(pub Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

fn at_most(key: &'static str, wanted: usize, most: usize) -> Result<(), SimulateError> {
    if wanted <= most {
        Ok(())
    } else {
        Err(SimulateError::TooMuch { key, wanted, most })
    }
}

/// Checks a scenario as the command line does, and that a page can wait for it.
fn check(scenario: &Scenario) -> Result<Scenario, SimulateError> {
    let scenario = with_settings(scenario, [])?;
    let w = &scenario.workload;
    let requests = match w.requests_total {
        0 => w.clients.saturating_mul(w.requests_per_client),
        total => total.saturating_add(w.clients.saturating_mul(2)),
    };
    let packets = w.request_packets.max(2);
    at_most(
        "requests × packets",
        requests.saturating_mul(packets),
        MOST_PACKETS,
    )?;
    at_most("workload.connections", w.connections, MOST_CONNECTIONS)?;
    Ok(scenario)
}

fn bounds<'a>(stopped: &'a dyn Fn() -> bool) -> Bounds<'a> {
    Bounds {
        events: MOST_EVENTS,
        stopped,
    }
}

/// What `shunt sim run --json` prints, and what a page shows beside it.
#[derive(Debug, Serialize)]
pub struct Run {
    /// This program's version.
    pub version: &'static str,
    /// The scenario that was simulated.
    pub scenario: Scenario,
    pub summary: Summary,
    /// What must be said before a mean is believed.
    pub warnings: Vec<String>,
    /// Said where fewer runs were made than asked for.
    pub bounded: Option<String>,
    /// The scenario as a file.
    pub toml: String,
    /// The closed forms.
    pub formulas: Formulas,
    /// Which processor does what for one request.
    pub steps: Vec<Step>,
}

/// Closed forms of a scenario.
#[derive(Debug, Serialize)]
pub struct Formulas {
    /// Host time per request of each architecture, at the reference clock.
    pub kernel_us: f64,
    /// The user-level stack's.
    pub user_us: f64,
    /// The NIC-resident stack's.
    pub nic_us: f64,
    /// Work of the NIC per request, at the reference clock.
    pub nic_work_us: f64,
    /// Probability that a packet is broken.
    pub packet_error_rate: f64,
    /// Equations (4) and (5).
    pub reduction: f64,
    /// Clients from which a user-level stack never answers.
    pub livelock_clients: f64,
    /// NIC clock from which the load hides in one time slice, for all requests of a run as one burst.
    pub burst_knee_mhz: f64,
    /// NIC clock that the load needs if it goes on.
    pub sustained_mhz: f64,
    /// Requests per second.
    pub requests_per_s: f64,
    /// What the load asks of each resource, as a share of what it can do.
    pub loads: std::collections::BTreeMap<&'static str, f64>,
}

impl Formulas {
    fn new(s: &Scenario) -> Self {
        let w = &s.workload;
        let requests = match w.requests_total {
            0 => w.clients * w.requests_per_client,
            total => total,
        };
        let costs = PerRequest::new(s, w.connections as f64 / requests.max(1) as f64);
        let lost = packet_error_rate(s.loss.bit_error_rate, s.loss.packet_bytes);
        let rate = w.clients as f64 * 1e3 / w.period_ms;
        Self {
            kernel_us: costs.kernel_us,
            user_us: costs.user_us,
            nic_us: costs.nic_us,
            nic_work_us: nic_work_us(s),
            packet_error_rate: lost,
            reduction: costs.reduction(lost),
            livelock_clients: livelock_clients(s),
            burst_knee_mhz: burst_knee_mhz(s, requests as f64),
            sustained_mhz: sustained_mhz(s, rate),
            requests_per_s: rate,
            loads: offered_loads(s),
        }
    }
}

/// A step of one request.
#[derive(Debug, Serialize)]
pub struct Step {
    pub what: &'static str,
    /// By whom.
    pub place: &'static str,
    /// How long it takes.
    pub us: f64,
}

fn steps(s: &Scenario) -> Vec<Step> {
    use sim::scenario::Kind;
    let w = Work::new(s);
    let owner = match s.stack.kind {
        Kind::Kernel => "bottom_half",
        Kind::User if w.in_interrupt => "interrupt",
        Kind::User => "server",
        Kind::Nic => "nic",
    };
    let packets = w.packets as f64;
    let step = |what, place, us| Step { what, place, us };
    let announced = as_us(w.interrupt + w.announced);
    let interrupts = if s.stack.kind == Kind::Nic {
        1.0
    } else {
        packets
    };
    let mut steps = vec![
        step("interrupt, driver", "interrupt", announced * interrupts),
        step(
            "receive: link and network",
            owner,
            as_us(w.receive) * packets,
        ),
        step("receive: transport", owner, as_us(w.segment)),
        step("read, answer", "server", as_us(w.serve)),
        step("application", "server", as_us(w.compute)),
    ];
    if s.stack.kind == Kind::Nic {
        steps.push(step(
            "send: transport, network, link",
            "nic",
            as_us(w.transmit),
        ));
    }
    steps.retain(|step| step.us > 0.0);
    steps
}

/// Runs a scenario as often as it asks.
pub fn run(scenario: &Scenario, stop: &Stop) -> Result<Run, SimulateError> {
    let scenario = check(scenario)?;
    let stopped = || stop.stopped();
    let summary = replicate_within(&scenario, bounds(&stopped), |_, _| {});
    let bounded = (summary.runs < scenario.runs.replications || summary.events >= MOST_EVENTS).then(|| {
        format!(
            "The page simulates {} million events at most: {} of {} runs were made. `shunt sim run` makes them all.",
            MOST_EVENTS / 1_000_000,
            summary.runs,
            scenario.runs.replications
        )
    });
    Ok(Run {
        version: env!("CARGO_PKG_VERSION"),
        warnings: report::warnings(&summary),
        bounded,
        toml: to_toml(&scenario),
        formulas: Formulas::new(&scenario),
        steps: steps(&scenario),
        summary,
        scenario,
    })
}

/// One point of a curve.
#[derive(Debug, Serialize)]
pub struct Point {
    /// The axis' value.
    pub value: String,
    /// What came out; none where the bound was reached before.
    pub summary: Option<Summary>,
}

/// Runs a scenario for each value of an axis: `workload.clients=1..9`.
pub fn curve(scenario: &Scenario, axis: &str, stop: &Stop) -> Result<Vec<Point>, SimulateError> {
    let axis = Axis::parse(axis)?;
    at_most("points of the axis", axis.values.len(), MOST_POINTS)?;
    let stopped = || stop.stopped();
    let mut left = MOST_EVENTS;
    let mut curve = Vec::new();
    for (settings, scenario) in points(scenario, &[axis])? {
        let scenario = check(&scenario)?;
        let within = Bounds {
            events: left,
            stopped: &stopped,
        };
        let summary = (left > 0).then(|| replicate_within(&scenario, within, |_, _| {}));
        left -= summary
            .as_ref()
            .map_or(0, |summary| summary.events.min(left));
        let value = settings.first().and_then(|setting| setting.split_once('='));
        curve.push(Point {
            value: value.map_or_else(String::new, |(_, value)| value.to_owned()),
            // What reached the bound has not made all its runs.
            summary: summary.filter(|_| left > 0),
        });
    }
    Ok(curve)
}

/// Who ran what in the first run, and how long queues were.
#[derive(Debug, Serialize)]
pub struct Timeline {
    /// When the run ended.
    pub ended_us: f64,
    /// Until when load arrived.
    pub load_ends_us: f64,
    /// The run ended with requests unanswered.
    pub cut: bool,
    /// There were more spans than are shown.
    pub more_spans: bool,
    pub spans: Vec<Span>,
    /// Names of the queues.
    pub queues: [&'static str; QUEUES.len()],
    /// Length of a slice.
    pub slice_us: f64,
    /// For each slice, the greatest length of each queue.
    pub lengths: Vec<[u32; QUEUES.len()]>,
    /// The answered requests: when each was made, reached the machine, left it, and was answered.
    pub requests: Vec<Request>,
}

/// One request that was answered.
#[derive(Debug, Serialize)]
pub struct Request {
    request: u32,
    client: u32,
    made_us: f64,
    arrived_us: f64,
    left_us: f64,
    answered_us: f64,
}

/// Watches the first run of a scenario.
pub fn timeline(scenario: &Scenario, stop: &Stop) -> Result<Timeline, SimulateError> {
    let scenario = check(scenario)?;
    let stopped = || stop.stopped();
    let bounds = Bounds {
        events: MOST_WATCHED_EVENTS,
        stopped: &stopped,
    };
    let phase = background_phase(&scenario, 0);
    let outcome = Machine::watch_within(&scenario, scenario.runs.seed, phase, bounds, MOST_SPANS);
    Ok(timeline_of(outcome))
}

fn timeline_of(outcome: Outcome) -> Timeline {
    let times = outcome.times().take(MOST_SHOWN_REQUESTS);
    let requests = times.map(|t| Request {
        request: t.request,
        client: t.client,
        made_us: as_us(t.made_ns),
        arrived_us: as_us(t.arrived_ns),
        left_us: as_us(t.left_ns),
        answered_us: as_us(t.answered_ns),
    });
    Timeline {
        ended_us: as_us(outcome.ended),
        load_ends_us: as_us(outcome.load_ends()),
        cut: outcome.cut,
        more_spans: outcome.spans.len() >= MOST_SPANS,
        requests: requests.collect(),
        queues: QUEUES,
        slice_us: as_us(outcome.lengths.width_ns),
        lengths: outcome.lengths.most,
        spans: outcome.spans,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::{
        paper::{Figure, scenario},
        scenario::Kind,
        statistics::summary::replicate,
    };

    fn same(ours: &Summary, other: &Summary) -> bool {
        serde_json::to_value(ours).unwrap() == serde_json::to_value(other).unwrap()
    }

    #[test]
    fn a_run_is_what_the_command_line_gives() {
        let mut s = scenario(Figure::Fig8);
        s.workload.clients = 3;
        let run = run(&s, &Stop::default()).unwrap();
        assert!(same(&run.summary, &replicate(&s)));
        assert_eq!((run.bounded, run.scenario), (None, s));
    }

    #[test]
    fn a_curve_has_a_summary_for_each_value() {
        let s = scenario(Figure::Fig8);
        let curve = curve(&s, "workload.clients=1..3", &Stop::default()).unwrap();
        let values: Vec<&str> = curve.iter().map(|point| point.value.as_str()).collect();
        assert_eq!(values, ["1", "2", "3"]);
        let mut three = s;
        three.workload.clients = 3;
        assert!(same(curve[2].summary.as_ref().unwrap(), &replicate(&three)));
    }

    #[test]
    fn what_a_page_cannot_wait_for_is_refused_with_its_name() {
        let refused = |change: fn(&mut Scenario)| {
            let mut s = Scenario::default();
            change(&mut s);
            run(&s, &Stop::default()).unwrap_err().to_string()
        };
        assert!(refused(|s| s.workload.requests_per_client = 4_000_000).starts_with("requests"));
        assert!(refused(|s| s.workload.connections = 5_000_000).contains("connections"));
        assert!(refused(|s| s.host.clock_mhz = 0.0).contains("must be above 0"));
        let long = curve(
            &Scenario::default(),
            "workload.clients=1..100",
            &Stop::default(),
        );
        assert!(long.unwrap_err().to_string().contains("points of the axis"));
    }

    #[test]
    fn nobody_waiting_ends_a_run() {
        let stop = StopOnDrop::default();
        let seen = stop.0.clone();
        drop(stop);
        let mut s = Scenario::default();
        s.runs.replications = 100_000;
        assert_eq!(run(&s, &seen).unwrap().summary.runs, 1);
    }

    #[test]
    fn runs_beyond_the_bound_are_not_made_and_that_is_said() {
        let mut s = Scenario::default();
        // Slices of no length: every event is the end of one.
        s.host.quantum_ms = 1e-9;
        let run = run(&s, &Stop::default()).unwrap();
        assert_eq!((run.summary.runs, run.summary.events), (1, MOST_EVENTS));
        assert!(run.bounded.unwrap().contains("1 of 8 runs"));
    }

    #[test]
    fn a_timeline_is_bounded_and_names_who_works_for_whom() {
        let mut s = scenario(Figure::Fig8);
        s.stack.kind = Kind::Nic;
        s.workload.clients = 2;
        let shown = timeline(&s, &Stop::default()).unwrap();
        assert_eq!(shown.requests.len(), 120);
        assert!(shown.spans.iter().any(|span| span.request == Some(119)));
        assert!(!shown.more_spans && !shown.cut);
        s.workload.requests_per_client = 20_000;
        s.workload.horizon_s = 1e3;
        let long = timeline(&s, &Stop::default()).unwrap();
        assert_eq!(
            (long.spans.len(), long.requests.len()),
            (MOST_SPANS, MOST_SHOWN_REQUESTS)
        );
        assert!(long.more_spans);
    }

    #[test]
    fn steps_add_up_to_the_unloaded_response() {
        let mut s = Scenario::default();
        s.stack.kind = Kind::Nic;
        let sum: f64 = steps(&s).iter().map(|step| step.us).sum();
        assert!((sum - (589.68 + 585.99)).abs() < 1e-6, "{sum}");
    }
}
