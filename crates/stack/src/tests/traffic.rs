//! Data between two hosts: many connections, loss, closing, loopback, busy interfaces.

use super::pair::*;
use crate::*;
use ::tcp::{ConnectionError, Events, State};
use std::net::SocketAddrV4;

/// Sends `len` bytes over each of `count` connections in both directions and closes them.
fn exchange(pair: &mut Pair<'_>, count: u64, len: usize, port: u16) {
    let listener = pair.nodes[1].listen(port, u32::try_from(count).unwrap());
    let clients: Vec<u64> = (0..count)
        .map(|_| pair.nodes[0].connect(pair.now, ip(2), port))
        .collect();
    let mut servers = Vec::new();
    let outgoing: Vec<_> = (0..count).map(|n| pattern(n, len)).collect();
    let answer = pattern(99, len);
    for _ in 0..4_000 {
        servers.extend(std::iter::from_fn(|| pair.nodes[1].accept(listener)));
        let mut done = servers.len() == clients.len();
        for (client, data) in clients.iter().zip(&outgoing) {
            done &= pair.nodes[0].write(pair.now, *client, data);
            pair.nodes[0].read(pair.now, *client);
            done &= pair.nodes[0].received(*client).len() == len
                && pair.nodes[0].view(*client).readable_end == len as u64;
        }
        for server in &servers {
            done &= pair.nodes[1].write(pair.now, *server, &answer);
            pair.nodes[1].read(pair.now, *server);
            done &= pair.nodes[1].view(*server).readable_end == len as u64;
        }
        if done {
            break;
        }
        pair.run(ms(20));
    }
    let mut received: Vec<_> = servers
        .iter()
        .map(|server| pair.nodes[1].received(*server))
        .collect();
    let mut expected = outgoing;
    received.sort();
    expected.sort();
    assert!(received == expected, "what arrived is what was sent");
    for client in &clients {
        assert!(
            pair.nodes[0].received(*client) == answer,
            "{:?}",
            pair.nodes[0].stack.connections().collect::<Vec<_>>()
        );
        pair.nodes[0].close(pair.now, *client);
    }
    pair.run(ms(2_000));
    for server in &servers {
        assert!(pair.nodes[1].view(*server).fin);
        assert!(
            !pair.nodes[1].is_released(*server),
            "a program still holds it"
        );
        pair.nodes[1].close(pair.now, *server);
    }
    pair.run(ms(200_000));
    for (node, owners) in pair.nodes.iter().zip([&clients, &servers]) {
        assert!(owners.iter().all(|owner| node.is_released(*owner)));
        assert_eq!(node.stack.connections().count(), 0);
        assert_eq!(node.stack.time_waits().count(), 0);
        assert_eq!(node.stack.orphans(), 0);
    }
}

#[test]
fn many_connections_exchange_data_and_leave_nothing_behind() {
    let mut memory = memory(64, 64);
    let mut pair = Pair::new(&mut memory, 1);
    exchange(&mut pair, 40, 30_000, 80);
    let [client, server] = pair.nodes.each_ref().map(|node| *node.stack.counters());
    assert_eq!(
        (client.tcp_active_opens, server.tcp_passive_opens),
        (40, 40)
    );
    assert_eq!(client.time_waits, 40, "who closes first waits");
    assert_eq!(client.tcp_in_errs + server.tcp_in_errs, 0);
}

#[test]
fn loss_doubling_and_reordering_change_nothing_but_the_time() {
    for seed in 0..4 {
        let mut memory = memory(64, 64);
        let mut pair = Pair::new(&mut memory, seed);
        pair.trouble = Trouble {
            lose: 30,
            double: 20,
            delay: 100,
        };
        exchange(&mut pair, 12, 40_000, 80);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let mut memory = memory(64, 64);
        let mut pair = Pair::new(&mut memory, 5);
        pair.trouble = Trouble {
            lose: 30,
            double: 20,
            delay: 100,
        };
        exchange(&mut pair, 5, 20_000, 80);
        (
            pair.delivered,
            pair.nodes.map(|node| *node.stack.counters()),
        )
    };
    assert_eq!(run(), run());
}

#[test]
fn large_segments_go_to_a_device_that_cuts_them() {
    let mut memory = memory(8, 8);
    let mut pair = Pair::new(&mut memory, 1);
    for node in &mut pair.nodes {
        node.egress.max_segment_bytes = 65_535;
    }
    exchange(&mut pair, 1, 3_000_000, 80);
    let counters = pair.nodes[0].stack.counters();
    assert!(
        counters.tcp_out_segs > counters.ip_out_requests + 500,
        "{counters:?}"
    );
}

