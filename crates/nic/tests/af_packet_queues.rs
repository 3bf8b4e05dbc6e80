//! Several packet sockets that share an interface, and a process that goes on with them. Needs root, or says what it lacks.

#![allow(
    clippy::unwrap_used,
    reason = "a test program: helpers fail the test that calls them"
)]

mod support;

use ::wire::ipv4;
use bpf::classic::Instruction;
use nic::af_packet::steering::{Hash, Mix, program};
use nic::af_packet::{AfPacket, Config, Handover};
use nic::{Driver, Presence, TxFrame};
use support::{LEFT, RIGHT, VETH, receive_all};

/// Connections of the sender: their frames differ in the source port alone.
const CONNECTIONS: u16 = 40;

fn spread() -> Vec<Instruction> {
    program(&Hash::Mixed(Mix {
        key: 7,
        multipliers: [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d],
        shifts: [15, 13, 16],
    }))
}

/// What a process that ends now leaves.
fn left_by(queues: Vec<AfPacket>) -> Vec<Handover> {
    let left = queues.into_iter().map(|queue| Handover {
        socket: queue.socket().try_clone_to_owned().unwrap(),
        kernel_drop: None,
        geometry: queue.handover().unwrap().geometry,
    });
    left.collect()
}

/// A frame of each connection.
fn send(peer: &mut AfPacket, to: ::wire::ethernet::Address) {
    let link = (peer.caps().hardware_address, to);
    for port in 1..=CONNECTIONS {
        let mut frame = support::ipv4_headers(link, (RIGHT, LEFT), ipv4::Protocol::TCP, 20);
        frame.extend(port.to_be_bytes());
        frame.resize(frame.len() + 18, 0);
        assert_eq!(peer.tx_burst(&[TxFrame::plain(&frame)]).unwrap(), 1);
    }
}

/// The connections whose frames each queue has, in the order in which they came.
fn found(queues: &mut [AfPacket]) -> Vec<Vec<u16>> {
    let port = |frame: &Vec<u8>| u16::from_be_bytes([frame[34], frame[35]]);
    let is_tcp = |frame: &Vec<u8>| support::is_ipv4(frame, ipv4::Protocol::TCP);
    let of_queue = |queue: &mut AfPacket| {
        let frames = receive_all(queue);
        frames
            .iter()
            .filter(|frame| is_tcp(frame))
            .map(port)
            .collect()
    };
    queues.iter_mut().map(of_queue).collect()
}

#[test]
fn who_goes_on_with_queues_finds_in_each_what_came_for_it_meanwhile() {
    let test = "who_goes_on_with_queues_finds_in_each_what_came_for_it_meanwhile";
    let Some([left, right]) = support::veth(test) else {
        return;
    };
    let (config, spread) = (Config::new(VETH), spread());
    let mut peer = right.run(|| AfPacket::open(&Config::new(VETH)).unwrap());
    let mut queues = left
        .run(|| AfPacket::open_queues(&config, 2, &spread))
        .unwrap();
    let ours = queues[0].caps().hardware_address;
    send(&mut peer, ours);
    let expected = found(&mut queues);
    assert!(expected.iter().all(|of_queue| !of_queue.is_empty()));
    for _ in 0..2 {
        let handover = left_by(queues);
        send(&mut peer, ours);
        queues = left
            .run(|| AfPacket::take_up_queues(&config, handover, &spread))
            .unwrap();
        assert_eq!(found(&mut queues), expected);
        assert!(queues.iter().all(|queue| queue.caps().queues == 2));
    }
    // What was made anew is handed over under the same numbers.
    let numbers = |queues: &[AfPacket]| -> Vec<_> {
        let all = queues.iter().map(|one| one.handover().unwrap().socket);
        all.collect()
    };
    let before = numbers(&queues);
    right.ip(&format!("link del {VETH}"));
    for queue in &mut queues {
        assert_eq!(left.run(|| queue.attend()), Presence::Gone);
    }
    support::join([&left, &right], 1).unwrap();
    let is_back = |found: Presence| matches!(found, Presence::Back { .. });
    assert!(!is_back(left.run(|| queues[0].attend())));
    assert!(is_back(left.run(|| queues[1].attend())));
    assert!(is_back(left.run(|| queues[0].attend())));
    assert_eq!(numbers(&queues), before);
    let mut peer = right.run(|| AfPacket::open(&Config::new(VETH)).unwrap());
    let ours = queues[0].caps().hardware_address;
    let handover = left_by(queues);
    send(&mut peer, ours);
    let mut queues = left
        .run(|| AfPacket::take_up_queues(&config, handover, &spread))
        .unwrap();
    assert_eq!(found(&mut queues), expected);
}

#[test]
fn sockets_that_are_not_one_group_are_not_gone_on_with() {
    let test = "sockets_that_are_not_one_group_are_not_gone_on_with";
    let Some([left, _right]) = support::veth(test) else {
        return;
    };
    let (config, spread) = (Config::new(VETH), spread());
    let open = || {
        left.run(|| AfPacket::open_queues(&config, 2, &spread))
            .unwrap()
    };
    let (mut one, mut other) = (left_by(open()), left_by(open()));
    let mixed = vec![one.remove(0), other.remove(1)];
    assert!(left.run(|| AfPacket::take_up_queues(&config, mixed, &spread).is_none()));
    let member = other.remove(0);
    assert!(left.run(|| AfPacket::take_up(&config, member).is_none()));
    let alone = left.run(|| AfPacket::open(&config).unwrap());
    let alone = left_by(vec![alone]);
    assert!(left.run(|| AfPacket::take_up_queues(&config, alone, &spread).is_none()));
}
