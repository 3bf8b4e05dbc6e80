//! Programs and peers that break every rule: they harm themselves, the engine goes on.

use crate::harness::{ADDRESSES, Program, Socket, Wired, core_on, serve, small_limits};
use core::net::SocketAddr;
use hostif::control::{QueryKind, Request, send};
use hostif::{Command, Flags, Op, SocketId, Written};
use nic::wire::{Config as WireConfig, WireEnd};
use nic::{Driver as _, TxFrame};
use proptest::prelude::*;
use rustix::fd::AsFd as _;
use rustix::io::Errno;
use tcp::{Duration, Instant};

struct Scene {
    wired: Wired,
    hostile: Program,
    honest: [Program; 2],
    sockets: [Socket; 2],
    listener: (Socket, SocketAddr),
}

impl Scene {
    fn new() -> Self {
        let mut wired = Wired::new(small_limits());
        let (mut active, mut passive) = (wired.attach(0), wired.attach(1));
        let listener = passive.listen(&mut wired, 8).unwrap();
        let programs = [&mut active, &mut passive];
        let (near, far) = Program::connected(&mut wired, programs, &listener);
        let hostile = wired.attach(0);
        Self {
            wired,
            hostile,
            honest: [active, passive],
            sockets: [near, far],
            listener,
        }
    }

    fn is_dropped(&self) -> bool {
        self.wired.cores[0]
            .programs
            .get(self.hostile.slot)
            .is_none()
    }

    fn honest_goes_on(&mut self) {
        for [from, to] in [[0, 1], [1, 0]] {
            assert_eq!(self.honest[from].send(&self.sockets[from], b"ping"), 4);
            self.wired.run_until_idle();
            let mut bytes = [0; 8];
            assert_eq!(self.honest[to].receive(&self.sockets[to], &mut bytes), 4);
            assert_eq!(&bytes[..4], b"ping");
        }
    }
}

#[test]
fn garbage_in_the_rings_ends_the_program_alone() {
    let mut scene = Scene::new();
    let garbage = vec![0xa5; 32 * 1024];
    rustix::io::pwrite(&scene.hostile.file, &garbage, 4096).unwrap();
    scene.wired.run_until_idle();
    assert!(scene.is_dropped());
    scene.honest_goes_on();
}

#[test]
fn an_impossible_completion_index_ends_the_program_alone() {
    let mut scene = Scene::new();
    let layout = *scene.hostile.region.layout();
    let at = layout.ring(hostif::layout::RingKind::Completion);
    rustix::io::pwrite(&scene.hostile.file, &[0xff; 8], at).unwrap();
    for _ in 0..70 {
        scene
            .hostile
            .post(SocketId::new(1, 77), Op::Listen { backlog: 1 });
        if scene.hostile.commands.pending() == Ok(60) {
            scene.wired.turn();
        }
    }
    scene.wired.run_until_idle();
    assert!(scene.is_dropped());
    scene.honest_goes_on();
}

#[test]
fn a_position_outside_the_window_ends_the_program_alone() {
    let mut scene = Scene::new();
    let listener = (scene.listener.0.clone(), scene.listener.1);
    let [_, passive] = &mut scene.honest;
    let programs = [&mut scene.hostile, passive];
    let (near, far) = Program::connected(&mut scene.wired, programs, &listener);
    let note = Written {
        socket: near.id,
        start: 0,
        end: 1 << 40,
        source: None,
        mode: hostif::WriteMode::Plain,
        in_place: false,
        stamps: 0,
    };
    scene.hostile.written.push(&note).unwrap();
    scene.wired.run_until_idle();
    assert!(scene.is_dropped());
    assert!(far.flags().intersects(Flags::FIN | Flags::ERROR));
    scene.honest_goes_on();
}