#[test]
fn a_device_may_take_segments_longer_than_an_ipv4_header_can_say() {
    let mut memory = memory(8, 8);
    let mut pair = Pair::new(&mut memory, 1);
    for node in &mut pair.nodes {
        node.egress.max_segment_bytes = 196_000;
    }
    exchange(&mut pair, 1, 3_000_000, 80);
    assert!(
        (130_000..196_020).contains(&pair.longest),
        "{}",
        pair.longest
    );
}

#[test]
fn a_host_talks_to_itself_over_the_loopback() {
    let mut memory = memory(8, 8);
    let mut pair = Pair::new(&mut memory, 1);
    let listener = pair.nodes[0].listen(80, 5);
    let client = pair.nodes[0].connect(pair.now, ip(1), 80);
    pair.run(ms(10));
    let server = pair.nodes[0].accept(listener).unwrap();
    pair.nodes[0].write(pair.now, client, b"hello");
    pair.run(ms(100));
    assert_eq!(pair.nodes[0].received(server), b"hello");
    let (local, remote) = pair.nodes[0]
        .stack
        .addresses(pair.nodes[0].id(client))
        .unwrap();
    let expected = (ip(1).into(), SocketAddrV4::new(ip(1), 80).into());
    assert_eq!((local.ip(), remote), expected);
}

#[test]
fn both_ends_may_open_at_once() {
    let mut memory = memory(8, 8);
    let mut pair = Pair::new(&mut memory, 1);
    let a = pair.nodes[0]
        .connect_from(pair.now, Some(7_000), SocketAddrV4::new(ip(2), 8_000))
        .unwrap();
    let b = pair.nodes[1]
        .connect_from(pair.now, Some(8_000), SocketAddrV4::new(ip(1), 7_000))
        .unwrap();
    pair.run(ms(3_000));
    assert_eq!(pair.nodes[0].view(a).state, State::Established);
    assert_eq!(pair.nodes[1].view(b).state, State::Established);
    pair.nodes[0].write(pair.now, a, b"ping");
    pair.run(ms(100));
    assert_eq!(pair.nodes[1].received(b), b"ping");
}

#[test]
fn a_half_closed_connection_still_carries_data_the_other_way() {
    let mut memory = memory(8, 8);
    let mut pair = Pair::new(&mut memory, 1);
    let (client, server) = pair.connected();
    pair.nodes[0].shutdown(pair.now, client);
    pair.run(ms(20));
    assert!(pair.nodes[1].view(server).fin);
    pair.nodes[1].write(pair.now, server, b"late answer");
    pair.run(ms(100));
    pair.nodes[1].close(pair.now, server);
    pair.run(ms(100));
    // The stream is over in both directions, yet the program has not read: its windows must stay.
    assert_eq!(pair.nodes[0].view(client).state, State::TimeWait);
    assert_eq!(pair.nodes[0].received(client), b"late answer");
    assert!(!pair.nodes[0].is_released(client));
    assert_eq!(pair.nodes[0].stack.time_waits().count(), 1);
    pair.nodes[0].close(pair.now, client);
    pair.run(ms(1));
    assert!(pair.nodes[0].is_released(client));
}

#[test]
fn what_was_written_before_a_close_with_a_reset_and_a_fin_go_ahead_of_it() {
    let cases = [(false, false), (true, false), (false, true), (true, true)];
    let texts = [&b""[..], b"last words"];
    for ((leaves_unread, shuts), text) in cases
        .into_iter()
        .flat_map(|case| texts.map(|text| (case, text)))
    {
        let mut memory = memory(8, 8);
        let mut pair = Pair::new(&mut memory, 1);
        let (client, server) = pair.connected();
        if leaves_unread {
            // RFC 2525 §2.17: unread data turns the close into a reset.
            pair.nodes[1].write(pair.now, server, b"unread");
            pair.run(ms(20));
        }
        pair.nodes[0].write(pair.now, client, text);
        if shuts {
            pair.nodes[0].shutdown(pair.now, client);
        }
        if leaves_unread {
            pair.nodes[0].close(pair.now, client);
        } else {
            pair.nodes[0].close_with_reset(pair.now, client);
        }
        pair.run(ms(20));
        assert!(pair.nodes[0].is_released(client));
        assert_eq!(pair.nodes[1].received(server), text);
        assert_eq!(pair.nodes[1].events(server).contains(Events::FIN), shuts);
        // A reset behind the end of the stream is another error (Linux `tcp_reset`).
        let expected = match shuts {
            true => ConnectionError::BrokenPipe,
            false => ConnectionError::Reset,
        };
        assert_eq!(pair.nodes[1].view(server).error, Some(expected));
    }
}

