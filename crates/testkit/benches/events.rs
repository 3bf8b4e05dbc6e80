//! Events per second of one simulated machine on one core: `cargo bench -p testkit --bench events`. The goal is 5 million for a run
//! that nobody watches; a watched one, as `sim run --html` and the page make, keeps spans and queue lengths too.

use std::hint::black_box;

use sim::{
    machine::Machine,
    scenario::{Kind, Scenario},
};
use testkit::timed;

/// As many spans as the page keeps.
const SPANS: usize = 20_000;

fn main() {
    for kind in [Kind::Kernel, Kind::User, Kind::Nic] {
        let mut scenario = Scenario::default();
        scenario.stack.kind = kind;
        scenario.workload.clients = 6;
        scenario.workload.requests_per_client = 5000;
        scenario.workload.horizon_s = 1000.0;
        let events = Machine::run(&scenario, 1, 0).events;
        let events = u32::try_from(events).unwrap_or(u32::MAX);
        timed(&format!("an event, {kind:?}"), events, || {
            black_box(Machine::run(&scenario, 1, 0).answered);
        });
        timed(&format!("an event, {kind:?}, watched"), events, || {
            black_box(Machine::run_with_timeline(&scenario, 1, 0, SPANS).answered);
        });
    }
}
