//! The closed form of a stack under a workload: what a request costs on each processor, the capacity that each
//! resource allows, which of them ends first, and the mean stay with M/D/1 on each core.

use serde::Serialize;

use super::{Costs, Source, Value, Where, Workload};
use crate::formula::mg1_wait;

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
    /// The threads of the clients on this host.
    Clients,
}

impl Bottleneck {
    /// Whether no stack can move it.
    pub fn is_outside(self) -> bool {
        matches!(self, Self::Link | Self::Bus | Self::Disk | Self::Clients)
    }
}

/// What one request takes: host time of the stack, and device time at 1 GHz.
fn work(w: &Workload, costs: &Costs) -> (f64, f64) {
    let packets = |bytes: f64| (bytes / w.mss_bytes).ceil();
    let messages = [w.request_bytes, w.response_bytes];
    let several = messages.iter().filter(|bytes| packets(**bytes) > 1.0);
    let several = several.count() as f64;
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
        + several * value(&costs.several_packets_ns)
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

/// What part of a request's work on this stack stands on values that were measured.
pub(super) fn measured_share(w: &Workload, costs: &Costs) -> f64 {
    let mut known = costs.clone();
    let names = costs.values().into_iter();
    for (name, _) in names.filter(|(_, value)| value.source != Source::Measured) {
        if let Some(value) = known.value_mut(name) {
            value.value = 0.0;
        }
    }
    let sum = |(host, device): (f64, f64)| host + device;
    let (known, all) = (sum(work(w, &known)), sum(work(w, costs)));
    if all > 0.0 {
        (known / all).clamp(0.0, 1.0)
    } else {
        1.0
    }
}

/// How far predictions may be off where every cost was measured exactly: as far as a mean of `shunt sim plan --verify` was off at most
/// (docs/simulator.md).
pub(super) const MODEL_BAND: f64 = 0.34;
/// How far a value may be off that nobody measured here, as a part of it.
const UNMEASURED_BAND: f64 = 0.5;

/// How far capacity and mean may be off, as a part of them: the model itself, half of the spread of what was measured, and half of
/// what was not, each by its part of the work of a request.
pub(super) fn error_band(w: &Workload, costs: &Costs) -> f64 {
    let sum = |costs: &Costs| {
        let (host, device) = work(w, costs);
        host + device
    };
    let all = sum(costs);
    let uncertain = costs.values().into_iter().map(|(name, value)| {
        let band = match value.source {
            Source::Measured => value.spread.unwrap_or(0.0) / 2.0,
            Source::Literature | Source::Assumed => UNMEASURED_BAND,
        };
        let mut without = costs.clone();
        if let Some(value) = without.value_mut(name) {
            value.value = 0.0;
        }
        band * (all - sum(&without)).abs()
    });
    MODEL_BAND + uncertain.sum::<f64>() / (all + w.application_ns).max(1.0)
}

/// An engine that shares the only processors with the program.
pub(super) fn crowded(w: &Workload, costs: &Costs) -> bool {
    costs.place == Where::Engine && w.host_cores <= w.engine_cores
}

/// Cores of these that the application's threads can use.
fn serving(w: &Workload, cores: f64) -> f64 {
    match w.threads {
        0 => cores,
        threads => cores.min(threads as f64),
    }
}

/// What ends first: processors of the host, of the device, link, bus, disk, or who asks.
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
        (clients_per_s(w), Bottleneck::Clients),
    ];
    let least = limits.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    least.unwrap_or((0.0, Bottleneck::Host))
}

/// What the threads of clients on this host can ask.
fn clients_per_s(w: &Workload) -> f64 {
    if w.client_threads == 0 || w.client_ns <= 0.0 {
        return f64::INFINITY;
    }
    w.client_threads as f64 * (1.0 - w.other_load) * 1e9 / w.client_ns
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
