//! The extensions against what theory says: each simulated, each beside its formula, with the bound
//! within which it must lie.

use serde::Serialize;

use crate::{
    flow::{Control, Flow, Loss, square_root_law},
    formula::{PerRequest, mg1_wait, mmc_wait, packet_error_rate, with_driver_share},
    machine::{Machine, Outcome},
    paper::{Figure, scenario},
    placement::{Placement, Policy},
    rss::queue_of,
    scenario::{Arrivals, BottomHalf, Cost, Distribution, Kind, Repeat, Scenario},
    toe::{Device, INET, OFFLOADED, break_even_formula, break_even_pairs},
};

/// One statement of theory.
#[derive(Debug, Clone, Serialize)]
pub struct Statement {
    /// The extension and what is stated of it.
    pub name: &'static str,
    /// What theory says.
    pub theory: f64,
    /// What came out.
    pub simulated: f64,
    /// How far apart they may be, as a part of theory.
    pub bound: f64,
}

impl Statement {
    /// How far apart they are, as a part of theory.
    pub fn error(&self) -> f64 {
        (self.simulated / self.theory - 1.0).abs()
    }

    /// Whether they are near enough.
    pub fn holds(&self) -> bool {
        self.error() <= self.bound
    }
}

/// Every statement.
pub fn statements() -> Vec<Statement> {
    let mut all = vec![driver_share(), equation_5(), square_root()];
    all.extend(moderation());
    all.push(spread());
    all.push(erlang());
    all.push(control_path());
    all.push(hashed_engines());
    all.extend(single_server());
    all
}

/// A machine where everything is free, under Poisson load with this mean time between requests.
fn poisson(kind: Kind, between_us: f64, requests: usize) -> Scenario {
    let mut s = Scenario {
        cost: Cost::free(),
        ..Scenario::default()
    };
    s.cost.reference_mhz = 500.0;
    s.nic.clock_mhz = 500.0;
    s.host.background = 0;
    s.stack.kind = kind;
    s.network.jitter = 0.0;
    s.workload.arrivals = Arrivals::Poisson;
    s.workload.period_ms = between_us / 1e3;
    s.workload.requests_total = requests;
    s.workload.horizon_s = 1e6;
    s
}

fn wait_us(outcome: &Outcome, resource: &str) -> f64 {
    outcome
        .resources
        .get(resource)
        .map_or(f64::NAN, |r| r.wait_mean_us)
}

/// 9.1: the reduction of host time with half of the driver's cost left.
fn driver_share() -> Statement {
    let mut base = with_driver_share(&scenario(Figure::Fig7), 0.5);
    base.workload.connections = 0;
    let host = |kind| {
        let mut s = base.clone();
        s.stack.kind = kind;
        Machine::run(&s, 1, 0).busy.host() as f64
    };
    let (kernel, user, nic) = (host(Kind::Kernel), host(Kind::User), host(Kind::Nic));
    Statement {
        name: "9.1 DMA: host time saved with half of the driver's cost",
        theory: PerRequest::new(&base, 0.0).reduction(0.0),
        simulated: 1.0 - 2.0 * nic / (kernel + user),
        bound: 1e-6,
    }
}

/// 9.2: host time under loss without time-outs.
fn equation_5() -> Statement {
    let mut s = Scenario::default();
    s.host.background = 0;
    s.stack.bottom_half = BottomHalf::Immediate;
    s.loss.repeat = Repeat::Exchange;
    s.workload.requests_per_client = 20_000;
    s.workload.horizon_s = 1e4;
    let ideal = Machine::run(&s, 1, 0).busy.host() as f64;
    s.loss.bit_error_rate = 1e-5;
    let lossy = Machine::run(&s, 1, 0).busy.host() as f64;
    Statement {
        name: "9.2 loss: growth of host time, equation (5)",
        theory: 1.0 / (1.0 - packet_error_rate(1e-5, 1024.0)),
        simulated: lossy / ideal,
        bound: 0.01,
    }
}

/// 9.2: Reno's window under independent loss.
fn square_root() -> Statement {
    let loss = 1e-3;
    let flow = Flow {
        control: Control::Reno,
        loss: Loss::Independent(loss),
        bottleneck: None,
        round_trip_s: 0.05,
        least_timeout_s: Some(0.2),
        first_window: 10.0,
    };
    Statement {
        name: "9.2 Reno: packets per round trip at 0.1 % loss, √(3/2p)",
        theory: square_root_law(loss),
        simulated: flow.run(3_000_000, 1).mean_window,
        bound: 0.15,
    }
}

