//! Segments that no honest peer sends: flags that contradict each other, options that lie about their lengths. Each gets
//! one small answer at most, none makes a connection, and one that stands goes on.

use crate::tests::pair::*;
use crate::tests::peer::*;
use crate::*;
use ::tcp::{Instant, State};
use std::net::Ipv4Addr;
use wire::checksum::Sum;
use wire::ipv4::Protocol;
use wire::tcp::Flags;

const NOW: Instant = Instant::from_us(1_000_000_000);
const FRIEND: Ipv4Addr = Ipv4Addr::new(10, 0, 0, PEER);

/// A segment whose header has these bytes for options, a multiple of four.
fn with_options(flags: Flags, (seq, ack): (u32, u32), options: &[u8], payload: &[u8]) -> Flying {
    let mut bytes = vec![0; 20];
    header(5_000, 80, seq, ack, flags).emit(&mut bytes);
    bytes.extend_from_slice(options);
    bytes.extend_from_slice(payload);
    bytes[12] = u8::try_from((20 + options.len()) / 4).unwrap() << 4 | bytes[12] & 0x0f;
    bytes[16..18].fill(0);
    let sum = Sum::new()
        .pseudo_header_v4(FRIEND, ip(ME), Protocol::TCP, bytes.len())
        .add(&bytes)
        .finish();
    bytes[16..18].copy_from_slice(&sum.to_be_bytes());
    frame(&ipv4_header(FRIEND, ip(ME), Protocol::TCP), &bytes)
}

fn with_node(test: impl FnOnce(&mut Node<'_>, ListenerId)) {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let mut node = Node::new(memory.tables(), ME, NOW);
    node.knows(NOW, PEER);
    let listener = node.listen(80, 8);
    node.transmit(NOW);
    test(&mut node, listener);
}

/// The one-letter flags of what left.
fn flags_of(frames: &[Flying]) -> Vec<Flags> {
    segments(frames).iter().map(|sent| sent.1.flags).collect()
}

#[test]
fn flags_that_contradict_each_other_open_nothing() {
    let xmas = Flags::FIN | Flags::PSH | Flags::URG;
    let reset = Flags::RST | Flags::ACK;
    let none: &[Flags] = &[];
    // Flags, what a listener answers, what a port without one answers.
    let cases = [
        ("null", Flags::empty(), none, &[reset][..]),
        ("xmas", xmas, none, &[reset]),
        ("fin", Flags::FIN, none, &[reset]),
        ("syn and fin", Flags::SYN | Flags::FIN, none, &[reset]),
        ("syn and reset", Flags::SYN | Flags::RST, none, none),
        ("all", Flags::all(), none, none),
        ("ack", Flags::ACK, &[Flags::RST], &[Flags::RST]),
        (
            "syn and ack",
            Flags::SYN | Flags::ACK,
            &[Flags::RST],
            &[Flags::RST],
        ),
        ("reset", Flags::RST, none, none),
    ];
    for (name, flags, of_listener, of_nobody) in cases {
        with_node(|node, _| {
            for (port, expected) in [(80, of_listener), (81, of_nobody)] {
                let stray = header(5_000, port, 100, 200, flags);
                node.deliver(NOW, &segment(FRIEND, ip(ME), &stray, b"x"));
                let answers = flags_of(&node.transmit(NOW));
                assert_eq!(answers, expected, "{name} to port {port}");
            }
            assert_eq!(node.stack.connections().count(), 0, "{name}");
        });
    }
}

#[test]
fn a_syn_with_data_is_answered_without_it() {
    with_node(|node, listener| {
        let syn = header(5_000, 80, 100, 0, Flags::SYN);
        node.deliver(NOW, &segment(FRIEND, ip(ME), &syn, &[7; 1_400]));
        let sent = segments(&node.transmit(NOW));
        assert_eq!(sent.len(), 1);
        assert_eq!((sent[0].1.ack, sent[0].2.len()), (101, 0));
        let ack = header(5_000, 80, 101, sent[0].1.seq.wrapping_add(1), Flags::ACK);
        node.deliver(NOW, &segment(FRIEND, ip(ME), &ack, b"x"));
        let owner = node.accept(listener).unwrap();
        assert_eq!(node.received(owner), b"x");
    });
}

/// Options, and whether a segment with them is one.
fn options() -> Vec<(&'static str, Vec<u8>, bool)> {
    vec![
        ("forty times nothing", vec![1; 40], true),
        ("end, then nonsense", vec![0, 2, 0, 0, 9, 9, 9, 9], true),
        ("unknown", vec![200, 4, 1, 2], true),
        ("ten times the same MSS", [2, 4, 5, 180].repeat(10), true),
        ("MSS 0", vec![2, 4, 0, 0], true),
        ("MSS 65535", vec![2, 4, 255, 255], true),
        ("window scale 255", vec![3, 3, 255, 1], true),
        ("length 0", vec![200, 0, 1, 1], false),
        ("length 1", vec![200, 1, 1, 1], false),
        ("beyond the header", vec![200, 40, 1, 1], false),
        ("MSS of five bytes", vec![2, 5, 1, 1, 1, 1, 1, 1], false),
        ("no length", vec![1, 1, 1, 200], false),
    ]
}

#[test]
fn options_of_a_syn_are_understood_or_the_syn_is_dropped() {
    for (name, options, is_good) in options() {
        with_node(|node, listener| {
            node.deliver(NOW, &with_options(Flags::SYN, (100, 0), &options, &[]));
            let sent = segments(&node.transmit(NOW));
            assert_eq!(sent.len(), usize::from(is_good), "{name}");
            let Some((_, syn_ack, _)) = sent.first() else {
                assert_eq!(node.stack.connections().count(), 0, "{name}");
                return;
            };
            let ack = syn_ack.seq.wrapping_add(1);
            node.deliver(NOW, &with_options(Flags::ACK, (101, ack), &[], &[]));
            let owner = node.accept(listener).unwrap();
            node.write(NOW, owner, &[7; 50_000]);
            let sent = segments(&node.transmit(NOW));
            // No peer makes a flight of segments that are nearly all header (CVE-2019-11479).
            let first = sent.iter().map(|sent| sent.2.len()).max().unwrap();
            assert!((76..=1_460).contains(&first), "{name}: {first}");
            assert!(sent.len() <= 10, "{name}: {} segments", sent.len());
        });
    }
}

#[test]
fn options_that_lie_do_not_reach_a_connection_that_stands() {
    for (name, options, is_good) in options() {
        with_node(|node, listener| {
            let next = node.handshake(NOW, FRIEND, 5_000, 80).unwrap();
            let owner = node.accept(listener).unwrap();
            node.deliver(
                NOW,
                &with_options(Flags::ACK, (101, next), &options, b"abc"),
            );
            let expected: &[u8] = if is_good { b"abc" } else { b"" };
            assert_eq!(node.received(owner), expected, "{name}");
            assert!(node.transmit(NOW).len() <= 1, "{name}");
            node.deliver(NOW, &with_options(Flags::ACK, (101, next), &[], b"abc"));
            assert_eq!(node.received(owner), b"abc", "{name}");
            assert_eq!(node.view(owner).state, State::Established, "{name}");
        });
    }
}
