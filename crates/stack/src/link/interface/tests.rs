//! Whose an address is, and what it may stand for.

use super::*;

fn interfaces(address: Ipv4Addr, prefix_len: u8) -> Interfaces {
    let mut interfaces = Interfaces::default();
    let way = (Resolution::Arp, AddressState::Preferred);
    add(&mut interfaces, way, address, prefix_len);
    interfaces
}

fn add(
    interfaces: &mut Interfaces,
    (resolution, state): (Resolution, AddressState),
    address: Ipv4Addr,
    prefix_len: u8,
) {
    let address = address.into();
    let config = InterfaceConfig {
        hardware: ethernet::Address([2; 6]),
        mtu: 1_500,
        resolution,
        scope_id: 0,
        router_discovery: false,
    };
    let id = interfaces.add(config).unwrap();
    let address = InterfaceAddress {
        address,
        prefix_len,
    };
    let owned = Owned {
        address,
        origin: Origin::Configured,
        state,
        act_at: Instant::NEVER,
        acts_left: 0,
        defended_at: None,
        preferred_until: Instant::NEVER,
        valid_until: Instant::NEVER,
    };
    interfaces.find_mut(id).unwrap().addresses.push(owned);
}

/// An address near `10.0.0.0/28`, one of loopback, or anything.
fn near(choice: u32) -> Ipv4Addr {
    let base = [0x0a00_0000, 0x7f00_0000, 0xe000_0000, 0][usize::from(choice.to_le_bytes()[3] & 3)];
    if choice.is_multiple_of(7) {
        return Ipv4Addr::from_bits(choice);
    }
    Ipv4Addr::from_bits(base + choice % 17)
}

proptest::proptest! {
    #[test]
    fn one_look_at_both_ends_finds_what_three_questions_find(
        owned in proptest::collection::vec((0..3_u8, 0..2_u8, proptest::num::u32::ANY, 24..=32_u8), 0..4),
        source in proptest::num::u32::ANY,
        destination in proptest::num::u32::ANY,
    ) {
        let mut all = Interfaces::default();
        for (resolution, state, address, prefix_len) in owned {
            let resolution = [Resolution::Arp, Resolution::External, Resolution::Loopback][usize::from(resolution)];
            let state = [AddressState::Preferred, AddressState::Tentative][usize::from(state)];
            // There is one loopback.
            if resolution != Resolution::Loopback || all.loopback().is_none() {
                add(&mut all, (resolution, state), near(address), prefix_len);
            }
        }
        let (source, destination) = (near(source), near(destination));
        proptest::prop_assert_eq!(all.ends(source, destination), Ends {
            is_source_unicast: all.is_unicast(source.into()),
            is_source_own: all.owns(source.into()),
            is_destination_own: all.owns(destination.into()),
        });
    }
}

#[test]
fn broadcast_addresses_follow_the_prefix() {
    let interfaces_24 = interfaces(Ipv4Addr::new(192, 168, 1, 7), 24);
    for (last, expected) in [(0, true), (255, true), (7, false), (254, false)] {
        assert_eq!(
            interfaces_24.is_broadcast(Ipv4Addr::new(192, 168, 1, last)),
            expected
        );
    }
    assert!(!interfaces_24.is_broadcast(Ipv4Addr::new(192, 168, 2, 255)));
    let interfaces_31 = interfaces(Ipv4Addr::new(192, 168, 1, 254), 31);
    assert!(
        !interfaces_31.is_broadcast(Ipv4Addr::new(192, 168, 1, 255)),
        "RFC 3021"
    );
}

#[test]
fn multicast_reserved_and_this_network_are_not_unicast() {
    let interfaces = interfaces(Ipv4Addr::new(192, 168, 1, 7), 24);
    for address in [
        "0.0.0.0",
        "0.1.2.3",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "192.168.1.255",
        "::",
        "ff02::1",
        "::ffff:192.168.1.9",
    ] {
        assert!(
            !interfaces.is_unicast(address.parse().unwrap()),
            "{address}"
        );
    }
    assert!(interfaces.is_unicast(Ipv4Addr::new(8, 8, 8, 8).into()));
}
