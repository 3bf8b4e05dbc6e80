//! A stack dies in the middle of traffic and another goes on with its tables.

use super::pair::*;
use super::peer::*;
use crate::tables::Touched;
use crate::*;
use ::tcp::{ConnectionError, FlightPool, Instant, NoPool, ReceiveWindow, State, UndoPart};
use std::net::Ipv4Addr;
use wire::tcp::{Flags, Plain};

const NOW: Instant = Instant::from_us(1_000_000_000);

/// The stack that a crash ends, with tables that outlive it.
fn begin(memory: &mut HeapTables, programs: Shared) -> Node<'_> {
    let stack = Stack::new(memory.tables(), config(ME)).unwrap();
    let mut node = Node::with(stack, programs);
    configure(&mut node.stack, NOW, ME);
    node.knows(NOW, PEER);
    node
}

/// Ends the node's stack and starts another on the same tables.
fn restart(memory: &mut HeapTables, programs: Shared, now: Instant) -> (Node<'_>, Rebuilt) {
    let (mut stack, rebuilt) = Stack::rebuild(memory.tables(), config(ME)).unwrap();
    configure(&mut stack, now, ME);
    (Node::with(stack, programs), rebuilt)
}

/// Moves frames between the two until nothing more happens.
fn settle(now: Instant, a: &mut Node<'_>, b: &mut Node<'_>) {
    loop {
        let (from_a, from_b) = (a.transmit(now), b.transmit(now));
        if from_a.is_empty() && from_b.is_empty() {
            return;
        }
        from_a.iter().for_each(|frame| b.deliver(now, frame));
        from_b.iter().for_each(|frame| a.deliver(now, frame));
    }
}

#[test]
fn transfers_go_on_over_many_restarts() {
    let mut ours = HeapTables::new(16, 4, 16).unwrap();
    let mut theirs = HeapTables::new(16, 4, 16).unwrap();
    let mut now = NOW;
    let mut peer = Node::new(theirs.tables(), 2, now);
    let listener = peer.listen(80, 5);
    let data: Vec<_> = (0..3).map(|n| pattern(n, 300_000)).collect();
    let programs = Shared::default();
    let (owners, servers): (Vec<u64>, Vec<u64>) = {
        let mut node = Node::with(
            Stack::new(ours.tables(), config(ME)).unwrap(),
            programs.clone(),
        );
        configure(&mut node.stack, now, ME);
        node.listen(90, 3);
        let owners = data.iter().map(|_| node.connect(now, ip(2), 80)).collect();
        settle(now, &mut node, &mut peer);
        (
            owners,
            std::iter::from_fn(|| peer.accept(listener)).collect(),
        )
    };
    for _ in 0..200 {
        let (mut node, rebuilt) = restart(&mut ours, programs.clone(), now);
        assert_eq!(
            (rebuilt.connections, rebuilt.listeners, rebuilt.interrupted),
            (3, 1, 0)
        );
        let mut done = true;
        for (owner, data) in owners.iter().zip(&data) {
            done &= node.write(now, *owner, data);
        }
        // A few exchanges, ended anywhere.
        for _ in 0..3 {
            now += ms(50);
            node.timers(now);
            peer.timers(now);
            for frame in node.transmit(now) {
                peer.deliver(now, &frame);
            }
            for server in &servers {
                peer.read(now, *server);
            }
            for frame in peer.transmit(now) {
                node.deliver(now, &frame);
            }
        }
        if done
            && servers
                .iter()
                .all(|server| peer.received(*server).len() == 300_000)
        {
            break;
        }
    }
    let mut received: Vec<_> = servers
        .iter()
        .map(|server| peer.received(*server))
        .collect();
    let mut expected = data;
    received.sort();
    expected.sort();
    assert!(received == expected);
}

