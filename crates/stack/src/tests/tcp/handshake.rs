//! SYN floods and the cookies that answer them (RFC 4987).

use crate::tests::pair::*;
use crate::tests::peer::*;
use crate::*;
use ::tcp::{Instant, State};
use std::net::Ipv4Addr;
use wire::ethernet::{EtherType, Header as EthernetHeader};
use wire::ipv4::Protocol;
use wire::tcp::{Flags, Header, Options, Timestamps};

const NOW: Instant = Instant::from_us(1_000_000_000);
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

fn node(memory: &mut HeapTables) -> Node<'_> {
    let mut node = Node::new(memory.tables(), ME, NOW);
    node.knows(NOW, 254);
    node.transmit(NOW);
    node
}

/// Sends `count` SYNs from addresses that will never answer; returns what left.
fn flood(node: &mut Node<'_>, now: Instant, first: u32, count: u32) -> usize {
    let mut bytes = vec![0; 34 + 20];
    let mut sent = 0;
    EthernetHeader {
        destination: hardware(ME),
        source: hardware(PEER),
        ethertype: EtherType::IPV4,
    }
    .emit(&mut bytes);
    for n in first..first + count {
        let source = Ipv4Addr::from_bits(Ipv4Addr::new(11, 0, 0, 1).to_bits() + n);
        ipv4_header(source, ip(ME), Protocol::TCP).emit(20, &mut bytes[14..]);
        header(1_024, 80, n, 0, Flags::SYN).emit(&mut bytes[34..]);
        let meta = RxMeta {
            checksum: RxChecksum::Verified,
            ..RxMeta::default()
        };
        node.stack
            .handle_frame(now, NIC, &bytes, meta, &mut node.host, &mut node.egress);
        sent += node.egress.frames.len();
        node.egress.frames.clear();
    }
    sent
}

/// A client with these SYN options connects; returns its first data segment's numbers, if it got a SYN-ACK.
fn client_syn(node: &mut Node<'_>, now: Instant, options: Options) -> Header {
    let syn = Header {
        options,
        ..header(5_000, 80, 700, 0, Flags::SYN)
    };
    node.deliver(now, &segment(CLIENT, ip(ME), &syn, &[]));
    let sent = segments(&node.transmit(now));
    let (_, syn_ack, _) = sent
        .iter()
        .find(|(_, reply, _)| reply.destination_port == 5_000)
        .expect("a SYN-ACK");
    *syn_ack
}

fn client_ack(syn_ack: &Header) -> Header {
    let mut ack = header(5_000, 80, 701, syn_ack.seq.wrapping_add(1), Flags::ACK);
    ack.window = 1_000;
    ack.options.timestamps = syn_ack.options.timestamps.map(|timestamps| Timestamps {
        value: 1_001,
        echo: timestamps.value,
    });
    ack
}

fn modern() -> Options {
    Options {
        mss: Some(1_460),
        window_scale: Some(9),
        sack_permitted: true,
        timestamps: Some(Timestamps {
            value: 1_000,
            echo: 0,
        }),
        ..Options::default()
    }
}

#[test]
fn a_million_spoofed_syns_leave_memory_unchanged_and_a_real_client_connects() {
    let mut memory = HeapTables::new(256, 4, 4).unwrap();
    let mut node = node(&mut memory);
    let listener = node.listen(80, 16);
    flood(&mut node, NOW, 0, 17);
    node.transmit(NOW);
    assert_eq!(node.stack.listeners().next().unwrap().half_open, 17);
    assert_eq!(flood(&mut node, NOW, 17, 1_000_000), 1_000_000, "cookies");
    assert_eq!(node.stack.listeners().next().unwrap().half_open, 17);
    assert_eq!(node.stack.connections().count(), 17);
    assert_eq!(node.programs.borrow().sockets.len(), 17);
    assert_eq!(node.stack.neighbours(NOW).count(), 1, "the router");
    assert_eq!(node.stack.counters().syn_cookies_sent, 1_000_000);
    let syn_ack = client_syn(&mut node, NOW, modern());
    assert_eq!(node.stack.connections().count(), 17, "nothing yet");
    node.deliver(
        NOW,
        &segment(CLIENT, ip(ME), &client_ack(&syn_ack), b"hello"),
    );
    let accepted = node.accept(listener).expect("the real client");
    assert_eq!(node.view(accepted).state, State::Established);
    assert_eq!(node.received(accepted), b"hello");
    let info = node.stack.info(node.id(accepted)).unwrap();
    assert!(info.sack && info.timestamps);
    assert_eq!(info.window_shifts, (9, 7));
    assert_eq!(info.snd_wnd, 1_000 << 9);
    assert_eq!(node.stack.counters().syn_cookies_received, 1);
    // Handshakes that nobody finishes end by themselves.
    let mut now = NOW;
    while now < NOW + ms(120_000) {
        node.transmit(now);
        now = node
            .stack
            .next_deadline()
            .map_or(NOW + ms(120_000), |next| next.max(now));
        node.timers(now);
    }
    assert_eq!(node.stack.listeners().next().unwrap().half_open, 0);
    assert_eq!(node.stack.connections().count(), 1);
}

