//! How much of the receive window is offered, as traces.

use super::harness::*;
use crate::Config;

const OFFER: u32 = 10_000;

fn tuned() -> Config {
    Config {
        window_scaling: true,
        receive_capacity: 1 << 20,
        receive_offer: OFFER,
        ..plain()
    }
}

/// A flow of segments of 1,000 bytes that the program consumes at once, so many in each round trip.
struct Flow {
    script: Script,
    seq: u32,
}

impl Flow {
    /// The handshake takes a millisecond.
    fn new(config: &Config) -> Self {
        let mut syn_ack = seg("S.", 0, 1, b"").mss(1_000).wscale(7);
        if config.timestamps {
            syn_ack = syn_ack.ts(1, 0);
        }
        let script = Script::established_with(config, syn_ack);
        Self { script, seq: 1 }
    }

    fn rounds(&mut self, rounds: u32, segments: u32) {
        for _ in 0..rounds {
            self.arrive(segments);
            self.script.wait_us(1_100);
            self.script.consumes_all();
            self.script.sent();
        }
    }

    fn arrive(&mut self, segments: u32) {
        for _ in 0..segments {
            self.script.arrives(seg(".", self.seq, 1, &[0; 1_000]));
            self.seq += 1_000;
        }
    }

    fn offered(&self) -> u64 {
        self.script.conn.offered_window()
    }
}

#[test]
fn a_connection_begins_with_its_first_offer() {
    let mut flow = Flow::new(&tuned());
    assert_eq!(flow.offered(), u64::from(OFFER));
    flow.script.arrives(seg(".", 1, 1, &[0; 1_000]));
    flow.script.next_timer();
    let [ack] = flow.script.sent()[..] else {
        panic!("one ACK")
    };
    let window = u64::from(ack.header.window) << flow.script.conn.rcv.window_shift;
    // In units of 128 bytes, up to one more than was offered.
    assert!((9_000..9_000 + 128).contains(&window), "{window}");
}

#[test]
fn a_program_that_keeps_up_is_offered_twice_what_it_takes_in_a_round_trip() {
    let mut flow = Flow::new(&tuned());
    flow.rounds(3, 8);
    let offered = flow.offered();
    assert!((32_000..100_000).contains(&offered), "{offered}");
    flow.rounds(20, 8);
    assert_eq!(flow.offered(), offered, "a steady rate asks for no more");
    flow.rounds(2, 16);
    assert!(flow.offered() > offered);
}

#[test]
fn doubling_in_slow_start_is_never_held_back() {
    let mut flow = Flow::new(&tuned());
    let mut segments = 4;
    while segments <= 128 {
        flow.rounds(1, segments);
        let next = u64::from(segments) * 2 * 1_000;
        assert!(flow.offered() >= next, "{} before {next}", flow.offered());
        segments *= 2;
    }
}

#[test]
fn the_offer_ends_at_the_capacity_and_at_the_ceiling() {
    let config = Config {
        receive_capacity: 1 << 16,
        ..tuned()
    };
    let mut flow = Flow::new(&config);
    flow.rounds(10, 9);
    flow.rounds(10, 60);
    assert_eq!(flow.offered(), 1 << 16);

    let mut flow = Flow::new(&tuned());
    flow.arrive(9);
    flow.script.wait_us(1_100);
    let (now, end) = (flow.script.now, flow.script.conn.readable_end());
    let consumed = flow.script.conn.handle_consumed_below(now, end, 12_000);
    consumed.unwrap();
    assert_eq!(flow.offered(), 12_000);
}

#[test]
fn a_program_that_does_not_read_is_offered_no_more() {
    let mut flow = Flow::new(&tuned());
    flow.arrive(9);
    flow.script.wait_us(10_000_000);
    flow.script.sent();
    assert_eq!(flow.offered(), u64::from(OFFER));
}

#[test]
fn what_the_program_has_set_is_not_tuned() {
    let mut config = tuned();
    config.options.receive_limit = 20_000;
    let mut flow = Flow::new(&config);
    flow.rounds(10, 15);
    assert_eq!(flow.offered(), 20_000);
}

#[test]
fn a_path_that_has_become_slower_makes_the_round_longer() {
    let mut offered = [0, 0];
    for (offered, timestamps) in offered.iter_mut().zip([true, false]) {
        let config = Config {
            timestamps,
            ..tuned()
        };
        let mut flow = Flow::new(&config);
        for _ in 0..10 {
            // Eight segments that answer what left 50 ms ago, taken one by one.
            for _ in 0..8 {
                flow.script.wait_us(6_000);
                let mut segment = seg(".", flow.seq, 1, &[0; 1_000]);
                if timestamps {
                    let clock = flow.script.conn.timestamp_clock(flow.script.now);
                    segment = segment.ts(1, clock.wrapping_sub(50));
                }
                flow.script.arrives(segment);
                flow.seq += 1_000;
                flow.script.consumes_all();
                flow.script.sent();
            }
        }
        *offered = flow.offered();
    }
    // Eight segments are in flight; the handshake knew of a millisecond, in which there is one.
    assert!(offered[0] >= 80_000, "{offered:?}");
    assert!(offered[1] < 60_000, "{offered:?}");
}