#[test]
fn what_is_aborted_once_its_program_knows_it_is_established_can_be_accepted() {
    // The abort comes before the ACK of the handshake has left, as a thread may ask for it while another runs the stack.
    for lingers in [false, true] {
        let mut memory = memory(8, 8);
        let mut pair = Pair::new(&mut memory, 1);
        let listener = pair.nodes[1].listen(80, 5);
        let (now, client) = (pair.now, pair.nodes[0].connect(pair.now, ip(2), 80));
        while !pair.nodes[0].events(client).contains(Events::ESTABLISHED) {
            for (from, to) in [(0, 1), (1, 0)] {
                for frame in pair.nodes[from].transmit(now) {
                    pair.nodes[to].deliver(now, &frame);
                }
            }
        }
        if lingers {
            pair.nodes[0].close_with_reset(now, client);
        } else {
            pair.nodes[0].abort(now, client);
        }
        pair.run(ms(20));
        let server = pair.nodes[1].accept(listener).unwrap();
        let error = pair.nodes[1].view(server).error;
        assert_eq!(error, Some(ConnectionError::Reset));
    }
}

#[test]
fn a_reset_is_kept_for_the_program_until_it_closes() {
    let mut memory = memory(8, 8);
    let mut pair = Pair::new(&mut memory, 1);
    let (client, server) = pair.connected();
    pair.nodes[0].abort(pair.now, client);
    pair.run(ms(20));
    assert!(
        pair.nodes[0].is_released(client),
        "after its reset has left"
    );
    assert_eq!(
        pair.nodes[1].view(server).error,
        Some(ConnectionError::Reset)
    );
    assert!(
        pair.nodes[1]
            .events(server)
            .contains(Events::ERROR | Events::CLOSED)
    );
    assert!(!pair.nodes[1].is_released(server));
    let id = pair.nodes[1].id(server);
    pair.nodes[1].close(pair.now, server);
    pair.run(ms(20));
    assert!(pair.nodes[1].is_released(server));
    assert_eq!(
        pair.nodes[1].stack.view(id),
        Err(Error::NotFound),
        "the name is stale"
    );
    assert_eq!(
        pair.nodes[1]
            .stack
            .close(pair.now, id, &mut pair.nodes[1].host),
        Err(Error::NotFound)
    );
}

#[test]
fn a_busy_interface_loses_and_reorders_nothing() {
    let mut memory = memory(8, 8);
    let mut pair = Pair::new(&mut memory, 1);
    let (client, server) = pair.connected();
    let data = pattern(3, 200_000);
    let mut written = false;
    for _ in 0..3_000 {
        pair.nodes[0].egress.room = 1;
        written |= pair.nodes[0].write(pair.now, client, &data);
        pair.nodes[1].read(pair.now, server);
        pair.run(ms(1));
    }
    assert!(written && pair.nodes[1].received(server) == data);
    assert_eq!(
        pair.nodes[0]
            .stack
            .info(pair.nodes[0].id(client))
            .unwrap()
            .retransmissions,
        0
    );
}

#[test]
fn a_small_answer_is_not_held_up_by_a_bulk_transfer() {
    let mut memory = memory(8, 8);
    let mut pair = Pair::new(&mut memory, 1);
    let listener = pair.nodes[1].listen(80, 5);
    let bulk = pair.nodes[0].connect(pair.now, ip(2), 80);
    let small = pair.nodes[0].connect(pair.now, ip(2), 80);
    pair.run(ms(20));
    let servers = [(); 2].map(|()| pair.nodes[1].accept(listener).unwrap());
    // Grow the congestion window first, so that the bulk transfer could fill the interface.
    let data = pattern(1, 500_000);
    while !pair.nodes[0].write(pair.now, bulk, &data) {
        pair.run(ms(2));
        servers
            .iter()
            .for_each(|server| pair.nodes[1].read(pair.now, *server));
    }
    pair.run(ms(500));
    servers
        .iter()
        .for_each(|server| pair.nodes[1].read(pair.now, *server));
    pair.run(ms(500));
    let more = [data, pattern(2, 60_000)].concat();
    pair.nodes[0].write(pair.now, bulk, &more);
    pair.nodes[0].write(pair.now, small, b"answer");
    let frames = pair.nodes[0].transmit(pair.now);
    let small_port = pair.nodes[0]
        .stack
        .addresses(pair.nodes[0].id(small))
        .unwrap()
        .0
        .port();
    let place = super::peer::segments(&frames)
        .iter()
        .position(|(_, header, _)| header.source_port == small_port);
    assert!(
        frames.len() > 8 && place.unwrap() <= 4,
        "{place:?} of {}",
        frames.len()
    );
}

