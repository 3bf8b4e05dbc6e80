//! UDP sockets: which one gets a datagram, what leaves, and what ICMP does to them.

use super::datagrams::*;
use super::node::*;
use super::peer::*;
use crate::udp::{DatagramErrorKind, MtuDiscovery, Outgoing};
use crate::*;
use ::tcp::Instant;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use wire::checksum::Sum;
use wire::ethernet::Header as EthernetHeader;
use wire::icmpv4::Message;
use wire::ipv4::{Header as Ipv4Header, Protocol};

const NOW: Instant = Instant::from_us(1_000_000);

fn end(n: u8, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(ip(n)), port)
}

fn memory() -> HeapTables {
    HeapTables::new(4, 4, 4).unwrap().with_udp(8).unwrap()
}

fn any(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)
}

fn with_options(node: &mut Node<'_>, id: UdpId, change: impl FnOnce(&mut UdpOptions)) {
    let mut options = node.stack.udp_options(id).unwrap();
    change(&mut options);
    node.stack.udp_set_options(id, &options).unwrap();
}

/// A datagram from the peer's hardware address.
pub(super) fn datagram(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), payload: &[u8]) -> Flying {
    let mut udp = vec![0; 8];
    let header = wire::udp::Header {
        source_port: from.1,
        destination_port: to.1,
    };
    header.emit(payload.len(), &mut udp);
    udp.extend_from_slice(payload);
    let sum = Sum::new()
        .pseudo_header_v4(from.0, to.0, Protocol::UDP, udp.len())
        .add(&udp);
    udp[6..8].copy_from_slice(&sum.finish().to_be_bytes());
    frame(&ipv4_header(from.0, to.0, Protocol::UDP), &udp)
}

fn send(
    node: &mut Node<'_>,
    id: UdpId,
    destination: Option<SocketAddr>,
    payload: &[u8],
) -> Result<usize, SendError> {
    send_at(node, (NOW, id), destination, payload)
}

/// Packets with their IPv4 headers; checksums of whole datagrams are verified.
fn sent(node: &mut Node<'_>) -> Vec<(Ipv4Header, Vec<u8>)> {
    let packets = node.transmit(NOW).into_iter().filter_map(|flying| {
        let (_, packet) = EthernetHeader::parse(&flying.bytes).unwrap();
        let (ip, payload) = Ipv4Header::parse(packet).ok()?;
        if ip.protocol == Protocol::UDP && !ip.is_fragment() {
            let (from, to) = (ip.source, ip.destination);
            assert!(wire::checksum::verify_udp_v4(from, to, payload));
        }
        Some((ip, payload.to_vec()))
    });
    packets.collect()
}

#[test]
fn a_bound_socket_gets_datagrams_and_answers_their_sender() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    node.knows(NOW, PEER);
    let id = bind(&mut node, 7, any(53));
    node.deliver(NOW, &datagram((ip(PEER), 4_000), (ip(ME), 53), b"what?"));
    assert_eq!(taken(&node), [(7, end(PEER, 4_000), b"what?".to_vec())]);
    assert_eq!(send(&mut node, id, Some(end(PEER, 4_000)), b"that"), Ok(4));
    let [(ip_header, payload)] = &sent(&mut node)[..] else {
        panic!("one datagram leaves");
    };
    assert_eq!(
        (ip_header.source, ip_header.destination),
        (ip(ME), ip(PEER))
    );
    let (header, payload) = wire::udp::Header::parse(payload).unwrap();
    assert_eq!((header.source_port, header.destination_port), (53, 4_000));
    assert_eq!(payload, b"that");
}

#[test]
fn a_datagram_without_payload_is_a_datagram() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    node.knows(NOW, PEER);
    let id = bind(&mut node, 7, any(53));
    node.deliver(NOW, &datagram((ip(PEER), 4_000), (ip(ME), 53), b""));
    assert_eq!(taken(&node), [(7, end(PEER, 4_000), Vec::new())]);
    assert_eq!(send(&mut node, id, Some(end(PEER, 4_000)), b""), Ok(0));
    assert_eq!(sent(&mut node)[0].1.len(), 8);
}

#[test]
fn nobody_on_the_port_is_said_by_icmp_but_never_to_a_broadcast() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    node.deliver(NOW, &datagram((ip(PEER), 4_000), (ip(ME), 99), b"x"));
    let replies = sent(&mut node);
    assert_eq!(replies.len(), 1);
    let message = Message::parse(&replies[0].1).unwrap();
    assert!(matches!(
        message,
        Message::DestinationUnreachable { code: 3, .. }
    ));
    node.deliver(NOW, &datagram((ip(PEER), 4_000), (ip(255), 99), b"x"));
    assert!(sent(&mut node).is_empty());
    assert_eq!(node.stack.counters().udp_no_ports, 2);
}

