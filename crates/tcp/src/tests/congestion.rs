//! What the algorithms do to a shared bottleneck: rate, fairness, queue, and what loss does to them.

mod bottleneck;
mod ecn;

use crate::{
    Algorithm::{self, Bbr, Cubic, Dctcp, Reno},
    EcnMode,
};
use bottleneck::{Link, Network, Program, config};

/// 100 Mbit/s, 40 ms, a buffer of one bandwidth-delay product (500 kB).
const PATH: Link = Link {
    mbit_s: 100,
    rtt_ms: 40,
    buffer_bytes: 500_000,
    loss: 0,
    mark_above_bytes: u64::MAX,
    merged: false,
};

/// Payload that the path can carry in `ms`.
fn capacity(link: &Link, ms: u64) -> u64 {
    link.mbit_s * 125 * ms * 1_448 / 1_514
}

fn share(bytes: u64, whole: u64) -> f64 {
    bytes as f64 / whole as f64
}

fn alone(algorithm: Algorithm, link: Link, seconds: u64) -> f64 {
    alone_from(7, algorithm, link, seconds)
}

fn alone_from(seed: u64, algorithm: Algorithm, link: Link, seconds: u64) -> f64 {
    let mut network = Network::new(link, 2 * seed + 1);
    network.add(&config(algorithm), Program::Bulk, 0);
    let received = network.run_ms(seconds * 1_000);
    share(received[0], capacity(&link, seconds * 1_000))
}

/// Two flows, the second `later_ms` later: the first one's share of what both receive in `seconds` after
/// `warm_up` seconds.
fn share_of_first(
    flows: [Algorithm; 2],
    link: Link,
    later_ms: u64,
    warm_up: u64,
    seconds: u64,
) -> f64 {
    let mut network = Network::new(link, 11);
    network.add(&config(flows[0]), Program::Bulk, 0);
    network.add(&config(flows[1]), Program::Bulk, later_ms);
    network.run_ms(warm_up * 1_000);
    let received = network.run_ms(seconds * 1_000);
    share(received[0], received[0] + received[1])
}

#[test]
fn cubic_fills_a_long_path_after_slow_start_and_after_losses() {
    for merged in [false, true] {
        let rate = alone(Cubic, Link { merged, ..PATH }, 20);
        assert!(rate > 0.95, "merged {merged}: {rate}");
    }
}

/// Which flow meets the full queue is chance, and remembered for long: no single start says much.
fn cubic_flows_share_fairly(merged: bool) {
    // The same windows, which grow as fast by the clock (RFC 9438 §4.2), with a quarter of the packets.
    let link = Link {
        mbit_s: 25,
        rtt_ms: 160,
        merged,
        ..PATH
    };
    let starts = (0..16).map(|start| 2_000 + 333 * start);
    let shares: Vec<f64> = starts
        .map(|ms| share_of_first([Cubic, Cubic], link, ms, 60, 120))
        .collect();
    let mean = shares.iter().sum::<f64>() / 16.0;
    assert!((0.44..0.56).contains(&mean), "{shares:?}");
    let each = shares.iter().all(|first| (0.25..0.75).contains(first));
    assert!(each, "{shares:?}");
}

// Two tests, which run side by side: they are among the longest of this crate.
#[test]
fn two_cubic_flows_share_fairly() {
    cubic_flows_share_fairly(false);
}

#[test]
fn two_cubic_flows_of_merged_segments_share_fairly() {
    cubic_flows_share_fairly(true);
}

#[test]
fn cubic_is_fair_to_reno_where_reno_is_as_fast() {
    // 17 segments in flight: the Reno-friendly region of RFC 9438 §4.3.
    let link = Link {
        mbit_s: 10,
        rtt_ms: 20,
        buffer_bytes: 50_000,
        ..PATH
    };
    for merged in [false, true] {
        let link = Link { merged, ..link };
        for flows in [[Cubic, Reno], [Reno, Cubic]] {
            let first = share_of_first(flows, link, 3_000, 20, 60);
            assert!((0.33..0.67).contains(&first), "{flows:?}: {first}");
        }
    }
}

