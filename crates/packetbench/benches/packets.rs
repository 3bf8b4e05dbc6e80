//! Times of the stack's work per packet: `cargo bench -p packetbench`.
//!
//! The goal is less than 150 ns for a received full segment with its share of ACKs.

use packetbench::{Family, Flow, memory};
use testkit::timed;

fn main() {
    for (family, name) in [(Family::V4, "packets"), (Family::V6, "packets over IPv6")] {
        let mut memory = memory(false);
        let mut flow = Flow::established(&mut memory, family);
        println!("{name}");
        timed("receive a full segment, with its share of ACKs", 1, || {
            flow.receive_segment();
        });
        timed("send two full segments and take their ACK", 1, || {
            flow.send_two_segments();
        });
        timed("handshake, accept, reset, close", 1, || {
            flow.connect_and_reset();
        });
    }
}