#[test]
fn too_many_orphans_are_reset() {
    let mut memory = memory(16, 16);
    let mut pair = Pair::new(&mut memory, 1);
    pair.nodes[0].stack.ip.link.config.orphans_max = 3;
    let listener = pair.nodes[1].listen(80, 16);
    let clients: Vec<u64> = (0..6)
        .map(|_| pair.nodes[0].connect(pair.now, ip(2), 80))
        .collect();
    pair.run(ms(20));
    let servers: Vec<u64> = std::iter::from_fn(|| pair.nodes[1].accept(listener)).collect();
    for client in &clients {
        pair.nodes[0].close(pair.now, *client);
    }
    pair.run(ms(100));
    assert_eq!(pair.nodes[0].stack.counters().orphans_aborted, 3);
    assert_eq!(
        pair.nodes[0].stack.orphans(),
        3,
        "in FIN-WAIT-2: the other side does not close"
    );
    let reset = servers
        .iter()
        .filter(|server| pair.nodes[1].view(**server).error == Some(ConnectionError::Reset));
    assert_eq!(reset.count(), 3);
    pair.run(ms(61_000));
    assert_eq!(pair.nodes[0].stack.orphans(), 0, "FIN-WAIT-2 does not last");
}

#[test]
fn rows_count_what_they_hold() {
    let mut memory = memory(8, 8);
    let mut pair = Pair::new(&mut memory, 1);
    let listener = pair.nodes[1].listen(80, 5);
    let client = pair.nodes[0].connect(pair.now, ip(2), 80);
    pair.run(ms(20));
    let row = pair.nodes[1].stack.connections().next().unwrap();
    assert_eq!((row.listener, row.is_owned), (Some(listener), false));
    pair.nodes[1].accept(listener).unwrap();
    let row = pair.nodes[1].stack.connections().next().unwrap();
    assert_eq!((row.listener, row.is_owned), (None, true));
    assert_eq!(row.remote.ip(), ip(1));
    let row = pair.nodes[1].stack.listeners().next().unwrap();
    assert_eq!((row.ready, row.half_open, row.backlog), (0, 0, 5));
    let counters = pair.nodes[0].stack.counters();
    let named = counters.iter().find(|(name, _)| *name == "TcpActiveOpens");
    assert_eq!(named, Some(("TcpActiveOpens", 1)));
    let id = pair.nodes[0].id(client);
    let now = pair.now;
    assert_eq!(
        pair.nodes[0]
            .stack
            .written(now, id, u64::from(CAPACITY) + 1),
        Err(Error::InvalidArgument),
        "beyond the window"
    );
    assert_eq!(
        pair.nodes[0].stack.consumed(now, id, 1),
        Err(Error::InvalidArgument),
        "never received"
    );
}

#[test]
fn ttl_and_service_are_the_programs_choice_but_not_the_congestion_bits() {
    let mut memory = memory(8, 8);
    let mut pair = Pair::new(&mut memory, 1);
    pair.nodes[1].listen(80, 5);
    let client = pair.nodes[0].connect(pair.now, ip(2), 80);
    pair.run(ms(20));
    let id = pair.nodes[0].id(client);
    let options = IpOptions { ttl: 9, tos: 0xff };
    pair.nodes[0].stack.set_ip_options(id, options).unwrap();
    pair.nodes[0].write(pair.now, client, b"x");
    let frames = pair.nodes[0].transmit(pair.now);
    let (header, ..) = super::peer::segments(&frames).remove(0);
    assert_eq!((header.ttl, header.dscp_ecn), (9, 0xfc));
    assert!(header.dont_fragment);
}

#[test]
fn new_routes_are_followed_by_old_connections() {
    let mut memory = memory(8, 8);
    let mut pair = Pair::new(&mut memory, 1);
    pair.nodes[1].listen(80, 5);
    let client = pair.nodes[0].connect(pair.now, ip(2), 80);
    pair.run(ms(20));
    let host_route = Route {
        destination: ip(2).into(),
        prefix_len: 32,
        gateway: Some(ip(77).into()),
        interface: NIC,
        metric: 0,
        source: None,
    };
    pair.nodes[0].stack.add_route(host_route).unwrap();
    let now = pair.now;
    pair.nodes[0]
        .stack
        .set_neighbour(now, NIC, ip(77).into(), Some(hardware(77)))
        .unwrap();
    pair.nodes[0].write(now, client, b"x");
    let frames = pair.nodes[0].transmit(now);
    assert_eq!(frames[0].bytes[..6], hardware(77).0);
    pair.nodes[0].stack.remove_route(&host_route).unwrap();
    let connected = *pair.nodes[0].stack.routes().next().unwrap();
    pair.nodes[0].stack.remove_route(&connected).unwrap();
    let default = *pair.nodes[0].stack.routes().next().unwrap();
    pair.nodes[0].stack.remove_route(&default).unwrap();
    pair.nodes[0].write(now, client, b"xy");
    pair.run(ms(1_000));
    assert!(
        pair.nodes[0].stack.counters().ip_out_no_routes > 0,
        "a loss like any other"
    );
    assert_eq!(pair.nodes[0].view(client).state, State::Established);
}
