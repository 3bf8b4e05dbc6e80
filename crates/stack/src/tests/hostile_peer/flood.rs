//! Floods of those who guess: at SYN cookies, at a full cache of neighbours, at fragments that never become whole.

use crate::tests::pair::*;
use crate::tests::peer::*;
use crate::tests::peer6::*;
use crate::*;
use ::tcp::Instant;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::icmpv6::Message;
use wire::icmpv6::ndp::{self, Options};
use wire::ipv4::{Header as Ipv4Header, Protocol};
use wire::tcp::Flags;

const NOW: Instant = Instant::from_us(1_000_000_000);

#[test]
fn a_hundred_thousand_guesses_hit_no_cookie() {
    let mut memory = HeapTables::new(64, 4, 4).unwrap();
    let mut node = Node::new(memory.tables(), ME, NOW);
    node.knows(NOW, 254);
    let listener = node.listen(80, 0);
    node.transmit(NOW);
    let mut random = Random(5);
    let mut number = || u32::try_from(random.next() & 0xffff_ffff).unwrap();
    // Two SYNs fill the queue of handshakes: from now on there are cookies.
    for port in [1, 2] {
        let syn = header(port, 80, 1, 0, Flags::SYN);
        let source = Ipv4Addr::new(192, 0, 2, 1);
        node.deliver(NOW, &segment(source, ip(ME), &syn, &[]));
    }
    node.transmit(NOW);
    assert!(node.stack.counters().syn_cookies_sent > 0);
    let before = node.stack.connections().count();
    let mut answers = 0;
    for n in 0..100_000_u32 {
        // The address that it speaks for, too, is the attacker's choice.
        let source = Ipv4Addr::from_bits(Ipv4Addr::new(11, 0, 0, 1).to_bits() + n % 7);
        let flags = [Flags::ACK, Flags::ACK | Flags::PSH, Flags::ACK | Flags::FIN][n as usize % 3];
        let guess = header(5_000, 80, number(), number(), flags);
        node.deliver(NOW, &segment(source, ip(ME), &guess, b"x"));
        answers += node.transmit(NOW).len();
    }
    assert_eq!(node.stack.counters().syn_cookies_received, 0);
    assert_eq!(node.stack.connections().count(), before);
    assert_eq!(node.accept(listener), None);
    assert_eq!(
        answers, 100_000,
        "a reset of forty bytes for each of forty-one"
    );
    // Nor does a reset count as anything.
    for _ in 0..1_000 {
        let guess = header(5_000, 80, number(), number(), Flags::RST);
        node.deliver(
            NOW,
            &segment(Ipv4Addr::new(11, 0, 0, 1), ip(ME), &guess, &[]),
        );
    }
    assert!(node.transmit(NOW).is_empty());
    // A client that is not guessing gets in meanwhile.
    let next = node.handshake(NOW, Ipv4Addr::new(192, 0, 2, 7), 6_000, 80);
    assert!(next.is_some() && node.accept(listener).is_some());
}

#[test]
fn a_flood_of_solicitations_neither_fills_the_cache_nor_evicts_who_is_in_use() {
    with_node6(|node| {
        // In use and confirmed: not said by the host, which would make it permanent.
        let used = ip6(8);
        let owner = node.connect(NOW, used, 80);
        node.transmit(NOW);
        let option = ndp::target_link_layer(hardware(8));
        let answer = Message::Ndp(ndp::Message::NeighbourAdvertisement {
            target: used,
            router: false,
            solicited: true,
            overrides: true,
            options: Options::parse(&option).unwrap(),
        });
        node.deliver(NOW, &icmp_frame(used, ME6, 255, &answer));
        let mut answers = 0;
        for n in 0..20_000_u128 {
            let near = Ipv6Addr::from_bits(ip6(0).to_bits() + 0x1_0000 + n);
            let local = Ipv6Addr::from_bits(0xfe80 << 112 | (0x1_0000 + n));
            let source = if n % 2 == 0 { near } else { local };
            let option = ndp::source_link_layer(hardware(7));
            let question = Message::Ndp(ndp::Message::NeighbourSolicitation {
                target: ME6,
                options: Options::parse(&option).unwrap(),
            });
            node.deliver(NOW, &icmp_frame(source, ME6, 255, &question));
            answers += icmp6(&node.transmit(NOW)).len();
        }
        assert_eq!(answers, 20_000, "one for one");
        let known: Vec<_> = node.stack.neighbours(NOW).collect();
        assert!(known.len() <= 260, "{}", known.len());
        let found = known.iter().find(|one| one.address == IpAddr::V6(used));
        assert_eq!(found.unwrap().hardware, Some(hardware(8)));
        node.abort(NOW, owner);
    });
}

#[test]
fn fragments_of_thousands_of_packets_keep_nobody_else_out_and_bring_few_answers() {
    let mut memory = HeapTables::new(8, 4, 4).unwrap().with_udp(8).unwrap();
    let mut node = Node::new(memory.tables(), ME, NOW);
    for n in [PEER, 254] {
        node.knows(NOW, n);
    }
    let bind = UdpBind {
        owner: 7,
        local: (Ipv4Addr::UNSPECIFIED, 53).into(),
        shares: false,
        options: UdpOptions::default(),
    };
    node.stack.udp_bind(&bind).unwrap();
    node.transmit(NOW);
    let part = |source: Ipv4Addr, identification, more_fragments, fragment_offset| Ipv4Header {
        identification,
        more_fragments,
        fragment_offset,
        dont_fragment: false,
        ..ipv4_header(source, ip(ME), Protocol::UDP)
    };
    let mut honest = vec![0; 8];
    let payload = pattern(3, 4_000);
    wire::udp::Header {
        source_port: 9,
        destination_port: 53,
    }
    .emit(payload.len(), &mut honest);
    honest.extend_from_slice(&payload);
    let (mut sent, mut served) = (0, 0);
    for round in 0..200_u16 {
        let pieces = honest.chunks(1_480).zip([0, 1_480, 2_960]);
        for (piece, offset) in pieces {
            // Between the pieces of a packet twenty beginnings of others: of one source, and of as many as there are.
            for n in 0..20_u16 {
                let source = Ipv4Addr::new(
                    198,
                    51,
                    if n < 10 { 100 } else { round.to_be_bytes()[1] },
                    1,
                );
                let id = round.wrapping_mul(60).wrapping_add(n).wrapping_add(offset);
                node.deliver(NOW, &frame(&part(source, id, true, 0), &[0; 64]));
            }
            let header = part(ip(PEER), round, offset < 2_960, offset);
            node.deliver(NOW, &frame(&header, piece));
        }
        sent += node.transmit(NOW).len();
        served += std::mem::take(&mut node.programs.borrow_mut().datagrams).len();
    }
    assert_eq!(served, 200, "every packet of the honest peer is whole");
    let late = NOW + ms(31_000);
    node.timers(late);
    sent += node.transmit(late).len();
    assert!(
        sent <= 50,
        "{sent} reports of 12,000 packets that never came"
    );
}
