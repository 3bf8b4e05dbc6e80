//! The packet-socket driver on a veth pair between two namespaces. Needs root, or says what it lacks.

#![allow(
    clippy::unwrap_used,
    reason = "a test program: helpers fail the test that calls them"
)]

mod support;

use std::io;
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ::wire::ethernet::Address;
use ::wire::{arp, ipv4, tcp};
use netlink::ethtool::{Offload, set_offload};
use nic::af_packet::{AfPacket, Config, Handover, OpenError, make_ring, steering};
use nic::{Driver, Presence, RxChecksum, TxFrame};
use support::{
    LEFT, Namespace, PATIENCE, RIGHT, VETH, is_ipv4, pattern, receive, receive_all, wait,
};

fn open(namespace: &Namespace) -> AfPacket {
    namespace.run(|| AfPacket::open(&Config::new(VETH)).unwrap())
}

fn arp_request(us: Address, hosts: (std::net::Ipv4Addr, std::net::Ipv4Addr)) -> Vec<u8> {
    let mut frame = vec![0; 14];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&us.0);
    frame[12..14].copy_from_slice(&[8, 6]);
    frame.resize(14 + arp::Packet::LEN, 0);
    arp::Packet {
        operation: arp::Operation::REQUEST,
        sender_hardware: us,
        sender_protocol: hosts.0,
        target_hardware: Address::UNSPECIFIED,
        target_protocol: hosts.1,
    }
    .emit(&mut frame[14..]);
    frame
}

#[test]
fn arp_and_icmp_frames_round_trip_between_two_drivers() {
    let Some([left, right]) = support::veth("arp_and_icmp_frames_round_trip_between_two_drivers")
    else {
        return;
    };
    let (mut left, mut right) = (open(&left), open(&right));
    let (ours, theirs) = (left.caps().hardware_address, right.caps().hardware_address);
    assert_ne!(ours, theirs);
    assert_eq!(left.caps().mtu, 1500);

    let request = arp_request(ours, (LEFT, RIGHT));
    assert_eq!(left.tx_burst(&[TxFrame::plain(&request)]).unwrap(), 1);
    assert_eq!(
        receive(&mut right, |frame| frame[12..14] == [8, 6]).bytes,
        request
    );

    // An echo from right to left, its data longer than the shortest frame and odd.
    let mut echo =
        support::ipv4_headers((theirs, ours), (RIGHT, LEFT), ipv4::Protocol::ICMP, 8 + 99);
    echo.extend([8, 0, 0, 0, 0, 1, 0, 1]);
    echo.extend(pattern(99));
    assert_eq!(right.tx_burst(&[TxFrame::plain(&echo)]).unwrap(), 1);
    let found = receive(&mut left, |frame| is_ipv4(frame, ipv4::Protocol::ICMP));
    assert_eq!(found.bytes, echo);
    assert_eq!(found.segment_size, None);

    assert_eq!(left.counters().tx_frames, 1);
    assert_eq!(right.counters().tx_bytes, echo.len() as u64);
}

#[test]
fn a_large_segment_arrives_as_one_merged_frame_with_the_right_bytes() {
    let Some([left, right]) =
        support::veth("a_large_segment_arrives_as_one_merged_frame_with_the_right_bytes")
    else {
        return;
    };
    // In the ring, and in the socket's own queue, more than Linux's usual limit of one.
    for ring_later in [None, Some((|| ()) as fn())] {
        let config = Config {
            ring_later,
            ..Config::new(VETH)
        };
        let right = right.run(|| AfPacket::open(&config).unwrap());
        large_segments_arrive(open(&left), right);
    }
}

static RING_IN_USE: AtomicUsize = AtomicUsize::new(0);

/// Frames of two sizes, from a sender that does not wait, while somebody makes the ring: each arrives once, in order.
#[test]
fn a_ring_that_is_made_later_loses_no_frame_and_brings_none_twice() {
    let Some([left, right]) =
        support::veth("a_ring_that_is_made_later_loses_no_frame_and_brings_none_twice")
    else {
        return;
    };
    let config = Config {
        ring_later: Some(|| {
            RING_IN_USE.fetch_add(1, Ordering::Relaxed);
        }),
        ..Config::new(VETH)
    };
    let sender = open(&left);
    let mut receiver = right.run(|| AfPacket::open(&config).unwrap());
    assert!(receiver.handover().is_none());
    let first = receiver.wait_fd().unwrap().as_raw_fd();
    let link = (
        sender.caps().hardware_address,
        receiver.caps().hardware_address,
    );
    let received = Arc::new(AtomicU32::new(0));
    let sending = number_frames(sender, link, Arc::clone(&received));
    let until = std::time::Instant::now() + PATIENCE;
    let mut count = 0;
    while count < FRAMES {
        assert!(std::time::Instant::now() < until, "{count} of {FRAMES}");
        let each = &mut |frame: nic::RxFrame<'_>| {
            if is_ipv4(frame.bytes, ipv4::Protocol::TCP) {
                let number = frame.bytes[54..58].try_into().unwrap();
                assert_eq!(u32::from_be_bytes(number), count);
                assert!(frame.arrived_at_ns.is_some());
                count += 1;
            }
        };
        receiver.rx_burst(3, each).unwrap();
        received.store(count, Ordering::Relaxed);
        let is_asked = count > FRAMES / 4 && RING_IN_USE.load(Ordering::Relaxed) == 0;
        if let Some(socket) = receiver.ring_socket().filter(|_| is_asked) {
            // A second time it has one.
            let _ = right.run(|| make_ring(VETH, socket));
        }
    }
    sending.join().unwrap();
    assert_ne!(receiver.wait_fd().unwrap().as_raw_fd(), first);
    assert_eq!(RING_IN_USE.load(Ordering::Relaxed), 1);
    assert!(receiver.ring_socket().is_none());
    assert_eq!(receiver.counters().rx_dropped, 0);
}

