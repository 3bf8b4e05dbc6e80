//! Packets that come in fragments: what they carry is served, and who sends half of one is told.

use crate::tests::node::*;
use crate::tests::pair::pattern;
use crate::tests::peer::*;
use crate::tests::peer6::*;
use crate::*;
use ::tcp::{Duration, Instant};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use wire::checksum::Sum;
use wire::ethernet::{EtherType, Header as EthernetHeader};
use wire::icmpv4::Message;
use wire::icmpv6::{Message as Message6, parameter_problem, time_exceeded};
use wire::ipv4::{Header as Ipv4Header, Protocol};
use wire::ipv6::extension::Fragment;
use wire::tcp::Flags;

const NOW: Instant = Instant::from_us(1_000_000_000);

fn memory() -> HeapTables {
    HeapTables::new(8, 4, 4).unwrap().with_udp(8).unwrap()
}

/// A host with both addresses that knows its peer.
fn node(tables: Tables<'_>) -> Node<'_> {
    let start = Instant::from_us(900_000_000);
    let mut node = Node::new(tables, ME, start);
    own(&mut node, start, ME6);
    node.knows(start, PEER);
    let known = node
        .stack
        .set_neighbour(start, NIC, PEER6.into(), Some(hardware(PEER)));
    known.unwrap();
    for seconds in 0..60 {
        node.timers(start + ms(seconds * 1_000));
        node.transmit(start + ms(seconds * 1_000));
    }
    node
}

/// The IPv4 packet with this payload in pieces of `step` bytes.
fn cut4(header: &Ipv4Header, payload: &[u8], step: usize) -> Vec<Flying> {
    let pieces = payload.chunks(step).enumerate();
    let piece = |(n, bytes): (usize, &[u8])| {
        let part = Ipv4Header {
            dont_fragment: false,
            more_fragments: (n + 1) * step < payload.len(),
            fragment_offset: u16::try_from(n * step).unwrap(),
            ..*header
        };
        frame(&part, bytes)
    };
    pieces.map(piece).collect()
}

/// The same of IPv6, with `ahead` in front of the fragment header, which the first word of it announces.
fn cut6(next_header: Protocol, payload: &[u8], step: usize) -> Vec<Flying> {
    let pieces = payload.chunks(step).enumerate();
    let piece = |(n, bytes): (usize, &[u8])| {
        let part = Fragment {
            next_header,
            offset: u16::try_from(n * step).unwrap(),
            more: (n + 1) * step < payload.len(),
            identification: 0x1234_5678,
        };
        frame6(
            &header6(PEER6, ME6, Protocol::FRAGMENT),
            &part6(&part, bytes),
        )
    };
    pieces.map(piece).collect()
}

fn part6(part: &Fragment, bytes: &[u8]) -> Vec<u8> {
    let mut payload = vec![0; Fragment::LEN];
    part.emit(&mut payload);
    payload.extend_from_slice(bytes);
    payload
}

fn datagram(source: IpAddr, destination: IpAddr, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut udp = vec![0; 8];
    let header = wire::udp::Header {
        source_port: 4_000,
        destination_port: port,
    };
    header.emit(payload.len(), &mut udp);
    udp.extend_from_slice(payload);
    let sum = Sum::new()
        .pseudo_header(source, destination, Protocol::UDP, udp.len())
        .add(&udp);
    udp[6..8].copy_from_slice(&sum.finish().to_be_bytes());
    udp
}

fn bind(node: &mut Node<'_>, local: IpAddr) {
    let bind = UdpBind {
        owner: 1,
        local: SocketAddr::new(local, 53),
        shares: false,
        options: UdpOptions::default(),
    };
    node.stack.udp_bind(&bind).unwrap();
}

fn received(node: &Node<'_>) -> Vec<Vec<u8>> {
    let datagrams = std::mem::take(&mut node.programs.borrow_mut().datagrams);
    datagrams.into_iter().map(|(_, _, bytes)| bytes).collect()
}

/// The IPv4 packets among frames that were sent.
fn packets4(frames: &[Flying]) -> Vec<(Ipv4Header, Vec<u8>)> {
    let packet = |frame: &Flying| {
        let (ethernet, packet) = EthernetHeader::parse(&frame.bytes).unwrap();
        (ethernet.ethertype == EtherType::IPV4).then(|| {
            let (header, payload) = Ipv4Header::parse(packet).unwrap();
            (header, payload.to_vec())
        })
    };
    frames.iter().filter_map(packet).collect()
}

#[test]
fn a_long_datagram_reaches_its_socket_in_whatever_order_it_comes() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    bind(&mut node, Ipv6Addr::UNSPECIFIED.into());
    let long = pattern(1, 60_000);
    let four = datagram(ip(PEER).into(), ip(ME).into(), 53, &long);
    let header = ipv4_header(ip(PEER), ip(ME), Protocol::UDP);
    let six = datagram(PEER6.into(), ME6.into(), 53, &long);
    for mut frames in [
        cut4(&header, &four, 1_480),
        cut6(Protocol::UDP, &six, 1_448),
    ] {
        for turn in 0..3 {
            frames.rotate_left(turn * 7);
            for frame in &frames {
                node.deliver(NOW, frame);
            }
            assert_eq!(received(&node), [&*long]);
            frames.reverse();
        }
    }
    let counters = node.stack.counters();
    assert_eq!((counters.ip_reasm_oks, counters.ip6_reasm_oks), (3, 3));
    assert_eq!((counters.ip_reasm_fails, counters.ip6_reasm_fails), (0, 0));
}

