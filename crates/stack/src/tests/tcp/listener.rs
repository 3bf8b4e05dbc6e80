//! Listeners: queues, their limits, and what becomes of those who wait in them.

use crate::tests::pair::*;
use crate::tests::peer::*;
use crate::*;
use ::tcp::{ConnectionError, Instant, State};
use std::net::{Ipv4Addr, SocketAddrV4};
use wire::tcp::Flags;

const NOW: Instant = Instant::from_us(1_000_000_000);

fn stranger(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(192, 0, 2, 1).to_bits() + n)
}

/// A stack that knows its router, so that strangers can be answered.
fn node(memory: &mut HeapTables) -> Node<'_> {
    let mut node = Node::new(memory.tables(), ME, NOW);
    node.knows(NOW, 254);
    node.transmit(NOW);
    node
}

/// A listener with this backlog whose accept queue is full.
fn full_listener(node: &mut Node<'_>, backlog: u32) -> ListenerId {
    let listener = node.listen(80, backlog);
    for n in 0..=backlog {
        node.handshake(NOW, stranger(n), 5_000, 80).unwrap();
    }
    assert_eq!(node.ready(80), backlog + 1);
    listener
}

/// Accepts a connection, and says how many that have waited are answered.
fn accept_and_count(node: &mut Node<'_>, at: Instant, listener: ListenerId) -> usize {
    node.accept(listener).unwrap();
    node.take_deferred(at, listener);
    let replies = segments(&node.transmit(at));
    let is_syn_ack = |one: &Flags| one.contains(Flags::SYN | Flags::ACK);
    assert!(replies.iter().all(|one| is_syn_ack(&one.1.flags)));
    replies.len()
}

#[test]
fn the_accept_queue_holds_backlog_plus_one_and_then_syns_wait() {
    let mut memory = HeapTables::new(64, 4, 4).unwrap();
    let mut node = node(&mut memory);
    let listener = full_listener(&mut node, 2);
    assert_eq!(
        node.handshake(NOW, stranger(3), 5_000, 80),
        None,
        "no SYN-ACK"
    );
    let counters = node.stack.counters();
    assert_eq!((counters.listen_overflows, counters.listen_drops), (1, 0));
    let first = node.accept(listener).unwrap();
    let (_, remote) = node.stack.addresses(node.id(first)).unwrap();
    assert_eq!(remote.ip(), stranger(0), "first come, first served");
    node.take_deferred(NOW, listener);
    let replies = segments(&node.transmit(NOW));
    assert_eq!(replies.len(), 1, "the SYN that has waited is answered");
    assert!(replies[0].1.flags.contains(Flags::SYN | Flags::ACK));
}

/// So many ports of a stranger ask, and are not answered.
fn ask_a_full_listener(node: &mut Node<'_>, at: Instant, count: u16) {
    for port in 1..=count {
        let syn = header(port, 80, 100, 0, Flags::SYN);
        node.deliver(at, &segment(stranger(9), ip(ME), &syn, &[]));
    }
    assert!(segments(&node.transmit(at)).is_empty());
}

#[test]
fn each_connection_that_is_accepted_lets_one_syn_in_and_the_last_one_all() {
    let mut memory = HeapTables::new(64, 4, 4).unwrap();
    let mut node = node(&mut memory);
    let listener = full_listener(&mut node, 2);
    ask_a_full_listener(&mut node, NOW, 5);
    // Those that come again wait once.
    ask_a_full_listener(&mut node, NOW + ms(1), 5);
    for answered in [1, 1, 3] {
        assert_eq!(accept_and_count(&mut node, NOW + ms(2), listener), answered);
    }
    let counters = node.stack.counters();
    assert_eq!((counters.listen_overflows, counters.listen_drops), (10, 0));
    assert_eq!(counters.tcp_in_segs, 6 + 10);
}

