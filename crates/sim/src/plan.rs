//! What would offload buy this workload? First the closed form, after Shivam and Chase (LAWS) — what a
//! request costs on each processor, and which resource ends first — then the simulation, for the tail
//! and for what a formula leaves out.
//!
//! It must be able to say no: offload can never give more than the stack's share of the work, short
//! connections pay for the control path, a slow NIC becomes the bottleneck, and a disk does not get
//! faster.

mod asking;
mod closed;
mod closed_loop;
mod observation;
mod preset;
mod report;
mod simulate;
#[cfg(test)]
mod tests;
mod trial;
mod turns;
mod verdict;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::scenario::{line_of, place};
pub use asking::Asked;
use closed::crowded;
pub use closed::{Bottleneck, Closed, closed};
pub use closed_loop::{Client, ClosedLoop, Work, closed_loop};
pub use observation::Observation;
pub use preset::{Costs, Preset, Source, Value, Where};
pub use simulate::{Estimate, Simulated, simulate};
pub use trial::{Trial, between};
pub use verdict::{BreakEven, Buys, Effect, Plan, Row, plan};

/// A workload as a file gives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// What it is.
    pub title: String,
    /// Requests per second; Poisson, unless `clients` says who asks.
    pub requests_per_s: f64,
    /// Size of a request.
    pub request_bytes: f64,
    /// Size of a response.
    pub response_bytes: f64,
    /// The application's own processor time per request.
    pub application_ns: f64,
    /// Requests of one connection; 0 for connections that last.
    pub requests_per_connection: f64,
    /// Share of the requests that wake a sleeping thread.
    pub wake_share: f64,
    /// The application writes all answers of a wake-up at its end, as redis does; stacks then send them
    /// together.
    pub together: bool,
    /// Processors of the host.
    pub host_cores: usize,
    /// Threads of the application that can serve at the same time; 0 is one per processor.
    pub threads: usize,
    /// Processor time per request that clients on this same host take; 0: they are elsewhere.
    pub client_ns: f64,
    /// Clients that wait for each answer before they ask again, so many requests under way at most; 0: requests come by
    /// themselves.
    pub clients: usize,
    /// Threads of those clients on this same host; 0: as many as they need.
    pub client_threads: usize,
    /// `requests_per_s` is all that clients and server could do: somebody was busy all the time, and nobody paused.
    pub saturated: bool,
    /// Host time per request that the first stack was seen to take, in place of the preset's; 0: nobody
    /// looked.
    pub observed_stack_ns: f64,
    /// Share of each that other work takes.
    pub other_load: f64,
    /// The link.
    pub link_gbps: f64,
    /// The bus; 0 is no limit.
    pub bus_gbps: f64,
    /// The disk from which responses come; 0 is none.
    pub disk_gbps: f64,
    /// Largest payload of a packet.
    pub mss_bytes: f64,
    /// Wanted 99th percentile at the host; 0 is none.
    pub target_p99_us: f64,
    /// Stacks to compare; the first is what there is today.
    pub stacks: Vec<String>,
    /// Cores of the engine, taken from the host's.
    pub engine_cores: usize,
    /// The NIC of `nic`.
    pub nic: Nic,
}

/// A NIC with processors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Nic {
    /// Its cores.
    pub cores: usize,
    /// Their clock; the preset's values are at 1 GHz.
    pub clock_mhz: f64,
}

impl Default for Nic {
    fn default() -> Self {
        Self {
            cores: 4,
            clock_mhz: 1000.0,
        }
    }
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            title: String::new(),
            requests_per_s: 10_000.0,
            request_bytes: 128.0,
            response_bytes: 1024.0,
            application_ns: 2000.0,
            requests_per_connection: 0.0,
            wake_share: 0.2,
            together: false,
            host_cores: 2,
            threads: 0,
            client_ns: 0.0,
            clients: 0,
            client_threads: 0,
            saturated: false,
            observed_stack_ns: 0.0,
            other_load: 0.0,
            link_gbps: 10.0,
            bus_gbps: 0.0,
            disk_gbps: 0.0,
            mss_bytes: 1448.0,
            target_p99_us: 0.0,
            stacks: ["kernel", "inline", "engine", "af_xdp", "dpdk", "nic"]
                .map(str::to_owned)
                .to_vec(),
            engine_cores: 1,
            nic: Nic::default(),
        }
    }
}