#[test]
fn a_segment_in_fragments_opens_a_connection() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    let local = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 80));
    let listen = Listen {
        owner: 80,
        local,
        v6_only: false,
        backlog: 8,
        reuse_address: true,
        reuse_port: None,
    };
    node.stack.listen(&listen).unwrap();
    let syn = header(4_000, 80, 100, 0, Flags::SYN);
    let four = segment(ip(PEER), ip(ME), &syn, &[]).bytes[34..].to_vec();
    let four = cut4(&ipv4_header(ip(PEER), ip(ME), Protocol::TCP), &four, 8);
    let six = segment6(PEER6, ME6, &syn, &[7; 30]).bytes[54..].to_vec();
    let six = cut6(Protocol::TCP, &six, 24);
    for frame in four.iter().chain(&six) {
        node.deliver(NOW, frame);
    }
    let sent = node.transmit(NOW);
    assert_eq!((segments(&sent).len(), segments6(&sent).len()), (1, 1));
}

#[test]
fn an_echo_too_long_for_the_link_is_answered_in_fragments() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    let data = pattern(2, 4_000);
    let (identifier, sequence, data) = (7, 1, &*data);
    let request = Message::EchoRequest {
        identifier,
        sequence,
        data,
    };
    let mut bytes = vec![0; request.emit_len()];
    request.emit(&mut bytes);
    let header = ipv4_header(ip(PEER), ip(ME), Protocol::ICMP);
    for frame in cut4(&header, &bytes, 1_480) {
        node.deliver(NOW, &frame);
    }
    let sent = packets4(&node.transmit(NOW));
    assert!(sent.iter().all(|(header, _)| !header.dont_fragment));
    assert_eq!(sent.len(), 3);
    let mut answer = vec![0; bytes.len()];
    for (header, piece) in &sent {
        assert_eq!(header.identification, sent[0].0.identification);
        answer[usize::from(header.fragment_offset)..][..piece.len()].copy_from_slice(piece);
    }
    let reply = Message::EchoReply {
        identifier,
        sequence,
        data,
    };
    assert_eq!(Message::parse(&answer), Ok(reply));

    let request = Message6::EchoRequest {
        identifier,
        sequence,
        data,
    };
    let mut bytes = vec![0; request.emit_len()];
    request.emit(PEER6, ME6, &mut bytes);
    for frame in cut6(Protocol::ICMPV6, &bytes, 1_448) {
        node.deliver(NOW, &frame);
    }
    let mut answer = vec![0; bytes.len()];
    for (header, packet) in packets6(&node.transmit(NOW)) {
        assert_eq!(header.next_header, Protocol::FRAGMENT);
        let (part, piece) = Fragment::parse(&packet).unwrap();
        assert!(packet.len() + 40 <= 1_280);
        answer[usize::from(part.offset)..][..piece.len()].copy_from_slice(piece);
    }
    let reply = Message6::EchoReply {
        identifier,
        sequence,
        data,
    };
    assert_eq!(Message6::parse(ME6, PEER6, &answer), Ok(reply));
}

