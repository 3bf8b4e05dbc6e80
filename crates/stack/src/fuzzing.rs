//! A hostile peer as a list of operations, for the fuzzer and for property tests.
//!
//! Bytes become segments with arbitrary fields near what the stack expects, time, and calls of a
//! program. Checked: nothing panics, every row comes back, the host is told each thing once.

mod fragments;
pub mod groups;

pub use fragments::fragments;

use crate::{
    Busy, Config, Connect, ConnectionId, Egress, EgressCaps, Error, FastOpenModes, Frame,
    HeapTables, Host, Incoming, InterfaceAddress, InterfaceConfig, InterfaceId, IpOptions, Listen,
    ListenerId, Resolution, RxChecksum, RxMeta, Stack,
};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::collections::BTreeMap;
use tcp::{Duration, Events, Instant, SocketOptions};
use wire::ethernet::{Address, EtherType};
use wire::ipv4::{self, Protocol};
use wire::tcp::{Flags, Header, Options, Timestamps};

const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OUR_HARDWARE: Address = Address([2, 0, 0, 0, 0, 1]);
const THEIR_HARDWARE: Address = Address([2, 0, 0, 0, 0, 2]);
const PORT: u16 = 80;

/// The owners that are alive, with their connections once known.
#[derive(Default)]
struct World {
    next_owner: u64,
    alive: BTreeMap<u64, Option<ConnectionId>>,
}

impl World {
    fn add(&mut self) -> u64 {
        self.next_owner += 1;
        self.alive.insert(self.next_owner, None);
        self.next_owner
    }
}

impl Host for World {
    fn receive(&mut self, owner: u64, offset: u64, data: &[u8]) {
        assert!(
            self.alive.contains_key(&owner),
            "a window that is gone was written"
        );
        assert!(offset < 1 << 40 && data.len() <= 65_536);
    }

    fn on_events(&mut self, _: ConnectionId, owner: u64, _: Events, _: &tcp::Connection) {
        assert!(self.alive.contains_key(&owner), "events after the release");
    }

    fn on_incoming(&mut self, _: ListenerId, _: u64, _: SocketAddr) -> Option<Incoming> {
        let (receive_capacity, send_capacity) = (4_096, 4_096);
        let (options, ip) = (SocketOptions::default(), IpOptions::default());
        Some(Incoming {
            owner: self.add(),
            receive_capacity,
            send_capacity,
            options,
            ip,
        })
    }

    fn on_accept_ready(&mut self, _: ListenerId, _: u64, _: crate::AcceptReady) {}

    fn on_released(&mut self, _: ConnectionId, owner: u64) {
        assert!(self.alive.remove(&owner).is_some(), "released twice");
    }
}

/// Remembers the numbers of what was sent, so that hostile segments land near them.
#[derive(Default)]
struct Tap {
    last: Header,
    turns_until_busy: u8,
}

impl Egress for Tap {
    fn caps(&self, _: InterfaceId) -> EgressCaps {
        EgressCaps::default()
    }

    fn transmit(&mut self, frame: &Frame<'_>) -> Result<(), Busy> {
        self.turns_until_busy = self.turns_until_busy.wrapping_sub(1);
        if self.turns_until_busy == 0 {
            return Err(Busy);
        }
        if frame.checksum.is_some() {
            let tcp = frame.headers.get(34..).expect("TCP has headers");
            self.last = Header::parse(tcp).expect("what leaves is well formed").0;
        }
        Ok(())
    }
}

struct Scene<'m> {
    stack: Stack<'m>,
    world: World,
    tap: Tap,
    now: Instant,
    listener: ListenerId,
}

/// Runs the operations that `bytes` spell against a small stack.
pub fn hostile_peer(bytes: &[u8]) {
    let mut memory = HeapTables::new(6, 2, 3).expect("small tables");
    let Ok(mut scene) = Scene::new(&mut memory) else {
        return;
    };
    let (operations, _) = bytes.as_chunks::<6>();
    for operation in operations {
        scene.step(*operation);
        scene
            .stack
            .poll_transmit(scene.now, &mut scene.world, &mut scene.tap, 16);
    }
    scene.end();
}