#[test]
fn queues_ports_and_time_wait_survive_in_order() {
    let mut memory = HeapTables::new(16, 4, 8).unwrap();
    let programs = Shared::default();
    let next = {
        let mut node = begin(&mut memory, programs.clone());
        let listener = node.listen(80, 5);
        let next = node.handshake(NOW, ip(PEER), 1, 80).unwrap();
        let first = node.accept(listener).unwrap();
        node.close(NOW, first);
        node.transmit(NOW);
        let fin = header(1, 80, 101, next.wrapping_add(1), Flags::ACK | Flags::FIN);
        node.deliver(NOW, &segment(ip(PEER), ip(ME), &fin, &[]));
        node.transmit(NOW);
        // They finish their handshakes in another order than they began them.
        let from = |port, seq, ack, flags| {
            segment(ip(PEER), ip(ME), &header(port, 80, seq, ack, flags), &[])
        };
        for port in [10, 20, 30] {
            node.deliver(NOW, &from(port, 100, 0, Flags::SYN));
        }
        let syn_acks = segments(&node.transmit(NOW));
        for (n, (_, syn_ack, _)) in (1..).zip(syn_acks.iter().rev()) {
            let ack = syn_ack.seq.wrapping_add(1);
            let port = syn_ack.destination_port;
            node.deliver(NOW + ms(n), &from(port, 101, ack, Flags::ACK));
        }
        node.deliver(NOW, &from(40, 100, 0, Flags::SYN));
        let half_open = segments(&node.transmit(NOW)).remove(0).1;
        half_open.seq.wrapping_add(1)
    };
    let (mut node, rebuilt) = restart(&mut memory, programs, NOW);
    assert_eq!(
        rebuilt,
        Rebuilt {
            connections: 4,
            listeners: 1,
            time_waits: 1,
            udp_sockets: 0,
            interrupted: 0
        }
    );
    node.knows(NOW, PEER);
    node.transmit(NOW);
    node.deliver(
        NOW,
        &segment(
            ip(PEER),
            ip(ME),
            &header(40, 80, 101, next, Flags::ACK),
            &[],
        ),
    );
    let listener = node.stack.listeners().next().unwrap().listener;
    assert_eq!(node.stack.accept_ready(listener).unwrap().count, 4);
    let owners: Vec<u64> = std::iter::from_fn(|| node.accept(listener)).collect();
    let ports: Vec<u16> = owners
        .iter()
        .map(|owner| node.stack.addresses(node.id(*owner)).unwrap().1.port())
        .collect();
    assert_eq!(ports, [30, 20, 10, 40]);
    assert_eq!(node.stack.tcp.ports.users(80), 5);
    let later = NOW + ms(120_000);
    node.timers(later);
    let users = node.stack.tcp.ports.users(80);
    assert_eq!((node.stack.time_waits().count(), users), (0, 4));
}

#[test]
fn an_interrupted_row_is_given_up_and_the_others_go_on() {
    let mut memory = HeapTables::new(16, 4, 8).unwrap();
    let programs = Shared::default();
    let (broken, whole) = {
        let mut node = begin(&mut memory, programs.clone());
        let listener = node.listen(80, 5);
        let owners = [1, 2].map(|port| {
            node.handshake(NOW, ip(PEER), port, 80).unwrap();
            node.accept(listener).unwrap()
        });
        let index = node.id(owners[0]).index;
        node.stack.tcp.connections[index as usize].sequence |= 1;
        node.stack.tcp.listeners.rows[0].sequence |= 1;
        (owners[0], owners[1])
    };
    let (mut node, rebuilt) = restart(&mut memory, programs, NOW);
    assert_eq!(
        (rebuilt.connections, rebuilt.listeners, rebuilt.interrupted),
        (1, 0, 2)
    );
    assert!(node.stack.next_deadline().unwrap() <= NOW);
    node.timers(NOW);
    assert_eq!(node.view(broken).error, Some(ConnectionError::Reset));
    assert_eq!(node.view(whole).state, State::Established);
    node.transmit(NOW);
    assert!(!node.is_released(broken), "its program holds it");
    node.close(NOW, broken);
    node.transmit(NOW);
    assert!(node.is_released(broken));
    assert!(
        node.stack
            .listen(&Listen {
                owner: 1,
                local: std::net::SocketAddr::from((Ipv4Addr::UNSPECIFIED, 80)),
                v6_only: false,
                backlog: 1,
                reuse_address: true,
                reuse_port: None,
            })
            .is_ok()
    );
}

#[test]
fn with_undo_a_change_that_was_interrupted_has_not_happened() {
    let tables = HeapTables::new(16, 4, 8).unwrap();
    let mut memory = tables.with_undo().unwrap();
    let programs = Shared::default();
    let (owner, next) = {
        let mut node = begin(&mut memory, programs.clone());
        let listener = node.listen(80, 5);
        let next = node.handshake(NOW, ip(PEER), 1, 80).unwrap();
        let owner = node.accept(listener).unwrap();
        let index = node.id(owner).index;
        let stopped = std::panic::AssertUnwindSafe(|| {
            node.stack.tcp.change(index, |record| {
                record.tcp = ::tcp::Connection::default();
                record.owner = 0;
                panic!("stopped");
            })
        });
        assert!(std::panic::catch_unwind(stopped).is_err());
        (owner, next)
    };
    for _ in 0..2 {
        let (mut node, rebuilt) = restart(&mut memory, programs.clone(), NOW);
        assert_eq!((rebuilt.connections, rebuilt.interrupted), (1, 0));
        assert_eq!(node.view(owner).state, State::Established);
        node.knows(NOW, PEER);
        let header = header(1, 80, 101, next, Flags::ACK);
        node.deliver(NOW, &segment(ip(PEER), ip(ME), &header, b"on"));
        assert_eq!(node.view(owner).readable_end, 2);
    }
}

