//! What would offload buy this workload? First the closed form, after Shivam and Chase (LAWS) — what a
//! request costs on each processor, and which resource ends first — then the simulation, for the tail
//! and for what a formula leaves out.
//!
//! It must be able to say no: offload can never give more than the stack's share of the work, short
//! connections pay for the control path, a slow NIC becomes the bottleneck, and a disk does not get
//! faster.

mod closed_loop;
mod observation;
mod preset;
mod report;
mod simulate;
#[cfg(test)]
mod tests;
mod verdict;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    formula::mg1_wait,
    scenario::{line_of, place},
};
pub use closed_loop::{ClosedLoop, closed_loop};
pub use observation::Observation;
pub use preset::{Costs, Preset, Source, Value, Where};
pub use simulate::{Estimate, Simulated, simulate};
pub use verdict::{BreakEven, Buys, Effect, Plan, Row, plan};

/// A workload as a file gives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// What it is.
    pub title: String,
    /// Requests per second, Poisson.
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
    fn in_text(self, text: &str) -> Self {
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
        for (key, value, positive) in [
            ("requests_per_s", self.requests_per_s, true),
            ("request_bytes", self.request_bytes, true),
            ("response_bytes", self.response_bytes, true),
            ("application_ns", self.application_ns, false),
            ("client_ns", self.client_ns, false),
            ("observed_stack_ns", self.observed_stack_ns, false),
            (
                "requests_per_connection",
                self.requests_per_connection,
                false,
            ),
            ("link_gbps", self.link_gbps, true),
            ("bus_gbps", self.bus_gbps, false),
            ("disk_gbps", self.disk_gbps, false),
            ("mss_bytes", self.mss_bytes, true),
            ("target_p99_us", self.target_p99_us, false),
            ("nic.clock_mhz", self.nic.clock_mhz, true),
        ] {
            if !value.is_finite() || value < 0.0 || (positive && value == 0.0) {
                return Err(PlanError::value(key, format!("cannot be {value}")));
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
        ] {
            if !(1..=1024).contains(&count) {
                return Err(PlanError::value(key, "must be between 1 and 1024"));
            }
        }
        if self.other_load > 0.99 {
            return Err(PlanError::value("other_load", "leaves nothing to share"));
        }
        if self.engine_cores == 0 {
            return Err(PlanError::value("engine_cores", "must be 1 or more"));
        }
        if self.stacks.len() < 2 {
            return Err(PlanError::value("stacks", "needs two or more to compare"));
        }
        Ok(())
    }
}

/// The closed form of one stack.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Closed {
    /// Host time of the stack per request.
    pub stack_ns: f64,
    /// Engine or NIC time per request.
    pub device_ns: f64,
    /// Host cores that the application and its part of the stack may use.
    pub cores: f64,
    /// Those, and the ones that its threads cannot use.
    pub all_cores: f64,
    /// What one of them can give, after other work.
    pub core_share: f64,
    /// Cores of the engine or NIC.
    pub device_cores: f64,
    /// Load of the host's cores at the offered rate; an engine's cores count as busy in `host_cores`.
    pub host_load: f64,
    /// Host cores busy at the offered rate, engine included.
    pub busy_cores: f64,
    /// Most requests per second.
    pub capacity_per_s: f64,
    /// What ends first.
    pub bottleneck: Bottleneck,
    /// Mean time at the host: service and queueing on each core; none in overload.
    pub mean_us: Option<f64>,
}

/// What ends first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// The host's processors.
    Host,
    /// The engine's or the NIC's.
    Device,
    /// The link.
    Link,
    /// The bus.
    Bus,
    /// The disk.
    Disk,
}

impl Bottleneck {
    /// Whether no stack can move it.
    pub fn is_outside(self) -> bool {
        matches!(self, Self::Link | Self::Bus | Self::Disk)
    }
}

/// What one request takes: host time of the stack, and device time at 1 GHz.
fn work(w: &Workload, costs: &Costs) -> (f64, f64) {
    let packets = |bytes: f64| (bytes / w.mss_bytes).ceil();
    let bytes = w.request_bytes + w.response_bytes;
    let connections = if w.requests_per_connection > 0.0 {
        1.0 / w.requests_per_connection
    } else {
        0.0
    };
    let value = |v: &Option<Value>| v.as_ref().map_or(0.0, |v| v.value);
    let host = costs.receive_ns.value
        + costs.send_ns.value
        + (packets(w.request_bytes) + packets(w.response_bytes)) * costs.packet_ns.value
        + bytes * costs.byte_ns.value
        + connections * costs.connection_ns.value
        + w.wake_share * costs.wake_ns.value
        - if w.together {
            value(&costs.together_saves_ns)
        } else {
            0.0
        };
    let device = value(&costs.device_ns)
        + bytes * value(&costs.device_byte_ns)
        + connections * value(&costs.device_connection_ns);
    (host.max(0.0), device)
}

