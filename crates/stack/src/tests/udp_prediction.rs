//! What is remembered of datagrams changes nothing: two stacks of which one forgets it before each step give programs the same, and
//! send the same.

use super::datagrams::*;
use super::ip::arp::arp;
use super::node::*;
use super::pair::*;
use super::peer::*;
use super::peer6::{ME6, PEER6, own};
use super::{udp, udp_v6};
use crate::udp::{MtuDiscovery, Outgoing};
use crate::*;
use ::tcp::Instant;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use wire::arp::Operation;

const PORT: u16 = 53;
/// Peers' ports; all of them send to all sockets.
const PEERS: [u16; 3] = [4_096, 5_000, 4_156];
const SOCKETS_MAX: usize = 4;

/// A stack, and which of the peer's datagrams the world has remembered.
struct World<'m> {
    node: Node<'m>,
    now: Instant,
    is_v6: bool,
    forgets: bool,
    sockets: Vec<UdpId>,
    opened: u64,
}

impl<'m> World<'m> {
    fn new(memory: &'m mut HeapTables, is_v6: bool, forgets: bool) -> Self {
        let now = Instant::from_us(1_000_000_000);
        let mut node = Node::new(memory.tables(), ME, now);
        own(&mut node, now, ME6);
        let mut world = Self {
            node,
            now,
            is_v6,
            forgets,
            sockets: Vec::new(),
            opened: 0,
        };
        world.knows(PEER);
        world.opens(0);
        world
    }

    fn ends(&self) -> (IpAddr, IpAddr) {
        match self.is_v6 {
            true => (PEER6.into(), ME6.into()),
            false => (ip(PEER).into(), ip(ME).into()),
        }
    }

    fn knows(&mut self, station: u8) {
        let peer = self.ends().0;
        let station = Some(hardware(station));
        self.node
            .stack
            .set_neighbour(self.now, NIC, peer, station)
            .unwrap();
    }

    /// On ANY, or at the address; each beside those that are there.
    fn opens(&mut self, how: u8) {
        if self.sockets.len() == SOCKETS_MAX {
            return;
        }
        self.opened += 1;
        let address = match how % 2 {
            0 => IpAddr::from(Ipv6Addr::UNSPECIFIED),
            _ => self.ends().1,
        };
        let bind = UdpBind {
            owner: self.opened,
            local: SocketAddr::new(address, PORT),
            shares: true,
            options: UdpOptions {
                reuse_port: how.is_multiple_of(3),
                ..UdpOptions::default()
            },
        };
        self.sockets.extend(self.node.stack.udp_bind(&bind));
    }

    /// A datagram of the peer's arrives, damaged in some way or other.
    fn arrives(&mut self, peer: usize, payload: &[u8], damage: u8) {
        let mut flying = datagram(self.ends(), PEERS[peer], payload);
        flying.partial = damage.is_multiple_of(2);
        match damage {
            10 => flying.bytes[3] ^= 1,
            11 => flying.bytes[24] ^= 0x10,
            12 => flying.bytes[42] ^= 1,
            13 => flying.bytes[6] |= 1,
            14 => flying.bytes[0..6].fill(0xff),
            15 => flying.bytes.truncate(50),
            16 => flying.interface = LOOPBACK.0,
            17 => flying.bytes[39] ^= 4,
            18 => flying.segment_bytes = Some(7),
            19 => flying.bytes[22] ^= 1,
            20 => flying.bytes[15] ^= 2,
            _ => {}
        }
        self.node.deliver(self.now, &flying);
    }

    fn sends(&mut self, which: u8, how: u8) {
        let Some(&id) = self.sockets.get(usize::from(which) % SOCKETS_MAX) else {
            return;
        };
        let (peer, own) = self.ends();
        let port = PEERS[usize::from(how) % PEERS.len()];
        let outgoing = Outgoing {
            destination: (!how.is_multiple_of(5)).then(|| SocketAddr::new(peer, port)),
            source: how.is_multiple_of(7).then_some(own),
            tos: how.is_multiple_of(11).then_some(how),
            ttl: how.is_multiple_of(13).then_some(how),
            segment_bytes: if how.is_multiple_of(17) { 100 } else { 0 },
            ..Outgoing::default()
        };
        let payload = vec![how; usize::from(how) * 8];
        let (stack, egress) = (&mut self.node.stack, &mut self.node.egress);
        let _ = stack.udp_send(self.now, id, &outgoing, &payload, egress);
    }

