//! The engines against each other; against the kernel see `route`.

use core::net::SocketAddr;
use std::sync::Arc;

use hostif::control::SocketKinds;

use super::*;
use crate::engines::route::{Claim, EngineNetworks, Network, Owner};

fn engine(networks: &[&str], has_gateway: bool) -> Arc<EngineNetworks> {
    let network = |text: &&str| {
        let (address, len) = text.split_once('/').unwrap();
        Network {
            address: address.parse().unwrap(),
            prefix_len: len.parse().unwrap(),
        }
    };
    Arc::new(EngineNetworks {
        interfaces: networks.iter().map(network).collect(),
        has_gateway_v4: has_gateway,
        mtu_bytes: 1_500,
        ..EngineNetworks::default()
    })
}

fn places(candidates: Candidates) -> Vec<usize> {
    candidates.iter().map(EngineIndex::index).collect()
}

fn flow(port: u16) -> Flow {
    Flow {
        local: SocketAddr::new("10.9.0.1".parse().unwrap(), port),
        remote: "10.9.0.2:80".parse().unwrap(),
    }
}

#[test]
fn an_address_is_its_engines_and_any_is_everybodys() {
    let all = [
        engine(&["10.9.1.1/24"], false),
        engine(&["10.9.2.1/24"], false),
    ];
    let owner = |address: &str| {
        let owner = owner(address.parse().unwrap(), &all);
        owner.map(|(owner, place)| (owner, place.index()))
    };
    assert_eq!(owner("10.9.1.1"), Some((Owner::Engine, 0)));
    assert_eq!(owner("10.9.2.1"), Some((Owner::Engine, 1)));
    assert_eq!(owner("10.9.2.2"), None);
    assert_eq!(owner("0.0.0.0"), Some((Owner::Any, 0)));
}

#[test]
fn the_closest_engine_gets_a_destination_and_equals_share_it() {
    let claims = |all: &[Option<Claim>]| places(Candidates::best_of(all.iter().copied()));
    let route = |len| Some(Claim::Route(len));
    assert_eq!(claims(&[None, None]), [] as [usize; 0]);
    assert_eq!(claims(&[route(24), route(24), route(16)]), [0, 1]);
    assert_eq!(claims(&[route(16), None, route(24)]), [2]);
    assert_eq!(claims(&[route(32), Some(Claim::Own)]), [1]);
    assert_eq!(claims(&[None, route(0)]), [1]);
    let both = Candidates::best_of([route(24), route(24)].into_iter());
    assert_eq!(places(both.limited_to(EngineIndex(1))), [1]);
    assert!(both.limited_to(EngineIndex(2)).is_empty());
    // 192.0.2.0/24 is for documentation: the kernel of no test machine has a route of that length.
    let all = [
        engine(&["192.0.2.1/25"], true),
        engine(&["192.0.2.129/25"], false),
    ];
    let to = |destination: &str| places(closest(destination.parse().unwrap(), &all));
    assert_eq!(to("192.0.2.7:80"), [0]);
    assert_eq!(to("192.0.2.200:80"), [1]);
    assert_eq!(to("127.0.0.1:80"), [] as [usize; 0]);
}

#[test]
fn of_engines_on_one_link_the_first_hears_for_all() {
    let with = |scope_id, kinds| {
        Arc::new(EngineNetworks {
            scope_id,
            kinds,
            ..EngineNetworks::default()
        })
    };
    let on = |scope_id| with(scope_id, SocketKinds::DATAGRAM);
    let tcp_only = with(3, SocketKinds::STREAM);
    let all = [on(3), on(5), on(3), on(0), on(0), tcp_only];
    let serving = serving(SocketKinds::DATAGRAM, &all);
    assert_eq!(places(serving), [0, 1, 2, 3, 4]);
    let first = |index| first_on_link(EngineIndex::new(index).unwrap(), serving, &all).index();
    assert_eq!([first(0), first(1), first(2)], [0, 1, 0]);
    // Links that are not this kernel's are not known to be one.
    assert_eq!([first(3), first(4)], [3, 4]);
    let without = [1, 2].map(|index| EngineIndex::new(index).unwrap());
    let without = without.into_iter().collect();
    assert_eq!(first_on_link(EngineIndex(2), without, &all), EngineIndex(2));
}

#[test]
fn a_group_goes_where_its_scope_says_or_a_route_leads() {
    let scoped = |networks: &[&str], scope_id| {
        let one = EngineNetworks::clone(&engine(networks, false));
        Arc::new(EngineNetworks { scope_id, ..one })
    };
    let all = [
        scoped(&["192.0.2.1/25"], 3),
        scoped(&["192.0.2.129/25", "2001:db8::1/64"], 5),
    ];
    let to = |destination: &str| places(closest_to_group(destination.parse().unwrap(), &all));
    assert_eq!(to("[ff02::1%3]:80"), [0]);
    assert_eq!(to("[ff02::1%5]:80"), [1]);
    assert_eq!(to("[ff02::1%6]:80"), [] as [usize; 0]);
    assert_eq!(to("[ff15::1]:80"), [1], "one that has IPv6");
}

#[test]
fn each_placement_has_its_order() {
    let all = Candidates(0b1011);
    let first = |placement: Placement, port| {
        let order = placement.order(all, flow(port), &[]);
        let mut sorted: Vec<usize> = order.iter().map(|place| place.index()).collect();
        let first = sorted[0];
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 3], "all of them, each once");
        first
    };
    assert_eq!(first(Placement::Priority, 1), 0);
    assert_eq!(first(Placement::LeastLoad, 1), 0);
    let turns: Vec<usize> = (0..3).map(|_| first(Placement::RoundRobin, 1)).collect();
    let mut sorted = turns.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 1, 3], "{turns:?}");
    let mut seen = [0; 4];
    for port in 0..300 {
        let place = first(Placement::FlowHash, port);
        assert_eq!(place, first(Placement::FlowHash, port));
        seen[place] += 1;
    }
    assert!([0, 1, 3].iter().all(|place| seen[*place] > 50), "{seen:?}");
}

#[test]
fn what_worked_is_tried_first_until_something_else_did() {
    let remembered = Remembered::new();
    let order = |destination: &str| {
        let mut places: Vec<EngineIndex> = Candidates(0b111).iter().collect();
        remembered.prefer(destination.parse().unwrap(), &mut places);
        places.iter().map(|place| place.index()).collect::<Vec<_>>()
    };
    assert_eq!(order("10.0.0.1"), [0, 1, 2]);
    remembered.remember("10.0.0.1".parse().unwrap(), EngineIndex(2));
    assert_eq!(order("10.0.0.1"), [2, 0, 1]);
    remembered.remember("10.0.0.1".parse().unwrap(), EngineIndex(0));
    assert_eq!(order("10.0.0.1"), [0, 1, 2]);
}

#[test]
fn placements_are_known_by_their_names() {
    for (name, placement) in Placement::ALL {
        assert_eq!(Placement::parse(name), Some(placement));
    }
    assert_eq!(Placement::parse("best"), None);
}
