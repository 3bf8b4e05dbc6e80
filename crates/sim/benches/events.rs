//! Events per second of one simulated machine on one core: `cargo bench -p sim --features benches`. The goal is 5 million for a run
//! that nobody watches; a watched one, as `sim run --html` and the page make, keeps spans and queue lengths too.

#![allow(missing_docs)] // what criterion's macros make

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sim::{
    machine::Machine,
    scenario::{Kind, Scenario},
};

/// As many spans as the page keeps.
const SPANS: usize = 20_000;

fn events(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("events");
    for kind in [Kind::Kernel, Kind::User, Kind::Nic] {
        let mut scenario = Scenario::default();
        scenario.stack.kind = kind;
        scenario.workload.clients = 6;
        scenario.workload.requests_per_client = 5000;
        scenario.workload.horizon_s = 1000.0;
        let events = Machine::run(&scenario, 1, 0).events;
        group.throughput(Throughput::Elements(events));
        group.bench_function(format!("{kind:?}"), |bencher| {
            bencher.iter(|| Machine::run(&scenario, 1, 0).answered);
        });
        group.bench_function(format!("{kind:?}, watched"), |bencher| {
            bencher.iter(|| Machine::run_with_timeline(&scenario, 1, 0, SPANS).answered);
        });
    }
    group.finish();
}

criterion_group!(benches, events);
criterion_main!(benches);