/// An engine that shares the only processors with the program.
fn crowded(w: &Workload, costs: &Costs) -> bool {
    costs.place == Where::Engine && w.host_cores <= w.engine_cores
}

/// Cores of these that the application's threads can use.
fn serving(w: &Workload, cores: f64) -> f64 {
    match w.threads {
        0 => cores,
        threads => cores.min(threads as f64),
    }
}

/// What ends first: processors of the host, of the device, link, bus or disk.
fn limit(w: &Workload, host_per_s: f64, device_per_s: f64) -> (f64, Bottleneck) {
    let rate = |gbps: f64, bytes: f64| {
        if gbps > 0.0 {
            gbps * 1e9 / 8.0 / bytes
        } else {
            f64::INFINITY
        }
    };
    // The link carries requests one way and responses the other.
    let larger = w.request_bytes.max(w.response_bytes);
    let limits = [
        (host_per_s, Bottleneck::Host),
        (device_per_s, Bottleneck::Device),
        (rate(w.link_gbps, larger), Bottleneck::Link),
        (
            rate(w.bus_gbps, w.request_bytes + w.response_bytes),
            Bottleneck::Bus,
        ),
        (rate(w.disk_gbps, w.response_bytes), Bottleneck::Disk),
    ];
    let least = limits.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    least.unwrap_or((0.0, Bottleneck::Host))
}

/// Mean stay at a processor with fixed work (M/D/1); no number in overload.
fn stay(service: f64, load: f64) -> f64 {
    if load >= 1.0 {
        f64::NAN
    } else {
        service * (1.0 + mg1_wait(load, 0.0))
    }
}

/// The closed form of a stack with these costs under a workload.
pub fn closed(w: &Workload, costs: &Costs) -> Closed {
    let (stack_ns, at_1_ghz) = work(w, costs);
    let crowded = crowded(w, costs);
    let all = w.host_cores as f64;
    let (cores, device_cores, device_ns) = match costs.place {
        Where::Host => (all, 0.0, 0.0),
        Where::Engine if crowded => (all, 0.0, at_1_ghz),
        Where::Engine => (all - w.engine_cores as f64, w.engine_cores as f64, at_1_ghz),
        Where::Nic => (all, w.nic.cores as f64, at_1_ghz * 1000.0 / w.nic.clock_mhz),
    };
    let all_cores = cores;
    let cores = serving(w, cores);
    let core_share = 1.0 - w.other_load;
    let host_ns = w.application_ns + stack_ns + if crowded { device_ns } else { 0.0 };
    let device_per_s = if device_cores > 0.0 && device_ns > 0.0 {
        device_cores * 1e9 / device_ns
    } else {
        f64::INFINITY
    };
    let serving_per_s = cores * core_share * 1e9 / host_ns.max(1e-9);
    // Clients on this host take the processors that the threads leave, then theirs.
    let with_clients_per_s = all_cores * core_share * 1e9 / (host_ns + w.client_ns).max(1e-9);
    let host_per_s = serving_per_s.min(with_clients_per_s);
    let (capacity_per_s, bottleneck) = limit(w, host_per_s, device_per_s);
    let rate = w.requests_per_s;
    let host_load = rate / host_per_s;
    let mut mean = stay(host_ns / core_share, host_load);
    if device_per_s.is_finite() {
        mean += stay(device_ns, rate / device_per_s);
    }
    // What polls is busy all the time, and so is an engine's core.
    let used = if costs.polls {
        cores
    } else {
        (rate * host_ns / 1e9).min(cores)
    };
    let engine = if costs.place == Where::Engine {
        device_cores
    } else {
        0.0
    };
    Closed {
        stack_ns,
        device_ns,
        cores,
        all_cores,
        core_share,
        device_cores,
        host_load,
        busy_cores: used + engine,
        capacity_per_s,
        bottleneck,
        mean_us: (mean.is_finite() && rate < capacity_per_s).then_some(mean / 1e3),
    }
}