const FRAMES: u32 = 20_000;

/// Sends so many frames with their number, some longer than a ring holds and no more on their way than are kept.
fn number_frames(
    mut sender: AfPacket,
    link: (Address, Address),
    received: Arc<AtomicU32>,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for number in 0..FRAMES {
            let until = std::time::Instant::now() + PATIENCE;
            while number - received.load(Ordering::Relaxed) > 200 {
                assert!(std::time::Instant::now() < until, "nobody receives");
                std::thread::yield_now();
            }
            let len = if number.is_multiple_of(5) { 20_000 } else { 30 };
            send_number(&mut sender, link, number, len);
        }
    })
}

fn send_number(sender: &mut AfPacket, link: (Address, Address), number: u32, len: usize) {
    let mut payload = vec![0; len];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    let headers = support::tcp_headers(link, (LEFT, RIGHT), &tcp::Header::default(), len);
    let frame = support::tcp_frame(&headers, &payload, Some(1460));
    assert_eq!(sender.tx_burst(&[frame]).unwrap(), 1);
}

/// The second socket receives from now on, before the driver has it do so: what comes is in both. Without unsafe code of a test's own.
fn bind_ring_socket(socket: OwnedFd) {
    let bind = format!("import socket; socket.socket(fileno=0).bind(('{VETH}', 3))");
    let python = Command::new("python3")
        .args(["-c", &bind])
        .stdin(socket)
        .status();
    assert!(python.unwrap().success());
}

/// Frames that came to both sockets, and a call that takes the last ones of the first socket and has room for more.
#[test]
fn frames_that_both_sockets_have_come_once_also_where_one_call_changes_to_the_ring() {
    let test = "frames_that_both_sockets_have_come_once_also_where_one_call_changes_to_the_ring";
    let Some([left, right]) = support::veth(test) else {
        return;
    };
    let config = Config {
        ring_later: Some(|| ()),
        ..Config::new(VETH)
    };
    let mut sender = open(&left);
    let mut receiver = right.run(|| AfPacket::open(&config).unwrap());
    let link = (
        sender.caps().hardware_address,
        receiver.caps().hardware_address,
    );
    let ring_socket = receiver
        .ring_socket()
        .unwrap()
        .try_clone_to_owned()
        .unwrap();
    right.run(|| make_ring(VETH, ring_socket.as_fd()).unwrap());
    let mut seen = Vec::new();
    let mut take = |budget: usize, wanted: usize| {
        let until = std::time::Instant::now() + PATIENCE;
        while seen.len() < wanted {
            assert!(std::time::Instant::now() < until, "{seen:?}");
            let each = &mut |frame: nic::RxFrame<'_>| {
                if is_ipv4(frame.bytes, ipv4::Protocol::TCP) {
                    seen.push(u32::from_be_bytes(frame.bytes[54..58].try_into().unwrap()));
                }
            };
            receiver.rx_burst(budget, each).unwrap();
        }
        seen.clone()
    };
    let mut send = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            send_number(&mut sender, link, number, 30);
        }
    };
    // With the last of these the driver changes to the ring; the seven that follow are in both.
    send(0..256);
    take(15, 255);
    right.run(|| bind_ring_socket(ring_socket));
    send(256..263);
    take(1, 256);
    send(263..264);
    let all = take(64, 264);
    assert_eq!(all, (0..264).collect::<Vec<u32>>());
}