#[test]
fn none_waits_longer_than_its_peer_hopes() {
    let mut memory = HeapTables::new(64, 4, 4).unwrap();
    let mut node = node(&mut memory);
    let listener = full_listener(&mut node, 0);
    ask_a_full_listener(&mut node, NOW, 9);
    // The first two come again.
    ask_a_full_listener(&mut node, NOW + ms(2_000), 2);
    assert_eq!(accept_and_count(&mut node, NOW + ms(4_999), listener), 2);
}

#[test]
fn so_many_syns_wait_and_later_ones_take_the_space_of_those_that_are_over() {
    let mut memory = HeapTables::new(512, 4, 4).unwrap();
    let mut node = node(&mut memory);
    let listener = full_listener(&mut node, 0);
    ask_a_full_listener(&mut node, NOW, 300);
    assert_eq!(node.stack.counters().listen_drops, 300 - 256);
    ask_a_full_listener(&mut node, NOW + ms(3_000), 7);
    assert_eq!(node.stack.counters().listen_drops, 300 - 256);
    assert_eq!(accept_and_count(&mut node, NOW + ms(3_000), listener), 7);
}

#[test]
fn programs_that_never_accept_take_the_space_of_others_for_seconds_only() {
    let mut memory = HeapTables::new(64, 8, 4).unwrap();
    let mut node = node(&mut memory);
    for port in 80..85 {
        node.listen(port, 0);
        node.handshake(NOW, stranger(0), 5_000, port).unwrap();
    }
    let ask = |node: &mut Node<'_>, at, port, count| {
        for source in 1..=count {
            let syn = header(source, port, 100, 0, Flags::SYN);
            node.deliver(at, &segment(stranger(9), ip(ME), &syn, &[]));
        }
    };
    for port in 80..84 {
        ask(&mut node, NOW, port, 256);
    }
    ask(&mut node, NOW, 84, 1);
    assert_eq!(node.stack.counters().listen_drops, 1);
    ask(&mut node, NOW + ms(3_000), 84, 9);
    assert_eq!(node.stack.counters().listen_drops, 1);
}

#[test]
fn nothing_waits_for_a_listener_that_is_closed() {
    let mut memory = HeapTables::new(64, 4, 4).unwrap();
    let mut node = node(&mut memory);
    let listener = full_listener(&mut node, 0);
    ask_a_full_listener(&mut node, NOW, 3);
    let mut host = TestHost(node.programs.clone());
    node.stack.stop_listening(NOW, listener, &mut host).unwrap();
    node.transmit(NOW);
    let again = full_listener(&mut node, 0);
    assert_eq!(accept_and_count(&mut node, NOW, again), 0);
}

#[test]
fn the_last_ack_of_a_handshake_waits_while_the_accept_queue_is_full() {
    let mut memory = HeapTables::new(64, 4, 4).unwrap();
    let mut node = node(&mut memory);
    let listener = node.listen(80, 1);
    node.handshake(NOW, stranger(0), 9, 80).unwrap();
    let syn = |port| {
        segment(
            stranger(0),
            ip(ME),
            &header(port, 80, 100, 0, Flags::SYN),
            &[],
        )
    };
    node.deliver(NOW, &syn(1));
    node.deliver(NOW, &syn(2));
    let replies = segments(&node.transmit(NOW));
    for (_, syn_ack, _) in &replies {
        let ack = header(
            syn_ack.destination_port,
            80,
            101,
            syn_ack.seq.wrapping_add(1),
            Flags::ACK,
        );
        node.deliver(NOW, &segment(stranger(0), ip(ME), &ack, &[]));
    }
    assert_eq!(
        (
            node.ready(80),
            node.stack.accept_ready(listener).unwrap().count
        ),
        (2, 2)
    );
    let counters = node.stack.counters();
    assert_eq!((counters.listen_overflows, counters.listen_drops), (1, 0));
    node.accept(listener).unwrap();
    node.take_deferred(NOW, listener);
    assert!(segments(&node.transmit(NOW)).is_empty());
    assert!(node.accept(listener).is_some());
    assert!(
        node.accept(listener).is_some(),
        "nobody sends its ACK again"
    );
}

