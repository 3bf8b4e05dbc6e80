//! Which stack an address leads to.

use super::kernel::Route;
use super::*;

pub(super) fn network(text: &str) -> Network {
    let (address, len) = text.split_once('/').unwrap();
    Network {
        address: address.parse().unwrap(),
        prefix_len: len.parse().unwrap(),
    }
}

fn engine(has_gateway: bool) -> EngineNetworks {
    EngineNetworks {
        interfaces: vec![network("10.0.0.2/24")],
        has_gateway_v4: has_gateway,
        mtu_bytes: 1_500,
        ..EngineNetworks::default()
    }
}

fn route(destination: &str, engine: &EngineNetworks, kernel: &[&str]) -> Stack {
    let kernel = kernel.iter().map(|text| Route::to(network(text)));
    let kernel = KernelRoutes(kernel.collect());
    stack_of(choose(destination.parse().unwrap(), engine, || {
        Arc::new(kernel)
    }))
}

#[test]
fn the_engines_subnet_goes_to_the_engine_and_others_to_the_kernel() {
    let kernel = ["0.0.0.0/0", "192.168.1.0/24"];
    assert_eq!(route("10.0.0.9", &engine(false), &kernel), Stack::Engine);
    assert_eq!(route("192.168.1.9", &engine(false), &kernel), Stack::Kernel);
    assert_eq!(route("1.1.1.1", &engine(false), &kernel), Stack::Kernel);
}

#[test]
fn with_a_gateway_the_engine_takes_what_the_kernel_has_no_closer_route_to() {
    let kernel = ["0.0.0.0/0", "192.168.1.0/24", "10.8.0.0/16"];
    assert_eq!(route("1.1.1.1", &engine(true), &kernel), Stack::Engine);
    assert_eq!(route("192.168.1.9", &engine(true), &kernel), Stack::Kernel);
    assert_eq!(route("10.8.3.1", &engine(true), &kernel), Stack::Kernel);
}

#[test]
fn an_address_of_the_kernel_inside_the_engines_subnet_stays_with_the_kernel() {
    let kernel = ["10.0.0.0/24", "10.0.0.5/32"];
    assert_eq!(route("10.0.0.5", &engine(false), &kernel), Stack::Kernel);
    assert_eq!(route("10.0.0.6", &engine(false), &kernel), Stack::Engine);
    // The engine's own address is its own even where the kernel has it too (shared address).
    assert_eq!(
        route("10.0.0.2", &engine(false), &["10.0.0.2/32"]),
        Stack::Engine
    );
}

#[test]
fn loopback_reaches_an_engine_only_where_the_process_wants_it() {
    for (has_loopback, stack, owned) in [
        (false, Stack::Kernel, None),
        (true, Stack::Engine, Some(Owner::Any)),
    ] {
        let all = EngineNetworks {
            interfaces: vec![network("10.0.0.2/24")],
            has_gateway_v4: true,
            has_loopback,
            ..EngineNetworks::default()
        };
        for to in [
            "127.0.0.1:80",
            "127.8.0.1:80",
            "0.0.0.0:80",
            "[::1]:80",
            "[::]:80",
        ] {
            assert_eq!(stack_for(to.parse().unwrap(), &all), stack, "{to}");
        }
        assert_eq!(owner("127.0.0.1".parse().unwrap(), &all), owned);
    }
    let resolved = |text: &str| resolved(text.parse().unwrap()).to_string();
    assert_eq!(resolved("0.0.0.0:80"), "127.0.0.1:80");
    assert_eq!(resolved("[::]:80"), "[::1]:80");
    assert_eq!(resolved("10.0.0.1:80"), "10.0.0.1:80");
}