fn large_segments_arrive(mut left: AfPacket, mut right: AfPacket) {
    let link = (left.caps().hardware_address, right.caps().hardware_address);
    let payload = pattern(60 * 1024);
    let header = tcp::Header {
        source_port: 1,
        destination_port: 2,
        seq: 77,
        ..Default::default()
    };
    let headers = support::tcp_headers(link, (LEFT, RIGHT), &header, payload.len());
    let frame = support::tcp_frame(&headers, &payload, Some(1460));
    assert_eq!(left.tx_burst(&[frame; 20]).unwrap(), 20);
    for _ in 0..20 {
        let found = receive(&mut right, |frame| is_ipv4(frame, ipv4::Protocol::TCP));
        assert_eq!(found.segment_size, Some(1460));
        assert_eq!(found.checksum, RxChecksum::Partial);
        assert_eq!(found.bytes.len(), headers.len() + payload.len());
        assert!(found.bytes[headers.len()..] == payload);
    }
    assert_eq!(left.counters().tx_bytes, 20 * (54 + 60 * 1024));
    assert_eq!(right.counters().rx_dropped, 0);
}

#[test]
fn a_large_segment_leaves_in_pieces_where_the_interface_cannot_cut_it() {
    let Some([left, right]) =
        support::veth("a_large_segment_leaves_in_pieces_where_the_interface_cannot_cut_it")
    else {
        return;
    };
    let off = left.run(|| set_offload(VETH, Offload::Segmentation, false));
    off.unwrap();
    let (mut left, mut right) = (open(&left), open(&right));
    let link = (left.caps().hardware_address, right.caps().hardware_address);
    let payload = pattern(4 * 1460);
    let headers = support::tcp_headers(link, (LEFT, RIGHT), &tcp::Header::default(), payload.len());
    let frame = support::tcp_frame(&headers, &payload, Some(1460));
    assert_eq!(left.tx_burst(&[frame]).unwrap(), 1);
    for piece in payload.chunks(1460) {
        let found = receive(&mut right, |frame| is_ipv4(frame, ipv4::Protocol::TCP));
        assert!(found.bytes[headers.len()..] == *piece);
    }
}

#[test]
fn payload_in_a_file_that_was_cut_short_is_dropped_and_the_frames_around_it_go() {
    let Some([left, right]) = support::veth(
        "payload_in_a_file_that_was_cut_short_is_dropped_and_the_frames_around_it_go",
    ) else {
        return;
    };
    let (mut left, mut right) = (open(&left), open(&right));
    assert!(left.caps().payload_by_address);
    let link = (left.caps().hardware_address, right.caps().hardware_address);
    let payload = pattern(1000);
    let headers = support::tcp_headers(link, (LEFT, RIGHT), &tcp::Header::default(), payload.len());
    let good = support::tcp_frame(&headers, &payload, None);
    let bad = TxFrame {
        payload: TxFrame::spans([support::sys::cut_short(1000)]),
        ..good
    };
    assert_eq!(left.tx_burst(&[good, bad, good]).unwrap(), 3);
    assert_eq!(left.tx_burst(&[bad]).unwrap(), 1);
    for _ in 0..2 {
        let found = receive(&mut right, |frame| is_ipv4(frame, ipv4::Protocol::TCP));
        assert!(found.bytes[headers.len()..] == payload);
    }
    let counters = left.counters();
    assert_eq!((counters.tx_frames, counters.tx_dropped), (2, 2));
}

/// The kernel's neighbour entry for the engine's address, so that it need not ask.
fn introduce(kernel: &Namespace, engine: &AfPacket) {
    kernel.ip(&format!("address add {LEFT}/24 dev {VETH}"));
    let address = engine
        .caps()
        .hardware_address
        .0
        .map(|byte| format!("{byte:02x}"))
        .join(":");
    kernel.ip(&format!(
        "neighbour replace {RIGHT} lladdr {address} dev {VETH}"
    ));
}

#[test]
fn frames_of_a_kernel_peer_are_reported_with_a_partial_checksum() {
    let Some([left, right]) =
        support::veth("frames_of_a_kernel_peer_are_reported_with_a_partial_checksum")
    else {
        return;
    };
    let mut driver = open(&right);
    introduce(&left, &driver);
    left.run(|| {
        let socket = UdpSocket::bind((LEFT, 5000)).unwrap();
        socket.send_to(b"datagram", (RIGHT, 6000)).unwrap();
    });
    let found = receive(&mut driver, |frame| is_ipv4(frame, ipv4::Protocol::UDP));
    assert_eq!(found.checksum, RxChecksum::Partial);
    assert_eq!(found.bytes[42..50], *b"datagram");
    let sum = support::partial_sum((LEFT, RIGHT), ipv4::Protocol::UDP, 16);
    assert_eq!(
        found.bytes[40..42],
        sum,
        "the field holds only the pseudo-header sum"
    );

    left.run(|| {
        let peer = (RIGHT, 80).into();
        // Nobody answers: only the SYN matters.
        let refused = TcpStream::connect_timeout(&peer, Duration::from_millis(20));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::TimedOut);
    });
    let found = receive(&mut driver, |frame| is_ipv4(frame, ipv4::Protocol::TCP));
    assert_eq!(found.checksum, RxChecksum::Partial);
    let (header, _) = tcp::Header::parse(&found.bytes[34..]).unwrap();
    assert!(header.flags.contains(tcp::Flags::SYN));
}