#[test]
fn who_sends_half_a_packet_is_told_when_its_time_is_over() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    let payload = datagram(ip(PEER).into(), ip(ME).into(), 53, &[1; 3_000]);
    let header = ipv4_header(ip(PEER), ip(ME), Protocol::UDP);
    let four = cut4(&header, &payload, 1_480);
    let six = cut6(Protocol::UDP, &payload, 1_448);
    node.deliver(NOW, &four[0]);
    node.deliver(NOW, &six[0]);
    let after = |seconds| NOW + Duration::from_secs(seconds);
    node.timers(after(29));
    assert_eq!(node.transmit(after(29)), []);
    node.timers(after(30));
    let sent = packets4(&node.transmit(after(30)));
    let [(to, message)] = &*sent else {
        panic!("{sent:?}");
    };
    assert_eq!(to.destination, ip(PEER));
    let Ok(Message::TimeExceeded { code: 1, quoted }) = Message::parse(message) else {
        panic!("{message:?}");
    };
    assert_eq!(quoted, &four[0].bytes[14..14 + quoted.len()]);
    assert!(quoted.len() >= 28);
    node.timers(after(60));
    let sent = icmp6(&node.transmit(after(60)));
    let Message6::TimeExceeded { code, quoted } = message6(&sent) else {
        panic!("{sent:?}");
    };
    assert_eq!(code, time_exceeded::REASSEMBLY);
    assert_eq!(quoted, &six[0].bytes[14..14 + quoted.len()]);
    assert!(quoted.len() > 1_100);
    let counters = node.stack.counters();
    assert_eq!(
        (counters.ip_reasm_timeout, counters.ip6_reasm_timeout),
        (1, 1)
    );
}

fn message6(sent: &[(wire::ipv6::Header, Vec<u8>)]) -> Message6<'_> {
    assert_eq!(sent.len(), 1);
    message(&sent[0])
}

#[test]
fn nobody_is_told_of_a_packet_without_its_beginning_or_of_one_for_everybody() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    let payload = datagram(ip(PEER).into(), ip(ME).into(), 53, &[1; 3_000]);
    let header = ipv4_header(ip(PEER), ip(ME), Protocol::UDP);
    node.deliver(NOW, &cut4(&header, &payload, 1_480)[1]);
    node.deliver(NOW, &cut6(Protocol::UDP, &payload, 1_448)[1]);
    let everybody = ipv4_header(ip(PEER), Ipv4Addr::BROADCAST, Protocol::UDP);
    node.deliver(NOW, &cut4(&everybody, &payload, 1_480)[0]);
    let later = NOW + Duration::from_secs(60);
    node.timers(later);
    assert_eq!(node.transmit(later), []);
    let counters = node.stack.counters();
    assert_eq!(
        (counters.ip_reasm_timeout, counters.ip6_reasm_timeout),
        (2, 1)
    );
}

/// RFC 8200 §4.5, RFC 7112 §5.
#[test]
fn fragments_that_cannot_be_are_reported() {
    let whole = |offset, more| Fragment {
        next_header: Protocol::UDP,
        offset,
        more,
        identification: 1,
    };
    let options = Fragment {
        next_header: Protocol::DESTINATION_OPTIONS,
        ..whole(0, true)
    };
    let cases: [(Fragment, &[u8], u8, u32); 4] = [
        (whole(0, true), &[0; 9], parameter_problem::FIELD, 4),
        (whole(65_528, false), &[0; 8], parameter_problem::FIELD, 42),
        (
            options,
            &[17, 0, 1, 4, 0, 0, 0, 0],
            parameter_problem::INCOMPLETE_CHAIN,
            0,
        ),
        (
            options,
            &[17, 7, 1, 4, 0, 0, 0, 0],
            parameter_problem::INCOMPLETE_CHAIN,
            0,
        ),
    ];
    for (part, bytes, expected_code, expected_pointer) in cases {
        let mut memory = memory();
        let mut node = node(memory.tables());
        let header = header6(PEER6, ME6, Protocol::FRAGMENT);
        node.deliver(NOW, &frame6(&header, &part6(&part, bytes)));
        let sent = icmp6(&node.transmit(NOW));
        let Message6::ParameterProblem { code, pointer, .. } = message6(&sent) else {
            panic!("{sent:?}");
        };
        assert_eq!((code, pointer), (expected_code, expected_pointer));
        assert_eq!(node.stack.counters().ip6_reasm_fails, 1);
    }
}