#[test]
fn a_host_without_windows_drops_the_syn() {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let mut node = node(&mut memory);
    node.listen(80, 16);
    node.programs.borrow_mut().windows_left = 1;
    assert!(node.handshake(NOW, stranger(1), 1, 80).is_some());
    assert_eq!(node.handshake(NOW, stranger(2), 1, 80), None);
    assert_eq!(node.stack.connections().count(), 1);
}

#[test]
fn a_full_connection_table_drops_the_syn() {
    let mut memory = HeapTables::new(2, 4, 4).unwrap();
    let mut node = node(&mut memory);
    node.listen(80, 16);
    for n in 0..2 {
        assert!(node.handshake(NOW, stranger(n), 1, 80).is_some());
    }
    assert_eq!(node.handshake(NOW, stranger(2), 1, 80), None);
    assert_eq!(
        node.connect_from(NOW, None, SocketAddrV4::new(ip(7), 80)),
        Err(Error::NoMemory)
    );
}

#[test]
fn a_connection_that_dies_in_the_queue_is_handed_out_all_the_same() {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let mut node = node(&mut memory);
    let listener = node.listen(80, 16);
    for n in 0..3 {
        node.handshake(NOW, stranger(n), 1, 80).unwrap();
    }
    node.deliver(
        NOW,
        &segment(stranger(1), ip(ME), &header(1, 80, 101, 0, Flags::RST), &[]),
    );
    assert!(!node.stack.wants_transmit(), "it owes nothing");
    assert_eq!(node.ready(80), 3);
    assert!(!node.is_released(2));
    let remotes: Vec<_> = std::iter::from_fn(|| node.accept(listener)).collect();
    assert_eq!(remotes, [1, 2, 3]);
    assert_eq!(node.view(2).error, Some(::tcp::ConnectionError::Reset));
    node.close(NOW, 2);
    assert!(node.is_released(2));
    assert_eq!(node.stack.orphans(), 0);
}

#[test]
fn a_listener_that_closes_releases_what_died_in_its_queue() {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let mut node = node(&mut memory);
    let listener = node.listen(80, 16);
    for n in 0..2 {
        node.handshake(NOW, stranger(n), 1, 80).unwrap();
    }
    let reset = header(1, 80, 101, 0, Flags::RST);
    node.deliver(NOW, &segment(stranger(0), ip(ME), &reset, &[]));
    node.transmit(NOW);
    node.deliver(NOW, &segment(stranger(1), ip(ME), &reset, &[]));
    // The second one has not been looked at by the sender's queue yet.
    node.stack
        .stop_listening(NOW, listener, &mut node.host)
        .unwrap();
    node.transmit(NOW);
    assert!(node.is_released(1) && node.is_released(2));
    assert_eq!(node.stack.connections().count(), 0);
}

#[test]
fn closing_a_listener_resets_what_nobody_accepted_and_forgets_handshakes() {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let mut node = node(&mut memory);
    let listener = node.listen(80, 16);
    let accepted_too = node.handshake(NOW, stranger(0), 1, 80).unwrap();
    let accepted = node.accept(listener).unwrap();
    node.handshake(NOW, stranger(1), 1, 80).unwrap();
    node.deliver(
        NOW,
        &segment(stranger(2), ip(ME), &header(1, 80, 100, 0, Flags::SYN), &[]),
    );
    node.transmit(NOW);
    node.stack
        .stop_listening(NOW, listener, &mut node.host)
        .unwrap();
    let resets = segments(&node.transmit(NOW));
    // The one of the handshake that was done.
    assert_eq!(resets.len(), 1);
    assert!(resets[0].1.flags.contains(Flags::RST));
    assert!(node.is_released(2) && node.is_released(3) && !node.is_released(accepted));
    assert_eq!(
        (node.stack.connections().count(), node.stack.orphans()),
        (1, 0)
    );
    assert_eq!(
        node.stack.stop_listening(NOW, listener, &mut node.host),
        Err(Error::NotFound)
    );
    assert_eq!(node.handshake_refused(3), Flags::RST | Flags::ACK);
    // The accepted connection lives on.
    node.deliver(
        NOW,
        &segment(
            stranger(0),
            ip(ME),
            &header(1, 80, 101, accepted_too, Flags::ACK),
            b"x",
        ),
    );
    assert_eq!(node.received(accepted), b"x");
}