#[test]
fn only_frames_for_the_listed_addresses_are_received() {
    let Some([left, right]) = support::veth("only_frames_for_the_listed_addresses_are_received")
    else {
        return;
    };
    let config = Config {
        addresses: Some(vec![RIGHT.into()]),
        ..Config::new(VETH)
    };
    let mut filtered = right.run(|| AfPacket::open(&config).unwrap());
    let mut left = open(&left);
    let link = (
        left.caps().hardware_address,
        filtered.caps().hardware_address,
    );
    let stranger = std::net::Ipv4Addr::new(10, 9, 0, 3);
    let echo = |to| {
        let mut frame = support::ipv4_headers(link, (LEFT, to), ipv4::Protocol::ICMP, 8);
        frame.extend([8, 0, 0, 0, 0, 1, 0, 1]);
        frame
    };
    let frames = [
        echo(stranger),
        arp_request(link.0, (LEFT, stranger)),
        echo(RIGHT),
        arp_request(link.0, (LEFT, RIGHT)),
        arp_request(link.0, (RIGHT, stranger)),
    ];
    let send = |left: &mut AfPacket| {
        let plain: Vec<_> = frames.iter().map(|frame| TxFrame::plain(frame)).collect();
        assert_eq!(left.tx_burst(&plain).unwrap(), 5);
    };
    send(&mut left);
    let found = receive_all(&mut filtered);
    assert_eq!(found, frames[2..]);

    filtered.set_addresses(Some(&[stranger.into()])).unwrap();
    send(&mut left);
    let found = receive_all(&mut filtered);
    assert_eq!(
        found,
        [&frames[0], &frames[1], &frames[4]].map(Clone::clone)
    );

    filtered.set_addresses(None).unwrap();
    send(&mut left);
    assert_eq!(receive_all(&mut filtered), frames);
}

/// Packets that the kernel's IP has seen (RFC 4293, ipSystemStatsInReceives).
fn seen_by_the_kernel(namespace: &Namespace) -> u64 {
    namespace.run(|| {
        let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
        let [names, numbers] = [(); 2].map(|()| lines.next().unwrap().split(' '));
        let (_, number) = names
            .zip(numbers)
            .find(|(name, _)| *name == "InReceives")
            .unwrap();
        number.parse().unwrap()
    })
}

#[test]
fn what_is_the_engines_alone_does_not_reach_the_kernel() {
    let test = "what_is_the_engines_alone_does_not_reach_the_kernel";
    let Some([left, right]) = support::veth(test) else {
        return;
    };
    if let Err(error) = right.run(|| nic::sharing::Sharing::open(support::index(VETH))) {
        return support::skipped(test, &error.to_string());
    }
    let stranger = std::net::Ipv4Addr::new(10, 9, 0, 3);
    let config = Config {
        addresses: Some(vec![stranger.into()]),
        alone: true,
        ..Config::new(VETH)
    };
    let mut alone = right.run(|| AfPacket::open(&config).unwrap());
    let mut left = open(&left);
    let link = (left.caps().hardware_address, alone.caps().hardware_address);
    let echo = |to| {
        let mut frame = support::ipv4_headers(link, (LEFT, to), ipv4::Protocol::ICMP, 8);
        frame.extend([8, 0, 0, 0, 0, 1, 0, 1]);
        frame
    };
    let (ours, kernels) = (echo(stranger), echo(RIGHT));
    let mut send = |frame: &[u8]| {
        assert_eq!(left.tx_burst(&[TxFrame::plain(frame)]).unwrap(), 1);
    };
    let sees = |count| {
        let begun = std::time::Instant::now();
        while seen_by_the_kernel(&right) < count && begun.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        assert_eq!(seen_by_the_kernel(&right), count);
    };
    let before = seen_by_the_kernel(&right);
    send(&ours);
    assert_eq!(receive(&mut alone, |_| true).bytes, ours);
    // Frames keep their order on the way: what came before this has been judged.
    send(&kernels);
    sees(before + 1);
    // With the engine the program goes.
    drop(alone);
    send(&ours);
    sees(before + 2);
}

#[test]
fn what_this_host_sends_itself_is_not_received() {
    let Some([left, right]) = support::veth("what_this_host_sends_itself_is_not_received") else {
        return;
    };
    let (mut driver, mut peer) = (open(&left), open(&right));
    introduce(&left, &peer);
    left.run(|| {
        let socket = UdpSocket::bind((LEFT, 5000)).unwrap();
        socket.send_to(b"from the kernel", (RIGHT, 6000)).unwrap();
    });
    let request = arp_request(driver.caps().hardware_address, (LEFT, RIGHT));
    assert_eq!(driver.tx_burst(&[TxFrame::plain(&request)]).unwrap(), 1);
    receive(&mut peer, |frame| is_ipv4(frame, ipv4::Protocol::UDP));
    receive(&mut peer, |frame| frame == request);
    assert!(receive_all(&mut driver).is_empty());
}

