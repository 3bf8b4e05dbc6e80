//! Times of the stack's work per packet (criterion): `cargo bench -p packetbench --features benches`.
//!
//! The goal is less than 150 ns for a received full segment with its share of ACKs.

#![allow(missing_docs)] // what criterion's macros make

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use packetbench::{Family, Flow, memory};

fn packets(criterion: &mut Criterion) {
    for (family, name) in [(Family::V4, "packets"), (Family::V6, "packets over IPv6")] {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(1));
        let mut memory = memory(false);
        let mut flow = Flow::established(&mut memory, family);
        group.bench_function(
            "receive a full segment, with its share of ACKs",
            |bencher| {
                bencher.iter(|| flow.receive_segment());
            },
        );
        group.bench_function("send two full segments and take their ACK", |bencher| {
            bencher.iter(|| flow.send_two_segments());
        });
        group.bench_function("handshake, accept, reset, close", |bencher| {
            bencher.iter(|| flow.connect_and_reset());
        });
        group.finish();
    }
}

criterion_group!(benches, packets);
criterion_main!(benches);