#[test]
fn a_connected_socket_hears_its_peer_only_until_it_is_disconnected() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    let id = bind(&mut node, 7, any(53));
    let local = node.stack.udp_connect(id, end(PEER, 4_000)).unwrap();
    assert_eq!(local, end(ME, 53), "the route's address");
    node.deliver(NOW, &datagram((ip(PEER), 4_001), (ip(ME), 53), b"other"));
    assert_eq!(taken(&node), []);
    assert_eq!(sent(&mut node).len(), 1, "port unreachable");
    node.deliver(NOW, &datagram((ip(PEER), 4_000), (ip(ME), 53), b"peer"));
    assert_eq!(taken(&node).len(), 1);
    assert_eq!(node.stack.udp_disconnect(id), Ok(any(53)));
    node.deliver(NOW, &datagram((ip(PEER), 4_001), (ip(ME), 53), b"other"));
    assert_eq!(taken(&node).len(), 1);
    assert_eq!(
        send(&mut node, id, None, b"x"),
        Err(SendError::Refused(Error::DestinationRequired))
    );
}

#[test]
fn a_wrong_checksum_is_dropped_and_an_absent_one_taken() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    bind(&mut node, 7, any(53));
    let mut flying = datagram((ip(PEER), 4_000), (ip(ME), 53), b"x");
    flying.bytes[40] ^= 1;
    node.deliver(NOW, &flying);
    assert_eq!(taken(&node), []);
    flying.bytes[40..42].fill(0);
    node.deliver(NOW, &flying);
    assert_eq!(taken(&node).len(), 1);
    assert_eq!(node.stack.counters().udp_in_csum_errors, 1);
}

#[test]
fn datagrams_wait_for_the_neighbour_and_then_leave_in_order() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    let id = bind(&mut node, 7, any(53));
    node.transmit(NOW);
    for payload in [b"1", b"2"] {
        assert_eq!(send(&mut node, id, Some(end(PEER, 4_000)), payload), Ok(1));
    }
    assert!(sent(&mut node).is_empty(), "only the question leaves");
    node.knows(NOW, PEER);
    let payloads: Vec<u8> = sent(&mut node).iter().map(|(_, udp)| udp[8]).collect();
    assert_eq!(payloads, b"12");
}

#[test]
fn what_waits_for_neighbours_is_bounded() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    let id = bind(&mut node, 7, any(53));
    for n in 0..1_000_u32 {
        let payload = n.to_le_bytes();
        assert_eq!(send(&mut node, id, Some(end(PEER, 4_000)), &payload), Ok(4));
    }
    node.knows(NOW, PEER);
    let left = sent(&mut node);
    assert_eq!(left.len(), 256);
    assert_eq!(left.last().unwrap().1[8..], 999_u32.to_le_bytes());
    assert_eq!(node.stack.counters().ip_out_discards, 1_000 - 256);
}

#[test]
fn a_long_datagram_is_fragmented_unless_that_is_forbidden() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    node.knows(NOW, PEER);
    let id = bind(&mut node, 7, any(53));
    let payload: Vec<u8> = (0..4_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    assert_eq!(send(&mut node, id, Some(end(PEER, 9)), &payload), Ok(4_000));
    let fragments = sent(&mut node);
    assert_eq!(fragments.len(), 3);
    let mut whole = vec![0; 4_008];
    for (ip, piece) in &fragments {
        assert!(!ip.dont_fragment && ip.identification == fragments[0].0.identification);
        let at = usize::from(ip.fragment_offset);
        assert_eq!(ip.more_fragments, at + piece.len() < whole.len());
        whole[at..at + piece.len()].copy_from_slice(piece);
    }
    assert!(wire::checksum::verify_udp_v4(ip(ME), ip(PEER), &whole));
    assert_eq!(whole[8..], payload);
    with_options(&mut node, id, |options| {
        options.v4.mtu_discovery = MtuDiscovery::Do
    });
    assert_eq!(
        send(&mut node, id, Some(end(PEER, 9)), &payload),
        Err(SendError::Refused(Error::MessageTooLong))
    );
    assert_eq!(
        send(&mut node, id, Some(end(PEER, 9)), &payload[..1_472]),
        Ok(1_472)
    );
    assert!(sent(&mut node)[0].0.dont_fragment);
}