/// 9.3: interrupts per second under Poisson load.
fn moderation() -> [Statement; 2] {
    let rate = |frames, after_us| {
        let mut s = poisson(Kind::User, 20.0, 200_000);
        s.interrupts.frames = frames;
        s.interrupts.after_us = after_us;
        let outcome = Machine::run(&s, 1, 0);
        outcome.causes.interrupts() as f64 / (outcome.ended as f64 / 1e9)
    };
    let (per_s, after_s) = (50_000.0, 100e-6);
    [
        Statement {
            name: "9.3 interrupts/s, only a timer of 100 µs: λ/(1+λT)",
            theory: per_s / (1.0 + per_s * after_s),
            simulated: rate(0, 100.0),
            bound: 0.02,
        },
        Statement {
            name: "9.3 interrupts/s, only every 8 frames: λ/8",
            theory: per_s / 8.0,
            simulated: rate(8, 0.0),
            bound: 0.02,
        },
    ]
}

/// 9.4: connections over queues by the Toeplitz hash.
fn spread() -> Statement {
    let mut counts = [0_u32; 8];
    (0..10_000).for_each(|client| counts[queue_of(client, 8)] += 1);
    let most = counts.into_iter().max().unwrap_or(0);
    Statement {
        name: "9.4 RSS: 10,000 connections on 8 queues, most over mean",
        theory: 1.0,
        simulated: f64::from(most) / 1250.0,
        bound: 0.15,
    }
}

/// 9.5: three NIC processors with one queue and exponential work.
fn erlang() -> Statement {
    let (cores, load, service_us) = (3, 0.8, 100.0);
    let mut s = poisson(Kind::Nic, service_us / (cores as f64 * load), 400_000);
    s.cost.rx_tr_us = service_us;
    s.nic.cores = cores;
    s.nic.service = Distribution::Exponential;
    let outcome = Machine::run(&s, 1, 0);
    Statement {
        name: "9.5 three NIC cores, one queue: wait in µs (Erlang C)",
        theory: mmc_wait(cores, load) * service_us,
        simulated: wait_us(&outcome, "NIC receive"),
        bound: 0.03,
    }
}

/// 9.6: pairs of send and receive from which an offloaded connection pays.
fn control_path() -> Statement {
    let device = Device {
        ring: 64,
        command_us: 5.0,
        wake_us: 10.0,
    };
    Statement {
        name: "9.6 TOE: pairs per connection at which it pays",
        theory: break_even_formula(&INET, &OFFLOADED),
        simulated: break_even_pairs(&INET, &OFFLOADED, &device),
        bound: 1e-6,
    }
}

/// 9.7: engines by flow hash are single servers of their own.
fn hashed_engines() -> Statement {
    let placement = Placement {
        policy: Policy::FlowHash,
        service_us: vec![10.0; 4],
        requests_per_s: 240_000.0,
        flows: 100_000,
        limit: 8,
    };
    Statement {
        name: "9.7 four engines by flow hash: wait in µs (M/M/1)",
        theory: mg1_wait(0.6, 1.0) * 10.0,
        simulated: placement.run(400_000, 1).wait_mean_us,
        bound: 0.03,
    }
}

/// 9.9: the server as a queue.
fn single_server() -> [Statement; 3] {
    let wait = |compute| {
        let mut s = poisson(Kind::User, 150.0, 400_000);
        s.workload.compute_us = 100.0;
        s.workload.compute = compute;
        if compute == Distribution::Empirical {
            // Squares of 1, 1, 1 and 5 over the square of their mean: variation 0.75.
            s.workload.compute_samples = vec![1.0, 1.0, 1.0, 5.0];
        }
        wait_us(&Machine::run(&s, 1, 0), "host server")
    };
    let load = 100.0 / 150.0;
    [
        Statement {
            name: "9.9 server with exponential work: wait in µs (M/M/1)",
            theory: mg1_wait(load, 1.0) * 100.0,
            simulated: wait(Distribution::Exponential),
            bound: 0.03,
        },
        Statement {
            name: "9.9 server with fixed work: wait in µs (M/D/1)",
            theory: mg1_wait(load, 0.0) * 100.0,
            simulated: wait(Distribution::Fixed),
            bound: 0.03,
        },
        Statement {
            name: "9.9 server with work as samples have it: wait in µs (M/G/1)",
            theory: mg1_wait(load, 0.75) * 100.0,
            simulated: wait(Distribution::Empirical),
            bound: 0.03,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_extension_is_what_theory_says() {
        for statement in statements() {
            assert!(statement.holds(), "{statement:?}: {}", statement.error());
        }
    }
}