#[test]
fn a_burst_longer_than_a_batch_arrives_whole_and_in_order() {
    let Some([left, right]) =
        support::veth("a_burst_longer_than_a_batch_arrives_whole_and_in_order")
    else {
        return;
    };
    let (mut left, mut right) = (open(&left), open(&right));
    let link = (left.caps().hardware_address, right.caps().hardware_address);
    let frames: Vec<Vec<u8>> = (0_u8..100)
        .map(|number| {
            let mut frame = support::ipv4_headers(link, (LEFT, RIGHT), ipv4::Protocol(253), 64);
            frame.extend([number; 64]);
            frame
        })
        .collect();
    let plain: Vec<_> = frames.iter().map(|frame| TxFrame::plain(frame)).collect();
    assert_eq!(left.tx_burst(&plain).unwrap(), 100);
    assert_eq!(receive_all(&mut right), frames);
}

#[test]
fn a_frame_that_the_link_cannot_take_is_dropped_and_the_next_one_sent() {
    let Some([left, right]) =
        support::veth("a_frame_that_the_link_cannot_take_is_dropped_and_the_next_one_sent")
    else {
        return;
    };
    let (mut left, mut right) = (open(&left), open(&right));
    let long = vec![0xff; 4000];
    let request = arp_request(left.caps().hardware_address, (LEFT, RIGHT));
    let frames = [
        TxFrame::plain(&request),
        TxFrame::plain(&long),
        TxFrame::plain(&request),
    ];
    assert_eq!(left.tx_burst(&frames).unwrap(), 3);
    assert_eq!(left.counters().tx_dropped, 1);
    assert_eq!(left.counters().tx_frames, 2);
    let found = receive_all(&mut right);
    assert_eq!(found, [request.clone(), request]);
}

#[test]
fn a_full_ring_loses_the_newest_frames_and_counts_them() {
    let Some([left, right]) = support::veth("a_full_ring_loses_the_newest_frames_and_counts_them")
    else {
        return;
    };
    let config = Config {
        frame_count: Some(16),
        ..Config::new(VETH)
    };
    let mut right = right.run(|| AfPacket::open(&config).unwrap());
    let mut left = open(&left);
    let request = arp_request(left.caps().hardware_address, (LEFT, RIGHT));
    assert_eq!(left.tx_burst(&[TxFrame::plain(&request); 40]).unwrap(), 40);
    assert!(wait(&right, PATIENCE));
    assert_eq!(receive_all(&mut right).len(), 16);
    assert_eq!(right.counters().rx_dropped, 24);
    // The ring is whole again, and its last frame leads to its first.
    assert_eq!(left.tx_burst(&[TxFrame::plain(&request); 10]).unwrap(), 10);
    assert_eq!(receive_all(&mut right).len(), 10);
}

/// What a process that ends now leaves.
fn left_by(driver: AfPacket) -> Handover {
    let numbers = driver.handover().unwrap();
    assert_eq!(numbers.kernel_drop, None);
    let socket = driver.socket().try_clone_to_owned().unwrap();
    Handover {
        socket,
        kernel_drop: None,
        geometry: numbers.geometry,
    }
}

#[test]
fn who_goes_on_with_a_socket_finds_every_frame_that_was_not_looked_at() {
    let Some([left, right]) =
        support::veth("who_goes_on_with_a_socket_finds_every_frame_that_was_not_looked_at")
    else {
        return;
    };
    let mut sender = open(&left);
    let config = Config {
        frame_count: Some(8),
        ..Config::new(VETH)
    };
    let mut receiver = right.run(|| AfPacket::open(&config).unwrap());
    let link = (
        sender.caps().hardware_address,
        receiver.caps().hardware_address,
    );
    let (mut sent, mut found) = (0_u8, 0_u8);
    // So many are looked at, come before the end of the first process, and after it, of eight in the ring.
    for (looked_at, before, after) in [
        (0, 0, 3),
        (3, 0, 0),
        (0, 5, 2),
        (5, 2, 3),
        (6, 0, 1),
        (1, 0, 7),
    ] {
        let sent_before = sent;
        let mut send = |count: u8| {
            for _ in 0..count {
                let mut frame = support::ipv4_headers(link, (LEFT, RIGHT), ipv4::Protocol(253), 1);
                frame.push(sent);
                assert_eq!(sender.tx_burst(&[TxFrame::plain(&frame)]).unwrap(), 1);
                sent += 1;
            }
        };
        let until = sent_before + looked_at.min(before);
        send(before);
        let mut look = |receiver: &mut AfPacket, until: u8| {
            while found < until {
                let frame = receive(receiver, |frame| is_ipv4(frame, ipv4::Protocol(253)));
                assert_eq!(frame.bytes[34], found, "{looked_at} {before} {after}");
                found += 1;
            }
        };
        look(&mut receiver, until);
        let handover = left_by(receiver);
        send(after);
        receiver = right.run(|| AfPacket::take_up(&config, handover).unwrap());
        look(&mut receiver, sent_before + before + after);
    }
    let other = Config {
        frame_count: Some(4),
        ..Config::new(VETH)
    };
    let handover = left_by(receiver);
    assert!(right.run(|| AfPacket::take_up(&other, handover).is_none()));
}

