//! smoltcp at the far end of the deterministic network: an independent stack on paths that lose, bend and duplicate, the
//! same every time. With a real cable and a real program: `smoltcp_peer.rs`.
//!
//! smoltcp 0.12 takes back its retransmission timer with every ACK that comes in CLOSE-WAIT, FIN-WAIT-1, CLOSING or
//! LAST-ACK and leaves something unacknowledged (`set_for_idle` in its `socket/tcp.rs`; only ESTABLISHED keeps it): what
//! was lost then is never sent again, and the connection stands still for ever. So its program closes first here, when all
//! has arrived on both sides, and one test shows what happens otherwise.
//!
//! SHUNT_SEED replays one seed, and SHUNT_TRACE prints its frames.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::collections::VecDeque;

use netem::Impairment;
use nic::TxFrame;
use smoltcp::{
    iface::{Config, Interface, SocketHandle, SocketSet},
    phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken},
    socket::tcp::{Socket, SocketBuffer, State},
    time::Instant,
    wire::{HardwareAddress, IpCidr},
};
use testkit::network::{
    Scenario,
    content::{self, Received},
    host::{PORT, Progress, address, hardware},
    path::Path,
    run_beside,
    simulation::{Failure, Node, Report},
};
use wire::ethernet;

/// Bytes each way.
const BYTES: u64 = 150_000;
const BUFFER_BYTES: usize = 65_536;
const SEEDS: u64 = 100;
const LOSSES: &str = "loss=2%,delay=5ms";

/// Packets on their way into smoltcp and out of it.
#[derive(Default)]
struct Queues {
    arrived: VecDeque<Vec<u8>>,
    leaving: Vec<Vec<u8>>,
}

struct Arrived(Vec<u8>);

struct Leaving<'q>(&'q mut Vec<Vec<u8>>);

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(&self.0)
    }
}

impl TxToken for Leaving<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        let mut packet = vec![0; len];
        let result = fill(&mut packet);
        self.0.push(packet);
        result
    }
}

impl Device for Queues {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Leaving<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Arrived, Leaving<'_>)> {
        let packet = self.arrived.pop_front()?;
        Some((Arrived(packet), Leaving(&mut self.leaving)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Leaving<'_>> {
        Some(Leaving(&mut self.leaving))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        // Neighbours are not its business: on this network they are known.
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 1_500;
        capabilities
    }
}

/// Host 1: smoltcp, and a program that sends all, reads all and closes.
struct Peer {
    queues: Queues,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    received: Received,
    consumed: u64,
    to_receive: u64,
    /// The stream that it sends, its length, and how much of it the socket has taken.
    stream: u64,
    to_send: u64,
    written: u64,
    /// Closes as soon as it has written everything.
    hurries: bool,
    connected: bool,
    closed: bool,
    frames: u64,
    next_us: Option<u64>,
    fault: Option<String>,
}

impl Peer {
    fn new(scenario: &Scenario, hurries: bool) -> Self {
        let mut queues = Queues::default();
        let mut interface = Interface::new(
            Config::new(HardwareAddress::Ip),
            &mut queues,
            Instant::from_micros(0),
        );
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(address(1).into(), 24)).unwrap();
        });
        let buffer = || SocketBuffer::new(vec![0; BUFFER_BYTES]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.listen(PORT).unwrap();
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        Self {
            queues,
            interface,
            sockets,
            handle,
            received: Received::new(scenario.seed * 2, scenario.plans[0].send),
            consumed: 0,
            to_receive: scenario.plans[0].send,
            stream: scenario.seed * 2 + 1,
            to_send: scenario.plans[1].send,
            written: 0,
            hurries,
            connected: false,
            closed: false,
            frames: 0,
            next_us: None,
            fault: None,
        }
    }

    fn socket(&self) -> &Socket<'static> {
        self.sockets.get(self.handle)
    }

    fn act(&mut self) {
        let socket = self.sockets.get_mut::<Socket<'_>>(self.handle);
        self.connected |= socket.may_send();
        while socket.can_recv() {
            let mut bytes = Vec::new();
            let taken = socket.recv(|data| {
                bytes.extend_from_slice(data);
                (data.len(), ())
            });
            taken.unwrap();
            if let Err(fault) = self.received.place(self.consumed, &bytes) {
                self.fault.get_or_insert(fault);
            }
            self.consumed += bytes.len() as u64;
        }
        while socket.can_send() && self.written < self.to_send {
            let mut bytes = [0; 4_096];
            let len = (self.to_send - self.written).min(bytes.len() as u64);
            let bytes = &mut bytes[..usize::try_from(len).unwrap()];
            content::fill(self.stream, self.written, bytes);
            self.written += socket.send_slice(bytes).unwrap() as u64;
        }
        let is_over = matches!(
            socket.state(),
            State::CloseWait | State::LastAck | State::Closing | State::TimeWait | State::Closed
        );
        let is_done = socket.send_queue() == 0 && self.consumed == self.to_receive;
        let may_close = self.hurries || is_done;
        if self.connected && self.written == self.to_send && socket.may_send() && may_close {
            socket.close();
        }
        self.closed |= self.connected && is_over && !socket.may_send() && !socket.can_recv();
    }

    fn poll(&mut self, now_us: u64) {
        let now = Instant::from_micros(i64::try_from(now_us).unwrap());
        self.interface
            .poll(now, &mut self.queues, &mut self.sockets);
    }
}