#[test]
fn a_program_that_fetches_no_completions_makes_the_engine_hold_no_more_than_so_many() {
    let mut scene = Scene::new();
    let mut posted = 0;
    let command = Command {
        token: 5,
        socket: SocketId::new(1, 77),
        op: Op::Listen { backlog: 1 },
    };
    for _ in 0..200 {
        while scene.hostile.commands.push(&command).is_ok() {
            posted += 1;
        }
        scene.wired.turn();
    }
    assert!(posted < 2_000, "{posted} commands were taken");
    // Nothing that the engine could do: it may sleep.
    scene.wired.run_until_idle();
    let session = scene.wired.cores[0].programs.get(scene.hostile.slot);
    assert!(!session.unwrap().has_work());
    scene.honest_goes_on();
    // All are answered as soon as the program fetches.
    let mut answered = 0;
    while answered < posted {
        let before = answered;
        scene.hostile.reap();
        answered += scene.hostile.reaped.drain(..).count();
        scene.wired.run_until_idle();
        assert!(
            answered > before || answered == posted,
            "{answered} of {posted}"
        );
    }
}

#[test]
fn a_program_that_closes_its_channel_and_goes_on_filling_rings_is_soon_gone() {
    let mut scene = Scene::new();
    let Program {
        commands, control, ..
    } = scene.hostile;
    drop(control);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let command = Command {
                token: 0,
                socket: SocketId::new(1, 77),
                op: Op::Listen { backlog: 1 },
            };
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = commands.push(&command);
            }
        });
        for _ in 0..3 {
            scene.wired.turn();
            scene.wired.serve();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    scene.wired.run_until_idle();
    assert_eq!(scene.wired.cores[0].programs.iter().count(), 1);
}

#[test]
fn descriptors_of_other_kinds_are_refused() {
    let mut scene = Scene::new();
    let bell = scene.hostile.bells[0].as_fd();
    for request in [
        Request::Open { count: 1 },
        Request::Prepare { count: 1 },
        Request::OpenDatagram,
        Request::ShareFile,
    ] {
        let refused = scene.hostile.request(&mut scene.wired, &request, &[bell]);
        let errno = refused.expect_err("an eventfd is none of these");
        assert!([Errno::NOTSOCK, Errno::OPNOTSUPP].contains(&errno));
    }
    let tcp = scene.hostile.backing.as_fd();
    for request in [Request::Fork, Request::Join { core: 0 }] {
        let refused = scene.hostile.request(&mut scene.wired, &request, &[tcp]);
        assert_eq!(
            refused.err(),
            Some(Errno::PROTO),
            "the engine makes channels"
        );
    }
    scene.hostile.open(&mut scene.wired).unwrap();
}

#[test]
fn a_program_that_asks_without_pause_is_answered_in_turns() {
    let mut scene = Scene::new();
    let request = Request::Query {
        kind: QueryKind::Status,
    };
    let mut asked = 0;
    while send(scene.hostile.control.as_fd(), &request.encode(), &[]).is_ok() {
        asked += 1;
    }
    assert!(asked > 20, "the channel takes only {asked}");
    scene.wired.serve();
    // What was answered made room for as many; the others still wait.
    let mut room = 0;
    while send(scene.hostile.control.as_fd(), &request.encode(), &[]).is_ok() {
        room += 1;
    }
    assert!(room <= 17, "{room} were answered at once");
    scene.honest_goes_on();
}

#[test]
fn regions_of_others_are_refused() {
    let mut scene = Scene::new();
    let region = scene.honest[0].region.id();
    let refused = scene
        .hostile
        .request(&mut scene.wired, &Request::MapRegion { region }, &[]);
    assert_eq!(refused.err(), Some(Errno::ACCESS));
}

/// One engine whose other end of the wire is in the test's hands.
struct Exposed {
    core: crate::EngineCore,
    wire: WireEnd,
    now: Instant,
    /// What the engine sent last.
    heard: Vec<Vec<u8>>,
}

impl Exposed {
    fn new() -> Self {
        let (end, wire) = WireEnd::pair(&WireConfig::default()).unwrap();
        let now = Instant::from_us(1_000_000);
        let core = core_on(end, ADDRESSES[0], small_limits(), now);
        let heard = Vec::new();
        let mut exposed = Self {
            core,
            wire,
            now,
            heard,
        };
        exposed.run();
        exposed
    }