/// Frames that do not fit the ring, each with its number, and the ring's configuration.
fn long_frames(driver: &AfPacket) -> (impl Fn(u8) -> Vec<u8> + use<>, Config) {
    let short = arp_request(driver.caps().hardware_address, (LEFT, RIGHT));
    let config = Config {
        frame_bytes: Some(512),
        frame_count: Some(64),
        ..Config::new(VETH)
    };
    (
        move |number| {
            let bytes: Vec<u8> = (0..1_399_u16).map(|at| at.to_le_bytes()[0]).collect();
            [&short, bytes.as_slice(), &[number]].concat()
        },
        config,
    )
}

#[test]
fn frames_longer_than_those_of_the_ring_arrive_whole_and_in_order() {
    let Some([left, right]) =
        support::veth("frames_longer_than_those_of_the_ring_arrive_whole_and_in_order")
    else {
        return;
    };
    let mut left = open(&left);
    let (long, config) = long_frames(&left);
    let mut right = right.run(|| AfPacket::open(&config).unwrap());
    let short = arp_request(left.caps().hardware_address, (LEFT, RIGHT));
    let long = long(0);
    let frames = [&short, &long, &short, &long].map(|frame| TxFrame::plain(frame));
    assert_eq!(left.tx_burst(&frames).unwrap(), 4);
    assert!(wait(&right, PATIENCE));
    let found = receive_all(&mut right);
    assert_eq!(found, [short.clone(), long.clone(), short, long]);
    assert_eq!(right.counters().rx_dropped, 0);
}

#[test]
fn who_goes_on_with_a_socket_finds_every_long_frame_that_was_not_looked_at() {
    let Some([left, right]) =
        support::veth("who_goes_on_with_a_socket_finds_every_long_frame_that_was_not_looked_at")
    else {
        return;
    };
    let mut left = open(&left);
    let (long, config) = long_frames(&left);
    let mut receiver = right.run(|| AfPacket::open(&config).unwrap());
    let mut send = |numbers: core::ops::Range<u8>| {
        for number in numbers {
            assert_eq!(left.tx_burst(&[TxFrame::plain(&long(number))]).unwrap(), 1);
        }
    };
    send(0..5);
    assert!(wait(&receiver, PATIENCE));
    let mut seen = Vec::new();
    let taken = receiver.rx_burst(2, &mut |frame| seen.extend(frame.bytes.last()));
    assert_eq!((taken.unwrap(), seen.as_slice()), (2, [0, 1].as_slice()));
    let handover = left_by(receiver);
    send(5..7);
    let mut receiver = right.run(|| AfPacket::take_up(&config, handover).unwrap());
    let found: Vec<u8> = receive_all(&mut receiver)
        .iter()
        .filter_map(|frame| frame.last().copied())
        .collect();
    assert_eq!(found, [2, 3, 4, 5, 6]);
}

#[test]
fn long_frames_are_the_next_ones_after_the_interface_was_down() {
    let Some([left, right]) =
        support::veth("long_frames_are_the_next_ones_after_the_interface_was_down")
    else {
        return;
    };
    let mut sender = open(&left);
    let (long, config) = long_frames(&sender);
    let mut receiver = right.run(|| AfPacket::open(&config).unwrap());
    assert_eq!(sender.tx_burst(&[TxFrame::plain(&long(0))]).unwrap(), 1);
    assert!(wait(&receiver, PATIENCE));
    right.ip(&format!("link set {VETH} down"));
    let mut found: Vec<u8> = Vec::new();
    let mut receive = |receiver: &mut AfPacket| {
        receiver.rx_burst(8, &mut |frame| found.extend(frame.bytes.last()))
    };
    let error = receive(&mut receiver).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable);
    right.ip(&format!("link set {VETH} up"));
    assert_eq!(right.run(|| receiver.attend()), Presence::Up);
    // Its own carrier comes with the other end's.
    let _ = left.run(|| sender.attend());
    assert_eq!(sender.tx_burst(&[TxFrame::plain(&long(1))]).unwrap(), 1);
    assert!(wait(&receiver, PATIENCE));
    receive(&mut receiver).unwrap();
    assert_eq!(found, [0, 1]);
}

