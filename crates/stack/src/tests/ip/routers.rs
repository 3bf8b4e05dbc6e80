//! Router advertisements: default routes, prefixes, addresses, their lifetimes.

use crate::tests::pair::*;
use crate::tests::peer6::*;
use crate::*;
use ::tcp::{Duration, Instant};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use wire::icmpv6::Message;
use wire::icmpv6::ndp::{self, Options, PrefixInformation, RouterAdvertisement};

const NOW: Instant = Instant::from_us(1_000_000_000);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xff);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const FAR: Ipv6Addr = Ipv6Addr::new(0x2a00, 0, 0, 0, 0, 0, 0, 5);

fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn prefix(valid_lifetime_s: u32, preferred_lifetime_s: u32) -> PrefixInformation {
    PrefixInformation {
        prefix: "2001:db8:5::".parse().unwrap(),
        prefix_len: 64,
        on_link: true,
        autonomous: true,
        valid_lifetime_s,
        preferred_lifetime_s,
    }
}

fn announcement(source: Ipv6Addr, hop_limit: u8, router_lifetime_s: u16, options: &[u8]) -> Flying {
    let message = Message::Ndp(ndp::Message::RouterAdvertisement(RouterAdvertisement {
        hop_limit: 64,
        flags: 0,
        router_lifetime_s,
        reachable_time_ms: 0,
        retransmission_time_ms: 0,
        options: Options::parse(options).unwrap(),
    }));
    icmp_frame(source, ALL_NODES, hop_limit, &message)
}

fn settle(node: &mut Node<'_>, from: Instant) -> Vec<Flying> {
    let mut frames = Vec::new();
    for step in 0..3 {
        let now = from + seconds(step);
        node.timers(now);
        frames.extend(node.transmit(now));
    }
    frames
}

fn globals(node: &Node<'_>) -> Vec<Ipv6Addr> {
    let (_, _, addresses) = node.stack.interfaces().next().unwrap();
    let mut found = Vec::new();
    for own in addresses {
        if let IpAddr::V6(v6) = own.address
            && !v6.is_unicast_link_local()
        {
            found.push(v6);
        }
    }
    found
}

fn routes(node: &Node<'_>) -> Vec<(IpAddr, Option<IpAddr>)> {
    let routes = node.stack.routes();
    routes
        .map(|route| (route.destination, route.gateway))
        .collect()
}

#[test]
fn a_host_asks_for_routers_three_times_and_stops_when_one_answers() {
    let asked = |answers: bool| {
        let mut count = 0;
        with_host_of_routers(|node| {
            for step in 0..40 {
                let now = NOW + seconds(step);
                node.timers(now);
                let sent = icmp6(&node.transmit(now));
                let is_question = |one| {
                    matches!(
                        message(one),
                        Message::Ndp(ndp::Message::RouterSolicitation { .. })
                    )
                };
                count += sent.iter().filter(|one| is_question(one)).count();
                if answers && step == 1 {
                    node.deliver(now, &announcement(ROUTER, 255, 1_800, &[]));
                }
            }
        });
        count
    };
    assert_eq!((asked(false), asked(true)), (3, 1));
}

#[test]
fn a_router_with_a_prefix_makes_an_address_a_route_and_a_way_out() {
    with_host_of_routers(|node| {
        settle(node, NOW);
        let router_hardware = ndp::source_link_layer(hardware(77));
        let options = [&prefix(7_200, 3_600).to_bytes()[..], &router_hardware].concat();
        let now = NOW + seconds(10);
        node.deliver(now, &announcement(ROUTER, 255, 1_800, &options));
        settle(node, now);
        let own = globals(node);
        assert_eq!(own.len(), 1);
        assert!(node.stack.owns_address(own[0].into()));
        assert_eq!(own[0].segments()[..4], [0x2001, 0xdb8, 5, 0]);
        let learned = routes(node);
        assert!(learned.contains(&("2001:db8:5::".parse().unwrap(), None)));
        assert!(learned.contains(&(Ipv6Addr::UNSPECIFIED.into(), Some(ROUTER.into()))));
        let later = now + seconds(5);
        node.connect(later, FAR, 80);
        let syn = node.transmit(later).remove(0);
        assert_eq!(
            syn.bytes[..6],
            hardware(77).0,
            "the router is known already"
        );
        assert_eq!(segments6(&[syn])[0].0.source, own[0]);
        // The same prefix again makes no second address; another host gets another identifier.
        node.deliver(later, &announcement(ROUTER, 255, 1_800, &options));
        assert_eq!(globals(node), own);
    });
}

