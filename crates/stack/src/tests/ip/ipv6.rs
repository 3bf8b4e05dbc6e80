//! TCP over IPv6: between two stacks, over link-local addresses, beside IPv4 on one listener.

use crate::tests::pair::*;
use crate::tests::peer6::*;
use crate::*;
use ::tcp::{ConnectionError, Instant, State};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use wire::icmpv6::{Message, parameter_problem, unreachable};
use wire::ipv6::{Header, Protocol};
use wire::tcp::Flags;

const NOW: Instant = Instant::from_us(1_000_000_000);

/// Two hosts with 2001:db8::1 and ::2 beside their IPv4 addresses.
fn with_pair(test: impl FnOnce(&mut Pair<'_>)) {
    let mut memory = memory(64, 64);
    let mut pair = Pair::new(&mut memory, 7);
    for (n, node) in (1..).zip(&mut pair.nodes) {
        own(node, pair.now, ip6(n));
    }
    pair.run(ms(3_000));
    test(&mut pair);
}

fn link_local(node: &Node<'_>) -> Ipv6Addr {
    let (_, _, addresses) = node.stack.interfaces().next().unwrap();
    let mut found = addresses.filter_map(|own| match own.address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Some(v6),
        _ => None,
    });
    found.next().unwrap()
}

fn scoped(address: Ipv6Addr, port: u16, scope_id: u32) -> SocketAddr {
    SocketAddrV6::new(address, port, 0, scope_id).into()
}

fn listen_on(node: &mut Node<'_>, local: SocketAddr, v6_only: bool) -> Result<ListenerId, Error> {
    node.stack.listen(&Listen {
        owner: u64::from(local.port()),
        local,
        v6_only,
        backlog: 8,
        reuse_address: true,
        reuse_port: None,
    })
}

#[test]
fn bytes_arrive_over_ipv6_whatever_the_cable_does() {
    with_pair(|pair| {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 80));
        let listener = listen_on(&mut pair.nodes[1], any, false).unwrap();
        pair.trouble = Trouble {
            lose: 20,
            double: 20,
            delay: 100,
        };
        let client = pair.nodes[0].connect(pair.now, ip6(2), 80);
        pair.run(ms(10_000));
        let server = pair.nodes[1].accept(listener).unwrap();
        let data = pattern(3, 300_000);
        for _ in 0..400 {
            let is_all = pair.nodes[0].write(pair.now, client, &data);
            pair.run(ms(200));
            pair.nodes[1].read(pair.now, server);
            if is_all && pair.nodes[1].received(server).len() == data.len() {
                break;
            }
        }
        assert_eq!(pair.nodes[1].received(server), data);
        let (local, remote) = pair.nodes[0]
            .stack
            .addresses(pair.nodes[0].id(client))
            .unwrap();
        assert_eq!(local.ip(), IpAddr::V6(ip6(1)));
        assert_eq!(remote, SocketAddr::from((ip6(2), 80)));
    });
}

#[test]
fn every_packet_of_a_connection_has_its_flow_label_and_other_connections_another() {
    with_node6(|node| {
        let mut labels = Vec::new();
        for port in [80, 81] {
            let owner = node.connect(NOW, PEER6, port);
            let mut seen = Vec::new();
            for seconds in 0..4 {
                let now = NOW + ms(seconds * 1_000);
                node.timers(now);
                seen.extend(
                    segments6(&node.transmit(now))
                        .iter()
                        .map(|(ip, ..)| ip.flow_label),
                );
            }
            assert!(
                seen.len() > 1 && seen.iter().all(|label| *label == seen[0]),
                "{seen:?}"
            );
            labels.push(seen[0]);
            node.abort(NOW, owner);
        }
        assert!(labels[0] != labels[1] && !labels.contains(&0));
    });
}