impl<'m> Scene<'m> {
    fn new(memory: &'m mut HeapTables) -> Result<Self, Error> {
        let now = Instant::from_us(1_000_000_000);
        let mut stack = Stack::new(
            memory.tables(),
            Config {
                neighbours_max: 4,
                fast_open: FastOpenModes::all() - FastOpenModes::CLIENT_WITHOUT_COOKIE,
                fast_open_peers: 4,
                ..Config::new([7; 16])
            },
        )?;
        let config = InterfaceConfig {
            hardware: OUR_HARDWARE,
            mtu: 1_500,
            resolution: Resolution::Arp,
            scope_id: 0,
            router_discovery: false,
        };
        let nic = stack.add_interface(config)?;
        stack.add_address(
            now,
            nic,
            InterfaceAddress {
                address: IpAddr::V4(OURS),
                prefix_len: 24,
            },
        )?;
        stack.set_neighbour(now, nic, THEIRS.into(), Some(THEIR_HARDWARE))?;
        let local = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
        let listener = stack.listen(&Listen {
            owner: 0,
            local,
            v6_only: false,
            backlog: 1,
            reuse_address: true,
            reuse_port: None,
        })?;
        Ok(Self {
            stack,
            world: World::default(),
            tap: Tap::default(),
            now,
            listener,
        })
    }

    fn step(&mut self, [kind, a, b, c, d, e]: [u8; 6]) {
        match kind % 16 {
            0..8 => self.segment(kind, [a, b, c, d, e]),
            8 => self.now += Duration::from_us(u64::from(u16::from_le_bytes([a, b])) * 997),
            9 => self.connect(u16::from(a % 4) + 1),
            10 => self.accept(),
            11 => self.program(a, b),
            12 => self.icmp([a, b, c, d, e]),
            13 => self.tap.turns_until_busy = a % 8,
            14 => self.stack.handle_timeouts(self.now, &mut self.world),
            _ => self.run_until_quiet(4),
        }
    }

    fn segment(&mut self, kind: u8, [a, b, c, d, e]: [u8; 5]) {
        // Mostly exactly what is expected, so that operations get deep; otherwise a little beside it.
        let near = |number: u32, by: u8| match by % 8 {
            0..4 => number,
            4 => number.wrapping_add(1),
            5 => number.wrapping_sub(1),
            6 => number.wrapping_add(300),
            _ => number.wrapping_add(70_000),
        };
        let flags = match kind / 16 {
            0..6 => Flags::ACK,
            6..8 => Flags::SYN,
            8 => Flags::SYN | Flags::ACK,
            9..11 => Flags::ACK | Flags::FIN,
            11 => Flags::RST | Flags::ACK,
            12 => Flags::ACK | Flags::URG,
            _ => Flags::from_bits_retain(a),
        };
        let last = self.tap.last;
        let timestamps = kind.is_multiple_of(2).then(|| Timestamps {
            value: u32::from(e) * 1_000,
            echo: u32::from(d),
        });
        let header = Header {
            source_port: if kind % 4 < 2 {
                last.destination_port
            } else {
                u16::from(a % 4) + 1
            },
            destination_port: if kind % 4 < 2 { last.source_port } else { PORT },
            seq: near(last.ack, b),
            ack: near(
                last.seq
                    .wrapping_add(u32::from(last.flags.contains(Flags::SYN))),
                c,
            ),
            flags,
            ae: false,
            window: u16::from(d) * 64,
            urgent: u16::from(e),
            options: Options {
                mss: (e % 3 == 0).then_some(u16::from(d)),
                timestamps,
                ..Options::default()
            },
        };
        let payload = [0x5a; 300];
        let len = usize::from(b) % 300;
        let mut tcp = vec![0; header.header_len()];
        header.emit(&mut tcp);
        tcp.extend_from_slice(&payload[..len]);
        self.deliver(Protocol::TCP, &tcp, RxChecksum::Verified);
    }

    fn icmp(&mut self, [code, mtu, seq, port, length]: [u8; 5]) {
        let mut quoted = [0; 28];
        quoted[0] = 0x45;
        quoted[2] = length;
        quoted[9] = 6;
        quoted[12..16].copy_from_slice(&OURS.octets());
        quoted[16..20].copy_from_slice(&THEIRS.octets());
        let last = &self.tap.last;
        quoted[20..22].copy_from_slice(&last.source_port.to_be_bytes());
        quoted[22..24].copy_from_slice(
            &last
                .destination_port
                .wrapping_add(u16::from(port % 2))
                .to_be_bytes(),
        );
        quoted[24..28].copy_from_slice(&last.seq.wrapping_sub(u32::from(seq % 4)).to_be_bytes());
        let next_hop_mtu = u16::from(mtu) * 8;
        let message = wire::icmpv4::Message::DestinationUnreachable {
            code: code % 16,
            next_hop_mtu,
            quoted: &quoted,
        };
        let mut bytes = vec![0; message.emit_len()];
        message.emit(&mut bytes);
        self.deliver(Protocol::ICMP, &bytes, RxChecksum::Unknown);
    }