impl Node for Peer {
    fn deliver(&mut self, _: u64, _: &mut Path, frame: &[u8]) {
        // What the path has bent may be anything.
        if let Ok((_, packet)) = ethernet::Header::parse(frame) {
            self.queues.arrived.push_back(packet.to_vec());
        }
    }

    fn run(&mut self, now_us: u64, path: &mut Path) {
        self.poll(now_us);
        self.act();
        self.poll(now_us);
        for packet in std::mem::take(&mut self.queues.leaving) {
            let mut frame = vec![0; ethernet::Header::LEN];
            let link = ethernet::Header {
                destination: hardware(0),
                source: hardware(1),
                ethertype: ethernet::EtherType::IPV4,
            };
            link.emit(&mut frame);
            frame.extend_from_slice(&packet);
            self.frames += 1;
            path.offer(now_us, 1, &TxFrame::plain(&frame));
        }
        let now = Instant::from_micros(i64::try_from(now_us).unwrap());
        let next = self.interface.poll_at(now, &self.sockets);
        // A clock of microseconds that asks for this very instant wants the next one.
        self.next_us = next.map(|at| u64::try_from(at.total_micros()).unwrap().max(now_us + 1));
    }

    fn next_us(&self) -> Option<u64> {
        self.next_us
    }

    fn progress(&self) -> Progress {
        Progress {
            consumed: self.consumed,
            acknowledged: self.written - self.socket().send_queue() as u64,
            notifications: 0,
            connected: self.connected,
            closed: self.closed,
            released: self.closed,
        }
    }

    fn fault(&self) -> Option<String> {
        self.fault.clone()
    }

    fn frames(&self) -> u64 {
        self.frames
    }
}

/// Both send; the window of ours is what smoltcp's is.
fn scenario(path: &str, seed: u64) -> Scenario {
    let impairment: Impairment = path.parse().unwrap();
    let mut scenario = Scenario::transfer(BYTES, impairment, seed);
    scenario.plans[1].send = BYTES;
    scenario
}

fn run(path: &str, seed: u64, hurries: bool) -> Result<Report, Box<Failure>> {
    let print = std::env::var_os("SHUNT_TRACE").is_some();
    let mut scenario = scenario(path, seed);
    scenario.plans[0].waits_for_end = !hurries;
    let peer = Box::new(Peer::new(&scenario, hurries));
    run_beside(peer, &scenario, print)
}

fn every_seed(path: &str) {
    let seeds = match std::env::var("SHUNT_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..SEEDS).collect(),
    };
    let results = seeds.into_iter().map(|seed| run(path, seed, false));
    let failures: Vec<_> = results.filter_map(Result::err).collect();
    if let Some(first) = failures.first() {
        panic!("{} seeds fail; the first\n{first}", failures.len());
    }
}

#[test]
fn a_path_that_delays_and_duplicates_delivers_every_byte() {
    every_seed("delay=1ms,jitter=200us,duplicate=1%");
}

#[test]
fn a_path_that_loses_delivers_every_byte() {
    every_seed(LOSSES);
}

#[test]
fn a_path_that_loses_and_reorders_delivers_every_byte() {
    every_seed("loss=1%,delay=5ms,reorder=5%,duplicate=1%");
}

#[test]
fn what_smoltcp_lost_before_its_fin_it_does_not_send_again() {
    let results = (0..SEEDS).map(|seed| run(LOSSES, seed, true));
    let failures: Vec<_> = results.filter_map(Result::err).collect();
    assert!(!failures.is_empty(), "smoltcp has learned it");
    for failure in failures {
        // Ours has nothing left to do but to wait.
        let [ours, theirs] = failure.progress;
        assert!(failure.why.contains("nothing is left"), "{failure}");
        assert_eq!(ours.acknowledged, BYTES, "{failure}");
        assert!(theirs.acknowledged < BYTES, "{failure}");
    }
}
