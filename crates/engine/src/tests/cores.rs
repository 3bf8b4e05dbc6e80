//! The two cores of one engine, each on a cable whose other end is loose: what is refused, what is passed
//! on, and whose names are whose.

use crate::config::Config;
use crate::core::EngineCore;
use crate::harness::{ADDRESSES, Program, Wired, small_limits};
use crate::seat::Seat;
use core::net::{IpAddr, SocketAddr};
use hostif::control::{QueryKind, Reply, Request};
use hostif::{Op, Steering};
use nic::wire::{self, WireEnd};
use rustix::fd::AsFd as _;
use rustix::io::Errno;
use tcp::{Duration, Instant};

const STEERING: Steering = Steering { cores: 2, key: 5 };

/// The first core's frames come out at the returned end.
fn engine() -> (Wired, WireEnd) {
    let now = Instant::from_us(1_000_000);
    let mut ends = Vec::new();
    let mut seats = Seat::all(STEERING).unwrap().into_iter();
    let cores = [0, 1].map(|_| {
        let (end, loose) = WireEnd::pair(&wire::Config::default()).unwrap();
        ends.push(loose);
        let own = format!("{}/24", ADDRESSES[0]).parse().unwrap();
        let config = Config {
            limits: small_limits(),
            ..Config::new("test", "wire", vec![own])
        };
        let seat = seats.next().unwrap();
        EngineCore::seated(config, seat, Box::new(end), [7; 16], now).unwrap()
    });
    let mut wired = Wired { cores, now };
    wired.settle();
    (wired, ends.swap_remove(0))
}

/// A peer whose connection with `local` belongs to `core`.
fn peer_of(core: u16, local: SocketAddr) -> SocketAddr {
    let peer = |port| SocketAddr::new(IpAddr::V4(ADDRESSES[1]), port);
    (1..)
        .map(peer)
        .find(|peer| STEERING.core_of(local, *peer) == core)
        .unwrap()
}

fn connect(
    wired: &mut Wired,
    program: &mut Program,
    remote: SocketAddr,
    local: Option<SocketAddr>,
) -> Result<Option<SocketAddr>, Errno> {
    let socket = program.open(wired)?;
    program.try_call(wired, socket.id, Op::Connect { remote, local })?;
    Ok(socket.header().addresses().0)
}

#[test]
fn a_connection_whose_answers_would_arrive_at_another_core_is_refused() {
    let (mut wired, _loose) = engine();
    let mut program = wired.attach(0);
    let local = SocketAddr::new(IpAddr::V4(ADDRESSES[0]), program.port());
    let elsewhere = peer_of(1, local);
    let refused = connect(&mut wired, &mut program, elsewhere, Some(local));
    assert_eq!(refused, Err(Errno::ADDRNOTAVAIL));
    // Neither is it begun where the engine has to find its own address first.
    let any = SocketAddr::from(([0, 0, 0, 0], local.port()));
    let refused = connect(&mut wired, &mut program, elsewhere, Some(any));
    assert_eq!(refused, Err(Errno::ADDRNOTAVAIL));
    assert_eq!(wired.cores[0].stack.connections().count(), 0);
    let here = peer_of(0, local);
    let begun = connect(&mut wired, &mut program, here, Some(any));
    assert_eq!(begun, Ok(Some(local)));
}

#[test]
fn each_core_chooses_ports_that_lead_to_itself() {
    let (mut wired, _loose) = engine();
    for (side, core) in [(0, 0), (1, 1)] {
        let mut program = wired.attach(side);
        for port in 1..=12 {
            let remote = SocketAddr::new(IpAddr::V4(ADDRESSES[1]), port);
            let local = connect(&mut wired, &mut program, remote, None).unwrap();
            assert_eq!(STEERING.core_of(local.unwrap(), remote), core);
        }
    }
}

#[test]
fn a_program_joins_another_core_by_way_of_the_first() {
    let (mut wired, _loose) = engine();
    let first = wired.attach(0);
    let channel = first.join(&mut wired, 1).unwrap();
    let now = wired.now;
    wired.cores[1].take_messages(now);
    let mut other = wired.greet(1, channel).unwrap();
    let session = wired.cores[1].sessions[other.slot].as_ref().unwrap();
    let parent = wired.cores[0].sessions[first.slot].as_ref().unwrap();
    assert_eq!(session.uid, parent.uid);
    assert_ne!(first.region.id(), other.region.id());

    let socket = other.open(&mut wired).unwrap();
    assert_eq!(socket.id.core(), 1);
    // Another core's name is nobody's, whatever row it says.
    let stranger = wired.attach(0);
    let mut stranger = stranger;
    let own = stranger.open(&mut wired).unwrap();
    assert_eq!(own.id.row(), socket.id.row());
    let listen = Op::Listen { backlog: 1 };
    let refused = stranger.try_call(&mut wired, socket.id, listen);
    assert_eq!(refused, Err(Errno::BADF));
    let bind = Op::Bind {
        local: SocketAddr::from(([0, 0, 0, 0], 0)),
    };
    assert!(other.try_call(&mut wired, socket.id, bind).is_ok());
}

#[test]
fn what_is_no_channel_or_no_core_is_not_joined() {
    let (mut wired, _loose) = engine();
    let program = wired.attach(0);
    for core in [0, 2, u16::MAX] {
        let refused = program.join(&mut wired, core).err();
        assert_eq!(refused, Some(Errno::INVAL), "core {core}");
    }
    let bell = hostif::doorbell::create().unwrap();
    let request = Request::Join { core: 1 };
    let refused = program.request(&mut wired, &request, &[bell.as_fd()]);
    assert_eq!(refused.err(), Some(Errno::NOTSOCK));
    // Nor does another core pass anybody on.
    let other = wired.attach(1);
    assert_eq!(other.join(&mut wired, 0).err(), Some(Errno::INVAL));
    let query = Request::Query {
        kind: QueryKind::Status,
    };
    let told = program.request(&mut wired, &query, &[]);
    assert!(matches!(told, Ok((Reply::Report, _))));
}

#[test]
fn only_the_first_core_announces_the_engines_addresses() {
    let (mut wired, _loose) = engine();
    wired.advance(Duration::from_secs(10));
    let sent = [0, 1].map(|core: usize| wired.cores[core].link.driver.counters().tx_frames);
    assert_eq!(sent, [2, 0], "RFC 5227 §1.1: ANNOUNCE_NUM");
}