impl Node<'_> {
    fn handshake_refused(&mut self, n: u32) -> Flags {
        self.deliver(
            NOW,
            &segment(stranger(n), ip(ME), &header(1, 80, 100, 0, Flags::SYN), &[]),
        );
        segments(&self.transmit(NOW))[0].1.flags
    }
}

#[test]
fn closed_ports_answer_with_a_reset_and_resets_with_silence() {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let mut node = Node::new(memory.tables(), ME, NOW);
    node.transmit(NOW);
    let (source, destination) = (stranger(0), ip(ME));
    node.deliver(
        NOW,
        &segment(
            source,
            destination,
            &header(1, 81, 100, 0, Flags::SYN),
            b"abc",
        ),
    );
    node.deliver(
        NOW,
        &segment(
            source,
            destination,
            &header(1, 81, 100, 555, Flags::ACK),
            &[],
        ),
    );
    node.deliver(
        NOW,
        &segment(
            source,
            destination,
            &header(1, 81, 100, 555, Flags::RST),
            &[],
        ),
    );
    let sent = segments(&node.transmit(NOW));
    assert_eq!(sent.len(), 2);
    let (ip_header, syn_answer, _) = &sent[0];
    assert_eq!(
        (ip_header.source, ip_header.destination),
        (destination, source)
    );
    assert_eq!(
        (syn_answer.flags, syn_answer.seq, syn_answer.ack),
        (Flags::RST | Flags::ACK, 0, 104)
    );
    assert_eq!(
        (syn_answer.source_port, syn_answer.destination_port),
        (81, 1)
    );
    assert_eq!((sent[1].1.flags, sent[1].1.seq), (Flags::RST, 555));
    assert_eq!(node.stack.counters().tcp_out_rsts, 2);
    assert_eq!(
        node.stack.neighbours(NOW).count(),
        0,
        "a stranger costs no entry"
    );
}

#[test]
fn listeners_conflict_where_linux_says_so() {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let mut node = node(&mut memory);
    let listen = |node: &mut Node<'_>, address, port, reuse_address| {
        node.stack.listen(&Listen {
            owner: 1,
            local: SocketAddrV4::new(address, port).into(),
            v6_only: false,
            backlog: 5,
            reuse_address,
            reuse_port: None,
        })
    };
    let any = Ipv4Addr::UNSPECIFIED;
    let first = listen(&mut node, ip(ME), 80, false).unwrap();
    assert_eq!(listen(&mut node, any, 80, true), Err(Error::AddressInUse));
    assert_eq!(
        listen(&mut node, ip(ME), 80, true),
        Err(Error::AddressInUse)
    );
    assert_eq!(
        listen(&mut node, ip(77), 81, true),
        Err(Error::AddressNotAvailable)
    );
    assert_eq!(listen(&mut node, any, 0, true), Err(Error::InvalidArgument));
    node.handshake(NOW, stranger(0), 1, 80).unwrap();
    node.accept(first).unwrap();
    node.stack
        .stop_listening(NOW, first, &mut node.host)
        .unwrap();
    assert_eq!(
        listen(&mut node, any, 80, false),
        Err(Error::AddressInUse),
        "a connection still uses the port"
    );
    assert!(listen(&mut node, any, 80, true).is_ok());
    for port in 82..85 {
        assert!(listen(&mut node, any, port, true).is_ok());
    }
    assert_eq!(
        listen(&mut node, any, 86, true),
        Err(Error::NoMemory),
        "four rows: 80, 82, 83, 84"
    );
}

