//! Neighbour discovery seen from outside: what is sent, and what the cache becomes.

use crate::address::{group_hardware, solicited_node};
use crate::tests::pair::*;
use crate::tests::peer::ME;
use crate::tests::peer6::*;
use crate::*;
use ::tcp::{ConnectionError, Instant};
use std::net::{IpAddr, Ipv6Addr};
use wire::ethernet::Address;
use wire::icmpv6::Message;
use wire::icmpv6::ndp::{self, Options};

const NOW: Instant = Instant::from_us(1_000_000_000);
const NEW: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 8);

fn options(option: &Option<[u8; 8]>) -> Options<'_> {
    option
        .as_ref()
        .map_or(Options::NONE, |bytes| Options::parse(bytes).unwrap())
}

fn solicitation(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    hop_limit: u8,
    target: Ipv6Addr,
    hardware: Option<Address>,
) -> Flying {
    let option = hardware.map(ndp::source_link_layer);
    let message = Message::Ndp(ndp::Message::NeighbourSolicitation {
        target,
        options: options(&option),
    });
    icmp_frame(source, destination, hop_limit, &message)
}

/// What `from` says about itself.
struct Says {
    from: Ipv6Addr,
    hardware: Option<Address>,
    solicited: bool,
    overrides: bool,
}

fn advertisement(says: &Says) -> Flying {
    let option = says.hardware.map(ndp::target_link_layer);
    let message = Message::Ndp(ndp::Message::NeighbourAdvertisement {
        target: says.from,
        router: false,
        solicited: says.solicited,
        overrides: says.overrides,
        options: options(&option),
    });
    icmp_frame(says.from, ME6, 255, &message)
}