    fn step(&mut self, [kind, which, a, damage]: [u8; 4]) {
        if self.forgets {
            self.node.stack.udp.forget_recent();
        }
        let place = usize::from(which) % PEERS.len();
        match kind % 16 {
            0..5 => self.arrives(place, &[a; 20], damage % 64),
            5..10 => self.sends(which, a),
            10 => self.opens(a),
            11 if !self.sockets.is_empty() => {
                let id = self.sockets.remove(usize::from(which) % self.sockets.len());
                self.node.stack.udp_close(id).unwrap();
            }
            12 => self.connects(which, a),
            13 => {
                self.now += ms(u64::from(a) * 300);
                self.node.timers(self.now);
            }
            14 => self.options_change(which, a),
            _ => self.world_changes(a),
        }
    }

    fn connects(&mut self, which: u8, how: u8) {
        let peer = SocketAddr::new(self.ends().0, PEERS[usize::from(how) % PEERS.len()]);
        if let Some(&id) = self.sockets.get(usize::from(which) % SOCKETS_MAX) {
            let _ = match how % 2 {
                0 => self.node.stack.udp_connect(id, peer),
                _ => self.node.stack.udp_disconnect(id),
            };
        }
    }

    fn options_change(&mut self, which: u8, how: u8) {
        let Some(&id) = self.sockets.get(usize::from(which) % SOCKETS_MAX) else {
            return;
        };
        let mut options = self.node.stack.udp_options(id).unwrap();
        for family in [&mut options.v4, &mut options.v6] {
            family.ip.ttl = how;
            family.mtu_discovery = MtuDiscovery::from_number(how % 6);
        }
        options.reuse_port = how.is_multiple_of(2);
        options.merged = how.is_multiple_of(3);
        self.node.stack.udp_set_options(id, &options).unwrap();
    }

    /// An address goes away or comes back, the neighbour is another, is unknown or speaks of itself, or the device, its MTU or the route changes.
    fn world_changes(&mut self, how: u8) {
        let (now, (peer, own)) = (self.now, self.ends());
        let prefix_len = if self.is_v6 { 64 } else { 24 };
        let stack = &mut self.node.stack;
        match how % 6 {
            0 => {
                let address = if how.is_multiple_of(4) { peer } else { own };
                let own = InterfaceAddress {
                    address,
                    prefix_len,
                };
                if stack.remove_address(NIC, address).is_err() {
                    stack.add_address(now, NIC, own).unwrap();
                }
            }
            1 => self.knows(if how.is_multiple_of(4) { 98 } else { PEER }),
            2 if how.is_multiple_of(4) => {
                let _ = stack.set_neighbour(now, NIC, peer, None);
            }
            2 => {
                let operation = [Operation::REQUEST, Operation::REPLY][usize::from(how) % 2];
                let (peer, own) = ((hardware(PEER), ip(PEER)), (hardware(ME), ip(ME)));
                self.node.deliver(now, &arp(operation, peer, own));
            }
            3 => {
                let device = hardware(if how.is_multiple_of(4) { 99 } else { ME });
                stack.exchange_device(now, NIC, device).unwrap();
            }
            4 => {
                let mtu = [1_500, 1_400, 1_300][usize::from(how) % 3];
                let _ = stack.set_mtu(NIC, mtu);
            }
            _ => {
                let route = Route {
                    destination: peer,
                    prefix_len: if self.is_v6 { 128 } else { 32 },
                    gateway: None,
                    interface: if how.is_multiple_of(4) { LOOPBACK } else { NIC },
                    source: None,
                    metric: 0,
                };
                if stack.remove_route(&route).is_err() {
                    let _ = stack.add_route(route);
                }
            }
        }
    }