#[test]
fn a_client_without_timestamps_keeps_only_its_mss() {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let mut node = node(&mut memory);
    let listener = node.listen(80, 0);
    flood(&mut node, NOW, 0, 1);
    let options = Options {
        timestamps: None,
        ..modern()
    };
    let syn_ack = client_syn(&mut node, NOW, options);
    assert_eq!(syn_ack.options.window_scale, None);
    assert!(!syn_ack.options.sack_permitted);
    node.deliver(NOW, &segment(CLIENT, ip(ME), &client_ack(&syn_ack), b"x"));
    let accepted = node.accept(listener).unwrap();
    let info = node.stack.info(node.id(accepted)).unwrap();
    assert_eq!((info.sack, info.window_shifts), (false, (0, 0)));
    assert_eq!((info.snd_mss, info.snd_wnd), (1_460, 1_000));
}

#[test]
fn an_ack_without_a_good_cookie_is_reset_and_makes_nothing() {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let mut node = node(&mut memory);
    node.listen(80, 0);
    flood(&mut node, NOW, 0, 2);
    let sockets = node.programs.borrow().sockets.len();
    for guess in 0..1_000 {
        let ack = header(5_000, 80, 701, 77 + guess, Flags::ACK);
        node.deliver(NOW, &segment(CLIENT, ip(ME), &ack, b"evil"));
    }
    let replies = segments(&node.transmit(NOW));
    let resets = |flags: Flags| flags.contains(Flags::RST);
    assert_eq!(
        replies.iter().filter(|one| resets(one.1.flags)).count(),
        1_000
    );
    assert_eq!(node.programs.borrow().sockets.len(), sockets);
    assert_eq!(node.stack.counters().syn_cookies_failed, 1_000);
}

#[test]
fn a_cookie_that_finds_the_accept_queue_full_waits_for_the_next_segment() {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let mut node = node(&mut memory);
    let listener = node.listen(80, 0);
    flood(&mut node, NOW, 0, 1);
    let syn_ack = client_syn(&mut node, NOW, modern());
    // Another one is faster, by a cookie as well.
    assert!(
        node.handshake(NOW, Ipv4Addr::new(192, 0, 2, 8), 1, 80)
            .is_some()
    );
    let ack = segment(CLIENT, ip(ME), &client_ack(&syn_ack), b"data");
    node.deliver(NOW, &ack);
    assert_eq!(node.ready(80), 1);
    assert_eq!(node.stack.counters().listen_overflows, 1);
    node.accept(listener).unwrap();
    node.deliver(NOW + ms(300), &ack);
    let second = node.accept(listener).unwrap();
    assert_eq!(node.received(second), b"data");
}

#[test]
fn a_listener_that_sent_no_cookie_lately_takes_none() {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let mut node = node(&mut memory);
    let listener = node.listen(80, 0);
    flood(&mut node, NOW, 0, 1);
    let syn_ack = client_syn(&mut node, NOW, modern());
    let later = NOW + ms(121_000);
    node.deliver(later, &segment(CLIENT, ip(ME), &client_ack(&syn_ack), b"x"));
    assert_eq!(node.accept(listener), None);
    assert_eq!(
        node.stack.counters().syn_cookies_failed,
        0,
        "not even looked at"
    );
}