    fn deliver(&mut self, protocol: Protocol, payload: &[u8], checksum: RxChecksum) {
        let mut frame = vec![0; 34];
        let header = wire::ethernet::Header {
            destination: OUR_HARDWARE,
            source: THEIR_HARDWARE,
            ethertype: EtherType::IPV4,
        };
        header.emit(&mut frame);
        let ip = ipv4::Header::new(THEIRS, OURS, protocol);
        ip.emit(payload.len(), &mut frame[14..]);
        frame.extend_from_slice(payload);
        let meta = RxMeta {
            checksum,
            segment_bytes: (checksum == RxChecksum::Partial).then_some(1_000),
        };
        self.stack.handle_frame(
            self.now,
            InterfaceId(0),
            &frame,
            meta,
            &mut self.world,
            &mut self.tap,
        );
    }

    fn connect(&mut self, remote_port: u16) {
        let owner = self.world.add();
        let connect = Connect {
            owner,
            local_address: None,
            local_port: None,
            remote: SocketAddr::from((THEIRS, remote_port)),
            receive_capacity: 4_096,
            send_capacity: 4_096,
            options: SocketOptions::default(),
            ip: IpOptions::default(),
        };
        let opened = if remote_port.is_multiple_of(2) {
            let has_data = remote_port.is_multiple_of(4);
            let opened = self
                .stack
                .connect_fast(self.now, &connect, has_data, &mut self.world);
            opened.map(|(id, _)| id)
        } else {
            self.stack.connect(self.now, &connect, &mut self.world)
        };
        match opened {
            Ok(id) => {
                self.world.alive.insert(owner, Some(id));
            }
            Err(_) => {
                self.world.alive.remove(&owner);
            }
        }
    }

    fn accept(&mut self) {
        if let Ok(Some(accepted)) = self.stack.accept(self.listener) {
            self.world
                .alive
                .insert(accepted.owner, Some(accepted.connection));
            self.stack
                .take_deferred(self.now, self.listener, &mut self.world, &mut self.tap);
        }
    }

    /// One call on one of the connections that a program holds.
    fn program(&mut self, which: u8, what: u8) {
        let held: Vec<ConnectionId> = self.world.alive.values().filter_map(|id| *id).collect();
        let Some(id) = held.get(usize::from(which) % held.len().max(1)).copied() else {
            return;
        };
        let (now, world) = (self.now, &mut self.world);
        let Ok(view) = self.stack.view(id) else {
            return;
        };
        // Offsets that cannot be are refused; all results are fine.
        let _ = match what % 8 {
            0 => self.stack.close(now, id, world),
            1 => self.stack.abort(now, id, world),
            2 => self.stack.shutdown(now, id, world),
            3 => self.stack.consumed(now, id, view.readable_end),
            4 => self.stack.consumed(now, id, u64::from(what)),
            5 => self.stack.written_as(
                now,
                id,
                view.acknowledged + u64::from(what),
                tcp::WriteMode::Urgent,
            ),
            _ => self
                .stack
                .written(now, id, view.acknowledged + u64::from(what) * 16),
        };
        if matches!(what % 8, 0 | 1) {
            // Released later, or already.
            self.world
                .alive
                .values_mut()
                .filter(|held| **held == Some(id))
                .for_each(|held| *held = None);
        }
    }

    fn run_until_quiet(&mut self, turns: usize) {
        for _ in 0..turns {
            if let Some(deadline) = self.stack.next_deadline() {
                self.now = if deadline > self.now {
                    deadline
                } else {
                    self.now
                };
            }
            self.stack.handle_timeouts(self.now, &mut self.world);
            self.stack
                .poll_transmit(self.now, &mut self.world, &mut self.tap, 64);
        }
    }

    /// Every program closes everything; after that nothing may be left.
    fn end(mut self) {
        self.tap.turns_until_busy = 0;
        let held: Vec<ConnectionId> = self.world.alive.values().filter_map(|id| *id).collect();
        for id in held {
            self.stack
                .abort(self.now, id, &mut self.world)
                .expect("a held connection is there");
        }
        self.stack
            .stop_listening(self.now, self.listener, &mut self.world)
            .expect("the listener is there");
        for _ in 0..40 {
            self.now += Duration::from_secs(60);
            self.run_until_quiet(8);
        }
        assert_eq!(self.stack.connections().count(), 0, "a row was lost");
        assert_eq!(self.stack.time_waits().count(), 0);
        assert_eq!(self.stack.orphans(), 0);
        assert!(self.world.alive.is_empty(), "an owner was never told");
    }
}