#[test]
fn a_link_local_peer_needs_its_scope_and_shows_it() {
    with_pair(|pair| {
        let there = link_local(&pair.nodes[1]);
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 80));
        let listener = listen_on(&mut pair.nodes[1], any, false).unwrap();
        let refused = pair.nodes[0].connect_from(pair.now, None, scoped(there, 80, 0));
        assert_eq!(refused, Err(Error::InvalidArgument));
        let client = pair.nodes[0]
            .connect_from(pair.now, None, scoped(there, 80, 5))
            .unwrap();
        pair.run(ms(2_000));
        assert_eq!(pair.nodes[0].view(client).state, State::Established);
        let id = pair.nodes[0].id(client);
        let (local, remote) = pair.nodes[0].stack.addresses(id).unwrap();
        assert_eq!(remote, scoped(there, 80, 5));
        assert_eq!(local.ip(), IpAddr::V6(link_local(&pair.nodes[0])));
        let server = pair.nodes[1].stack.accept(listener).unwrap().unwrap();
        assert_eq!(
            server.remote,
            scoped(link_local(&pair.nodes[0]), local.port(), 5)
        );
    });
}

#[test]
fn own_addresses_are_reached_over_the_loopback() {
    with_pair(|pair| {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 80));
        let node = &mut pair.nodes[0];
        listen_on(node, any, false).unwrap();
        let own_link_local = link_local(node);
        let global = node.connect(pair.now, ip6(1), 80);
        let local = node
            .connect_from(pair.now, None, scoped(own_link_local, 80, 5))
            .unwrap();
        pair.run(ms(100));
        for owner in [global, local] {
            assert_eq!(pair.nodes[0].view(owner).state, State::Established);
        }
    });
}

#[test]
fn one_listener_serves_both_families_unless_it_is_v6_only() {
    for v6_only in [false, true] {
        with_pair(|pair| {
            let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 80));
            let listener = listen_on(&mut pair.nodes[1], any, v6_only).unwrap();
            let over_v6 = pair.nodes[0].connect(pair.now, ip6(2), 80);
            let over_v4 = pair.nodes[0].connect(pair.now, ip(2), 80);
            pair.run(ms(2_000));
            assert_eq!(pair.nodes[0].view(over_v6).state, State::Established);
            let expected = if v6_only {
                (State::Closed, Some(ConnectionError::Refused))
            } else {
                (State::Established, None)
            };
            let view = pair.nodes[0].view(over_v4);
            assert_eq!((view.state, view.error), expected);
            let node = &mut pair.nodes[1];
            let peers: Vec<bool> = std::iter::from_fn(|| node.stack.accept(listener).unwrap())
                .map(|accepted| accepted.remote.is_ipv4())
                .collect();
            assert_eq!(peers.iter().any(|is_v4| *is_v4), !v6_only);
        });
    }
}

#[test]
fn listeners_of_two_families_share_a_port_only_if_one_is_v6_only() {
    let any4 = SocketAddr::from(([0, 0, 0, 0], 80));
    let any6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 80));
    with_pair(|pair| {
        let node = &mut pair.nodes[0];
        listen_on(node, any4, false).unwrap();
        assert_eq!(listen_on(node, any6, false), Err(Error::AddressInUse));
        let only = listen_on(node, any6, true).unwrap();
        let find = |node: &Node<'_>, local: IpAddr| {
            let tuple = FourTuple::new(local, 80, local, 9);
            node.stack.tcp.listeners.listening.find(&tuple)
        };
        assert_eq!(find(node, ip6(1).into()), Some(only.index));
        assert_ne!(find(node, ip(1).into()), Some(only.index));
        let specific = SocketAddr::from((ip6(1), 80));
        assert_eq!(listen_on(node, specific, false), Err(Error::AddressInUse));
        let elsewhere = SocketAddr::from((ip6(9), 80));
        assert_eq!(
            listen_on(node, elsewhere, false),
            Err(Error::AddressNotAvailable)
        );
    });
}

