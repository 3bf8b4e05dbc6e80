//! Other first hops: the one that a redirect names, and the one that answers.

use crate::tests::node::*;
use crate::tests::peer::*;
use crate::tests::peer6::*;
use crate::*;
use ::tcp::{Duration, Instant};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use wire::icmpv4::Message;
use wire::icmpv6::Message as Message6;
use wire::icmpv6::ndp::{self, Options, PrefixInformation, RouterAdvertisement};
use wire::ipv4::Protocol;

const NOW: Instant = Instant::from_us(1_000_000_000);
const FAR: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const FAR6: Ipv6Addr = Ipv6Addr::new(0x2a00, 0, 0, 0, 0, 0, 0, 5);
const OLD: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xff);
const NEW: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xee);

fn after(seconds: u64) -> Instant {
    NOW + Duration::from_secs(seconds)
}

/// A host whose connection to `FAR` has sent its SYN by way of 10.0.0.254.
fn with_host(test: impl FnOnce(&mut Node<'_>, &Flying)) {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let mut node = Node::new(memory.tables(), ME, NOW);
    for (n, station) in [(254, 54), (253, 53)] {
        let known = Some(hardware(station));
        let router = ip(n).into();
        node.stack.set_neighbour(NOW, NIC, router, known).unwrap();
    }
    node.transmit(NOW);
    node.connect(NOW, FAR, 80);
    let syn = node.transmit(NOW).remove(0);
    assert_eq!(syn.bytes[..6], hardware(54).0);
    test(&mut node, &syn);
}

fn redirect(source: Ipv4Addr, gateway: Ipv4Addr, quoted: &[u8]) -> Flying {
    let message = Message::Redirect {
        code: 1,
        gateway,
        quoted,
    };
    let mut bytes = vec![0; message.emit_len()];
    message.emit(&mut bytes);
    frame(&ipv4_header(source, ip(ME), Protocol::ICMP), &bytes)
}

/// Where the SYN that is sent again goes.
fn station_of_next(node: &mut Node<'_>, now: Instant) -> Vec<u8> {
    node.timers(now);
    let sent = node.transmit(now);
    let syn = sent.iter().find(|frame| parse(frame).is_some()).unwrap();
    syn.bytes[..6].to_vec()
}

#[test]
fn a_redirect_of_the_router_in_use_is_followed_for_ten_minutes() {
    with_host(|node, syn| {
        let quoted = &syn.bytes[14..14 + 28];
        node.deliver(NOW, &redirect(ip(254), ip(253), quoted));
        assert_eq!(station_of_next(node, after(1)), hardware(53).0);
        // Another destination takes the way it always took.
        let other = Ipv4Addr::new(203, 0, 113, 2);
        node.connect(after(1), other, 80);
        let sent = node.transmit(after(1));
        assert_eq!(sent[0].bytes[..6], hardware(54).0);
        node.timers(after(600));
        assert_eq!(node.stack.routes().count(), 2, "forgotten");
    });
}

#[test]
fn redirects_that_anybody_could_have_made_up_are_not_followed() {
    with_host(|node, syn| {
        let quoted = &syn.bytes[14..14 + 28];
        let mut not_in_flight = quoted.to_vec();
        not_in_flight[24] ^= 0x40;
        let cases: [(Ipv4Addr, Ipv4Addr, &[u8]); 6] = [
            (ip(253), ip(252), quoted),         // not who is used
            (ip(254), FAR, quoted),             // not on the link
            (ip(254), ip(ME), quoted),          // ourselves
            (ip(254), ip(255), quoted),         // everybody
            (ip(254), ip(253), &not_in_flight), // nothing that was sent
            (ip(254), ip(253), &quoted[..20]),  // no segment at all
        ];
        for (source, gateway, quoted) in cases {
            node.deliver(NOW, &redirect(source, gateway, quoted));
        }
        assert_eq!(node.stack.counters().icmp_in_redirects, 6);
        assert_eq!(node.stack.counters().redirects_taken, 0);
        assert_eq!(station_of_next(node, after(1)), hardware(54).0);
    });
}

fn announcement(router: Ipv6Addr, station: u8) -> Flying {
    let prefix = PrefixInformation {
        prefix: "2001:db8:5::".parse().unwrap(),
        prefix_len: 64,
        on_link: true,
        autonomous: true,
        valid_lifetime_s: 7_200,
        preferred_lifetime_s: 7_200,
    };
    let options = [
        &prefix.to_bytes()[..],
        &ndp::source_link_layer(hardware(station)),
    ]
    .concat();
    let message = Message6::Ndp(ndp::Message::RouterAdvertisement(RouterAdvertisement {
        hop_limit: 64,
        flags: 0,
        router_lifetime_s: 1_800,
        reachable_time_ms: 0,
        retransmission_time_ms: 0,
        options: Options::parse(&options).unwrap(),
    }));
    let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    icmp_frame(router, all, 255, &message)
}

/// A host that has heard both routers, `OLD` first.
fn with_routers(test: impl FnOnce(&mut Node<'_>)) {
    with_host_of_routers(|node| {
        for second in 0..3 {
            node.timers(after(second));
            node.transmit(after(second));
        }
        node.deliver(after(3), &announcement(OLD, 54));
        node.deliver(after(3), &announcement(NEW, 53));
        for second in 3..8 {
            node.timers(after(second));
            node.transmit(after(second));
        }
        test(node);
    });
}

fn redirect6(
    node: &Node<'_>,
    source: Ipv6Addr,
    hop_limit: u8,
    (target, destination): (Ipv6Addr, Ipv6Addr),
) -> Flying {
    let (_, _, mut own) = node.stack.interfaces().next().unwrap();
    let own = own.find_map(|own| match own.address {
        std::net::IpAddr::V6(v6) if !v6.is_unicast_link_local() => Some(v6),
        _ => None,
    });
    let option = ndp::target_link_layer(hardware(53));
    let message = Message6::Ndp(ndp::Message::Redirect {
        target,
        destination,
        options: Options::parse(&option).unwrap(),
    });
    icmp_frame(source, own.unwrap(), hop_limit, &message)
}

fn station_of_syn(node: &mut Node<'_>, now: Instant) -> Vec<u8> {
    node.connect(now, FAR6, 80);
    let sent = node.transmit(now);
    let is_syn = |frame: &&Flying| !segments6(std::slice::from_ref(*frame)).is_empty();
    sent.iter().find(is_syn).unwrap().bytes[..6].to_vec()
}

#[test]
fn an_ipv6_redirect_names_a_better_router_or_the_destination_itself() {
    with_routers(|node| {
        assert_eq!(station_of_syn(node, after(8)), hardware(54).0);
        let frame = redirect6(node, OLD, 255, (NEW, FAR6));
        node.deliver(after(8), &frame);
        assert_eq!(station_of_syn(node, after(8)), hardware(53).0);
        // Now `NEW` is the one that is used: it says that the destination is on the link.
        let frame = redirect6(node, NEW, 255, (FAR6, FAR6));
        node.deliver(after(8), &frame);
        assert_eq!(station_of_syn(node, after(8)), hardware(53).0);
        assert_eq!(node.stack.counters().redirects_taken, 2);
        let routes: Vec<_> = node.stack.routes().copied().collect();
        let own = routes.iter().find(|route| route.prefix_len == 128);
        assert_eq!(own.unwrap().gateway, None);
    });
}

#[test]
fn of_redirects_the_oldest_make_way() {
    const MANY: u16 = 40;
    with_routers(|node| {
        let nth = |n: u16| Ipv6Addr::new(0x2a00, 0, 0, 0, 0, 0, 1, n);
        for n in 0..MANY {
            let frame = redirect6(node, OLD, 255, (NEW, nth(n)));
            node.deliver(after(8), &frame);
        }
        let routes = node.stack.routes();
        let mut kept: Vec<_> = routes
            .filter(|route| route.prefix_len == 128 && route.gateway == Some(NEW.into()))
            .map(|route| route.destination)
            .collect();
        kept.sort_unstable();
        let newest: Vec<std::net::IpAddr> = (MANY - 32..MANY).map(|n| nth(n).into()).collect();
        assert_eq!(kept, newest);
    });
}

/// RFC 4861 §8.1.
#[test]
fn ipv6_redirects_that_must_not_be_believed_are_not() {
    with_routers(|node| {
        let group = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 5);
        for (source, hop_limit, ends) in [
            (OLD, 254, (NEW, FAR6)),
            (NEW, 255, (NEW, FAR6)),
            (ip6(9), 255, (NEW, FAR6)),
            (OLD, 255, (ip6(9), FAR6)),
            (OLD, 255, (NEW, group)),
        ] {
            let frame = redirect6(node, source, hop_limit, ends);
            node.deliver(after(8), &frame);
        }
        assert_eq!(node.stack.counters().redirects_taken, 0);
        assert_eq!(node.stack.counters().ndp_in_errors, 5);
        assert_eq!(station_of_syn(node, after(8)), hardware(54).0);
    });
}

/// RFC 4861 §6.3.6, §7.2.2.
#[test]
fn what_waits_for_a_router_that_does_not_answer_goes_by_another() {
    with_routers(|node| {
        assert_eq!(station_of_syn(node, after(8)), hardware(54).0);
        let known = Some(hardware(53));
        node.stack
            .set_neighbour(after(8), NIC, NEW.into(), known)
            .unwrap();
        // Nobody answers for the old one any more: its entry grows old, is asked, and fails.
        let owner = node.connect(after(60), FAR6, 81);
        let mut stations = Vec::new();
        for second in 60..80 {
            node.timers(after(second));
            let sent = node.transmit(after(second));
            let syns = sent
                .iter()
                .filter(|frame| !segments6(std::slice::from_ref(*frame)).is_empty());
            stations.extend(syns.map(|syn| syn.bytes[..6].to_vec()));
        }
        assert_eq!(stations.first().unwrap(), &hardware(54).0);
        assert_eq!(stations.last().unwrap(), &hardware(53).0);
        assert_eq!(node.view(owner).error, None);
        // It is heard again, and used again.
        node.deliver(after(80), &announcement(OLD, 54));
        assert_eq!(station_of_syn(node, after(80)), hardware(54).0);
    });
}

#[test]
fn where_no_router_answers_a_connection_attempt_fails() {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let mut node = Node::new(memory.tables(), ME, NOW);
    let second = Route {
        destination: Ipv4Addr::UNSPECIFIED.into(),
        prefix_len: 0,
        gateway: Some(ip(253).into()),
        interface: NIC,
        metric: 200,
        source: None,
    };
    node.stack.add_route(second).unwrap();
    let owner = node
        .connect_from(NOW, None, SocketAddr::from((FAR, 80)))
        .unwrap();
    for second in 0..20 {
        node.timers(after(second));
        node.transmit(after(second));
    }
    let programs = node.programs.borrow();
    let view = programs.sockets[&owner].view.unwrap();
    assert_eq!(view.error, Some(::tcp::ConnectionError::HostUnreachable));
}