#[test]
fn a_refused_connect_tells_its_program() {
    let mut memory = memory(8, 8);
    let mut pair = Pair::new(&mut memory, 1);
    let client = pair.nodes[0].connect(pair.now, ip(2), 80);
    pair.run(ms(20));
    let view = pair.nodes[0].view(client);
    assert_eq!(
        (view.state, view.error),
        (State::Closed, Some(ConnectionError::Refused))
    );
    assert!(!pair.nodes[0].is_released(client));
    pair.nodes[0].close(pair.now, client);
    pair.run(ms(1));
    assert!(pair.nodes[0].is_released(client));
    assert_eq!(pair.nodes[0].stack.counters().tcp_attempt_fails, 1);
}

#[test]
fn segments_sent_again_are_counted_while_a_connection_lives_and_after_it() {
    let mut memory = memory(8, 8);
    let mut pair = Pair::new(&mut memory, 1);
    let (client, _) = pair.connected();
    pair.trouble = Trouble {
        lose: 1000,
        double: 0,
        delay: 0,
    };
    assert!(pair.nodes[0].write(pair.now, client, b"lost"));
    pair.run(ms(5_000));
    let again = pair.nodes[0].stack.counters_of_all().tcp_retrans_segs;
    assert!(again >= 2, "{again}");
    assert_eq!(pair.nodes[0].stack.counters().tcp_retrans_segs, 0);
    let id = pair.nodes[0].id(client);
    let node = &mut pair.nodes[0];
    node.stack.abort(pair.now, id, &mut node.host).unwrap();
    pair.run(ms(1));
    assert_eq!(pair.nodes[0].stack.counters().tcp_retrans_segs, again);
}

#[test]
fn a_storm_of_handshakes_is_served_completely() {
    let mut memory = memory(600, 600);
    let mut pair = Pair::new(&mut memory, 3);
    pair.trouble = Trouble {
        lose: 20,
        double: 0,
        delay: 200,
    };
    let listener = pair.nodes[1].listen(80, 512);
    let clients: Vec<u64> = (0..500)
        .map(|_| pair.nodes[0].connect(pair.now, ip(2), 80))
        .collect();
    let mut accepted = 0;
    for _ in 0..100 {
        pair.run(ms(100));
        accepted += std::iter::from_fn(|| pair.nodes[1].accept(listener)).count();
    }
    assert_eq!(accepted, 500);
    assert!(
        clients
            .iter()
            .all(|client| pair.nodes[0].view(*client).state == State::Established)
    );
    let ports: std::collections::BTreeSet<u16> = pair.nodes[0]
        .stack
        .connections()
        .map(|row| row.local.port())
        .collect();
    assert_eq!(ports.len(), 500, "every connection has its own port");
}

#[test]
fn a_handshake_that_is_never_finished_ends_and_gives_everything_back() {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let mut node = node(&mut memory);
    node.listen(80, 16);
    node.deliver(
        NOW,
        &segment(stranger(0), ip(ME), &header(1, 80, 9, 0, Flags::SYN), &[]),
    );
    let (mut now, mut syn_acks) = (NOW, 0);
    while now < NOW + ms(120_000) {
        syn_acks += segments(&node.transmit(now)).len();
        now = node
            .stack
            .next_deadline()
            .map_or(NOW + ms(120_000), |next| next.max(now));
        node.timers(now);
    }
    assert_eq!(syn_acks, 6, "one, and five more");
    assert!(node.is_released(1));
    assert_eq!(node.stack.listeners().next().unwrap().half_open, 0);
    assert_eq!(node.stack.connections().count(), 0);
    assert_eq!(node.stack.tcp.ports.users(80), 0);
}
