//! A hostile link as a list of operations: sockets that join, leave and block as they like, datagrams to
//! groups and to everybody, and whatever a router or another host may say of groups.
//!
//! Checked against a naive model: exactly those sockets hear a datagram that should; nothing panics, and when
//! everybody has left nobody listens.

use crate::udp::Outgoing;
use crate::{
    Busy, Config, ConnectionId, Datagram, Egress, EgressCaps, Error, Frame, HeapTables, Host,
    Incoming, InterfaceAddress, InterfaceConfig, InterfaceId, ListenerId, Membership, Resolution,
    RxChecksum, RxMeta, Stack, UdpBind, UdpId, UdpOptions,
};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::{BTreeMap, BTreeSet};
use tcp::{Duration, Events, Instant};
use wire::checksum::Sum;
use wire::ethernet::{self, EtherType};
use wire::ipv4::{self, Protocol};
use wire::ipv6;

const NIC: InterfaceId = InterfaceId(0);
const SOCKETS: usize = 4;
const PORT: u16 = 5_000;
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OURS_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// Who has heard the last datagram.
#[derive(Default)]
struct Ears(BTreeSet<u64>);

impl Host for Ears {
    fn receive(&mut self, _: u64, _: u64, _: &[u8]) {}

    fn on_events(&mut self, _: ConnectionId, _: u64, _: Events, _: &tcp::Connection) {}

    fn on_incoming(&mut self, _: ListenerId, _: u64, _: SocketAddr) -> Option<Incoming> {
        None
    }

    fn on_accept_ready(&mut self, _: ListenerId, _: u64, _: crate::AcceptReady) {}

    fn on_released(&mut self, _: ConnectionId, _: u64) {}

    fn on_datagram(&mut self, owner: u64, _: &Datagram<'_>) -> bool {
        assert!(self.0.insert(owner), "a socket hears a datagram once");
        true
    }
}

/// A device that takes everything, or now and then nothing.
#[derive(Default)]
struct Device {
    turns_until_busy: u8,
}

impl Egress for Device {
    fn caps(&self, _: InterfaceId) -> EgressCaps {
        EgressCaps::default()
    }

    fn transmit(&mut self, frame: &Frame<'_>) -> Result<(), Busy> {
        assert!(frame.headers.len() <= 1_514);
        self.turns_until_busy = self.turns_until_busy.wrapping_sub(1);
        if self.turns_until_busy == 0 {
            Err(Busy)
        } else {
            Ok(())
        }
    }
}

/// What a socket wants of a group: to receive from all sources but these, or only from these.
#[derive(Clone, Default)]
struct Wish {
    all: bool,
    sources: BTreeSet<IpAddr>,
}

struct Scene<'m> {
    stack: Stack<'m>,
    ears: Ears,
    device: Device,
    now: Instant,
    sockets: [UdpId; SOCKETS],
    wishes: BTreeMap<(usize, IpAddr), Wish>,
}

/// Runs the operations that `bytes` spell against a small stack.
pub fn hostile_link(bytes: &[u8]) {
    let memory = HeapTables::new(1, 1, 1).and_then(|memory| memory.with_udp(2 * SOCKETS));
    let Ok(mut memory) = memory else {
        return;
    };
    let Ok(mut scene) = Scene::new(&mut memory) else {
        return;
    };
    let (operations, _) = bytes.as_chunks::<6>();
    for operation in operations {
        scene.step(*operation);
        let Scene {
            stack,
            ears,
            device,
            now,
            ..
        } = &mut scene;
        stack.poll_transmit(*now, ears, device, 16);
        let _ = stack.take_group_changes().count();
    }
    scene.end();
}

/// One of a few groups and sources.
fn group(n: u8) -> IpAddr {
    match n % 4 {
        0 => Ipv4Addr::new(239, 0, 0, 1).into(),
        1 => Ipv4Addr::new(224, 0, 0, 1).into(),
        2 => Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 1).into(),
        _ => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb).into(),
    }
}

