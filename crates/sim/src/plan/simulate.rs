//! The planner's simulation: the same costs on the machine of `machine.rs`, for percentiles and for
//! the throughput that the closed form promises.

use serde::Serialize;

use super::{Closed, Costs, Where, Workload};
use crate::{
    machine::Machine,
    scenario::{Arrivals, BottomHalf, Cost, Dispatch, Kind, Scenario},
    statistics::histogram::Histogram,
    statistics::summary::student_t,
    time::as_us,
};

/// A mean over runs with its 95 % confidence interval (Student, from run to run).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean of the runs.
    pub value: f64,
    /// Half of the interval.
    pub plus_minus: f64,
}

impl Estimate {
    fn of(samples: &[f64]) -> Option<Self> {
        let n = samples.len();
        let freedom = n.checked_sub(1).filter(|freedom| *freedom > 0)?;
        let value = samples.iter().sum::<f64>() / n as f64;
        let squares: f64 = samples.iter().map(|x| (x - value).powi(2)).sum();
        let deviation = (squares / freedom as f64).sqrt();
        Some(Self {
            value,
            plus_minus: student_t(freedom) * deviation / (n as f64).sqrt(),
        })
    }
}

/// What the simulation says of one stack.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Simulated {
    /// Time at the host, of the offered load; none where that is an overload.
    pub mean_us: Option<Estimate>,
    /// Median.
    pub p50_us: Option<Estimate>,
    /// 99th percentile.
    pub p99_us: Option<Estimate>,
    /// Requests per second that were answered when 95 % of the closed form's capacity was asked, as a
    /// part of these: above 0.9 both agree.
    pub kept_of_capacity: f64,
}

/// Runs, each with a seed of its own, and their requests.
const RUNS: u64 = 5;
const REQUESTS: usize = 20_000;
/// Clients for each processor, so that connections spread evenly.
const CLIENTS_PER_CORE: usize = 64;

/// The scenario of one stack at this rate. Costs are in microseconds at a clock of 1 GHz, so that
/// neither clock changes them.
fn scenario(w: &Workload, costs: &Costs, c: &Closed, per_s: f64) -> Scenario {
    let us = |ns: f64| ns / share(w, c, per_s) / 1e3;
    let mut s = Scenario {
        cost: Cost {
            reference_mhz: 1000.0,
            ..Cost::free()
        },
        ..Scenario::default()
    };
    s.host.clock_mhz = 1000.0;
    s.nic.clock_mhz = 1000.0;
    s.host.background = 0;
    // A slice of today's schedulers; nothing competes here, so that it matters little. Where requests are rare it is
    // their distance: a stack that polls would otherwise be simulated slice by slice for hours.
    s.host.quantum_ms = (1e3 / per_s).max(3.0);
    // The cores that a closed form counts; a cut core is no core.
    s.host.cores = match costs.place {
        Where::Engine => w.host_cores.saturating_sub(w.engine_cores).max(1),
        Where::Host | Where::Nic => w.host_cores,
    };
    if w.threads > 0 {
        s.host.cores = s.host.cores.min(w.threads);
    }
    let receives = costs.receive_ns.value;
    s.cost.rx_tr_us = us(receives);
    s.cost.tx_sock_us = us(c.stack_ns - receives);
    match costs.place {
        Where::Host if costs.polls => {
            s.stack.kind = Kind::User;
            s.stack.busy_poll = true;
        }
        Where::Host => {
            s.stack.kind = Kind::Kernel;
            s.stack.bottom_half = BottomHalf::Immediate;
            s.interrupts.queues = s.host.cores;
        }
        Where::Engine | Where::Nic => {
            s.stack.kind = Kind::Nic;
            s.nic.dispatch = Dispatch::Shared;
            s.nic.cores = match costs.place {
                Where::Engine => w.engine_cores.max(1),
                _ => w.nic.cores,
            };
            s.cost.rx_sock_us = us(receives);
            s.cost.rx_tr_us = c.device_ns / 2e3;
            s.cost.tx_tr_us = c.device_ns / 2e3;
        }
    }
    s.network.rates_mbps = vec![w.link_gbps * 1e3];
    s.network.distance_m = 0.0;
    s.network.jitter = 0.0;
    s.network.link_queue = true;
    let work = &mut s.workload;
    work.clients = CLIENTS_PER_CORE * s.host.cores;
    work.period_ms = work.clients as f64 / per_s * 1e3;
    work.arrivals = Arrivals::Poisson;
    work.requests_total = REQUESTS;
    work.request_bytes = w.request_bytes;
    work.response_bytes = w.response_bytes;
    work.request_packets = 1;
    work.compute_us = us(w.application_ns);
    work.horizon_s = 1e6;
    s
}

/// What a serving core has left for serving at this rate: other work takes its share of every core, and
/// clients on this host what the cores without a serving thread do not give them.
fn share(w: &Workload, c: &Closed, per_s: f64) -> f64 {
    let spare = (c.all_cores - c.cores) * c.core_share;
    let clients = (per_s * w.client_ns / 1e9 - spare).max(0.0) / c.cores;
    (c.core_share - clients).max(0.01)
}

/// Simulates one stack at the offered load, and near the capacity of the closed form.
///
/// The disk and the bus are not simulated: where one of them ends first, the closed form decides.
pub fn simulate(w: &Workload, costs: &Costs, c: &Closed) -> Simulated {
    let crowded = super::crowded(w, costs);
    let offered = w.requests_per_s;
    let simulable = offered < c.capacity_per_s && !crowded;
    let runs = if simulable { RUNS } else { 0 };
    let (mut means, mut medians, mut tails) = (Vec::new(), Vec::new(), Vec::new());
    for seed in 1..=runs {
        let outcome = Machine::run(&scenario(w, costs, c, offered), seed, 0);
        let mut times = Histogram::default();
        outcome
            .times()
            .for_each(|t| times.add(t.left_ns - t.arrived_ns));
        means.push(times.mean() / 1e3);
        medians.push(as_us(times.quantile(0.5)));
        tails.push(as_us(times.quantile(0.99)));
    }
    let asked = 0.95 * c.capacity_per_s;
    let outcome = Machine::run(&scenario(w, costs, c, asked), 1, 0);
    let kept = outcome.responses_during_load().count() as f64 / outcome.requests() as f64;
    Simulated {
        mean_us: Estimate::of(&means),
        p50_us: Estimate::of(&medians),
        p99_us: Estimate::of(&tails),
        kept_of_capacity: kept,
    }
}