#[test]
fn a_payload_is_cut_into_datagrams_and_goes_on_where_the_interface_was_busy() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    node.knows(NOW, PEER);
    let id = bind(&mut node, 7, any(53));
    let outgoing = Outgoing {
        destination: Some(end(PEER, 9)),
        segment_bytes: 1_000,
        ..Outgoing::default()
    };
    let payload = vec![5; 2_500];
    node.egress.room = 2;
    let offer = |node: &mut Node<'_>, from: usize| {
        node.stack
            .udp_send(NOW, id, &outgoing, &payload[from..], &mut node.egress)
    };
    assert_eq!(offer(&mut node, 0), Ok(2_000));
    assert_eq!(offer(&mut node, 2_000), Err(SendError::Busy));
    node.egress.room = usize::MAX;
    assert_eq!(offer(&mut node, 2_000), Ok(500));
    let lengths: Vec<usize> = sent(&mut node)
        .iter()
        .map(|(_, udp)| udp.len() - 8)
        .collect();
    assert_eq!(lengths, [1_000, 1_000, 500]);
}

#[test]
fn merged_datagrams_are_cut_again_for_who_did_not_ask_for_them() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    let id = bind(&mut node, 7, any(53));
    let mut flying = datagram((ip(PEER), 4_000), (ip(ME), 53), b"abcdefgh");
    flying.segment_bytes = Some(3);
    node.deliver(NOW, &flying);
    let payloads = |node: &Node<'_>| -> Vec<Vec<u8>> {
        taken(node)
            .into_iter()
            .map(|(.., payload)| payload)
            .collect()
    };
    assert_eq!(payloads(&node), [&b"abc"[..], b"def", b"gh"]);
    with_options(&mut node, id, |options| options.merged = true);
    node.deliver(NOW, &flying);
    assert_eq!(payloads(&node), [&b"abcdefgh"[..]]);
}

#[test]
fn broadcast_needs_permission_and_reaches_every_socket_of_the_port() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    let id = bind(&mut node, 7, any(53));
    let everybody = SocketAddr::new(IpAddr::V4(ip(255)), 67);
    assert_eq!(
        send(&mut node, id, Some(everybody), b"x"),
        Err(SendError::Refused(Error::AccessDenied))
    );
    with_options(&mut node, id, |options| options.broadcast = true);
    assert_eq!(send(&mut node, id, Some(everybody), b"x"), Ok(1));
    let frames = node.transmit(NOW);
    let (ethernet, _) = EthernetHeader::parse(&frames.last().unwrap().bytes).unwrap();
    assert!(ethernet.destination.is_broadcast());

    let second = UdpBind {
        owner: 8,
        local: any(53),
        shares: true,
        options: UdpOptions::default(),
    };
    node.stack.udp_bind(&second).unwrap();
    let mut flying = datagram((ip(PEER), 4_000), (ip(255), 53), b"all");
    flying.bytes[..6].fill(0xff);
    node.deliver(NOW, &flying);
    let owners =
        |node: &Node<'_>| -> Vec<u64> { taken(node).iter().map(|(owner, ..)| *owner).collect() };
    assert_eq!(owners(&node), [7, 8]);
    with_options(&mut node, id, |options| options.addressed_only = true);
    node.deliver(NOW, &flying);
    assert_eq!(owners(&node), [8]);
    node.deliver(NOW, &datagram((ip(PEER), 4_000), (ip(ME), 53), b"one"));
    assert_eq!(owners(&node), [8], "the last that was bound");
}

#[test]
fn who_has_no_address_yet_may_ask_everybody_and_nobody_else() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    bind(&mut node, 7, any(67));
    for (to, is_heard) in [
        (Ipv4Addr::BROADCAST, true),
        (ip(255), false),
        (ip(ME), false),
    ] {
        let mut flying = datagram((Ipv4Addr::UNSPECIFIED, 68), (to, 67), b"discover");
        flying.bytes[..6].fill(0xff);
        node.deliver(NOW, &flying);
        assert_eq!(taken(&node).len(), usize::from(is_heard), "{to}");
    }
}

fn unreachable(code: u8, next_hop_mtu: u16, quoted: &[u8]) -> Flying {
    let mut message = vec![0; 8 + quoted.len()];
    let len = Message::DestinationUnreachable {
        code,
        next_hop_mtu,
        quoted,
    }
    .emit(&mut message);
    message.truncate(len);
    frame(&ipv4_header(ip(PEER), ip(ME), Protocol::ICMP), &message)
}

/// The packet of a datagram that this host sent from port 53 to the peer's port 9.
fn quoted(payload: &[u8]) -> Vec<u8> {
    datagram((ip(ME), 53), (ip(PEER), 9), payload).bytes[14..].to_vec()
}

