//! Which queue of a fanout group gets a frame: the kernel runs our classic BPF program over frames of every
//! kind, and must come to what `hostif::steering` computes of their addresses and ports.
//!
//! Sender and receiver are this binary again, in the namespaces of two hosts. Without the privilege for
//! those the test is skipped, and says so past libtest's capture.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use hostif::{Steering, steering};
use nic::af_packet::steering::{Hash, Mix};
use nic::af_packet::{self, AfPacket};
use nic::{Driver, TxFrame};
use testkit::{Lab, LabSpec, PATIENCE, Program, host};

const CORES: u16 = 3;
const FRAMES: u16 = 600;

/// By a hash of the engine's own, and by a card's.
fn steerings() -> [Steering; 2] {
    [
        Steering::random(CORES, 0x1234_abcd),
        Steering::of_card(CORES, 0x1234_abcd),
    ]
}

/// Our frames among whatever else is on the link: their source.
const SOURCE: [u8; 6] = [2, 0, 0, 0, 0x5e, 1];
/// Not everything reaches a small ring at once, so the sender goes on until it is ended.
const LIMIT: Duration = Duration::from_secs(60);

/// A frame and the core that it belongs to.
type Case = (Vec<u8>, u16);

#[derive(Clone, Debug)]
struct Ends {
    steering: Steering,
    addresses: [u32; 2],
    ports: [u16; 2],
    /// Words of IP options.
    options: usize,
}

impl Ends {
    fn core(&self) -> u16 {
        let end = |n: usize| SocketAddr::from((Ipv4Addr::from(self.addresses[n]), self.ports[n]));
        self.steering.core_of(end(0), end(1))
    }

    /// An IPv4 packet whose payload begins with the ports.
    fn packet(&self, protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
        let header_len = 20 + 4 * self.options;
        let mut packet = vec![0; header_len];
        packet[0] = 0x40 | u8::try_from(header_len / 4).unwrap();
        let len = u16::try_from(header_len + payload.len()).unwrap();
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet[8] = 64;
        packet[9] = protocol;
        packet[12..16].copy_from_slice(&self.addresses[0].to_be_bytes());
        packet[16..20].copy_from_slice(&self.addresses[1].to_be_bytes());
        packet[20..].fill(1);
        packet.extend_from_slice(payload);
        packet
    }

    /// The same of IPv6: addresses made of the same words.
    fn packet_v6(&self, next_header: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x60;
        packet[6] = next_header;
        packet[7] = 64;
        for (n, address) in self.addresses_v6().iter().enumerate() {
            packet[8 + 16 * n..][..16].copy_from_slice(&address.octets());
        }
        packet.extend_from_slice(payload);
        packet
    }

    fn addresses_v6(&self) -> [Ipv6Addr; 2] {
        self.addresses.map(|word| {
            let wide = u128::from(word);
            Ipv6Addr::from(wide << 96 | wide.wrapping_mul(0x1_0001_2345_6789))
        })
    }

    fn core_v6(&self) -> u16 {
        let end = |n: usize| SocketAddr::from((self.addresses_v6()[n], self.ports[n]));
        self.steering.core_of(end(0), end(1))
    }

    fn segment(&self) -> Vec<u8> {
        let mut segment: Vec<u8> = self
            .ports
            .iter()
            .flat_map(|port| port.to_be_bytes())
            .collect();
        segment.resize(20, 0x50);
        segment
    }
}

/// Numbers without a pattern, the same in both processes.
struct Random(u64);

impl Random {
    fn draw(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 32).unwrap()
    }

    fn ends(&mut self, steering: Steering) -> Ends {
        let mut port = || u16::try_from(self.draw() >> 16).unwrap();
        Ends {
            steering,
            ports: [port(), port()],
            addresses: [self.draw(), self.draw()],
            options: usize::try_from(self.draw() % 11).unwrap(),
        }
    }
}

/// The frames: kinds by turns, with random parts.
fn cases(steering: Steering) -> Vec<Case> {
    let mut random = Random(2026);
    let mut next = |n| case(n, &random.ends(steering), &random.ends(steering));
    (0..FRAMES).map(&mut next).collect()
}

const KINDS: u16 = 18;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// EtherType, packet, core.
type Kind = (u16, Vec<u8>, u16);

fn of_ipv4(kind: u16, outer: &Ends, inner: &Ends) -> Kind {
    let (segment, quoted) = (outer.segment(), inner.segment());
    let error = |kind: u8, quoted: Vec<u8>| {
        let message = [vec![kind, 0, 0, 0, 0, 0, 0, 0], quoted].concat();
        outer.packet(ICMP, 0, &message)
    };
    let (packet, core) = match kind {
        0 | 1 => (outer.packet(TCP, 0, &segment), outer.core()),
        2 => (outer.packet(TCP, 0x4000, &segment), outer.core()),
        3 => (outer.packet(TCP, 0x2000, &segment), 0),
        4 => (outer.packet(TCP, 5, &segment), 0),
        5 => (outer.packet(UDP, 0, &segment), 0),
        6 => (outer.packet(TCP, 0, &segment[..1]), 0),
        7 => (error(8, inner.packet(TCP, 0, &quoted)), 0),
        8 => (error(3, inner.packet(TCP, 0x4000, &quoted)), inner.core()),
        9 => (error(11, inner.packet(TCP, 0, &quoted[..8])), inner.core()),
        _ => (error(12, inner.packet(UDP, 0, &quoted)), 0),
    };
    (0x0800, packet, core)
}