#[test]
fn a_frame_with_a_vlan_tag_is_not_taken_for_one_without() {
    let Some([left, right]) = support::veth("a_frame_with_a_vlan_tag_is_not_taken_for_one_without")
    else {
        return;
    };
    let (mut left, mut right) = (open(&left), open(&right));
    let plain = arp_request(left.caps().hardware_address, (LEFT, RIGHT));
    let mut tagged = plain.clone();
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    assert_eq!(
        left.tx_burst(&[TxFrame::plain(&tagged), TxFrame::plain(&plain)])
            .unwrap(),
        2
    );
    assert_eq!(receive_all(&mut right), [plain]);
    assert_eq!(right.counters().rx_dropped, 1);
}

#[test]
fn a_vanished_interface_is_said_once_and_taken_back_when_it_is_there_again() {
    let test = "a_vanished_interface_is_said_once_and_taken_back_when_it_is_there_again";
    let Some([left, right]) = support::veth(test) else {
        return;
    };
    let mut driver = open(&left);
    assert!(driver.prepare_wait().unwrap());
    right.ip(&format!("link del {VETH}"));
    assert!(wait(&driver, PATIENCE), "the sleeper is woken");
    let error = driver.rx_burst(8, &mut |_| ()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable);
    assert!(error.to_string().contains(VETH), "{error}");
    let frame = [0xff; 60];
    // Lost as on a cut cable; nobody sleeps on it without end.
    assert_eq!(driver.tx_burst(&[TxFrame::plain(&frame)]).unwrap(), 1);
    assert_eq!(driver.counters().tx_dropped, 1);
    assert!(driver.prepare_wait().unwrap());
    assert!(!wait(&driver, Duration::from_millis(200)), "nothing wakes");
    assert_eq!(left.run(|| driver.attend()), Presence::Gone);
    assert!(driver.complaints()[0].contains("gone"));

    support::join([&left, &right], 1).unwrap();
    let index = left.run(|| support::index(VETH));
    assert_eq!(left.run(|| driver.attend()), Presence::Back { index });
    assert_eq!(left.run(|| driver.attend()), Presence::Up);
    assert_eq!(driver.complaints(), Vec::<String>::new());
    exchanges(&mut driver, &mut open(&right));
}

#[test]
fn an_interface_that_is_switched_off_is_said_once_and_goes_on_when_it_is_on() {
    let test = "an_interface_that_is_switched_off_is_said_once_and_goes_on_when_it_is_on";
    let Some([left, right]) = support::veth(test) else {
        return;
    };
    goes_on_when_it_is_on(&left, open(&left), open(&right));
}

#[test]
fn an_interface_that_is_switched_off_before_there_is_a_ring_goes_on_when_it_is_on() {
    let test = "an_interface_that_is_switched_off_before_there_is_a_ring_goes_on_when_it_is_on";
    let Some([left, right]) = support::veth(test) else {
        return;
    };
    let config = Config {
        ring_later: Some(|| ()),
        ..Config::new(VETH)
    };
    let mut driver = left.run(|| AfPacket::open(&config).unwrap());
    left.ip(&format!("link set {VETH} down"));
    // Who receives hears of it first.
    let error = driver.rx_burst(1, &mut |_| ()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable);
    assert_eq!(left.run(|| driver.attend()), Presence::Down);
    left.ip(&format!("link set {VETH} up"));
    assert_eq!(left.run(|| driver.attend()), Presence::Up);
    exchanges(&mut driver, &mut open(&right));
    goes_on_when_it_is_on(&left, driver, open(&right));
}

fn goes_on_when_it_is_on(left: &Namespace, mut driver: AfPacket, mut peer: AfPacket) {
    for _ in 0..3 {
        left.ip(&format!("link set {VETH} down"));
        let error = driver.tx_burst(&[TxFrame::plain(&[0xff; 60])]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable);
        assert_eq!(driver.tx_burst(&[TxFrame::plain(&[0xff; 60])]).unwrap(), 1);
        assert_eq!(left.run(|| driver.attend()), Presence::Down);
        assert!(driver.complaints()[0].contains("down"));
        left.ip(&format!("link set {VETH} up"));
        assert_eq!(left.run(|| driver.attend()), Presence::Up);
        exchanges(&mut driver, &mut peer);
    }
}