#[test]
fn hystart_leaves_slow_start_before_the_queue_overflows() {
    // The delay shows a round trip late, when the window is twice what fits, and conservative slow start
    // grows it by a quarter in each of its rounds: six times what the path holds. Slow start alone
    // overflows any buffer.
    let run = |algorithm, buffer_bytes| {
        let link = Link {
            buffer_bytes,
            ..PATH
        };
        let mut network = Network::new(link, 7);
        let mut config = config(algorithm);
        config.options.ecn = EcnMode::Off;
        network.add(&config, Program::Bulk, 0);
        network.run_ms(3_000);
        let info = network.flows[0].ends[0].info();
        (network.dropped, info.cwnd, info.ssthresh)
    };
    let plain = |buffer_bytes| run(Dctcp, buffer_bytes).0;
    assert!(plain(6_000_000) > 1_000, "{}", plain(6_000_000));
    for algorithm in [Reno, Cubic] {
        let (dropped, cwnd, ssthresh) = run(algorithm, 6_000_000);
        assert_eq!(dropped, 0);
        assert!(ssthresh < u32::MAX && cwnd >= 500_000, "{cwnd} {ssthresh}");
        // Where the buffer is smaller, less is lost at least.
        let dropped = run(algorithm, 1_000_000).0;
        assert!(3 * dropped < 2 * plain(1_000_000), "{dropped}");
    }
}

#[test]
fn an_application_limited_flow_does_not_inflate_its_window() {
    for algorithm in [Reno, Cubic] {
        let mut network = Network::new(PATH, 7);
        // 4 Mbit/s of a path of 100.
        let program = Program::Paced {
            bytes: 5_000,
            every_ms: 10,
        };
        network.add(&config(algorithm), program, 0);
        network.run_ms(30_000);
        let cwnd = network.flows[0].ends[0].info().cwnd;
        // A round trip carries 20 kB; slow start may overshoot it twice.
        assert!(cwnd <= 80_000, "{algorithm:?}: {cwnd}");
    }
}

#[test]
fn bbr_fills_a_path_and_keeps_its_queue_short() {
    let link = Link {
        buffer_bytes: 2_000_000,
        ..PATH
    };
    let mut queues = Vec::new();
    for algorithm in [Cubic, Bbr] {
        let mut network = Network::new(link, 7);
        network.add(&config(algorithm), Program::Bulk, 0);
        network.run_ms(5_000);
        network.mean_queue();
        let received = network.run_ms(20_000);
        let rate = share(received[0], capacity(&link, 20_000));
        assert!(rate > 0.95, "{algorithm:?}: {rate}");
        queues.push(network.mean_queue());
    }
    assert!(
        queues[1] < 150_000 && queues[0] > 4 * queues[1],
        "{queues:?}"
    );
}

#[test]
fn a_pacing_limit_of_the_program_holds_for_every_algorithm() {
    for algorithm in Algorithm::ALL {
        let mut config = config(algorithm);
        config.options.max_pacing_rate = 1_000_000;
        let mut network = Network::new(PATH, 7);
        network.add(&config, Program::Bulk, 0);
        network.run_ms(1_000);
        let received = network.run_ms(10_000)[0];
        // BBR stays a tenth below what it measures now and then, and measures a little less where each segment is acknowledged.
        assert!(
            (8_900_000..=10_000_000).contains(&received),
            "{algorithm:?}: {received}"
        );
        assert_eq!(network.dropped, 0);
    }
}

#[test]
fn random_loss_of_one_percent_stops_reno_and_not_bbr() {
    let link = Link {
        loss: 100,
        buffer_bytes: 1_000_000,
        ..PATH
    };
    // RFC 3649: 1.2 / sqrt(p) segments, 12 of the 350 that the path holds.
    let reno = alone(Reno, link, 30);
    assert!(reno < 0.06, "{reno}");
    // 3.5 losses in a round trip, and above seven BBR steps back: no single seed says much.
    let bbr: f64 = (1..=8).map(|seed| alone_from(seed, Bbr, link, 30)).sum();
    assert!(bbr / 8.0 > 0.75, "{bbr}");
}