/// Clients and threads at most.
const MOST: usize = 1_000_000;

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// It is not TOML, or has a key nobody knows.
    #[error("{0}")]
    Syntax(String),
    /// A value that cannot be.
    #[error("{}{key}: {reason}", place(*line))]
    Value {
        /// The line that names the key; 0 where none does.
        line: usize,
        /// The key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl PlanError {
    fn value(key: &str, reason: impl Into<String>) -> Self {
        Self::Value {
            line: 0,
            key: key.to_owned(),
            reason: reason.into(),
        }
    }

    /// The same with the line of a text on which the key stands.
    pub fn in_text(self, text: &str) -> Self {
        match self {
            Self::Value { key, reason, .. } => Self::Value {
                line: line_of(text, &key),
                key,
                reason,
            },
            Self::Syntax(_) => self,
        }
    }
}

impl Workload {
    /// Reads a workload.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let workload: Self =
            toml::from_str(text).map_err(|error| PlanError::Syntax(error.to_string()))?;
        workload.check().map_err(|error| error.in_text(text))?;
        Ok(workload)
    }

    fn check(&self) -> Result<(), PlanError> {
        /// What no machine has: an hour of work, a gigabyte a time, a petabit per second.
        const HOUR_NS: f64 = 3.6e12;
        const MOST_BYTES: f64 = 1e9;
        const MOST_GBPS: f64 = 1e6;
        // 0 is a value of its own where it is the least.
        for (key, value, least, most) in [
            ("requests_per_s", self.requests_per_s, 1.0, 1e9),
            ("request_bytes", self.request_bytes, 1.0, MOST_BYTES),
            ("response_bytes", self.response_bytes, 1.0, MOST_BYTES),
            ("application_ns", self.application_ns, 0.0, HOUR_NS),
            ("client_ns", self.client_ns, 0.0, HOUR_NS),
            ("observed_stack_ns", self.observed_stack_ns, 0.0, HOUR_NS),
            (
                "requests_per_connection",
                self.requests_per_connection,
                0.0,
                1e12,
            ),
            ("link_gbps", self.link_gbps, 1e-6, MOST_GBPS),
            ("bus_gbps", self.bus_gbps, 0.0, MOST_GBPS),
            ("disk_gbps", self.disk_gbps, 0.0, MOST_GBPS),
            ("mss_bytes", self.mss_bytes, 1.0, 65_535.0),
            ("target_p99_us", self.target_p99_us, 0.0, HOUR_NS / 1e3),
            ("nic.clock_mhz", self.nic.clock_mhz, 1.0, 1e6),
        ] {
            if !(least..=most).contains(&value) {
                let reason = format!("cannot be {value}: it is from {least} to {most}");
                return Err(PlanError::value(key, reason));
            }
        }
        for (key, share) in [
            ("wake_share", self.wake_share),
            ("other_load", self.other_load),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return Err(PlanError::value(key, "must be between 0 and 1"));
            }
        }
        for (key, count) in [
            ("host_cores", self.host_cores),
            ("nic.cores", self.nic.cores),
            ("engine_cores", self.engine_cores),
        ] {
            if !(1..=1024).contains(&count) {
                return Err(PlanError::value(key, "must be between 1 and 1024"));
            }
        }
        for (key, count) in [
            ("clients", self.clients),
            ("client_threads", self.client_threads),
            ("threads", self.threads),
        ] {
            if count > MOST {
                return Err(PlanError::value(key, format!("must be {MOST} at most")));
            }
        }
        if self.other_load > 0.99 {
            return Err(PlanError::value("other_load", "leaves nothing to share"));
        }
        if self.stacks.len() < 2 {
            return Err(PlanError::value("stacks", "needs two or more to compare"));
        }
        Ok(())
    }
}