    /// All that can be seen of it.
    fn looks(&mut self) -> String {
        let frames = self.node.transmit(self.now);
        let (programs, counters) = (self.node.programs.borrow(), self.node.stack.counters());
        format!("{frames:?} {programs:?} {counters:?}")
    }
}

/// Of either family, to [`PORT`].
fn datagram((from, to): (IpAddr, IpAddr), from_port: u16, payload: &[u8]) -> Flying {
    match (from, to) {
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            udp_v6::datagram((from, from_port), (to, PORT), payload)
        }
        _ => udp::datagram((ip(PEER), from_port), (ip(ME), PORT), payload),
    }
}

fn udp_memory() -> HeapTables {
    HeapTables::new(4, 4, 4).unwrap().with_udp(8).unwrap()
}

proptest! {
    #[test]
    fn what_is_remembered_of_datagrams_changes_nothing(
        is_v6: bool,
        operations in proptest::collection::vec(any::<[u8; 4]>(), 0..120),
    ) {
        let (mut one, mut other) = (udp_memory(), udp_memory());
        let mut worlds = [World::new(&mut one, is_v6, false), World::new(&mut other, is_v6, true)];
        for operation in operations {
            let [one, other] = worlds.each_mut().map(|world| {
                world.step(operation);
                world.looks()
            });
            prop_assert!(one == other, "{operation:?}\n{one}\n{other}");
        }
    }
}

#[test]
fn a_datagram_like_one_that_came_is_predicted_until_the_sockets_change() {
    for is_v6 in [false, true] {
        let mut memory = udp_memory();
        let mut world = World::new(&mut memory, is_v6, false);
        let flying = datagram(world.ends(), PEERS[0], b"what?");
        let is_predicted = |world: &mut World<'_>| {
            let stack = &mut world.node.stack;
            let interfaces = &stack.ip.link.interfaces;
            stack
                .udp
                .predicted(interfaces, NIC, &flying.bytes)
                .is_some()
        };
        assert!(!is_predicted(&mut world));
        world.node.deliver(world.now, &flying);
        assert!(is_predicted(&mut world));
        world.opens(1);
        assert!(!is_predicted(&mut world), "the new socket is closer");
        world.node.deliver(world.now, &flying);
        world.node.deliver(world.now, &flying);
        let owners: Vec<u64> = taken(&world.node).iter().map(|one| one.0).collect();
        assert_eq!(owners, [1, 2, 2]);
        world.node.stack.udp_close(world.sockets[1]).unwrap();
        assert!(!is_predicted(&mut world), "its socket is closed");
    }
}

#[test]
fn the_way_of_a_datagram_is_remembered_until_something_changes_that_it_was_found_from() {
    for is_v6 in [false, true] {
        let mut memory = udp_memory();
        let mut world = World::new(&mut memory, is_v6, false);
        let (id, to) = (world.sockets[0], SocketAddr::new(world.ends().0, PEERS[0]));
        let remembers = |world: &mut World<'_>, tos| {
            let stack = &mut world.node.stack;
            let outgoing = Outgoing {
                tos,
                ..Outgoing::default()
            };
            stack.udp.remembers(&stack.ip, id, &outgoing, to)
        };
        let sends = |world: &mut World<'_>| {
            assert_eq!(
                send_at(&mut world.node, (world.now, id), Some(to), b"that"),
                Ok(4)
            );
        };
        assert!(!remembers(&mut world, None));
        sends(&mut world);
        assert!(remembers(&mut world, None));
        assert!(!remembers(&mut world, Some(4)), "another type of service");
        for what in ["a socket is opened", "an option changes", "the MTU changes"] {
            match what {
                "a socket is opened" => world.opens(0),
                "an option changes" => world.options_change(0, 9),
                _ => world.node.stack.set_mtu(NIC, 1_400).unwrap(),
            }
            assert!(!remembers(&mut world, None), "{what}");
            sends(&mut world);
            assert!(remembers(&mut world, None));
        }
    }
}
