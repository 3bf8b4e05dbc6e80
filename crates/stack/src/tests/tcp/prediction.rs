//! The short way of a segment changes nothing: the same frames by the long way give the same answers, and
//! programs hear the same.

use crate::tests::pair::*;
use crate::tests::peer::*;
use crate::tests::peer6::{ME6, PEER6, own, segment6};
use crate::*;
use ::tcp::Instant;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use wire::tcp::{Flags, Header, Timestamps};

const PORT: u16 = 80;
/// Peers' ports; the first and the last share an entry of the predictions.
const PEERS: [u16; 3] = [4_096, 5_000, 4_156];

/// A stack, and what the peers know of it.
struct World<'m> {
    node: Node<'m>,
    now: Instant,
    is_v6: bool,
    /// Nothing is ever predicted, and nothing leaves by the short way.
    goes_long: bool,
    listener: ListenerId,
    accepted: Vec<u64>,
    /// What the stack has sent last to each of [`PEERS`].
    last: [Header; PEERS.len()],
    predicted: u32,
}

impl<'m> World<'m> {
    fn new(memory: &'m mut HeapTables, is_v6: bool, goes_long: bool) -> Self {
        let now = Instant::from_us(1_000_000_000);
        let mut node = Node::new(memory.tables(), ME, now);
        node.stack.tcp.sends_long = goes_long;
        node.knows(now, PEER);
        own(&mut node, now, ME6);
        let peer = Some(hardware(PEER));
        node.stack
            .set_neighbour(now, NIC, PEER6.into(), peer)
            .unwrap();
        let local = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT));
        let listen = Listen {
            owner: u64::from(PORT),
            local,
            v6_only: false,
            backlog: 4,
            reuse_address: true,
            reuse_port: None,
        };
        let listener = node.stack.listen(&listen).unwrap();
        let mut world = Self {
            node,
            now,
            is_v6,
            goes_long,
            listener,
            accepted: Vec::new(),
            last: [Header::default(); PEERS.len()],
            predicted: 0,
        };
        for peer in 0..PEERS.len() {
            world.opens(peer);
        }
        world
    }

    fn opens(&mut self, peer: usize) {
        self.arrives(self.segment(peer, Flags::SYN), &[], 0);
        self.looks();
        self.arrives(self.segment(peer, Flags::ACK), &[], 0);
    }

    /// The next one that a peer would send.
    fn segment(&self, peer: usize, flags: Flags) -> Header {
        let last = &self.last[peer];
        let syn = u32::from(last.flags.contains(Flags::SYN));
        let mut next = header(
            PEERS[peer],
            PORT,
            last.ack,
            last.seq.wrapping_add(syn),
            flags,
        );
        let value = u32::try_from(self.now.as_us() / 1_000).unwrap();
        let echo = last.options.timestamps.map_or(0, |stamp| stamp.value);
        next.options.timestamps = Some(Timestamps { value, echo });
        next
    }

    /// A segment of a peer arrives, damaged in some way or other.
    fn arrives(&mut self, header: Header, payload: &[u8], damage: u8) {
        let mut flying = if self.is_v6 {
            segment6(PEER6, ME6, &header, payload)
        } else {
            segment(ip(PEER), ip(ME), &header, payload)
        };
        flying.partial = damage.is_multiple_of(2);
        match damage {
            10 => flying.bytes[3] ^= 1,
            11 => flying.bytes[24] ^= 0x10,
            12 => flying.bytes[40] ^= 1,
            13 => flying.bytes[6] |= 1,
            14 => flying.bytes[0..6].fill(0xff),
            15 => flying.bytes.truncate(50),
            16 => flying.interface = LOOPBACK.0,
            _ => {}
        }
        if self.goes_long {
            self.node.stack.tcp.demux.predictions.forget_all();
        } else {
            let generation = self.node.stack.ip.link.interfaces.generation();
            let predictions = &self.node.stack.tcp.demux.predictions;
            let interface = InterfaceId(flying.interface);
            let found = predictions.find(interface, &flying.bytes, generation);
            self.predicted += u32::from(found.is_some());
        }
        let now = self.now;
        self.node.deliver(now, &flying);
    }

    fn step(&mut self, [kind, which, a, damage]: [u8; 4]) {
        let peer = usize::from(which) % PEERS.len();
        let now = self.now;
        match kind % 16 {
            0..6 => {
                let mut next = self.segment(peer, Flags::ACK | Flags::PSH);
                let near = [0, 0, 0, 0, 700, u32::MAX, 100_000, 0x8000_0000];
                next.seq = next.seq.wrapping_add(near[usize::from(a) % near.len()]);
                self.arrives(next, &[a; 700], damage % 64);
            }
            6..8 => {
                let mut next = self.segment(peer, Flags::ACK);
                next.ack = next.ack.wrapping_add(u32::from(a) * 100);
                self.arrives(next, &[], damage % 64);
            }
            8 => {
                let kinds = [Flags::FIN, Flags::RST, Flags::SYN, Flags::URG];
                let flags = Flags::ACK | kinds[usize::from(a) % kinds.len()];
                self.arrives(self.segment(peer, flags), &[], damage % 64);
            }
            9 => self.opens(peer),
            10 => self.accepted.extend(self.node.accept(self.listener)),
            11 => {
                for owner in self.accepted.clone() {
                    self.node.read(now, owner);
                }
            }
            12 => {
                if let Some(&owner) = self.accepted.first() {
                    // A message, or several segments; in the short way they leave as they are written.
                    let more = usize::from(a) * if a.is_multiple_of(4) { 30 } else { 1 };
                    let before = self.node.programs.borrow().sockets[&owner].sent.len();
                    let data = vec![a; before + more];
                    self.node.write_as(now, owner, &data, !self.goes_long);
                }
            }
            13 => self.now += ms(u64::from(a) * 3),
            14 if a.is_multiple_of(4) && !self.accepted.is_empty() => {
                let owner = self.accepted.remove(0);
                self.node.close(now, owner);
            }
            14 => self.node.timers(now),
            _ if a.is_multiple_of(2) => self.moves(a / 2),
            _ => self.headers_change(a / 2),
        }
    }

    /// What leaves has other headers from now on: of the device, of the neighbour, or as a program asks for.
    fn headers_change(&mut self, how: u8) {
        let (now, is_other) = (self.now, how.is_multiple_of(8));
        let stack = &mut self.node.stack;
        match how % 3 {
            0 => {
                let device = hardware(if is_other { 99 } else { ME });
                stack.exchange_device(now, NIC, device).unwrap();
            }
            1 => {
                let station = hardware(if is_other { 98 } else { PEER });
                for peer in [IpAddr::from(ip(PEER)), PEER6.into()] {
                    stack.set_neighbour(now, NIC, peer, Some(station)).unwrap();
                }
            }
            _ => {
                let Some(&owner) = self.accepted.first() else {
                    return;
                };
                let options = IpOptions {
                    ttl: how,
                    tos: how & 0xfc,
                };
                let id = self.node.id(owner);
                let _ = self.node.stack.set_ip_options(id, options);
            }
        }
    }

    /// The host's addresses change: its own goes away and comes back, or the peer's becomes its own.
    fn moves(&mut self, how: u8) {
        let theirs = how.is_multiple_of(4);
        let address: IpAddr = match (self.is_v6, theirs) {
            (false, true) => ip(PEER).into(),
            (false, false) => ip(ME).into(),
            (true, true) => PEER6.into(),
            (true, false) => ME6.into(),
        };
        let own = InterfaceAddress {
            address,
            prefix_len: if self.is_v6 { 64 } else { 24 },
        };
        let stack = &mut self.node.stack;
        if stack.remove_address(NIC, own.address).is_err() {
            stack.add_address(self.now, NIC, own).unwrap();
        }
    }

    /// All that can be seen of it, and all that its connections remember.
    fn looks(&mut self) -> String {
        let frames = self.node.transmit(self.now);
        for header in frames.iter().filter_map(tcp_header) {
            if let Some(peer) = PEERS
                .iter()
                .position(|port| *port == header.destination_port)
            {
                self.last[peer] = header;
            }
        }
        let (programs, counters) = (self.node.programs.borrow(), self.node.stack.counters());
        let rows = self.node.stack.tcp.connections.iter().take(PEERS.len() + 2);
        let connections: Vec<_> = rows.map(|row| row.tcp).collect();
        format!("{frames:?} {programs:?} {counters:?} {connections:?}")
    }
}

