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

pub use crate::scenario::FileError;
pub use asking::Asked;
use closed::crowded;
pub use closed::{Bottleneck, Closed, closed};
pub use closed_loop::{Client, ClosedLoop, Work, closed_loop};
pub use observation::Observation;
pub use preset::{Costs, Preset, Source, Value, Where};
pub use simulate::{Estimate, Simulated, simulate};
pub use trial::{Trial, between};
pub use verdict::{BreakEven, Buys, Effect, Plan, Row, plan};

table! {
    /// A workload as a file gives it.
    Workload in "" {
        /// What it is.
        title: String = String::new();
        /// Requests per second; Poisson, unless `clients` says who asks.
        requests_per_s: f64 = 10_000.0, from_to(1.0, 1e9);
        /// Size of a request.
        request_bytes: f64 = 128.0, from_to(1.0, MOST_BYTES);
        /// Size of a response.
        response_bytes: f64 = 1024.0, from_to(1.0, MOST_BYTES);
        /// The application's own processor time per request.
        application_ns: f64 = 2000.0, from_to(0.0, HOUR_NS);
        /// Requests of one connection; 0 for connections that last.
        requests_per_connection: f64 = 0.0, from_to(0.0, 1e12);
        /// Share of the requests that wake a sleeping thread.
        wake_share: f64 = 0.2, part;
        /// The application writes all answers of a wake-up at its end, as redis does; stacks then send them
        /// together.
        together: bool = false;
        /// Processors of the host.
        host_cores: usize = 2, between(1, 1024);
        /// Threads of the application that can serve at the same time; 0 is one per processor.
        threads: usize = 0, at_most(MOST);
        /// Processor time per request that clients on this same host take; 0: they are elsewhere.
        client_ns: f64 = 0.0, from_to(0.0, HOUR_NS);
        /// Clients that wait for each answer before they ask again, so many requests under way at most; 0: requests come by
        /// themselves.
        clients: usize = 0, at_most(MOST);
        /// Threads of those clients on this same host; 0: as many as they need.
        client_threads: usize = 0, at_most(MOST);
        /// `requests_per_s` is all that clients and server could do: somebody was busy all the time, and nobody paused.
        saturated: bool = false;
        /// Host time per request that the first stack was seen to take, in place of the preset's; 0: nobody
        /// looked.
        observed_stack_ns: f64 = 0.0, from_to(0.0, HOUR_NS);
        /// Share of each that other work takes.
        other_load: f64 = 0.0, part;
        /// The link.
        link_gbps: f64 = 10.0, from_to(1e-6, MOST_GBPS);
        /// The bus; 0 is no limit.
        bus_gbps: f64 = 0.0, from_to(0.0, MOST_GBPS);
        /// The disk from which responses come; 0 is none.
        disk_gbps: f64 = 0.0, from_to(0.0, MOST_GBPS);
        /// Largest payload of a packet.
        mss_bytes: f64 = 1448.0, from_to(1.0, 65_535.0);
        /// Wanted 99th percentile at the host; 0 is none.
        target_p99_us: f64 = 0.0, from_to(0.0, HOUR_NS / 1e3);
        /// Stacks to compare; the first is what there is today.
        stacks: Vec<String> = ["kernel", "inline", "engine", "af_xdp", "dpdk", "nic"].map(str::to_owned).to_vec();
        /// Cores of the engine, taken from the host's.
        engine_cores: usize = 1, between(1, 1024);
        /// The NIC of `nic`.
        nic: Nic = Nic::default();
    }
}

table! {
    /// A NIC with processors.
    Nic in "nic." {
        /// Its cores.
        cores: usize = 4, between(1, 1024);
        /// Their clock; the preset's values are at 1 GHz.
        clock_mhz: f64 = 1000.0, from_to(1.0, 1e6);
    }
}

/// Clients and threads at most.
const MOST: usize = 1_000_000;
/// What no machine has: an hour of work, a gigabyte a time, a petabit per second.
const HOUR_NS: f64 = 3.6e12;
const MOST_BYTES: f64 = 1e9;
const MOST_GBPS: f64 = 1e6;

impl Workload {
    /// Reads a workload.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        let workload: Self =
            toml::from_str(text).map_err(|error| FileError::Syntax(error.to_string()))?;
        workload.check_all().map_err(|error| error.in_text(text))?;
        Ok(workload)
    }

    fn check_all(&self) -> Result<(), FileError> {
        let checked = self.check().and_then(|()| self.nic.check());
        checked.map_err(|(key, reason)| FileError::value(key, reason))?;
        if self.other_load > 0.99 {
            return Err(FileError::value("other_load", "leaves nothing to share"));
        }
        if self.stacks.len() < 2 {
            return Err(FileError::value("stacks", "needs two or more to compare"));
        }
        Ok(())
    }
}