#[test]
fn lifetimes_end_and_short_ones_of_a_stranger_do_not_end_them_at_once() {
    with_host_of_routers(|node| {
        settle(node, NOW);
        let option = prefix(20_000, 10_000).to_bytes();
        node.deliver(NOW, &announcement(ROUTER, 255, 100, &option));
        settle(node, NOW);
        let own = globals(node)[0];
        // RFC 4862 §5.5.3 (e): not below two hours.
        node.deliver(
            NOW,
            &announcement(ROUTER, 255, 100, &prefix(1, 1).to_bytes()),
        );
        node.timers(NOW + seconds(99));
        assert!(routes(node).iter().any(|(_, gateway)| gateway.is_some()));
        node.timers(NOW + seconds(100));
        assert!(routes(node).iter().all(|(_, gateway)| gateway.is_none()));
        node.timers(NOW + seconds(7_199));
        assert!(node.stack.owns_address(own.into()));
        node.timers(NOW + seconds(7_200));
        assert_eq!(globals(node), [] as [Ipv6Addr; 0]);
    });
}

#[test]
fn a_router_that_resigns_or_lies_about_itself_is_no_way_out() {
    with_host_of_routers(|node| {
        settle(node, NOW);
        for (source, hop_limit) in [(ROUTER, 254), (PEER6, 255), (Ipv6Addr::UNSPECIFIED, 255)] {
            node.deliver(NOW, &announcement(source, hop_limit, 1_800, &[]));
        }
        assert_eq!(routes(node), []);
        assert_eq!(node.stack.counters().ndp_in_errors, 3);
        node.deliver(NOW, &announcement(ROUTER, 255, 1_800, &[]));
        assert_eq!(routes(node).len(), 1);
        node.deliver(NOW, &announcement(ROUTER, 255, 0, &[]));
        assert_eq!(routes(node), []);
    });
}

#[test]
fn two_routers_are_kept_and_a_flood_of_them_is_bounded() {
    with_host_of_routers(|node| {
        settle(node, NOW);
        for n in 0..1_000_u16 {
            let router = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, n + 1);
            let mut option = prefix(7_200, 3_600);
            option.prefix = Ipv6Addr::new(0x2001, 0xdb8, 6, n, 0, 0, 0, 0);
            node.deliver(NOW, &announcement(router, 255, 1_800, &option.to_bytes()));
        }
        settle(node, NOW);
        assert_eq!(routes(node).len(), 16);
        assert_eq!(globals(node).len(), 8);
    });
}

#[test]
fn the_links_mtu_is_taken_over_within_its_bounds() {
    with_host_of_routers(|node| {
        settle(node, NOW);
        for (mtu, expected) in [
            (1_400, 1_340),
            (1_000, 1_340),
            (9_000, 1_340),
            (1_500, 1_440),
        ] {
            let options = [&prefix(7_200, 3_600).to_bytes()[..], &ndp::mtu_option(mtu)].concat();
            node.deliver(NOW, &announcement(ROUTER, 255, 1_800, &options));
            settle(node, NOW);
            assert_eq!(
                tcp::handshake::receive_mss(&node.stack.ip, FAR.into(), None),
                expected
            );
        }
    });
}

#[test]
fn nothing_is_learned_where_nobody_asked_for_it() {
    with_node6(|node| {
        let before = routes(node);
        let option = prefix(7_200, 3_600).to_bytes();
        node.deliver(NOW, &announcement(ROUTER, 255, 1_800, &option));
        assert_eq!(routes(node), before);
        let refused = node.connect_from(NOW, None, SocketAddr::from((FAR, 80)));
        assert_eq!(refused, Err(Error::NetworkUnreachable));
    });
}