/// The TCP header of a frame that has one, of either family.
fn tcp_header(frame: &Flying) -> Option<Header> {
    let bytes = &frame.bytes;
    let at = match (bytes[14] >> 4, bytes[20], bytes[23]) {
        (4, _, 6) => 34,
        (6, 6, _) => 54,
        _ => return None,
    };
    Some(Header::parse(&bytes[at..]).unwrap().0)
}

proptest! {
    #[test]
    fn the_short_way_and_the_long_way_give_the_same(
        is_v6: bool,
        operations in proptest::collection::vec(any::<[u8; 4]>(), 0..120),
    ) {
        let mut memories = memory(8, 8);
        let [short, long] = &mut memories;
        let mut worlds = [World::new(short, is_v6, false), World::new(long, is_v6, true)];
        for operation in operations {
            let [short, long] = worlds.each_mut().map(|world| {
                world.step(operation);
                world.looks()
            });
            prop_assert!(short == long, "{operation:?}\n{short}\n{long}");
        }
    }
}

#[test]
fn a_second_segment_goes_the_short_way_until_addresses_change() {
    for is_v6 in [false, true] {
        let mut memories = memory(8, 8);
        let mut world = World::new(&mut memories[0], is_v6, false);
        assert_eq!(world.predicted, 3, "the end of each handshake");
        let one = |world: &mut World<'_>| {
            let before = world.predicted;
            world.step([0, 1, 0, 0]);
            world.looks();
            world.predicted > before
        };
        // The first has learned from the end of the handshake.
        assert!(one(&mut world) && one(&mut world));
        world.moves(0);
        assert!(!one(&mut world), "what was judged is judged again");
        world.moves(0);
        assert!(!one(&mut world) && one(&mut world));
    }
}
