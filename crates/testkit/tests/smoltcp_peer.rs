//! An independent peer: smoltcp at the far end of a cable that delays and duplicates, and a program on Shunt at the near one.
//! Handshake, bulk and close both ways, every byte compared.
//!
//! smoltcp runs in this process and holds the TAP of host a, so that it is everything that host meets.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

mod peer_support;

use std::{collections::VecDeque, os::fd::OwnedFd, time::Instant as Clock};

use netem::Cable as Line;
use peer_support::{Far, PATIENCE, PORT, active_program, content, lab, passive_program};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use smoltcp::{
    iface::{Config, Interface, SocketHandle, SocketSet},
    phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken},
    socket::tcp::{Socket, SocketBuffer, State},
    time::Instant,
    wire::{EthernetAddress, IpAddress, IpCidr},
};
use testkit::{Program, host};

const PEER: &str = "smoltcp peer";

/// A frame for smoltcp.
pub struct Frame(Vec<u8>);

impl RxToken for Frame {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(&self.0)
    }
}

/// Where smoltcp puts a frame.
pub struct Room<'l> {
    line: &'l mut Line,
    now_us: u64,
}

impl TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        let mut frame = vec![0; len];
        let result = fill(&mut frame);
        self.line.push(self.now_us, &frame);
        result
    }
}

impl Device for Far {
    type RxToken<'a> = Frame;
    type TxToken<'a> = Room<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Frame, Room<'_>)> {
        let now_us = self.now_us();
        let frame = self.lines[0].pop(now_us)?;
        let bytes = frame.to_vec();
        self.lines[0].give_back(frame);
        let line = &mut self.lines[1];
        Some((Frame(bytes), Room { line, now_us }))
    }

    fn transmit(&mut self, _: Instant) -> Option<Room<'_>> {
        let now_us = self.now_us();
        let line = &mut self.lines[1];
        Some(Room { line, now_us })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1_514;
        capabilities
    }
}

/// smoltcp with one socket, as host b.
struct Peer {
    far: Far,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    received: Vec<u8>,
    to_send: VecDeque<u8>,
    ended: bool,
}

impl Peer {
    fn new(tap: OwnedFd, address: std::net::Ipv4Addr, to_send: Vec<u8>) -> Self {
        let mut far = Far::new(tap, "delay=1ms,duplicate=1%");
        let hardware = EthernetAddress([2, 0, 0, 0, 7, 7]);
        let now = Instant::from_micros(0);
        let mut interface = Interface::new(Config::new(hardware.into()), &mut far, now);
        interface.update_ip_addrs(|addresses| {
            addresses
                .push(IpCidr::new(IpAddress::Ipv4(address), 24))
                .unwrap();
        });
        let buffer = || SocketBuffer::new(vec![0; 65_536]);
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(Socket::new(buffer(), buffer()));
        Self {
            far,
            interface,
            sockets,
            handle,
            received: Vec::new(),
            to_send: to_send.into(),
            ended: false,
        }
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Goes on until the program has ended and so has the connection.
    fn run(&mut self, program: &mut Program) {
        let deadline = Clock::now() + PATIENCE;
        loop {
            let ended = program.try_wait().unwrap().is_some();
            let state = self.socket().state();
            if ended && matches!(state, State::Closed | State::TimeWait) {
                return;
            }
            assert!(
                Clock::now() < deadline,
                "{state:?}, {} bytes received, {} to send, program ended: {ended}: {}",
                self.received.len(),
                self.to_send.len(),
                program.stderr()
            );
            self.turn();
        }
    }

    fn turn(&mut self) {
        let now = Instant::from_micros(i64::try_from(self.far.now_us()).unwrap());
        self.far.exchange();
        self.interface.poll(now, &mut self.far, &mut self.sockets);
        self.act();
        self.interface.poll(now, &mut self.far, &mut self.sockets);
        self.far.exchange();
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: 300_000,
        };
        let mut fds = [PollFd::new(&self.far.tap, PollFlags::IN)];
        poll(&mut fds, Some(&wait)).unwrap();
    }

    /// What a program on smoltcp does: reads all, sends all, ends when the other side has.
    fn act(&mut self) {
        let socket = self.sockets.get_mut::<Socket<'_>>(self.handle);
        if socket.can_recv() {
            let received = &mut self.received;
            let taken = socket.recv(|bytes| {
                received.extend_from_slice(bytes);
                (bytes.len(), ())
            });
            taken.unwrap();
        }
        while socket.can_send() && !self.to_send.is_empty() {
            let (front, _) = self.to_send.as_slices();
            let sent = socket.send_slice(front).unwrap();
            self.to_send.drain(..sent);
        }
        let all_sent = self.to_send.is_empty() && socket.may_send();
        if all_sent && !socket.may_recv() && socket.state() == State::CloseWait && !self.ended {
            socket.close();
            self.ended = true;
        }
    }
}

#[test]
fn a_program_connects_to_smoltcp_and_both_get_every_byte() {
    let Some((lab, tap)) = lab(PEER, "smol-active") else {
        return;
    };
    let address = host(&lab, "b").spec().address.address;
    let mut peer = Peer::new(tap, address, content());
    peer.socket().listen(PORT).unwrap();
    let mut program = active_program(&lab);
    peer.run(&mut program);
    assert_eq!(program.stdout().trim(), "right", "{}", program.stderr());
    assert!(peer.received == content(), "{} bytes", peer.received.len());
}

#[test]
fn smoltcp_connects_to_a_program_and_both_get_every_byte() {
    let Some((lab, tap)) = lab(PEER, "smol-passive") else {
        return;
    };
    let (near, far) = (host(&lab, "a").spec(), host(&lab, "b").spec());
    let ours = near.engine_address.address;
    let mut peer = Peer::new(tap, far.address.address, content());
    let mut program = passive_program(&lab);
    let deadline = Clock::now() + PATIENCE;
    while !program.stdout().contains("ready") {
        assert!(Clock::now() < deadline, "{}", program.stderr());
        peer.turn();
    }
    let remote = (IpAddress::Ipv4(ours), PORT);
    let Peer {
        interface,
        sockets,
        handle,
        ..
    } = &mut peer;
    let socket = sockets.get_mut::<Socket<'_>>(*handle);
    socket.connect(interface.context(), remote, 49_152).unwrap();
    peer.run(&mut program);
    assert!(
        program.stdout().trim().ends_with("right"),
        "{}",
        program.stderr()
    );
    assert!(peer.received == content(), "{} bytes", peer.received.len());
}