    fn say(&mut self, frame: &[u8]) {
        assert_eq!(self.wire.tx_burst(&[TxFrame::plain(frame)]).unwrap(), 1);
        self.run();
    }

    fn run(&mut self) {
        for _ in 0..1_000 {
            let work = self.core.poll(self.now, None);
            assert!(self.core.failure().is_none(), "a frame broke the driver");
            let heard = &mut self.heard;
            let received = self
                .wire
                .rx_burst(64, &mut |frame| heard.push(frame.bytes.to_vec()));
            if work + received.unwrap() == 0 {
                let excess = self.heard.len().saturating_sub(16);
                self.heard.drain(..excess);
                serve(&mut self.core, self.now);
                return;
            }
        }
        panic!("frames keep the engine busy for ever");
    }

    /// Asks who has the engine's address, from a fresh hardware address.
    fn answers_arp(&mut self) -> bool {
        let ours = wire::ethernet::Address([2, 0, 0, 0, 9, 9]);
        let mut frame = vec![0; 42];
        wire::ethernet::Header {
            destination: wire::ethernet::Address([0xff; 6]),
            source: ours,
            ethertype: wire::ethernet::EtherType::ARP,
        }
        .emit(&mut frame);
        wire::arp::Packet {
            operation: wire::arp::Operation::REQUEST,
            sender_hardware: ours,
            sender_protocol: "10.9.0.99".parse().unwrap(),
            target_hardware: wire::ethernet::Address([0; 6]),
            target_protocol: ADDRESSES[0],
        }
        .emit(&mut frame[14..]);
        self.heard.clear();
        self.say(&frame);
        self.heard.iter().any(|frame| frame[..6] == ours.0)
    }
}

/// A frame with good headers up to some depth and noise behind them.
fn frame() -> impl Strategy<Value = (u8, Vec<u8>)> {
    (0_u8..5, proptest::collection::vec(any::<u8>(), 0..200))
}

fn dressed(depth: u8, noise: &[u8], hardware: wire::ethernet::Address) -> Vec<u8> {
    if depth == 0 {
        return noise.to_vec();
    }
    let mut frame = vec![0; 14];
    let ethertype = if depth == 1 {
        wire::ethernet::EtherType::ARP
    } else {
        wire::ethernet::EtherType::IPV4
    };
    wire::ethernet::Header {
        destination: hardware,
        source: wire::ethernet::Address([2, 0, 0, 0, 0, 5]),
        ethertype,
    }
    .emit(&mut frame);
    if depth > 2 {
        let protocol = if depth == 3 {
            wire::ipv4::Protocol::ICMP
        } else {
            wire::ipv4::Protocol::TCP
        };
        let header = wire::ipv4::Header {
            identification: 1,
            ..wire::ipv4::Header::new(ADDRESSES[1], ADDRESSES[0], protocol)
        };
        frame.resize(34, 0);
        header.emit(noise.len(), &mut frame[14..]);
    }
    frame.extend_from_slice(noise);
    frame
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn a_hostile_peer_never_stops_the_engine(
        frames in proptest::collection::vec(frame(), 1..60),
        flips in proptest::collection::vec((any::<usize>(), any::<usize>(), any::<u8>()), 0..40),
    ) {
        let mut exposed = Exposed::new();
        let hardware = exposed.core.layer.link.driver.caps().hardware_address;
        for (depth, noise) in &frames {
            exposed.say(&dressed(*depth, noise, hardware));
            exposed.now += Duration::from_ms(3);
        }
        // What the engine itself says comes back to it, a little changed.
        for (which, at, value) in flips {
            let Some(echo) = exposed.heard.get(which % exposed.heard.len().max(1)) else {
                break;
            };
            let mut echo = echo.clone();
            if echo.is_empty() {
                continue;
            }
            let at = at % echo.len();
            echo[at] ^= value;
            exposed.say(&echo);
            exposed.now += Duration::from_ms(50);
        }
        exposed.now += Duration::from_secs(120);
        exposed.run();
        prop_assert!(exposed.answers_arp());
        prop_assert_eq!(exposed.core.layer.stack.connections().count(), 0);
    }
}
