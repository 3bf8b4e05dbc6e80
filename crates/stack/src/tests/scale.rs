//! 100,000 connections: work is counted per packet, not timed.

use super::pair::*;
use super::peer::*;
use crate::*;
use ::tcp::{ConnectionError, Events, Instant};
use std::net::Ipv4Addr;
use wire::tcp::Flags;

const NOW: Instant = Instant::from_us(1_000_000_000);
const CONNECTIONS: u32 = 100_000;

/// A host without windows: it counts.
#[derive(Default)]
struct Counting {
    owners: u64,
    bytes: usize,
    events: u64,
    errors: Vec<ConnectionError>,
}

impl Host for Counting {
    fn receive(&mut self, _: u64, _: u64, data: &[u8]) {
        self.bytes += data.len();
    }

    fn on_events(&mut self, _: ConnectionId, _: u64, _: Events, tcp: &::tcp::Connection) {
        self.events += 1;
        self.errors.extend(tcp.error());
    }

    fn on_incoming(&mut self, _: ListenerId, _: u64, _: std::net::SocketAddr) -> Option<Incoming> {
        self.owners += 1;
        let (receive_capacity, send_capacity) = (65_536, 65_536);
        let options = ::tcp::SocketOptions::default();
        Some(Incoming {
            owner: self.owners,
            receive_capacity,
            send_capacity,
            options,
            ip: IpOptions::default(),
        })
    }

    fn on_accept_ready(&mut self, _: ListenerId, _: u64, _: AcceptReady) {}

    fn on_released(&mut self, _: ConnectionId, _: u64) {}
}

/// Keeps the last frame's TCP header.
#[derive(Default)]
struct Last {
    frames: usize,
    header: wire::tcp::Header,
}

impl Egress for Last {
    fn caps(&self, _: InterfaceId) -> EgressCaps {
        EgressCaps::default()
    }

    fn transmit(&mut self, frame: &Frame<'_>) -> Result<(), Busy> {
        self.frames += 1;
        if frame.headers.len() >= 54 {
            self.header = wire::tcp::Header::parse(&frame.headers[34..]).unwrap().0;
        }
        Ok(())
    }
}

struct Crowd<'m> {
    stack: Stack<'m>,
    host: Counting,
    egress: Last,
    now: Instant,
    /// The server's next sequence number, by client.
    next: Vec<u32>,
}

impl Crowd<'_> {
    fn deliver(&mut self, frame: &Flying) {
        let meta = RxMeta {
            checksum: RxChecksum::Verified,
            ..RxMeta::default()
        };
        self.stack.handle_frame(
            self.now,
            NIC,
            &frame.bytes,
            meta,
            &mut self.host,
            &mut self.egress,
        );
    }

    fn transmit(&mut self) {
        while self.stack.wants_transmit() {
            self.stack
                .poll_transmit(self.now, &mut self.host, &mut self.egress, 1_024);
        }
    }

    fn peer(n: u32) -> (Ipv4Addr, u16) {
        let [_, _, a, b] = (n / 1_000).to_be_bytes();
        (
            Ipv4Addr::new(172, 16, a, b),
            1_000 + u16::try_from(n % 1_000).unwrap(),
        )
    }

    /// Segment number `seq` from client `n`, acknowledging `ack`.
    fn from(n: u32, seq: u32, ack: u32, flags: Flags, payload: &[u8]) -> Flying {
        let (address, port) = Self::peer(n);
        segment(address, ip(ME), &header(port, 80, seq, ack, flags), payload)
    }

    fn steps(&self) -> u64 {
        let work = self.stack.work();
        work.demux_steps + work.timer_steps + work.transmit_turns
    }
}

impl<'m> Crowd<'m> {
    fn new(memory: &'m mut HeapTables) -> Self {
        let mut stack = Stack::new(memory.tables(), config(ME)).unwrap();
        configure(&mut stack, NOW, ME);
        stack
            .set_neighbour(NOW, NIC, ip(254).into(), Some(hardware(PEER)))
            .unwrap();
        Self {
            stack,
            host: Counting::default(),
            egress: Last::default(),
            now: NOW,
            next: Vec::new(),
        }
    }

