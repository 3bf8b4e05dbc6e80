//! What clients ask, and when.

use serde::{Deserialize, Serialize};

use super::nic::Distribution;

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

/// What clients ask.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// Clients, each with a connection.
    pub clients: usize,
    /// Time between two requests of one client.
    pub period_ms: f64,
    /// Requests of each client.
    pub requests_per_client: usize,
    /// Requests of all clients together, in place of `requests_per_client`; 0 leaves it to that.
    pub requests_total: usize,
    /// When they arrive.
    pub arrivals: Arrivals,
    /// Times since the start, with `arrivals = "trace"`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arrivals_us: Vec<f64>,
    /// Requests at once, with `arrivals = "batch"`.
    pub batch: usize,
    /// How the clients' periods lie to each other.
    pub phase: Phase,
    /// Size of a request.
    pub request_bytes: f64,
    /// Packets as which a request arrives; 0 takes the profile's 1 or 2.
    pub request_packets: usize,
    /// Size of a response.
    pub response_bytes: f64,
    /// The application's work per request, at the reference clock.
    pub compute_us: f64,
    /// Whether that is fixed or random.
    pub compute: Distribution,
    /// With `compute = "empirical"`: lengths that were seen, of which each request gets one at random. Only
    /// their proportions count; their mean is `compute_us`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compute_samples: Vec<f64>,
    /// Connections set up at the start.
    pub connections: usize,
    /// The run is cut here, and says so.
    pub horizon_s: f64,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            clients: 1,
            period_ms: 10.0,
            requests_per_client: 60,
            requests_total: 0,
            arrivals: Arrivals::Periodic,
            arrivals_us: Vec::new(),
            batch: 1,
            phase: Phase::Random,
            request_bytes: 256.0,
            request_packets: 0,
            response_bytes: 1024.0,
            compute_us: 0.0,
            compute: Distribution::Fixed,
            compute_samples: Vec::new(),
            connections: 0,
            horizon_s: 60.0,
        }
    }
}