#[test]
fn an_interface_without_a_carrier_is_named_and_loses_what_is_sent_without_keeping_the_sender_busy()
{
    let test = "an_interface_without_a_carrier_is_named_and_loses_what_is_sent_without_keeping_the_sender_busy";
    let Some([left, right]) = support::veth(test) else {
        return;
    };
    let mut driver = open(&left);
    right.ip(&format!("link set {VETH} down"));
    // The kernel says so after a while.
    let until = std::time::Instant::now() + PATIENCE;
    let has_carrier = || netlink::interface::has_carrier(driver.socket(), VETH).unwrap();
    while has_carrier() {
        assert!(std::time::Instant::now() < until, "it keeps its carrier");
        std::thread::yield_now();
    }
    // As it stands before anybody has looked: the wait doubles, and then the carrier is looked for.
    let mut tries = 0;
    while driver.tx_burst(&[TxFrame::plain(&[0xff; 60])]).unwrap() == 0 {
        tries += 1;
        assert!(tries < 20, "a frame is held for ever");
        assert!(driver.wait_deadline_us().is_some());
    }
    assert_eq!(driver.wait_deadline_us(), None);
    assert_eq!(driver.tx_burst(&[TxFrame::plain(&[0xff; 60])]).unwrap(), 1);
    assert_eq!(driver.counters().tx_dropped, 2);
    assert!(driver.counters().tx_busy <= 20);
    let said = driver.complaints();
    assert!(said[0].contains("no carrier"), "{said:?}");
    right.ip(&format!("link set {VETH} up"));
    assert_eq!(left.run(|| driver.attend()), Presence::Up);
    assert!(driver.complaints().is_empty());
    exchanges(&mut driver, &mut open(&right));
}

#[test]
fn an_interface_with_another_name_is_the_same_one() {
    let Some([left, right]) = support::veth("an_interface_with_another_name_is_the_same_one")
    else {
        return;
    };
    let (mut driver, mut peer) = (open(&left), open(&right));
    left.ip(&format!("link set {VETH} name other0"));
    assert_eq!(left.run(|| driver.attend()), Presence::Up);
    assert_eq!(driver.complaints(), Vec::<String>::new());
    exchanges(&mut driver, &mut peer);
}

#[test]
fn queues_of_an_interface_that_was_made_anew_share_it_again() {
    let test = "queues_of_an_interface_that_was_made_anew_share_it_again";
    let Some([left, right]) = support::veth(test) else {
        return;
    };
    let program = steering::program(&steering::Hash::Mixed(steering::Mix {
        key: 1,
        multipliers: [3; 3],
        shifts: [13; 3],
    }));
    let config = Config::new(VETH);
    let mut queues = left
        .run(|| AfPacket::open_queues(&config, 2, &program))
        .unwrap();
    for _ in 0..2 {
        right.ip(&format!("link del {VETH}"));
        for queue in &mut queues {
            assert_eq!(left.run(|| queue.attend()), Presence::Gone);
        }
        support::join([&left, &right], 1).unwrap();
        // Their order is the order of the group, whoever looks first; none receives before all have joined.
        let mut looks = [1, 0, 1, 0]
            .map(|at| left.run(|| queues[at].attend()))
            .into_iter();
        let is_back = |found: Presence| matches!(found, Presence::Back { .. });
        assert_eq!(
            looks.next(),
            Some(Presence::Gone),
            "the second waits for the first"
        );
        assert_eq!(
            looks.next(),
            Some(Presence::Gone),
            "the first for the second"
        );
        assert!(looks.all(is_back));
        let mut peer = open(&right);
        let frame = [0xff; 60];
        peer.tx_burst(&[TxFrame::plain(&frame)]).unwrap();
        let received: Vec<usize> = queues
            .iter_mut()
            .map(|one| receive_all(one).len())
            .collect();
        assert_eq!(received.iter().sum::<usize>(), 1, "{received:?}");
    }
}

/// A frame each way.
fn exchanges(one: &mut AfPacket, other: &mut AfPacket) {
    let frame = vec![0xff; 60];
    for _ in 0..2 {
        assert_eq!(one.tx_burst(&[TxFrame::plain(&frame)]).unwrap(), 1);
        assert!(receive_all(other).contains(&frame));
        assert_eq!(other.tx_burst(&[TxFrame::plain(&frame)]).unwrap(), 1);
        assert!(receive_all(one).contains(&frame));
    }
}

#[test]
fn what_cannot_be_opened_is_named() {
    let Some(namespace) = support::alone("what_cannot_be_opened_is_named") else {
        return;
    };
    namespace.run(|| {
        let open = |name: &str| AfPacket::open(&Config::new(name)).err().unwrap();
        let error = open("nowhere0");
        assert!(
            matches!(&error, OpenError::UnknownInterface { interface } if interface == "nowhere0")
        );
        assert!(matches!(
            open("a-name-longer-than-15"),
            OpenError::UnknownInterface { .. }
        ));
        assert!(matches!(open(""), OpenError::UnknownInterface { .. }));
        let config = Config {
            frame_bytes: Some(1000),
            ..Config::new("lo")
        };
        let error = AfPacket::open(&config).err().unwrap();
        assert!(
            matches!(
                error,
                OpenError::Ring { geometry, .. } if geometry.frame_bytes == 1000
            ),
            "{error}"
        );
    });
}