/// The messages of neighbour discovery among what was sent: header, link destination, message.
fn sent<R>(
    frames: &[Flying],
    read: impl Fn(&wire::ipv6::Header, Address, &ndp::Message<'_>) -> R,
) -> Vec<R> {
    frames
        .iter()
        .filter_map(|frame| {
            let one = icmp6(std::slice::from_ref(frame)).pop()?;
            let to = Address(frame.bytes[..6].try_into().unwrap());
            match message(&one) {
                Message::Ndp(message) => Some(read(&one.0, to, &message)),
                _ => None,
            }
        })
        .collect()
}

fn state_of(
    node: &Node<'_>,
    now: Instant,
    address: Ipv6Addr,
) -> Option<(NeighbourState, Option<Address>)> {
    let mut neighbours = node.stack.neighbours(now);
    let found = neighbours.find(|one| one.address == IpAddr::V6(address))?;
    Some((found.state, found.hardware))
}

#[test]
fn a_connect_asks_the_solicited_node_group_and_goes_on_when_answered() {
    with_node6(|node| {
        node.connect(NOW, NEW, 80);
        let asked = sent(&node.transmit(NOW), |ip, to, message| {
            assert_eq!(ip.hop_limit, 255);
            assert_eq!(ip.destination, solicited_node(NEW));
            assert_eq!(to, group_hardware(ip.destination));
            let ndp::Message::NeighbourSolicitation { target, options } = *message else {
                panic!("{message:?}")
            };
            assert_eq!(options.source_link_layer(), Some(hardware(ME)));
            target
        });
        assert_eq!(asked, [NEW]);
        let says = Says {
            from: NEW,
            hardware: Some(hardware(8)),
            solicited: true,
            overrides: true,
        };
        node.deliver(NOW, &advertisement(&says));
        let syn = node.transmit(NOW).remove(0);
        assert_eq!(syn.bytes[..6], hardware(8).0);
        let expected = (NeighbourState::Reachable, Some(hardware(8)));
        assert_eq!(state_of(node, NOW, NEW), Some(expected));
    });
}

#[test]
fn nobody_answers_three_questions_and_the_connect_fails() {
    with_node6(|node| {
        let owner = node.connect(NOW, NEW, 80);
        let mut asked = 0;
        for step in 0..50 {
            let now = NOW + ms(step * 100);
            node.timers(now);
            asked += sent(&node.transmit(now), |_, _, _| ()).len();
        }
        assert_eq!(asked, 3);
        assert_eq!(
            node.view(owner).error,
            Some(ConnectionError::HostUnreachable)
        );
    });
}

#[test]
fn a_question_is_answered_and_the_asker_remembered() {
    with_node6(|node| {
        node.deliver(
            NOW,
            &solicitation(NEW, solicited_node(ME6), 255, ME6, Some(hardware(8))),
        );
        let answers = sent(&node.transmit(NOW), |ip, to, message| {
            let ndp::Message::NeighbourAdvertisement {
                target,
                solicited,
                overrides,
                router,
                options,
            } = *message
            else {
                panic!("{message:?}")
            };
            assert_eq!((ip.source, ip.destination, ip.hop_limit), (ME6, NEW, 255));
            assert_eq!(
                (to, options.target_link_layer()),
                (hardware(8), Some(hardware(ME)))
            );
            (target, solicited, overrides, router)
        });
        assert_eq!(answers, [(ME6, true, true, false)]);
        let expected = (NeighbourState::Stale, Some(hardware(8)));
        assert_eq!(state_of(node, NOW, NEW), Some(expected));
    });
}

#[test]
fn questions_that_rfc_4861_forbids_are_neither_answered_nor_believed() {
    with_node6(|node| {
        let group = solicited_node(ME6);
        let nobody = Ipv6Addr::UNSPECIFIED;
        let wrong = [
            solicitation(NEW, group, 254, ME6, Some(hardware(8))),
            solicitation(nobody, group, 255, ME6, Some(hardware(8))),
            solicitation(nobody, "ff02::1".parse().unwrap(), 255, ME6, None),
            solicitation(NEW, group, 255, group, Some(hardware(8))),
            solicitation(NEW, group, 255, ME6, Some(Address::BROADCAST)),
        ];
        for frame in &wrong {
            node.deliver(NOW, frame);
        }
        assert!(node.transmit(NOW).is_empty());
        assert_eq!(node.stack.counters().ndp_in_errors, 5);
        assert_eq!(state_of(node, NOW, NEW), None);
        // Not ours: no error, no answer.
        node.deliver(
            NOW,
            &solicitation(NEW, group, 255, ip6(77), Some(hardware(8))),
        );
        assert!(node.transmit(NOW).is_empty());
        assert_eq!(node.stack.counters().ndp_in_errors, 5);
    });
}

#[test]
fn an_advertisement_that_nobody_asked_for_makes_no_entry() {
    with_node6(|node| {
        let says = Says {
            from: NEW,
            hardware: Some(hardware(8)),
            solicited: true,
            overrides: true,
        };
        node.deliver(NOW, &advertisement(&says));
        assert_eq!(state_of(node, NOW, NEW), None);
    });
}

#[test]
fn what_an_advertisement_changes_follows_its_flags() {
    use NeighbourState as S;
    // RFC 4861 §7.2.5, for an entry that is reachable at hardware address 8.
    for (at, solicited, overrides, expected) in [
        (Some(7), false, false, (S::Stale, 8)),
        (Some(7), false, true, (S::Stale, 7)),
        (Some(8), false, true, (S::Reachable, 8)),
        (None, false, false, (S::Reachable, 8)),
    ] {
        with_node6(|node| {
            node.connect(NOW, NEW, 80);
            node.transmit(NOW);
            let known = Says {
                from: NEW,
                hardware: Some(hardware(8)),
                solicited: true,
                overrides: true,
            };
            node.deliver(NOW, &advertisement(&known));
            let later = NOW + ms(2_000);
            let says = Says {
                from: NEW,
                hardware: at.map(hardware),
                solicited,
                overrides,
            };
            node.deliver(later, &advertisement(&says));
            let (state, at_hardware) = expected;
            let found = state_of(node, later, NEW);
            assert_eq!(found, Some((state, Some(hardware(at_hardware)))));
        });
    }
}

#[test]
fn a_new_address_is_tested_and_given_up_if_somebody_has_it() {
    with_node6(|node| {
        own(node, NOW, NEW);
        node.timers(NOW);
        let probes = sent(&node.transmit(NOW), |ip, _, message| {
            let ndp::Message::NeighbourSolicitation { target, options } = *message else {
                panic!("{message:?}")
            };
            assert_eq!((ip.source, options), (Ipv6Addr::UNSPECIFIED, Options::NONE));
            target
        });
        assert_eq!(probes, [NEW]);
        assert!(
            node.stack.owns_address(NEW.into()),
            "an operator has chosen it"
        );
        let says = Says {
            from: NEW,
            hardware: Some(hardware(8)),
            solicited: false,
            overrides: true,
        };
        let to_all = Message::Ndp(ndp::Message::NeighbourAdvertisement {
            target: says.from,
            router: false,
            solicited: false,
            overrides: true,
            options: Options::NONE,
        });
        node.deliver(
            NOW,
            &icmp_frame(PEER6, "ff02::1".parse().unwrap(), 255, &to_all),
        );
        assert!(!node.stack.owns_address(NEW.into()));
        assert_eq!(node.stack.counters().duplicate_addresses, 1);
        assert!(node.stack.owns_address(ME6.into()));
    });
}

#[test]
fn a_made_address_is_silent_until_its_test_is_over_and_made_anew_if_it_is_a_duplicate() {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let mut node = Node::new(memory.tables(), ME, NOW);
    own(&mut node, NOW, ME6);
    let link_locals = |node: &Node<'_>| -> Vec<Ipv6Addr> {
        let (_, _, addresses) = node.stack.interfaces().next().unwrap();
        let mut found = Vec::new();
        for own in addresses {
            if let IpAddr::V6(v6) = own.address
                && v6.is_unicast_link_local()
            {
                found.push(v6);
            }
        }
        found
    };
    let first = link_locals(&node)[0];
    node.timers(NOW);
    node.transmit(NOW);
    assert!(!node.stack.owns_address(first.into()), "tentative");
    let nobody = Ipv6Addr::UNSPECIFIED;
    let probe = solicitation(nobody, solicited_node(first), 255, first, None);
    let mut own_echo = probe.clone();
    own_echo.bytes[6..12].copy_from_slice(&hardware(ME).0);
    node.deliver(NOW, &own_echo);
    assert_eq!(link_locals(&node), [first], "a link that returns our words");
    node.deliver(NOW, &probe);
    let second = link_locals(&node)[0];
    assert_ne!(first, second);
    node.timers(NOW);
    node.transmit(NOW);
    node.timers(NOW + ms(1_000));
    assert!(node.stack.owns_address(second.into()));
}