fn of_ipv6(kind: u16, outer: &Ends, inner: &Ends) -> Kind {
    let (segment, quoted) = (outer.segment(), inner.segment());
    let error = |kind: u8, quoted: Vec<u8>| {
        let message = [vec![kind, 0, 0, 0, 0, 0, 0, 0], quoted].concat();
        outer.packet_v6(ICMPV6, &message)
    };
    let fragment = [&[TCP, 0, 0, 1, 0, 0, 0, 9], &segment[..]].concat();
    let (packet, core) = match kind {
        0 => (outer.packet_v6(TCP, &segment), outer.core_v6()),
        1 => (outer.packet_v6(UDP, &segment), 0),
        2 => (outer.packet_v6(44, &fragment), 0),
        3 => (error(2, inner.packet_v6(TCP, &quoted)), inner.core_v6()),
        4 => (error(1, inner.packet_v6(UDP, &quoted)), 0),
        _ => (error(128, inner.packet_v6(TCP, &quoted)), 0),
    };
    (0x86dd, packet, core)
}

fn case(number: u16, outer: &Ends, inner: &Ends) -> Case {
    let (ethertype, packet, core) = match number % KINDS {
        17 => {
            let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 2];
            arp.resize(28, 7);
            (0x0806, arp, 0)
        }
        kind @ 11.. => of_ipv6(kind - 11, outer, inner),
        kind => of_ipv4(kind, outer, inner),
    };
    let mut frame = vec![0xff; 6];
    frame.extend(SOURCE);
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    frame.extend(number.to_be_bytes());
    (frame, core)
}

/// Devices without a filter send ICMP errors to the first core; of everything else they say the same.
#[test]
fn the_engine_finds_the_core_of_a_frame_as_the_hash_says() {
    for steering in steerings() {
        for (number, (frame, core)) in (0..).zip(cases(steering)) {
            let is_error = matches!(number % KINDS, 8 | 9 | 14);
            if !is_error {
                assert_eq!(engine::core_of_frame(steering, &frame), core, "{number}");
            }
        }
    }
}

#[test]
fn the_kernel_steers_every_kind_of_frame_as_the_hash_says() {
    let lab = match Lab::temporary("t-steering", &LabSpec::default()) {
        Ok(lab) => lab,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "skipped: steering: {error}");
            return;
        }
    };
    let role = |on: &str, role: &str| -> Program {
        let binary = std::env::current_exe().unwrap();
        let arguments = [role, "--exact", "--ignored", "--nocapture"];
        testkit::start(host(&lab, on), binary.to_str().unwrap(), &arguments)
    };
    let _sender = role("b", "sender");
    let done = role("a", "receiver").finish(2 * LIMIT + PATIENCE, || false);
    let done = done.unwrap();
    assert!(done.status.success(), "{}\n{}", done.stdout, done.stderr);
}

#[test]
#[ignore = "a part of the test above"]
fn sender() {
    let mut device = AfPacket::open(&af_packet::Config::new("eth0")).unwrap();
    let cases = cases(steerings()[0]);
    let start = Instant::now();
    while start.elapsed() < 2 * LIMIT {
        for (frame, _) in &cases {
            let _ = device.tx_burst(&[TxFrame::plain(frame)]).unwrap();
        }
        std::thread::yield_now();
    }
}

#[test]
#[ignore = "a part of the test above"]
fn receiver() {
    let [own, of_card] = steerings();
    receive_all(
        own,
        Hash::Mixed(Mix {
            key: own.key,
            multipliers: steering::MULTIPLIERS,
            shifts: steering::SHIFTS,
        }),
    );
    let rotations = of_card.card_key().unwrap().rotations;
    receive_all(of_card, Hash::OfCard(rotations));
}

fn receive_all(steering: Steering, hash: Hash) {
    let program = af_packet::steering::program(&hash);
    let config = af_packet::Config::new("eth0");
    let mut queues = AfPacket::open_queues(&config, CORES, &program).unwrap();
    let cases = cases(steering);
    let mut seen = vec![false; cases.len()];
    let start = Instant::now();
    while seen.contains(&false) {
        assert!(start.elapsed() < LIMIT, "not every frame came");
        for (core, queue) in (0_u16..).zip(&mut queues) {
            let received = queue.rx_burst(64, &mut |frame| {
                if frame.bytes.get(6..12) != Some(&SOURCE) {
                    return;
                }
                let (_, number) = frame.bytes.split_last_chunk::<2>().unwrap();
                let number = usize::from(u16::from_be_bytes(*number));
                let (sent, expected) = &cases[number];
                assert_eq!(frame.bytes, sent);
                assert_eq!(
                    core,
                    *expected,
                    "frame {number}, a case of kind {}",
                    number % usize::from(KINDS)
                );
                seen[number] = true;
            });
            received.unwrap();
        }
    }
}
