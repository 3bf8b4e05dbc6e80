//! What a socket's options do beside its TCP connection: TCP_NOTSENT_LOWAT's positions, TCP_SAVE_SYN's
//! headers.

use crate::tests::pair::*;
use crate::tests::peer::*;
use crate::*;
use ::tcp::{Instant, SocketOptions};
use std::net::Ipv4Addr;
use wire::tcp::Flags;

const NOW: Instant = Instant::from_us(1_000_000_000);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);

#[test]
fn the_headers_of_the_syn_reach_the_host() {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let mut node = Node::new(memory.tables(), ME, NOW);
    node.listen(80, 4);
    let mut syn = header(5_000, 80, 700, 0, Flags::SYN);
    syn.options.mss = Some(1_460);
    let frame = segment(CLIENT, ip(ME), &syn, b"data that is not kept");
    node.deliver(NOW, &frame);
    let saved = &node.programs.borrow().syns[&1];
    assert_eq!(saved, &frame.bytes[14..14 + 20 + 24]);
}

#[test]
fn how_far_bytes_have_left_is_told_to_those_who_asked() {
    let mut memory = memory(8, 8);
    let mut pair = Pair::new(&mut memory, 1);
    let listener = pair.nodes[1].listen(80, 4);
    let client = pair.nodes[0].connect(pair.now, ip(2), 80);
    pair.run(ms(20));
    pair.nodes[1].accept(listener).unwrap();
    pair.nodes[0].write(pair.now, client, &[7; 100]);
    pair.run(ms(20));
    let told = |pair: &Pair<'_>| {
        pair.nodes[0]
            .programs
            .borrow()
            .sent_to
            .get(&client)
            .copied()
    };
    assert_eq!(told(&pair), None, "nobody asked");
    let options = SocketOptions {
        notsent_low_water: 1_000,
        ..SocketOptions::default()
    };
    let id = pair.nodes[0].id(client);
    let node = &mut pair.nodes[0];
    node.stack
        .set_options(pair.now, id, &options, &mut node.host)
        .unwrap();
    pair.nodes[0].write(pair.now, client, &[7; 300]);
    pair.run(ms(20));
    assert_eq!(told(&pair), Some(300));
}