    /// Opens every connection; returns the steps that each one took.
    fn gather(&mut self) -> Vec<u64> {
        let local = std::net::SocketAddr::from((Ipv4Addr::UNSPECIFIED, 80));
        let listen = Listen {
            v6_only: false,
            owner: 1,
            local,
            backlog: 64,
            reuse_address: true,
            reuse_port: None,
        };
        let listener = self.stack.listen(&listen).unwrap();
        let open = |n| {
            let before = self.steps();
            self.now += ::tcp::Duration::from_us(7);
            self.deliver(&Self::from(n, 100, 0, Flags::SYN, &[]));
            self.transmit();
            let next = self.egress.header.seq.wrapping_add(1);
            self.next.push(next);
            self.deliver(&Self::from(n, 101, next, Flags::ACK, &[]));
            self.transmit();
            assert!(self.stack.accept(listener).unwrap().is_some());
            self.steps() - before
        };
        (0..CONNECTIONS).map(open).collect()
    }

    /// Delivers one request to client `n`'s connection; returns the steps that it took.
    fn request(&mut self, n: u32) -> u64 {
        let before = self.steps();
        let flags = Flags::ACK | Flags::PSH;
        self.deliver(&Self::from(
            n,
            101,
            self.next[n as usize],
            flags,
            b"request",
        ));
        self.transmit();
        self.stack.next_deadline();
        self.steps() - before
    }

    /// Every peer resets, every program closes.
    fn scatter(&mut self) {
        for n in 0..CONNECTIONS {
            let seq = if n % 100 == 0 { 108 } else { 101 };
            self.deliver(&Self::from(n, seq, self.next[n as usize], Flags::RST, &[]));
        }
        let all: Vec<_> = self.stack.connections().map(|row| row.connection).collect();
        for id in all {
            self.stack.close(self.now, id, &mut self.host).unwrap();
        }
        self.transmit();
    }
}

#[test]
fn work_per_packet_is_the_same_with_100_000_connections() {
    let mut memory = HeapTables::new(110_000, 4, 131_072).unwrap();
    let mut crowd = Crowd::new(&mut memory);
    let per_handshake = crowd.gather();
    assert_eq!(crowd.stack.connections().count(), CONNECTIONS as usize);
    let mean = |steps: &[u64]| steps.iter().sum::<u64>() / steps.len() as u64;
    assert!(
        per_handshake.iter().all(|steps| *steps < 60),
        "{:?}",
        per_handshake.iter().max()
    );
    assert!(mean(&per_handshake[90_000..]) <= mean(&per_handshake[..10_000]) + 2);

    let frames = crowd.egress.frames;
    let worst = (0..CONNECTIONS)
        .step_by(100)
        .map(|n| crowd.request(n))
        .max()
        .unwrap();
    assert!(worst < 20, "{worst} steps for one segment");
    let answers = crowd.egress.frames - frames;
    assert_eq!(
        (crowd.host.bytes, answers),
        (7_000, 1_000),
        "each is acknowledged"
    );
    assert!(crowd.host.errors.is_empty());

    crowd.scatter();
    assert_eq!(crowd.host.errors.len(), CONNECTIONS as usize);
    assert_eq!(crowd.stack.connections().count(), 0);
    assert_eq!(crowd.stack.tcp.ports.users(80), 0);
}

#[test]
fn a_timer_costs_the_same_among_100_000_others() {
    let mut memory = HeapTables::new(110_000, 4, 131_072).unwrap();
    let mut crowd = Crowd::new(&mut memory);
    crowd.gather();
    // One answer to each client, which nobody acknowledges: a retransmission timer each.
    let all: Vec<_> = crowd
        .stack
        .connections()
        .map(|row| row.connection)
        .collect();
    for id in all {
        crowd.stack.written(crowd.now, id, 100).unwrap();
        crowd.transmit();
    }
    let worst = (0..CONNECTIONS)
        .step_by(1_000)
        .map(|n| crowd.request(n))
        .max()
        .unwrap();
    assert!(worst < 20, "{worst} steps to move one timer");

    let (frames, steps) = (crowd.egress.frames, crowd.steps());
    let end = crowd.now + ::tcp::Duration::from_secs(3);
    while let Some(due) = crowd.stack.next_deadline().filter(|due| *due <= end) {
        crowd.now = crowd.now.max(due);
        crowd.stack.handle_timeouts(crowd.now, &mut crowd.host);
        crowd.transmit();
    }
    let sent = (crowd.egress.frames - frames) as u64;
    assert!(
        sent >= u64::from(CONNECTIONS),
        "{sent} timers brought a frame"
    );
    let each = (crowd.steps() - steps) / sent;
    assert!(each < 20, "{each} steps for each timer that fired");
}

#[test]
fn records_are_as_small_as_promised() {
    let sizes = [
        size_of::<tables::ConnectionRecord>(),
        size_of::<tables::TimeWaitRecord>(),
        size_of::<tables::ListenerRecord>(),
    ];
    assert!(
        sizes[0] <= 2_200 && sizes[1] <= 104 && sizes[2] <= 88,
        "{sizes:?}"
    );
}