/// A data centre: 1 Gbit/s, 200 µs would be typical; a millisecond is what the cable counts in.
const RACK: Link = Link {
    mbit_s: 1_000,
    rtt_ms: 1,
    buffer_bytes: 500_000,
    loss: 0,
    // RFC 8257 §4.1 and the DCTCP paper: K above a seventh of the bandwidth-delay product.
    mark_above_bytes: 30_000,
    merged: false,
};

/// Rate, mean queue, losses and marks of two flows with ECN mode `ecn`.
fn on_rack(algorithm: Algorithm, ecn: EcnMode) -> (f64, u64, u64, u64) {
    let mut network = Network::new(RACK, 7);
    let mut config = config(algorithm);
    config.options.ecn = ecn;
    network.add(&config, Program::Bulk, 0);
    network.add(&config, Program::Bulk, 10);
    network.run_ms(200);
    network.mean_queue();
    let dropped = network.dropped;
    let received: u64 = network.run_ms(300).iter().sum();
    let rate = share(received, capacity(&RACK, 300));
    let dropped = network.dropped - dropped;
    (rate, network.mean_queue(), dropped, network.marked)
}

#[test]
fn dctcp_keeps_a_short_queue_and_the_rate() {
    for ecn in [EcnMode::Request, EcnMode::RequestAccurate] {
        let (rate, queue, dropped, marked) = on_rack(Dctcp, ecn);
        assert!(rate > 0.97, "{ecn:?}: {rate}");
        assert!((10_000..60_000).contains(&queue), "{ecn:?}: {queue}");
        assert!(dropped == 0 && marked > 0, "{ecn:?}: {dropped} {marked}");
    }
    // Without ECN it is Reno, and fills the buffer.
    let (_, queue, dropped, marked) = on_rack(Dctcp, EcnMode::Off);
    assert!(
        queue > 200_000 && dropped > 0 && marked == 0,
        "{queue} {dropped}"
    );
}

#[test]
fn dctcp_takes_no_ack_for_many_segments_for_marks() {
    // A gigabit over 20 ms, marks from a seventh of what it holds. ACKs are for a dozen segments each.
    for merged in [false, true] {
        let link = Link {
            mbit_s: 1_000,
            rtt_ms: 20,
            buffer_bytes: 2_500_000,
            mark_above_bytes: 357_000,
            merged,
            ..PATH
        };
        let mut network = Network::new(link, 7);
        let mut config = config(Dctcp);
        config.options.ecn = EcnMode::RequestAccurate;
        network.add(&config, Program::Bulk, 0);
        network.run_ms(500);
        let received = network.run_ms(1_000)[0];
        let rate = share(received, capacity(&link, 1_000));
        assert!(rate > 0.25, "merged {merged}: {rate}");
    }
}

#[test]
fn marks_spare_every_algorithm_the_losses() {
    for algorithm in [Reno, Cubic, Bbr] {
        for ecn in [EcnMode::Request, EcnMode::RequestAccurate] {
            let (rate, queue, dropped, marked) = on_rack(algorithm, ecn);
            assert!(rate > 0.7, "{algorithm:?} {ecn:?}: {rate}");
            assert!(
                dropped == 0 && marked > 0,
                "{algorithm:?} {ecn:?}: {dropped}"
            );
            assert!(queue < 150_000, "{algorithm:?} {ecn:?}: {queue}");
        }
    }
}

#[test]
fn dctcp_flows_share_fairly() {
    let mut network = Network::new(RACK, 3);
    let mut config = config(Dctcp);
    config.options.ecn = EcnMode::RequestAccurate;
    network.add(&config, Program::Bulk, 0);
    network.add(&config, Program::Bulk, 100);
    network.run_ms(500);
    let received = network.run_ms(500);
    let first = share(received[0], received[0] + received[1]);
    assert!((0.4..0.6).contains(&first), "{first}");
}