/// Bytes that a change takes in which has never happened go nowhere.
struct Nowhere(NoPool);

impl ReceiveWindow for Nowhere {
    fn write(&mut self, _: u64, _: &[u8]) {}

    fn flights(&mut self) -> &mut dyn FlightPool {
        &mut self.0
    }
}

type Act = fn(&mut ::tcp::Connection);

#[test]
fn a_change_of_a_part_that_was_interrupted_has_not_happened() {
    let acts: [(UndoPart, Act); 3] = [
        (UndoPart::Data, |tcp| {
            let plain = Plain {
                seq: 102,
                ack: 0,
                window: 60_000,
                is_pushed: true,
                timestamps: None,
            };
            tcp.take_plain_data(NOW, &plain, b"more", &mut Nowhere(NoPool));
        }),
        (UndoPart::Consumed, |tcp| {
            tcp.handle_consumed(NOW, 1).unwrap();
        }),
        (UndoPart::Ack, |tcp| {
            tcp.take_ack(NOW);
        }),
    ];
    for (part, act) in acts {
        let tables = HeapTables::new(16, 4, 8).unwrap();
        let mut memory = tables.with_undo().unwrap();
        let (index, before) = {
            let mut node = begin(&mut memory, Shared::default());
            let listener = node.listen(80, 5);
            let next = node.handshake(NOW, ip(PEER), 1, 80).unwrap();
            let owner = node.accept(listener).unwrap();
            let header = header(1, 80, 101, next, Flags::ACK);
            node.deliver(NOW, &segment(ip(PEER), ip(ME), &header, b"a"));
            let index = node.id(owner).index;
            let before = format!("{:?}", node.stack.tcp.record(index).tcp);
            let stopped = std::panic::AssertUnwindSafe(|| {
                let touched = Touched::Part(part);
                node.stack.tcp.change_touched(index, touched, |record| {
                    act(&mut record.tcp);
                    panic!("stopped");
                })
            });
            assert!(std::panic::catch_unwind(stopped).is_err());
            let after = format!("{:?}", node.stack.tcp.record(index).tcp);
            assert_ne!(before, after, "{part:?}");
            (index, before)
        };
        let (node, rebuilt) = restart(&mut memory, Shared::default(), NOW);
        assert_eq!((rebuilt.connections, rebuilt.interrupted), (1, 0));
        let after = format!("{:?}", node.stack.tcp.record(index).tcp);
        assert_eq!(before, after, "{part:?}");
    }
}

#[test]
fn a_reset_waits_for_the_address_of_a_neighbour() {
    let mut memory = HeapTables::new(16, 4, 8).unwrap();
    let programs = Shared::default();
    let owner = {
        let mut node = begin(&mut memory, programs.clone());
        let listener = node.listen(80, 5);
        node.handshake(NOW, ip(PEER), 1, 80).unwrap();
        node.accept(listener).unwrap()
    };
    let (mut node, _) = restart(&mut memory, programs, NOW);
    node.abort(NOW, owner);
    assert!(segments(&node.transmit(NOW)).is_empty());
    assert!(!node.is_released(owner));
    node.knows(NOW, PEER);
    let sent = segments(&node.transmit(NOW));
    assert!(sent.len() == 1 && sent[0].1.flags.contains(Flags::RST));
    assert!(node.is_released(owner));
}

#[test]
fn connections_of_a_lost_listener_are_given_up() {
    let mut memory = HeapTables::new(16, 4, 8).unwrap();
    let programs = Shared::default();
    {
        let mut node = begin(&mut memory, programs.clone());
        node.listen(80, 5);
        node.handshake(NOW, ip(PEER), 1, 80).unwrap();
        node.stack.tcp.listeners.rows[0].sequence |= 1;
    }
    let (mut node, _) = restart(&mut memory, programs, NOW);
    node.timers(NOW);
    node.transmit(NOW);
    assert!(node.is_released(1));
    assert_eq!(
        (node.stack.connections().count(), node.stack.orphans()),
        (0, 0)
    );
}

#[test]
fn fresh_used_and_foreign_tables_are_told_apart() {
    let mut memory = HeapTables::new(4, 4, 4).unwrap();
    assert!(
        Stack::rebuild(memory.tables(), config(ME)).is_err(),
        "never used"
    );
    assert!(Stack::new(memory.tables(), config(ME)).is_ok());
    assert!(Stack::new(memory.tables(), config(ME)).is_err(), "used");
    memory.tables().header.connections_used = 5;
    assert!(
        Stack::rebuild(memory.tables(), config(ME)).is_err(),
        "more rows than there are"
    );
}
