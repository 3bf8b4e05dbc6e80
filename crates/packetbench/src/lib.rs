//! What one packet costs the pure stack: an established connection to which the same thing happens again
//! and again. `cargo bench -p packetbench --features benches` takes times; `testkit/tests/instructions.rs` counts the
//! instructions of the binary under callgrind, which a noisy machine does not blur.

mod flow;

pub use flow::{Family, Flow, memory};