#[test]
fn port_unreachable_is_told_to_a_connected_socket_and_to_one_with_an_error_queue() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    let id = bind(&mut node, 7, any(53));
    let report = unreachable(3, 0, &quoted(b"question"));
    let failures = |node: &Node<'_>| std::mem::take(&mut node.programs.borrow_mut().failures);
    node.deliver(NOW, &report);
    assert_eq!(failures(&node), [], "not connected, no error queue");
    with_options(&mut node, id, |options| options.v4.error_queue = true);
    node.deliver(NOW, &report);
    let expected = (
        7,
        DatagramErrorKind::PortUnreachable,
        end(PEER, 9),
        b"question".to_vec(),
    );
    assert_eq!(failures(&node), std::slice::from_ref(&expected));
    with_options(&mut node, id, |options| options.v4.error_queue = false);
    node.stack.udp_connect(id, end(PEER, 9)).unwrap();
    node.deliver(NOW, &report);
    assert_eq!(failures(&node), [expected]);
    node.deliver(NOW, &unreachable(1, 0, &quoted(b"soft")));
    assert_eq!(
        failures(&node),
        [],
        "host unreachable is no reason to give up"
    );
    node.stack.udp_connect(id, end(PEER, 10)).unwrap();
    node.deliver(NOW, &report);
    assert_eq!(failures(&node), [], "a quote of somebody else's datagram");
}

#[test]
fn a_smaller_path_mtu_is_believed_and_what_is_longer_is_fragmented() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    node.knows(NOW, PEER);
    let id = bind(&mut node, 7, any(53));
    node.stack.udp_connect(id, end(PEER, 9)).unwrap();
    assert_eq!(node.stack.udp_mtu(NOW, id), Ok(1_500));
    let too_long = quoted(&[1; 1_400]);
    node.deliver(NOW, &unreachable(4, 1_480, &too_long[..28]));
    assert_eq!(
        node.stack.udp_mtu(NOW, id),
        Ok(1_500),
        "the packet would have fitted"
    );
    node.deliver(NOW, &unreachable(4, 1_000, &too_long[..28]));
    assert_eq!(node.stack.udp_mtu(NOW, id), Ok(1_000));
    assert_eq!(send(&mut node, id, None, &[1; 1_400]), Ok(1_400));
    assert_eq!(sent(&mut node).len(), 2);
}

#[test]
fn ports_that_the_stack_chooses_differ_and_taken_ones_are_refused() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    let (first, second) = (bind(&mut node, 1, any(0)), bind(&mut node, 2, end(ME, 0)));
    let port = |node: &Node<'_>, id| node.stack.udp_addresses(id).unwrap().0.port();
    assert_ne!(port(&node, first), port(&node, second));
    assert!((32_768..=60_999).contains(&port(&node, first)));
    let again = UdpBind {
        owner: 3,
        local: end(ME, port(&node, first)),
        shares: false,
        options: UdpOptions::default(),
    };
    assert_eq!(node.stack.udp_bind(&again), Err(Error::AddressInUse));
    let local = SocketAddr::new(IpAddr::V4(ip(77)), 5);
    let foreign = UdpBind { local, ..again };
    assert_eq!(
        node.stack.udp_bind(&foreign),
        Err(Error::AddressNotAvailable)
    );
    assert_eq!(node.stack.udp_close(first), Ok(()));
    assert_eq!(node.stack.udp_close(first), Err(Error::NotFound), "stale");
    assert!(node.stack.udp_bind(&again).is_ok());
}

#[test]
fn sockets_survive_a_restart_with_their_peers_and_order() {
    let mut memory = memory();
    {
        let mut node = Node::new(memory.tables(), ME, NOW);
        bind(&mut node, 7, any(53));
        let id = bind(&mut node, 8, any(54));
        node.stack.udp_connect(id, end(PEER, 9)).unwrap();
        let id = bind(&mut node, 9, any(55));
        node.stack.udp_close(id).unwrap();
    }
    let (mut stack, rebuilt) = Stack::rebuild(memory.tables(), config(ME)).unwrap();
    assert_eq!((rebuilt.udp_sockets, rebuilt.interrupted), (2, 0));
    configure(&mut stack, NOW, ME);
    let mut node = Node::with(stack, Shared::default());
    node.deliver(NOW, &datagram((ip(PEER), 9), (ip(ME), 54), b"x"));
    node.deliver(NOW, &datagram((ip(PEER), 4), (ip(ME), 54), b"x"));
    node.deliver(NOW, &datagram((ip(PEER), 4), (ip(ME), 53), b"x"));
    let owners: Vec<u64> = taken(&node).iter().map(|(owner, ..)| *owner).collect();
    assert_eq!(owners, [8, 7]);
}