#[test]
fn headers_on_both_sides_of_the_cut_are_gone_through() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    bind(&mut node, Ipv6Addr::UNSPECIFIED.into());
    // Hop-by-hop options, the fragment header, then destination options and the datagram.
    let data = pattern(5, 64);
    let inner = [
        &[17, 0, 1, 4, 0, 0, 0, 0],
        &*datagram(PEER6.into(), ME6.into(), 53, &data),
    ]
    .concat();
    for (n, piece) in inner.chunks(40).enumerate() {
        let part = Fragment {
            next_header: Protocol::DESTINATION_OPTIONS,
            offset: u16::try_from(n * 40).unwrap(),
            more: (n + 1) * 40 < inner.len(),
            identification: 9,
        };
        let ahead = [&[44, 0, 1, 4, 0, 0, 0, 0], &*part6(&part, piece)].concat();
        node.deliver(
            NOW,
            &frame6(&header6(PEER6, ME6, Protocol::HOP_BY_HOP), &ahead),
        );
    }
    assert_eq!(received(&node), [data]);
    // Nobody listens there: the quote is the packet as it was before it was cut.
    let inner = datagram(PEER6.into(), ME6.into(), 54, &pattern(5, 64));
    for frame in cut6(Protocol::UDP, &inner, 40) {
        node.deliver(NOW, &frame);
    }
    let sent = icmp6(&node.transmit(NOW));
    let Message6::DestinationUnreachable { quoted, .. } = message6(&sent) else {
        panic!("{sent:?}");
    };
    let (header, payload) = wire::ipv6::Header::parse(quoted).unwrap();
    assert_eq!((header.next_header, payload), (Protocol::UDP, &*inner));
}

/// RFC 6980 §5.
#[test]
fn neighbour_discovery_behind_a_fragment_header_is_not_believed() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    let source = ip6(77);
    let solicitation = Message6::Ndp(wire::icmpv6::ndp::Message::NeighbourSolicitation {
        target: ME6,
        options: wire::icmpv6::ndp::Options::default(),
    });
    let mut bytes = vec![0; solicitation.emit_len()];
    solicitation.emit(source, ME6, &mut bytes);
    let atomic = Fragment {
        next_header: Protocol::ICMPV6,
        offset: 0,
        more: false,
        identification: 0,
    };
    let header = wire::ipv6::Header {
        hop_limit: 255,
        ..header6(source, ME6, Protocol::FRAGMENT)
    };
    node.deliver(NOW, &frame6(&header, &part6(&atomic, &bytes)));
    assert_eq!(node.stack.counters().ndp_in_errors, 1);
    assert_eq!(node.transmit(NOW), []);
}

#[test]
fn what_another_core_serves_is_passed_on_whole() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    node.programs.borrow_mut().passes = true;
    let syn = header(4_000, 80, 100, 0, Flags::SYN);
    let whole = segment(ip(PEER), ip(ME), &syn, &[1; 40]);
    let ip_header = Ipv4Header {
        dont_fragment: false,
        ..ipv4_header(ip(PEER), ip(ME), Protocol::TCP)
    };
    for frame in cut4(&ip_header, &whole.bytes[34..], 24) {
        node.deliver(NOW, &frame);
    }
    let optional = [
        &[6, 0, 1, 4, 0, 0, 0, 0],
        &segment6(PEER6, ME6, &syn, &[]).bytes[54..],
    ]
    .concat();
    let optional = frame6(
        &header6(PEER6, ME6, Protocol::DESTINATION_OPTIONS),
        &optional,
    );
    node.deliver(NOW, &optional);
    // What the device could see is at the right core already.
    node.deliver(NOW, &segment(ip(PEER), ip(ME), &syn, &[]));
    let passed = std::mem::take(&mut node.programs.borrow_mut().passed);
    let expected = frame(&ip_header, &whole.bytes[34..]);
    assert_eq!(passed.len(), 2);
    let ends = |us: IpAddr, them: IpAddr| (SocketAddr::new(us, 80), SocketAddr::new(them, 4_000));
    let (local, remote) = ends(ip(ME).into(), ip(PEER).into());
    assert_eq!(passed[0], (local, remote, expected.bytes));
    let (local, remote) = ends(ME6.into(), PEER6.into());
    assert_eq!(passed[1], (local, remote, optional.bytes));
    assert_eq!(node.stack.counters().tcp_in_segs, 1);
}

#[test]
fn a_mark_on_any_fragment_marks_the_packet() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    node.programs.borrow_mut().passes = true;
    let whole = segment(
        ip(PEER),
        ip(ME),
        &header(4_000, 80, 1, 0, Flags::SYN),
        &[1; 40],
    );
    let marked = Ipv4Header {
        dscp_ecn: 2,
        ..ipv4_header(ip(PEER), ip(ME), Protocol::TCP)
    };
    let mut frames = cut4(&marked, &whole.bytes[34..], 24);
    let congested = Ipv4Header {
        dscp_ecn: 3,
        ..marked
    };
    frames[1] = cut4(&congested, &whole.bytes[34..], 24)[1].clone();
    for frame in &frames {
        node.deliver(NOW, frame);
    }
    let passed = std::mem::take(&mut node.programs.borrow_mut().passed);
    let (header, _) = Ipv4Header::parse(&passed[0].2[14..]).unwrap();
    assert_eq!(header.dscp_ecn, 3);
}