#[test]
fn a_segment_for_nobody_is_reset_and_a_datagram_gets_port_unreachable() {
    with_node6(|node| {
        let syn = crate::tests::peer::header(5_000, 81, 7, 0, Flags::SYN);
        node.deliver(NOW, &segment6(PEER6, ME6, &syn, &[]));
        let sent = segments6(&node.transmit(NOW));
        assert_eq!(sent[0].1.flags, Flags::RST | Flags::ACK);
        assert_eq!((sent[0].0.source, sent[0].0.destination), (ME6, PEER6));
        let mut datagram = vec![0; 8];
        let ports = wire::udp::Header {
            source_port: 5,
            destination_port: 6,
        };
        ports.emit(1_400, &mut datagram);
        datagram.resize(1_408, 7);
        checksummed(PEER6, ME6, Protocol::UDP, 6, &mut datagram);
        let frame = frame6(&header6(PEER6, ME6, Protocol::UDP), &datagram);
        node.deliver(NOW, &frame);
        let answers = icmp6(&node.transmit(NOW));
        let Message::DestinationUnreachable { code, quoted } = message(&answers[0]) else {
            panic!()
        };
        assert_eq!((code, quoted.len()), (unreachable::PORT, 1_280 - 48));
        assert_eq!(quoted, &frame.bytes[14..14 + quoted.len()]);
    });
}

#[test]
fn an_unknown_header_is_reported_where_it_is_named() {
    with_node6(|node| {
        let unknown = header6(PEER6, ME6, Protocol(99));
        node.deliver(NOW, &frame6(&unknown, &[0; 8]));
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&[99, 0, 1, 4, 0, 0, 0, 0]);
        let behind_options = header6(PEER6, ME6, Protocol::DESTINATION_OPTIONS);
        node.deliver(NOW, &frame6(&behind_options, &bytes));
        let pointers: Vec<_> = icmp6(&node.transmit(NOW))
            .iter()
            .map(|answer| match message(answer) {
                Message::ParameterProblem { code, pointer, .. } => (code, pointer),
                other => panic!("{other:?}"),
            })
            .collect();
        let code = parameter_problem::NEXT_HEADER;
        assert_eq!(pointers, [(code, 6), (code, 40)]);
    });
}

#[test]
fn groups_and_errors_are_not_answered_with_errors() {
    with_node6(|node| {
        let all_nodes = "ff02::1".parse().unwrap();
        node.deliver(
            NOW,
            &frame6(&header6(PEER6, all_nodes, Protocol(99)), &[0; 8]),
        );
        let error = Message::Other {
            kind: 100,
            code: 0,
            body: &[0; 4],
        };
        node.deliver(NOW, &icmp_frame(PEER6, ME6, 64, &error));
        for source in ["::", "ff02::5", "::1", "::ffff:10.0.0.9", "2001:db8::1"] {
            let header = Header {
                source: source.parse().unwrap(),
                ..header6(PEER6, ME6, Protocol(99))
            };
            node.deliver(NOW, &frame6(&header, &[0; 8]));
        }
        assert!(node.transmit(NOW).is_empty());
        assert_eq!(node.stack.counters().ip6_in_addr_errors, 5);
        // RFC 8200 §4.2: an option may demand an answer even so.
        let option = [59, 0, 0x9e, 4, 0, 0, 0, 0];
        let header = header6(PEER6, all_nodes, Protocol::DESTINATION_OPTIONS);
        node.deliver(NOW, &frame6(&header, &option));
        let answers = icmp6(&node.transmit(NOW));
        assert!(matches!(
            message(&answers[0]),
            Message::ParameterProblem { pointer: 42, .. }
        ));
    });
}

#[test]
fn echo_is_answered_also_to_a_group() {
    with_node6(|node| {
        for destination in [ME6, "ff02::1".parse().unwrap()] {
            let request = Message::EchoRequest {
                identifier: 1,
                sequence: 2,
                data: b"data",
            };
            node.deliver(NOW, &icmp_frame(PEER6, destination, 64, &request));
            let answers = icmp6(&node.transmit(NOW));
            let (ip, _) = &answers[0];
            assert_eq!((ip.source, ip.destination), (ME6, PEER6));
            let expected = Message::EchoReply {
                identifier: 1,
                sequence: 2,
                data: b"data",
            };
            assert_eq!(message(&answers[0]), expected);
        }
    });
}