#[test]
fn a_shared_address_of_this_host_is_reached_over_loopback_where_that_is_the_engines() {
    let one = |sharing, has_loopback| EngineNetworks {
        interfaces: vec![network("10.0.0.2/24")],
        sharing,
        has_loopback,
        ..EngineNetworks::default()
    };
    let own: IpAddr = "10.0.0.2".parse().unwrap();
    for (sharing, has_loopback, expected) in [
        (Sharing::Steered, true, true),
        (Sharing::Doubled, true, true),
        (Sharing::Steered, false, false),
        (Sharing::Owned, true, false),
    ] {
        let engine = one(sharing, has_loopback);
        assert_eq!(engine.has_as_loopback(own), expected);
        if expected {
            let claimed = claim(SocketAddr::new(own, 80), &engine);
            assert_eq!(claimed, Some(Claim::Own));
        }
    }
}

#[test]
fn the_last_address_of_a_network_reaches_everybody() {
    let engine = engine(false);
    for (address, expected) in [
        ("10.0.0.255", true),
        ("10.0.1.255", false),
        ("10.0.0.2", false),
    ] {
        assert_eq!(engine.is_broadcast(address.parse().unwrap()), expected);
    }
}

#[test]
fn owners_of_local_addresses_are_told_apart() {
    let engine = engine(true);
    for any in ["0.0.0.0", "::"] {
        assert_eq!(owner(any.parse().unwrap(), &engine), Some(Owner::Any));
    }
    assert_eq!(
        owner("10.0.0.2".parse().unwrap(), &engine),
        Some(Owner::Engine)
    );
    assert_eq!(owner("10.0.0.3".parse().unwrap(), &engine), None);
}

#[test]
fn ipv6_goes_by_its_own_prefixes_and_gateway() {
    let engine = EngineNetworks {
        interfaces: vec![network("10.0.0.2/24"), network("2001:db8::2/64")],
        has_gateway_v4: true,
        ..EngineNetworks::default()
    };
    let kernel = ["::/0", "2001:db8::7/128"];
    assert_eq!(route("2001:db8::9", &engine, &kernel), Stack::Engine);
    assert_eq!(route("2001:db8::7", &engine, &kernel), Stack::Kernel);
    assert_eq!(route("2a00::1", &engine, &[]), Stack::Kernel);
    let with_gateway = EngineNetworks {
        has_gateway_v6: true,
        ..engine
    };
    assert_eq!(route("2a00::1", &with_gateway, &kernel), Stack::Engine);
}

#[test]
fn a_link_local_destination_goes_to_whoever_has_the_named_link() {
    let engine = EngineNetworks {
        interfaces: vec![network("fe80::2/64")],
        scope_id: 3,
        ..EngineNetworks::default()
    };
    let there = |scope| stack_for(format!("[fe80::9%{scope}]:80").parse().unwrap(), &engine);
    assert_eq!(there(4), Stack::Kernel);
    assert_eq!(there(3), Stack::Engine);
}

#[test]
fn with_shared_addresses_the_kernels_route_decides() {
    let engine = EngineNetworks {
        scope_id: 3,
        sharing: Sharing::Steered,
        ..engine(true)
    };
    let route = |text, interface, metric| Route {
        network: network(text),
        interface,
        metric,
    };
    let kernel = Arc::new(KernelRoutes(vec![
        route("10.0.0.0/24", 3, 0),
        route("10.0.0.2/32", 0, 0),
        route("10.8.0.0/16", 4, 0),
        route("10.8.0.0/16", 3, 100),
        route("0.0.0.0/0", 4, 100),
        route("0.0.0.0/0", 3, 50),
    ]));
    for (destination, expected) in [
        ("10.0.0.9", Stack::Engine),
        ("10.0.0.2", Stack::Kernel),
        ("10.8.0.1", Stack::Kernel),
        ("1.1.1.1", Stack::Engine),
        ("2001:db8::1", Stack::Kernel),
    ] {
        let chosen = choose(destination.parse().unwrap(), &engine, || {
            Arc::clone(&kernel)
        });
        assert_eq!(stack_of(chosen), expected, "{destination}");
    }
    let own = owner("10.0.0.2".parse().unwrap(), &engine);
    assert_eq!(
        own,
        Some(Owner::Any),
        "programs of this host come by the kernel"
    );
}
