//! The two cores of one engine on a cable whose other end is loose: what is refused, what is passed
//! on, and whose names are whose.

use crate::core::EngineCore;
use crate::harness::{ADDRESSES, Program, Wired, small_limits};
use core::net::{IpAddr, SocketAddr};
use engine_config::Config;
use hostif::control::{QueryKind, Reply, Request};
use hostif::{Op, Steering};
use netem::bundle::{Bundle, Steer};
use nic::wire::Config as Cable;
use nic::{Driver as _, TxFrame};
use rustix::fd::AsFd as _;
use rustix::io::Errno;
use shards::Shard;
use std::sync::Arc;
use tcp::{Duration, Instant};
use wire::ethernet::{Address, EtherType, Header as EthernetHeader};
use wire::ipv4::{Header as Ipv4Header, Protocol};

const STEERING: Steering = Steering { cores: 2, key: 5 };

/// The cores' frames come out at the returned end, and what enters there reaches the first core.
fn engine() -> (Wired, Bundle) {
    let now = Instant::from_us(1_000_000);
    let mut shards = Shard::all(STEERING).unwrap().into_iter();
    let to_first: Steer = Arc::new(|_| 0);
    let steer = [Arc::clone(&to_first), to_first];
    let [queues, mut loose] = Bundle::pair(&Cable::default(), [2, 1], steer).unwrap();
    let mut queues = queues.into_iter();
    let cores = [0, 1].map(|_| {
        let end = queues.next().unwrap();
        let own = format!("{}/24", ADDRESSES[0]).parse().unwrap();
        let config = Config {
            limits: small_limits(),
            ..Config::new("test", "wire", vec![own])
        };
        let shard = shards.next().unwrap();
        EngineCore::with_shard(
            config,
            shard,
            crate::programs::users::Users::direct(),
            Box::new(end),
            [7; 16],
            now,
        )
        .unwrap()
    });
    let mut wired = Wired::of(cores, now);
    wired.run_until_idle();
    (wired, loose.swap_remove(0))
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
    assert_eq!(wired.cores[0].layer.stack.connections().count(), 0);
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
    let mut other = wired.greet(1, channel).unwrap();
    let session = wired.cores[1].programs.get(other.slot).unwrap();
    let parent = wired.cores[0].programs.get(first.slot).unwrap();
    assert_eq!(session.user.uid, parent.user.uid);
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
    let bell = hostif::sync::doorbell::create().unwrap();
    let request = Request::Join { core: 1 };
    let refused = program.request(&mut wired, &request, &[bell.as_fd()]);
    assert_eq!(refused.err(), Some(Errno::PROTO));
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
    let sent = [0, 1].map(|core: usize| wired.cores[core].layer.link.driver.counters().tx_frames);
    assert_eq!(sent, [2, 0], "RFC 5227 §1.1: ANNOUNCE_NUM");
}

/// The frame of an IPv4 packet from the peer, or of a part of one.
fn frame(engine: &Wired, part: &Ipv4Header, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 34];
    EthernetHeader {
        destination: engine.cores[0].layer.link.driver.caps().hardware_address,
        source: Address([2, 0, 0, 0, 0, 9]),
        ethertype: EtherType::IPV4,
    }
    .emit(&mut frame);
    part.emit(payload.len(), &mut frame[14..]);
    frame.extend_from_slice(payload);
    frame
}

#[test]
fn a_segment_in_fragments_reaches_the_core_that_serves_its_connection() {
    let (mut wired, mut loose) = engine();
    let mut program = wired.attach(1);
    let (_socket, at) = program.listen(&mut wired, 8).unwrap();
    let local = SocketAddr::new(IpAddr::V4(ADDRESSES[0]), at.port());
    for (n, core) in [(0, 1), (1, 0)] {
        let remote = peer_of(core, local);
        let syn = wire::tcp::Header {
            source_port: remote.port(),
            destination_port: local.port(),
            seq: 7,
            flags: wire::tcp::Flags::SYN,
            window: 1_000,
            ..wire::tcp::Header::default()
        };
        let mut segment = vec![0; 20 + 12];
        syn.emit(&mut segment);
        let sum = wire::checksum::Sum::new()
            .pseudo_header(remote.ip(), local.ip(), Protocol::TCP, segment.len())
            .add(&segment);
        segment[16..18].copy_from_slice(&sum.finish().to_be_bytes());
        for (offset, bytes) in [(16, &segment[16..]), (0, &segment[..16])] {
            let part = Ipv4Header {
                source: ADDRESSES[1],
                destination: ADDRESSES[0],
                protocol: Protocol::TCP,
                ttl: 64,
                dscp_ecn: 0,
                identification: core,
                dont_fragment: false,
                more_fragments: offset == 0,
                fragment_offset: offset,
                total_len: 0,
                header_len: 20,
            };
            let frame = frame(&wired, &part, bytes);
            loose.tx_burst(&[TxFrame::plain(&frame)]).unwrap();
        }
        wired.run_until_idle();
        // Nobody listens at the first core: its own packet is refused there, not passed on.
        let segments =
            [0, 1].map(|core: usize| wired.cores[core].layer.stack.counters().tcp_in_segs);
        assert_eq!(segments, [n, 1]);
        assert_eq!(wired.cores[1].layer.stack.connections().count(), 1);
    }
}