/// What becomes of a connection attempt when a message about its SYN comes.
fn after_error(message: impl Fn(&[u8]) -> Vec<u8>) -> Option<ConnectionError> {
    with_node6(|node| {
        let owner = node
            .connect_from(NOW, Some(4_000), SocketAddr::from((PEER6, 80)))
            .unwrap();
        let syn = node.transmit(NOW).remove(0);
        let mut body = message(&syn.bytes[14..]);
        checksummed(PEER6, ME6, Protocol::ICMPV6, 2, &mut body);
        node.deliver(NOW, &frame6(&header6(PEER6, ME6, Protocol::ICMPV6), &body));
        node.view(owner).error
    })
}

#[test]
fn a_connection_attempt_ends_on_a_quoted_error_and_says_which() {
    use ConnectionError as E;
    let error = |kind: u8, code: u8| {
        after_error(|quoted| [&[kind, code, 0, 0, 0, 0, 0, 0], quoted].concat())
    };
    // As Linux `icmpv6_err_convert`.
    let unreachable = [
        E::NetworkUnreachable,
        E::Prohibited,
        E::HostUnreachable,
        E::HostUnreachable,
        E::Refused,
        E::Prohibited,
        E::Prohibited,
    ];
    for (code, expected) in (0..).zip(unreachable) {
        assert_eq!(error(1, code), Some(expected), "code {code}");
    }
    assert_eq!(error(3, 0), Some(E::HostUnreachable), "time exceeded");
    assert_eq!(error(4, 1), Some(E::Protocol), "parameter problem");
    assert_eq!(error(100, 0), None);
    let forged = after_error(|quoted| {
        let mut body = [&[1, 4, 0, 0, 0, 0, 0, 0], quoted].concat();
        body[8 + 40 + 4] ^= 0x40;
        body
    });
    assert_eq!(forged, None, "it quotes what was never sent");
}

#[test]
fn packet_too_big_lowers_the_size_but_not_below_1280() {
    with_node6(|node| {
        let owner = node
            .connect_from(NOW, Some(4_000), SocketAddr::from((PEER6, 80)))
            .unwrap();
        let syn = segments6(&node.transmit(NOW)).remove(0).1;
        let mut syn_ack = crate::tests::peer::header(
            80,
            4_000,
            900,
            syn.seq.wrapping_add(1),
            Flags::SYN | Flags::ACK,
        );
        syn_ack.options.mss = Some(1_440);
        node.deliver(NOW, &segment6(PEER6, ME6, &syn_ack, &[]));
        node.transmit(NOW);
        node.write(NOW, owner, &pattern(1, 10_000));
        let large = node.transmit(NOW).remove(0);
        assert_eq!(large.bytes.len(), 14 + 1_500);
        let too_big = |mtu| Message::PacketTooBig {
            mtu,
            quoted: &large.bytes[14..14 + 60],
        };
        let largest = |node: &mut Node<'_>, now| {
            node.timers(now);
            let sent = node.transmit(now);
            sent.iter()
                .map(|frame| frame.bytes.len() - 14)
                .max()
                .unwrap()
        };
        node.deliver(NOW, &icmp_frame(PEER6, ME6, 64, &too_big(1_400)));
        assert_eq!(largest(node, NOW + ms(3_000)), 1_400);
        node.deliver(NOW + ms(3_000), &icmp_frame(PEER6, ME6, 64, &too_big(600)));
        let (now, id) = (NOW + ms(3_000), node.id(owner));
        assert_eq!(
            node.stack.path_mtu_of(now, id),
            Some(1_400),
            "RFC 8201 §4: discarded"
        );
        node.deliver(now, &icmp_frame(PEER6, ME6, 64, &too_big(1_280)));
        assert_eq!(largest(node, NOW + ms(20_000)), 1_280);
        let mut forged = large.bytes[14..14 + 60].to_vec();
        forged[44] ^= 0x40;
        let before = node.stack.counters().icmp_in_unmatched;
        let lie = Message::PacketTooBig {
            mtu: 1_300,
            quoted: &forged,
        };
        node.deliver(NOW, &icmp_frame(PEER6, ME6, 64, &lie));
        assert_eq!(node.stack.counters().icmp_in_unmatched, before + 1);
    });
}
