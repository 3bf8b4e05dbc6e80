//! What clients ask, and when.

use serde::{Deserialize, Serialize};

use super::{check::MOST_REQUESTS, nic::Distribution};

/// When requests arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Each client sends one per period.
    Periodic,
    /// Independent of each other, with the same rate.
    Poisson,
    /// Each client sends `batch` at once, as rarely as keeps the rate.
    Batch,
    /// Poisson at twice the rate for half of each second.
    OnOff,
    /// At the times of `arrivals_us`; clients take turns.
    Trace,
}

/// How the clients' periods lie to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// At random.
    Random,
    /// Evenly spread.
    Spread,
    /// All at once.
    Together,
}

table! {
    /// What clients ask.
    Workload in "workload." {
        /// Clients, each with a connection.
        clients: usize = 1, count(1, 1_000_000);
        /// Time between two requests of one client.
        period_ms: f64 = 10.0, above_zero;
        /// Requests of each client.
        requests_per_client: usize = 60;
        /// Requests of all clients together, in place of `requests_per_client`; 0 leaves it to that.
        requests_total: usize = 0, count(0, MOST_REQUESTS);
        /// When they arrive.
        arrivals: Arrivals = Arrivals::Periodic;
        /// Times since the start, with `arrivals = "trace"`.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        arrivals_us: Vec<f64> = Vec::new(), all_not_negative(0, MOST_REQUESTS);
        /// Requests at once, with `arrivals = "batch"`.
        batch: usize = 1, count(1, 1_000_000);
        /// How the clients' periods lie to each other.
        phase: Phase = Phase::Random;
        /// Size of a request.
        request_bytes: f64 = 256.0, above_zero;
        /// Packets as which a request arrives; 0 takes the profile's 1 or 2.
        request_packets: usize = 0;
        /// Size of a response.
        response_bytes: f64 = 1024.0, above_zero;
        /// The application's work per request, at the reference clock.
        compute_us: f64 = 0.0, not_negative;
        /// Whether that is fixed or random.
        compute: Distribution = Distribution::Fixed;
        /// With `compute = "empirical"`: lengths that were seen, of which each request gets one at random. Only
        /// their proportions count; their mean is `compute_us`.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        compute_samples: Vec<f64> = Vec::new(), all_above_zero(0, MOST_REQUESTS);
        /// Connections set up at the start.
        connections: usize = 0, count(0, MOST_REQUESTS);
        /// The run is cut here, and says so.
        horizon_s: f64 = 60.0, above_zero;
    }
}
