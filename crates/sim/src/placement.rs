//! Several engines, and who serves which flow: priority, round robin, least load, flow hash — the `toe`
//! paper's future work. Engines are single servers, first come first served.

use std::collections::VecDeque;

use serde::Serialize;

use crate::{
    rng::Rng,
    rss::queue_of,
    time::{Ns, round},
};

/// How a request finds its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The first in order that holds fewer requests than its limit; the last takes the rest.
    Priority,
    /// In turn.
    RoundRobin,
    /// The one that holds the fewest.
    LeastLoad,
    /// Always the same for a flow.
    FlowHash,
}

/// Engines under load.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// How a request finds its engine.
    pub policy: Policy,
    /// Mean service of each engine, exponential.
    pub service_us: Vec<f64>,
    /// Requests per second, Poisson.
    pub requests_per_s: f64,
    /// Flows that they belong to, at random.
    pub flows: usize,
    /// Requests that an engine may hold before `Policy::Priority` goes on to the next.
    pub limit: usize,
}

/// What the engines did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shares {
    /// Requests served per second.
    pub throughput_per_s: f64,
    /// Mean wait before service.
    pub wait_mean_us: f64,
    /// Requests of each engine.
    pub served: Vec<u64>,
    /// Jain's index of the engines' busy times: 1 is even, 1/n is all on one.
    pub jain: f64,
}

/// Jain's index of fairness.
pub fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|v| v * v).sum();
    if squares == 0.0 {
        1.0
    } else {
        sum * sum / (values.len() as f64 * squares)
    }
}

#[derive(Debug, Default)]
struct Engine {
    /// When each request that it holds leaves.
    leaves: VecDeque<Ns>,
    free_at: Ns,
    busy: Ns,
    served: u64,
}

impl Placement {
    /// Serves this many requests.
    pub fn run(&self, requests: u64, seed: u64) -> Shares {
        let mut rng = Rng::new(seed);
        let count = self.service_us.len();
        let mut engines: Vec<Engine> = std::iter::repeat_with(Engine::default)
            .take(count)
            .collect();
        let mut at = 0.0;
        let mut waited: u128 = 0;
        let mut turn = 0;
        for _ in 0..requests {
            at += rng.exponential(1e9 / self.requests_per_s);
            let now = round(at);
            for engine in &mut engines {
                while engine.leaves.front().is_some_and(|leaves| *leaves <= now) {
                    engine.leaves.pop_front();
                }
            }
            let flow = round(rng.unit() * self.flows as f64 - 0.5);
            let chosen = self.choose(&engines, usize::try_from(flow).unwrap_or(0), turn);
            turn = (turn + 1) % count;
            let service = round(rng.exponential(self.service_us[chosen] * 1e3));
            let engine = &mut engines[chosen];
            let begins = engine.free_at.max(now);
            waited += u128::from(begins - now);
            engine.free_at = begins + service;
            engine.busy += service;
            engine.served += 1;
            engine.leaves.push_back(engine.free_at);
        }
        let end = engines.iter().map(|e| e.free_at).max().unwrap_or(1).max(1);
        let busy: Vec<f64> = engines.iter().map(|e| e.busy as f64).collect();
        Shares {
            throughput_per_s: requests as f64 / (end as f64 / 1e9),
            wait_mean_us: waited as f64 / requests.max(1) as f64 / 1e3,
            served: engines.iter().map(|e| e.served).collect(),
            jain: jain(&busy),
        }
    }

    fn choose(&self, engines: &[Engine], flow: usize, turn: usize) -> usize {
        let held = |index: &usize| engines[*index].leaves.len();
        let mut all = 0..engines.len();
        match self.policy {
            Policy::Priority => all
                .find(|index| held(index) < self.limit)
                .unwrap_or(engines.len() - 1),
            Policy::RoundRobin => turn,
            // Among equals the one whose turn it is, so that none is preferred.
            Policy::LeastLoad => all
                .min_by_key(|index| (held(index), (index + engines.len() - turn) % engines.len()))
                .unwrap_or(0),
            Policy::FlowHash => queue_of(flow, engines.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formula::mg1_wait;

    fn shares(policy: Policy, flows: usize) -> Shares {
        let placement = Placement {
            policy,
            service_us: vec![10.0; 4],
            requests_per_s: 240_000.0,
            flows,
            limit: 8,
        };
        placement.run(400_000, 1)
    }

    #[test]
    fn every_policy_has_its_throughput_and_its_evenness() {
        let [priority, turns, least, hash] = [
            Policy::Priority,
            Policy::RoundRobin,
            Policy::LeastLoad,
            Policy::FlowHash,
        ]
        .map(|policy| shares(policy, 10_000));
        for one in [&priority, &turns, &least, &hash] {
            assert!(
                (one.throughput_per_s / 240_000.0 - 1.0).abs() < 0.01,
                "{one:?}"
            );
        }
        assert!(turns.jain > 0.999 && least.jain > 0.95 && hash.jain > 0.99);
        assert!(priority.jain < 0.95, "{priority:?}");
        assert!(least.wait_mean_us < turns.wait_mean_us);
        assert!(turns.wait_mean_us < hash.wait_mean_us);
    }

    #[test]
    fn many_hashed_flows_wait_as_in_m_m_1_and_few_are_uneven() {
        let many = shares(Policy::FlowHash, 100_000);
        let theory = mg1_wait(0.6, 1.0) * 10.0;
        assert!((many.wait_mean_us / theory - 1.0).abs() < 0.03, "{many:?}");
        assert!(shares(Policy::FlowHash, 3).jain < 0.8);
    }

    #[test]
    fn jains_index_at_its_ends() {
        assert!((jain(&[1.0, 1.0, 1.0]) - 1.0).abs() < 1e-12);
        assert!((jain(&[1.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
    }
}
