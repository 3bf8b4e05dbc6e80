//! The AF_XDP driver on a veth pair between two namespaces. Needs root, or says what it lacks.

#![allow(
    clippy::unwrap_used,
    reason = "a test program: helpers fail the test that calls them"
)]

#[path = "../support/mod.rs"]
mod support;
mod trouble;

use std::net::UdpSocket;

use ::wire::{ipv4, tcp};
use nic::af_packet::steering::{Hash, Mix, program};
use nic::af_packet::{self, AfPacket};
use nic::af_xdp::{AfXdp, Config, Mode, OpenError};
use nic::{Driver, RxChecksum};
use support::{
    LEFT, Namespace, PATIENCE, RIGHT, VETH, is_ipv4, pattern, receive, receive_all, wait,
};

const COPYING: [Mode; 2] = [Mode::Generic, Mode::Native];

fn config(mode: Mode) -> Config {
    Config {
        mode,
        ..Config::new(VETH)
    }
}

fn open(namespace: &Namespace, config: &Config) -> AfXdp {
    namespace.run(|| AfXdp::open(config).unwrap())
}

/// A pair of namespaces where this may be done; else says why not.
fn veth(test: &str) -> Option<[Namespace; 2]> {
    let pair = support::veth(test)?;
    match pair[0].run(|| AfXdp::open(&Config::new(VETH))) {
        Ok(_) => Some(pair),
        Err(error) if error.is_privilege() => {
            support::skipped(test, &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A TCP segment from `from` to `to`, whole but for its checksum.
fn headers(from: &impl Driver, to: &impl Driver, payload: usize) -> Vec<u8> {
    let link = (from.caps().hardware_address, to.caps().hardware_address);
    let header = tcp::Header {
        source_port: 1,
        destination_port: 2,
        seq: 77,
        ..Default::default()
    };
    support::tcp_headers(link, (LEFT, RIGHT), &header, payload)
}

fn is_tcp(frame: &[u8]) -> bool {
    is_ipv4(frame, ipv4::Protocol::TCP)
}

#[test]
fn frames_cross_in_order_in_both_copying_modes() {
    let Some([left, right]) = veth("frames_cross_in_order_in_both_copying_modes") else {
        return;
    };
    for mode in COPYING {
        let (mut one, mut two) = (open(&left, &config(mode)), open(&right, &config(mode)));
        assert_eq!(one.mode(), Some(mode.name()));
        let payload = pattern(1000);
        for round in 0..40_u8 {
            let headers: Vec<Vec<u8>> = (0..50)
                .map(|number| {
                    let mut headers = headers(&one, &two, payload.len());
                    headers[18..20].copy_from_slice(&[round, number]);
                    headers
                })
                .collect();
            let frames: Vec<_> = headers
                .iter()
                .map(|headers| support::tcp_frame(headers, &payload, None))
                .collect();
            assert_eq!(one.tx_burst(&frames).unwrap(), 50);
            one.flush_tx().unwrap();
            for headers in &headers {
                let found = receive(&mut two, is_tcp);
                assert_eq!(found.bytes[18..20], headers[18..20]);
                assert_eq!(found.bytes[54..], payload, "{mode:?}");
                assert_eq!(
                    found.checksum,
                    RxChecksum::Unknown,
                    "the driver has finished it"
                );
                let segment = &found.bytes[34..];
                assert!(::wire::checksum::verify_tcp_v4(LEFT, RIGHT, segment));
            }
        }
        assert_eq!(one.counters().tx_frames, 2000);
        assert_eq!(two.counters().rx_frames, 2000);
        assert_eq!(
            (one.counters().tx_dropped, two.counters().rx_dropped),
            (0, 0)
        );
    }
}

#[test]
fn a_large_segment_arrives_in_pieces_and_is_one_frame() {
    let Some([left, right]) = veth("a_large_segment_arrives_in_pieces_and_is_one_frame") else {
        return;
    };
    let mut left = left.run(|| AfPacket::open(&af_packet::Config::new(VETH)).unwrap());
    let mut right = open(&right, &Config::new(VETH));
    let payload = pattern(60 * 1024);
    let headers = headers(&left, &right, payload.len());
    let frame = support::tcp_frame(&headers, &payload, Some(1460));
    for _ in 0..200 {
        assert_eq!(left.tx_burst(&[frame]).unwrap(), 1);
        let found = receive(&mut right, is_tcp);
        assert_eq!(found.segment_size, Some(1460));
        assert_eq!(found.checksum, RxChecksum::Partial);
        assert!(found.bytes[54..] == payload);
    }
    assert_eq!(right.counters().rx_dropped, 0);
}

#[test]
fn a_large_segment_leaves_whole_on_a_veth_and_behind_what_went_before() {
    let test = "a_large_segment_leaves_whole_on_a_veth_and_behind_what_went_before";
    let Some([left, right]) = veth(test) else {
        return;
    };
    let mut left = open(&left, &Config::new(VETH));
    let mut right = right.run(|| AfPacket::open(&af_packet::Config::new(VETH)).unwrap());
    let payload = pattern(60 * 1024);
    let (short, long) = (
        headers(&left, &right, 100),
        headers(&left, &right, payload.len()),
    );
    let short = support::tcp_frame(&short, &payload[..100], None);
    let long = support::tcp_frame(&long, &payload, Some(1460));
    for _ in 0..50 {
        assert_eq!(left.tx_burst(&[short, short, long, short]).unwrap(), 4);
        left.flush_tx().unwrap();
        let lens: Vec<usize> = (0..4)
            .map(|_| receive(&mut right, is_tcp).bytes.len() - 54)
            .collect();
        assert_eq!(lens, [100, 100, payload.len(), 100]);
    }
}

#[test]
fn a_large_segment_is_cut_where_ways_out_could_overtake_each_other() {
    let test = "a_large_segment_is_cut_where_ways_out_could_overtake_each_other";
    let Some([left, right]) = support::veth_of_queues(test, 2) else {
        return;
    };
    let mut left = open(&left, &config(Mode::Native));
    let mut right = open(&right, &config(Mode::Native));
    let payload = pattern(60 * 1024 + 1);
    let headers = headers(&left, &right, payload.len());
    let frame = support::tcp_frame(&headers, &payload, Some(1460));
    for _ in 0..20 {
        assert_eq!(left.tx_burst(&[frame]).unwrap(), 1);
        left.flush_tx().unwrap();
        for piece in payload.chunks(1460) {
            let found = receive(&mut right, is_tcp);
            assert!(found.bytes[54..] == *piece);
            assert!(::wire::checksum::verify_tcp_v4(
                LEFT,
                RIGHT,
                &found.bytes[34..]
            ));
        }
    }
}

/// Gives the kernel's side an address and tells it where the engine's is.
fn introduce(kernel: &Namespace, engine: &impl Driver) {
    kernel.ip(&format!("address add {LEFT}/24 dev {VETH}"));
    let address = engine.caps().hardware_address;
    let address = address.0.map(|byte| format!("{byte:02x}")).join(":");
    kernel.ip(&format!(
        "neighbour replace {RIGHT} lladdr {address} dev {VETH}"
    ));
}

#[test]
fn frames_of_a_kernel_peer_have_a_partial_checksum() {
    let Some([left, right]) = veth("frames_of_a_kernel_peer_have_a_partial_checksum") else {
        return;
    };
    for mode in COPYING {
        let mut driver = open(&right, &config(mode));
        if mode == Mode::Generic {
            introduce(&left, &driver);
        }
        left.run(|| {
            let socket = UdpSocket::bind((LEFT, 5000)).unwrap();
            socket.send_to(b"datagram", (RIGHT, 6000)).unwrap();
        });
        let found = receive(&mut driver, |frame| is_ipv4(frame, ipv4::Protocol::UDP));
        assert_eq!(found.checksum, RxChecksum::Partial, "{mode:?}");
        assert_eq!(found.bytes[42..50], *b"datagram");
    }
}

#[test]
fn what_is_for_the_engine_is_taken_and_the_kernel_has_the_rest() {
    let test = "what_is_for_the_engine_is_taken_and_the_kernel_has_the_rest";
    let Some([left, right]) = veth(test) else {
        return;
    };
    let kernels = std::net::Ipv4Addr::new(10, 9, 0, 3);
    for mode in COPYING {
        let engine = Config {
            addresses: Some(vec![RIGHT.into()]),
            ..config(mode)
        };
        let mut driver = open(&right, &engine);
        if mode == Mode::Generic {
            introduce(&left, &driver);
            right.ip(&format!("address add {kernels}/24 dev {VETH}"));
        }
        let heard = right.run(|| UdpSocket::bind((kernels, 6000)).unwrap());
        heard.set_read_timeout(Some(PATIENCE)).unwrap();
        // The kernel's ARP is answered by the kernel: it got what the engine did not take.
        left.run(|| {
            let socket = UdpSocket::bind((LEFT, 0)).unwrap();
            socket.set_broadcast(true).unwrap();
            socket.send_to(b"for the kernel", (kernels, 6000)).unwrap();
            socket.send_to(b"for the engine", (RIGHT, 6000)).unwrap();
            socket
                .send_to(b"for everybody", ("255.255.255.255", 6000))
                .unwrap();
        });
        let mut buffer = [0; 64];
        let len = heard.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"for the kernel", "{mode:?}");
        let is_udp = |frame: &[u8]| is_ipv4(frame, ipv4::Protocol::UDP);
        let mut found = [0; 2].map(|_| receive(&mut driver, is_udp).bytes[42..].to_vec());
        // They come by two ways.
        found.sort();
        assert_eq!(found, [&b"for everybody"[..], b"for the engine"]);
    }
}

#[test]
fn a_full_ring_loses_frames_counts_them_and_goes_on() {
    let Some([left, right]) = veth("a_full_ring_loses_frames_counts_them_and_goes_on") else {
        return;
    };
    let small = Config {
        receiving: 16,
        ..Config::new(VETH)
    };
    let mut left = open(&left, &Config::new(VETH));
    let mut right = open(&right, &small);
    let headers = headers(&left, &right, 0);
    let frame = support::tcp_frame(&headers, &[], None);
    for round in 1..=3 {
        assert_eq!(left.tx_burst(&[frame; 40]).unwrap(), 40);
        left.flush_tx().unwrap();
        if right.prepare_wait().unwrap() {
            assert!(wait(&right, PATIENCE));
        }
        let found = receive_all(&mut right);
        assert_eq!(found.iter().filter(|frame| is_tcp(frame)).count(), 16);
        assert_eq!(right.counters().rx_dropped, 24 * round);
    }
}

#[test]
fn a_burst_longer_than_the_ring_leaves_whole() {
    let Some([left, right]) = veth("a_burst_longer_than_the_ring_leaves_whole") else {
        return;
    };
    let small = Config {
        sending: 8,
        ..Config::new(VETH)
    };
    let mut left = open(&left, &small);
    let mut right = open(&right, &Config::new(VETH));
    let headers = headers(&left, &right, 0);
    let frame = support::tcp_frame(&headers, &[], None);
    for _ in 0..10 {
        let mut sent = 0;
        while sent < 100 {
            sent += left.tx_burst(&vec![frame; 100 - sent]).unwrap();
            left.flush_tx().unwrap();
        }
        for _ in 0..100 {
            receive(&mut right, is_tcp);
        }
    }
}

#[test]
fn a_frame_that_the_link_cannot_take_is_dropped_and_the_next_one_sent() {
    let test = "a_frame_that_the_link_cannot_take_is_dropped_and_the_next_one_sent";
    let Some([left, right]) = veth(test) else {
        return;
    };
    let (mut left, mut right) = (
        open(&left, &Config::new(VETH)),
        open(&right, &Config::new(VETH)),
    );
    let (short, long) = (headers(&left, &right, 0), headers(&left, &right, 3000));
    let payload = pattern(3000);
    let good = support::tcp_frame(&short, &[], None);
    let bad = support::tcp_frame(&long, &payload, None);
    assert_eq!(left.tx_burst(&[good, bad, good]).unwrap(), 3);
    left.flush_tx().unwrap();
    let counters = left.counters();
    assert_eq!((counters.tx_frames, counters.tx_dropped), (2, 1));
    let found = receive_all(&mut right);
    assert_eq!(found.iter().filter(|frame| is_tcp(frame)).count(), 2);
}

#[test]
fn jumbo_frames_leave_and_arrive_in_pieces() {
    let Some([left, right]) = veth("jumbo_frames_leave_and_arrive_in_pieces") else {
        return;
    };
    for namespace in [&left, &right] {
        namespace.ip(&format!("link set {VETH} mtu 9000"));
    }
    let (mut left, mut right) = (
        open(&left, &Config::new(VETH)),
        open(&right, &Config::new(VETH)),
    );
    let payload = pattern(8900);
    let headers = headers(&left, &right, payload.len());
    for _ in 0..100 {
        let frame = support::tcp_frame(&headers, &payload, None);
        assert_eq!(left.tx_burst(&[frame]).unwrap(), 1);
        left.flush_tx().unwrap();
        let found = receive(&mut right, is_tcp);
        assert!(found.bytes[54..] == payload);
        assert!(::wire::checksum::verify_tcp_v4(
            LEFT,
            RIGHT,
            &found.bytes[34..]
        ));
    }
}

#[test]
fn each_core_gets_its_connections_whatever_queue_they_arrive_in() {
    let test = "each_core_gets_its_connections_whatever_queue_they_arrive_in";
    let Some([left, right]) = support::veth_of_queues(test, 2) else {
        return;
    };
    let mix = Mix {
        key: 0x1234_5678,
        multipliers: [0x85eb_ca6b, 0xc2b2_ae35, 0x27d4_eb2f],
        shifts: [16, 13, 16],
    };
    let hash = Hash::Mixed(mix);
    let program = program(&hash);
    let opened = right.run(|| AfXdp::open_queues(&Config::new(VETH), 2, hash, &program));
    let mut cores = opened.unwrap();
    let mut left = open(&left, &Config::new(VETH));
    let link = (
        left.caps().hardware_address,
        cores[0].caps().hardware_address,
    );
    let mut expected = [0; 2];
    for port in 0..64_u16 {
        let ports = tcp::Header {
            source_port: 1000 + port,
            destination_port: 80,
            ..Default::default()
        };
        let headers = support::tcp_headers(link, (LEFT, RIGHT), &ports, 0);
        assert_eq!(
            left.tx_burst(&[support::tcp_frame(&headers, &[], None)])
                .unwrap(),
            1
        );
        let mut h = (u32::from(LEFT) ^ u32::from(RIGHT) ^ mix.key).wrapping_mul(mix.multipliers[0]);
        h = (h ^ h >> 16 ^ u32::from((1000 + port) ^ 80)).wrapping_mul(mix.multipliers[1]);
        h = (h ^ h >> 13).wrapping_mul(mix.multipliers[2]);
        expected[usize::try_from((h >> 16) % 2).unwrap()] += 1;
    }
    left.flush_tx().unwrap();
    let found = [0, 1].map(|core: usize| {
        let found = receive_all(&mut cores[core]);
        found.iter().filter(|frame| is_tcp(frame)).count()
    });
    assert_eq!(found, expected);
    assert!(expected.iter().all(|count| *count > 16));
    let elsewhere = [0, 1].map(|core: usize| cores[core].counters().rx_elsewhere);
    assert_eq!(elsewhere, [0, expected[1] as u64], "all came in queue 0");
    let too_many = right.run(|| AfXdp::open_queues(&Config::new(VETH), 3, hash, &program));
    let error = too_many.map(drop).unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::TooFewQueues {
                queues: 2,
                cores: 3,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn who_sleeps_after_a_busy_time_is_woken() {
    let Some([left, right]) = veth("who_sleeps_after_a_busy_time_is_woken") else {
        return;
    };
    let (mut left, mut right) = (
        open(&left, &Config::new(VETH)),
        open(&right, &Config::new(VETH)),
    );
    let headers = headers(&left, &right, 0);
    let frame = support::tcp_frame(&headers, &[], None);
    for _ in 0..3 {
        for _ in 0..20 {
            left.tx_burst(&[frame]).unwrap();
            left.flush_tx().unwrap();
            while right.rx_burst(8, &mut |_| ()).unwrap() == 0 {}
        }
        while !right.prepare_wait().unwrap() {
            right.rx_burst(64, &mut |_| ()).unwrap();
        }
        left.tx_burst(&[frame]).unwrap();
        left.flush_tx().unwrap();
        assert!(wait(&right, PATIENCE));
        receive(&mut right, is_tcp);
    }
}

#[test]
fn where_it_is_asked_for_each_frame_says_when_it_arrived() {
    let Some([left, right]) = veth("where_it_is_asked_for_each_frame_says_when_it_arrived") else {
        return;
    };
    let now_ns = || {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap();
        u64::try_from(since.as_nanos()).unwrap()
    };
    // A frame in one piece, and in generic mode one in several.
    let cases = [
        (Mode::Generic, true, 100),
        (Mode::Generic, true, 20 * 1024),
        (Mode::Generic, false, 100),
        (Mode::Native, true, 100),
    ];
    for (mode, stamps, length) in cases {
        let mut left = open(&left, &config(mode));
        let stamped = Config {
            stamps,
            ..config(mode)
        };
        let mut right = open(&right, &stamped);
        let payload = pattern(length);
        let headers = headers(&left, &right, payload.len());
        let frame = support::tcp_frame(&headers, &payload, Some(1460));
        let before_ns = now_ns();
        assert_eq!(left.tx_burst(&[frame]).unwrap(), 1, "{mode:?}");
        left.flush_tx().unwrap();
        let arrived = receive(&mut right, is_tcp).arrived_at_ns;
        assert_eq!(arrived.is_some(), stamps, "{mode:?}");
        if let Some(at_ns) = arrived {
            // The clocks were compared once, to less than a microsecond; one may have been set right since.
            let slack_ns = 100_000;
            let range = before_ns - slack_ns..now_ns() + slack_ns;
            assert!(range.contains(&at_ns), "{mode:?}: {at_ns} in {range:?}");
        }
    }
}
