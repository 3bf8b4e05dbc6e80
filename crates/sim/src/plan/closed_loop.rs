//! Clients that wait for an answer before they ask again: rate and response time for any number of
//! them, by exact mean value analysis (Reiser and Lavenberg) over the same costs as the closed form.
//!
//! It is what a benchmark measures, so that a prediction can be held against one.

use serde::Serialize;

use super::{Closed, Costs, Where, Workload, closed};

/// What so many clients would see.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ClosedLoop {
    /// Clients with one request each under way.
    pub clients: usize,
    /// Requests per second.
    pub rate_per_s: f64,
    /// Mean time from a request to its answer, client's work included.
    pub mean_us: f64,
}

/// Clients are followed up to this number; beyond, the rate is the capacity.
const MOST_CLIENTS: usize = 10_000;

/// Predicts clients on the same host as the server, or elsewhere where `client_ns` is 0.
///
/// Each processor is a station with a queue. Threads and clients have processors of their own as far as
/// there are enough; otherwise they share. What a lone request waits for besides work
/// (`latency_ns`) is a delay that no other request lengthens.
pub fn closed_loop(w: &Workload, costs: &Costs, clients: usize) -> ClosedLoop {
    let c = closed(w, costs);
    let stations = stations(w, costs, &c);
    let delay_ns = costs.latency_ns.as_ref().map_or(0.0, |v| v.value);
    let mut queues = vec![0.0; stations.len()];
    let mut whole_ns = delay_ns;
    let clients = clients.clamp(1, MOST_CLIENTS);
    for n in 1..=clients {
        let stays: Vec<f64> = stations
            .iter()
            .zip(&queues)
            .map(|(service_ns, queue)| service_ns * (1.0 + queue))
            .collect();
        whole_ns = delay_ns + stays.iter().sum::<f64>();
        let rate = n as f64 / whole_ns.max(1e-9);
        for (queue, stay) in queues.iter_mut().zip(&stays) {
            *queue = rate * stay;
        }
    }
    ClosedLoop {
        clients,
        rate_per_s: clients as f64 / whole_ns.max(1e-9) * 1e9,
        mean_us: whole_ns / 1e3,
    }
}

/// The work of a request at each station. Several processors that share one queue count as one that is
/// so much faster, which is exact under load and a little too short for a lone request.
fn stations(w: &Workload, costs: &Costs, c: &Closed) -> Vec<f64> {
    let crowded = super::crowded(w, costs);
    let serving_ns = w.application_ns + c.stack_ns + if crowded { c.device_ns } else { 0.0 };
    let spare = c.all_cores - c.cores;
    let mut stations = match spare >= 1.0 {
        true => vec![serving_ns / c.cores, w.client_ns / spare],
        false => vec![(serving_ns + w.client_ns) / c.all_cores],
    };
    for station in &mut stations {
        *station /= c.core_share;
    }
    if !crowded && costs.place != Where::Host {
        stations.push(c.device_ns / c.device_cores.max(1.0));
    }
    stations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Preset, Source, Value};

    fn costs(stack: &str, stack_ns: f64, latency_ns: f64) -> Costs {
        let mut costs = Preset::shipped().stacks[stack].clone();
        let names: Vec<&str> = costs.values().into_iter().map(|(name, _)| name).collect();
        for name in names {
            costs.value_mut(name).unwrap().value = 0.0;
        }
        costs.send_ns.value = stack_ns;
        costs.latency_ns = Some(Value {
            value: latency_ns,
            source: Source::Assumed,
            how: String::new(),
            spread: None,
        });
        costs
    }

    fn workload() -> Workload {
        Workload {
            application_ns: 2000.0,
            client_ns: 5000.0,
            threads: 1,
            ..Workload::default()
        }
    }

    #[test]
    fn a_lone_client_waits_for_the_sum_of_all_work_and_the_delay() {
        let one = closed_loop(&workload(), &costs("kernel", 6000.0, 20_000.0), 1);
        assert!((one.mean_us - 33.0).abs() < 1e-9, "{one:?}");
        assert!((one.rate_per_s - 1e9 / 33_000.0).abs() < 1e-6);
    }

    #[test]
    fn many_clients_are_served_at_the_rate_of_the_slowest_processor() {
        let w = workload();
        let many = closed_loop(&w, &costs("kernel", 6000.0, 20_000.0), 200);
        let capacity = closed(&w, &costs("kernel", 6000.0, 0.0)).capacity_per_s;
        assert!((capacity - 125_000.0).abs() < 1e-6);
        assert!((many.rate_per_s / capacity - 1.0).abs() < 0.001, "{many:?}");
        assert!((many.mean_us - 200.0 / 0.125).abs() < 5.0, "{many:?}");
    }

    #[test]
    fn an_engine_of_two_processors_leaves_one_to_program_and_clients() {
        let mut engine = costs("engine", 1000.0, 0.0);
        engine.value_mut("device_ns").unwrap().value = 3000.0;
        let w = workload();
        let many = closed_loop(&w, &engine, 200);
        assert!(
            (many.rate_per_s / 125_000.0 - 1.0).abs() < 0.001,
            "{many:?}"
        );
    }

    #[test]
    fn two_equal_stations_follow_the_formula_of_balanced_networks() {
        // X(n) = n / (D (n + M - 1)).
        let w = Workload {
            application_ns: 1000.0,
            client_ns: 5000.0,
            ..workload()
        };
        for n in [1, 2, 5, 20] {
            let found = closed_loop(&w, &costs("kernel", 4000.0, 0.0), n);
            let theory = n as f64 / (5000.0 * (n as f64 + 1.0)) * 1e9;
            assert!((found.rate_per_s / theory - 1.0).abs() < 1e-9, "{n}");
        }
    }
}