fn source(n: u8, is_v4: bool) -> IpAddr {
    let n = n % 3 + 7;
    if is_v4 {
        Ipv4Addr::new(10, 0, 0, n).into()
    } else {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, n.into()).into()
    }
}

impl<'m> Scene<'m> {
    fn new(memory: &'m mut HeapTables) -> Result<Self, Error> {
        let now = Instant::from_us(1_000_000_000);
        let mut stack = Stack::new(memory.tables(), Config::new([7; 16]))?;
        stack.add_interface(InterfaceConfig {
            hardware: ethernet::Address([2, 0, 0, 0, 0, 1]),
            mtu: 1_500,
            resolution: Resolution::Arp,
            scope_id: 3,
            router_discovery: false,
        })?;
        for (address, prefix_len) in [(OURS.into(), 24), (OURS_V6.into(), 64)] {
            let address = InterfaceAddress {
                address,
                prefix_len,
            };
            stack.add_address(now, NIC, address)?;
        }
        let mut sockets = [UdpId::default(); SOCKETS];
        for (owner, socket) in (0..).zip(&mut sockets) {
            *socket = stack.udp_bind(&UdpBind {
                owner,
                local: SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), PORT),
                shares: true,
                options: UdpOptions::default(),
            })?;
        }
        Ok(Self {
            stack,
            ears: Ears::default(),
            device: Device::default(),
            now,
            sockets,
            wishes: BTreeMap::new(),
        })
    }

    fn step(&mut self, [kind, a, b, c, d, e]: [u8; 6]) {
        match kind % 8 {
            0..=2 => self.change(kind, a, b, c),
            3 => self.datagram(group(a), source(b, group(a).is_ipv4())),
            4 => self.talk([a, b, c, d, e]),
            5 => {
                self.now += Duration::from_us(u64::from(u16::from_le_bytes([a, b])) * 997);
                self.stack.handle_timeouts(self.now, &mut self.ears);
            }
            6 => self.device.turns_until_busy = a % 8,
            _ => self.send(a, b),
        }
    }

    /// A call of a program, and what the model makes of it.
    fn change(&mut self, kind: u8, a: u8, b: u8, c: u8) {
        let (which, group) = (usize::from(a) % SOCKETS, group(b));
        let source = (!c.is_multiple_of(4)).then(|| source(c, group.is_ipv4()));
        let about = Membership {
            group,
            interface: None,
            source,
        };
        let id = self.sockets[which];
        let what = kind / 8 % 4;
        let done = match what {
            0 => self.stack.udp_join(id, &about),
            1 => self.stack.udp_leave(id, &about),
            2 => self.stack.udp_block(id, &about),
            _ => self.stack.udp_unblock(id, &about),
        };
        if done.is_err() {
            return;
        }
        let wish = self.wishes.entry((which, group)).or_default();
        match (what, source) {
            (0, None) => wish.all = true,
            (1, None) => *wish = Wish::default(),
            (0 | 2, Some(source)) => assert!(wish.sources.insert(source)),
            (_, Some(source)) => assert!(wish.sources.remove(&source)),
            (_, None) => unreachable!("a source is blocked, not a group"),
        }
        if !wish.all && wish.sources.is_empty() {
            self.wishes.remove(&(which, group));
        }
    }

    /// Who has to hear what `source` sends to the group.
    fn expected(&self, group: IpAddr, source: IpAddr) -> BTreeSet<u64> {
        // Everybody's own groups are heard without asking.
        let is_own = group == IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1));
        let is_heard = is_own || self.wishes.keys().any(|(_, other)| *other == group);
        let hears = |which: usize| match self.wishes.get(&(which, group)) {
            Some(wish) => wish.sources.contains(&source) != wish.all,
            None => is_heard,
        };
        let hearing = (0_u64..).zip(0..SOCKETS).filter(|(_, which)| hears(*which));
        hearing.map(|(owner, _)| owner).collect()
    }

    fn datagram(&mut self, group: IpAddr, source: IpAddr) {
        let mut udp = [0; 12];
        let header = wire::udp::Header {
            source_port: 9,
            destination_port: PORT,
        };
        header.emit(4, &mut udp);
        let expected = self.expected(group, source);
        self.deliver(source, group, Protocol::UDP, 64, &udp);
        assert_eq!(self.ears.0, expected, "{source} to {group}");
    }

    /// A message about groups, with any content.
    fn talk(&mut self, [a, b, c, d, e]: [u8; 5]) {
        let to = group(b);
        let mut message = vec![c; 8 + usize::from(e % 64)];
        message[1] = d;
        if to.is_ipv4() {
            message[0] = [0x11, 0x12, 0x16, 0x22][usize::from(a % 4)];
            message[2..4].fill(0);
            let checksum = Sum::new().add(&message).finish();
            message[2..4].copy_from_slice(&checksum.to_be_bytes());
            self.deliver(source(d, true), to, Protocol::IGMP, 1, &message);
        } else {
            message.resize(24 + usize::from(e % 64), c);
            message[0] = [130, 131, 132, 143][usize::from(a % 4)];
            let from = source(d, false);
            message[2..4].fill(0);
            let checksum = Sum::new()
                .pseudo_header(from, to, Protocol::ICMPV6, message.len())
                .add(&message)
                .finish();
            message[2..4].copy_from_slice(&checksum.to_be_bytes());
            let alert = [Protocol::ICMPV6.0, 0, 5, 2, 0, 0, 1, 0];
            let packet = [&alert[..], &message].concat();
            self.deliver(from, to, Protocol::HOP_BY_HOP, 1, &packet);
        }
    }

    fn deliver(&mut self, from: IpAddr, to: IpAddr, protocol: Protocol, hops: u8, payload: &[u8]) {
        let mut frame = vec![0; 14];
        let ethernet = ethernet::Header {
            destination: crate::address::group_hardware(to),
            source: ethernet::Address([2, 0, 0, 0, 0, 9]),
            ethertype: if to.is_ipv4() {
                EtherType::IPV4
            } else {
                EtherType::IPV6
            },
        };
        ethernet.emit(&mut frame);
        match (from, to) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.resize(34, 0);
                let ip = ipv4::Header {
                    ttl: hops,
                    ..ipv4::Header::new(source, destination, protocol)
                };
                ip.emit(payload.len(), &mut frame[14..]);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                frame.resize(54, 0);
                let ip = ipv6::Header {
                    source,
                    destination,
                    next_header: protocol,
                    hop_limit: hops,
                    traffic_class: 0,
                    flow_label: 0,
                };
                ip.emit(payload.len(), &mut frame[14..]);
            }
            _ => unreachable!("a packet is of one family"),
        }
        frame.extend_from_slice(payload);
        let meta = RxMeta {
            checksum: RxChecksum::Verified,
            ..RxMeta::default()
        };
        self.ears.0.clear();
        let (now, ears, device) = (self.now, &mut self.ears, &mut self.device);
        self.stack
            .handle_frame(now, NIC, &frame, meta, ears, device);
    }

    /// A program sends to a group; whether it leaves or not is the device's business.
    fn send(&mut self, a: u8, b: u8) {
        let outgoing = Outgoing {
            destination: Some(SocketAddr::new(group(a), PORT)),
            ttl: Some(b),
            ..Outgoing::default()
        };
        let id = self.sockets[usize::from(b) % SOCKETS];
        let sent = self
            .stack
            .udp_send(self.now, id, &outgoing, b"news", &mut self.device);
        assert!(sent.is_ok_and(|bytes| bytes == 4) || self.device.turns_until_busy == 0);
    }

    /// When everybody has left, nobody listens.
    fn end(mut self) {
        for id in self.sockets {
            self.stack.udp_close(id).expect("a socket that is there");
        }
        for n in [0, 2, 3] {
            assert!(!self.stack.ip.listens_to_group(NIC, group(n)));
        }
    }
}
