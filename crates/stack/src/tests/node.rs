//! One host of a test: a stack, the windows of its programs, and an interface that keeps what is sent.

use crate::udp::DatagramErrorKind;
use crate::*;
use ::tcp::{Duration, Events, Instant};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use wire::ethernet::Address;

pub const CAPACITY: u32 = 256 * 1024;

pub fn ms(ms: u64) -> Duration {
    Duration::from_ms(ms)
}

/// One socket's side of the windows, and what it was told.
#[derive(Debug, Default)]
pub struct Socket {
    /// Everything written since the start.
    pub sent: Vec<u8>,
    /// Everything received, at its offset.
    pub received: Vec<u8>,
    pub connection: ConnectionId,
    pub view: Option<ConnectionView>,
    pub events: Events,
    pub released: u32,
}

/// What a host knows; shared by its two faces.
#[derive(Debug, Default)]
pub struct Programs {
    pub sockets: BTreeMap<u64, Socket>,
    pub ready: BTreeMap<u64, u32>,
    /// Headers of SYNs by owner.
    pub syns: BTreeMap<u64, Vec<u8>>,
    /// How far bytes have left, of those who asked.
    pub sent_to: BTreeMap<u64, u64>,
    pub next_owner: u64,
    /// Windows that may still be given to incoming connections.
    pub windows_left: usize,
    /// Datagrams with owner and sender.
    pub datagrams: Vec<(u64, SocketAddr, Vec<u8>)>,
    /// What came with each: interface and its number, destination, type of service, time to live, length of a segment.
    pub datagram_heads: Vec<(InterfaceId, u32, SocketAddr, u8, u8, u16)>,
    /// What became known of sent datagrams: owner, what, destination, payload.
    pub failures: Vec<(u64, DatagramErrorKind, SocketAddr, Vec<u8>)>,
    /// Packets that another core took, and whether it takes any.
    pub passed: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
    pub passes: bool,
    /// Held ports that are refused.
    pub refused_ports: Vec<u16>,
}

pub type Shared = Rc<RefCell<Programs>>;

pub struct TestHost(pub Shared);

impl Host for TestHost {
    fn receive(&mut self, owner: u64, offset: u64, data: &[u8]) {
        let mut programs = self.0.borrow_mut();
        let received = &mut programs.sockets.get_mut(&owner).unwrap().received;
        let start = usize::try_from(offset).unwrap();
        received.resize(received.len().max(start + data.len()), 0);
        received[start..start + data.len()].copy_from_slice(data);
    }

    fn on_events(
        &mut self,
        connection: ConnectionId,
        owner: u64,
        events: Events,
        tcp: &::tcp::Connection,
    ) {
        let mut programs = self.0.borrow_mut();
        let socket = programs
            .sockets
            .get_mut(&owner)
            .expect("events come for known owners only");
        assert_eq!(socket.released, 0, "events after the release");
        socket.connection = connection;
        socket.events |= events;
        socket.view = Some(tcp.into());
    }

    fn on_incoming(&mut self, _: ListenerId, _: u64, _: SocketAddr) -> Option<Incoming> {
        let mut programs = self.0.borrow_mut();
        programs.windows_left = programs.windows_left.checked_sub(1)?;
        programs.next_owner += 1;
        let owner = programs.next_owner;
        programs.sockets.insert(owner, Socket::default());
        let (receive_capacity, send_capacity) = (CAPACITY, CAPACITY);
        let options = ::tcp::SocketOptions::default();
        Some(Incoming {
            owner,
            receive_capacity,
            send_capacity,
            options,
            ip: IpOptions::default(),
        })
    }

    fn on_syn(&mut self, owner: u64, headers: &[u8]) {
        self.0.borrow_mut().syns.insert(owner, headers.to_vec());
    }

    fn on_sent(&mut self, owner: u64, sent: u64) {
        self.0.borrow_mut().sent_to.insert(owner, sent);
    }

    fn on_accept_ready(&mut self, _: ListenerId, listener_owner: u64, ready: AcceptReady) {
        self.0
            .borrow_mut()
            .ready
            .insert(listener_owner, ready.count);
    }

    fn on_released(&mut self, _: ConnectionId, owner: u64) {
        let mut programs = self.0.borrow_mut();
        let socket = programs.sockets.get_mut(&owner).unwrap();
        socket.released += 1;
        assert_eq!(socket.released, 1, "released twice");
        programs.windows_left += 1;
    }

    fn on_datagram(&mut self, owner: u64, datagram: &Datagram<'_>) -> bool {
        let payload = datagram.payload.to_vec();
        let mut programs = self.0.borrow_mut();
        programs.datagrams.push((owner, datagram.source, payload));
        programs.datagram_heads.push((
            datagram.interface,
            datagram.scope_id,
            datagram.destination,
            datagram.tos,
            datagram.ttl,
            datagram.segment_bytes,
        ));
        true
    }

    fn on_datagram_error(&mut self, owner: u64, error: &DatagramError<'_>) {
        let (kind, payload) = (error.kind, error.payload.to_vec());
        let mut programs = self.0.borrow_mut();
        programs
            .failures
            .push((owner, kind, error.destination, payload));
    }

    fn try_pass_on(&mut self, detour: &Detour<'_>) -> bool {
        let mut programs = self.0.borrow_mut();
        if programs.passes {
            let frame = [&detour.header, detour.packet].concat();
            programs.passed.push((detour.local, detour.remote, frame));
        }
        programs.passes
    }

    fn try_hold_port(&mut self, local: SocketAddr, _remote: SocketAddr) -> bool {
        !self.0.borrow().refused_ports.contains(&local.port())
    }
}

/// A frame on its way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flying {
    pub bytes: Vec<u8>,
    pub partial: bool,
    pub interface: u16,
    /// Merged from datagrams with so much payload each.
    pub segment_bytes: Option<u16>,
}

/// The transmitting face: payload comes from the sockets, frames go to a list.
pub struct TestEgress {
    pub programs: Shared,
    pub frames: Vec<Flying>,
    pub max_segment_bytes: u32,
    /// Frames taken before the interface is busy.
    pub room: usize,
    pub resolve: Vec<IpAddr>,
}

impl Egress for TestEgress {
    fn caps(&self, _: InterfaceId) -> EgressCaps {
        EgressCaps {
            max_segment_bytes: self.max_segment_bytes,
        }
    }

    fn transmit(&mut self, frame: &Frame<'_>) -> Result<(), Busy> {
        self.room = self.room.checked_sub(1).ok_or(Busy)?;
        let mut bytes = frame.headers.to_vec();
        match frame.payload {
            Payload::None => {}
            Payload::Bytes(payload) => bytes.extend_from_slice(payload),
            Payload::Window {
                owner, offset, len, ..
            } => {
                let (start, len) = (
                    usize::try_from(offset).unwrap(),
                    usize::try_from(len).unwrap(),
                );
                let programs = self.programs.borrow();
                let socket = &programs.sockets[&owner];
                assert_eq!(socket.released, 0, "the windows are gone");
                bytes.extend_from_slice(&socket.sent[start..start + len]);
            }
        }
        let partial = frame.segment_size.is_some();
        if let Some(checksum) = frame.checksum.filter(|_| !partial) {
            wire::virtio::fill_partial(&mut bytes, checksum.start, checksum.offset).unwrap();
        }
        self.frames.push(Flying {
            bytes,
            partial,
            interface: frame.interface.0,
            segment_bytes: None,
        });
        Ok(())
    }

    fn resolve(&mut self, _: InterfaceId, address: IpAddr) {
        self.resolve.push(address);
    }
}

/// One host.
pub struct Node<'m> {
    pub stack: Stack<'m>,
    pub host: TestHost,
    pub egress: TestEgress,
    pub programs: Shared,
}

pub const NIC: InterfaceId = InterfaceId(0);
pub const LOOPBACK: InterfaceId = InterfaceId(1);

pub fn hardware(n: u8) -> Address {
    Address([2, 0, 0, 0, 0, n])
}

pub fn ip(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, n)
}

/// Gives a stack its interfaces: 10.0.0.`n`/24 on a NIC with a default route, and a loopback.
pub fn configure(stack: &mut Stack<'_>, now: Instant, n: u8) {
    let config = InterfaceConfig {
        hardware: hardware(n),
        mtu: 1_500,
        resolution: Resolution::Arp,
        scope_id: 5,
        router_discovery: false,
    };
    assert_eq!(stack.add_interface(config), Ok(NIC));
    let config = InterfaceConfig {
        hardware: Address([0; 6]),
        mtu: 65_535,
        resolution: Resolution::Loopback,
        scope_id: 0,
        router_discovery: false,
    };
    assert_eq!(stack.add_interface(config), Ok(LOOPBACK));
    stack
        .add_address(
            now,
            NIC,
            InterfaceAddress {
                address: ip(n).into(),
                prefix_len: 24,
            },
        )
        .unwrap();
    let (destination, gateway) = (Ipv4Addr::UNSPECIFIED.into(), Some(ip(254).into()));
    let route = Route {
        destination,
        prefix_len: 0,
        gateway,
        interface: NIC,
        metric: 100,
        source: None,
    };
    stack.add_route(route).unwrap();
}

pub fn config(n: u8) -> Config {
    Config::new([n; 16])
}

impl<'m> Node<'m> {
    pub fn new(tables: Tables<'m>, n: u8, now: Instant) -> Self {
        let mut stack = Stack::new(tables, config(n)).unwrap();
        configure(&mut stack, now, n);
        Self::with(stack, Shared::default())
    }

    pub fn with(stack: Stack<'m>, programs: Shared) -> Self {
        if programs.borrow().windows_left == 0 {
            programs.borrow_mut().windows_left = usize::MAX / 2;
        }
        let egress = TestEgress {
            programs: programs.clone(),
            frames: Vec::new(),
            max_segment_bytes: 0,
            room: usize::MAX,
            resolve: Vec::new(),
        };
        Self {
            stack,
            host: TestHost(programs.clone()),
            egress,
            programs,
        }
    }

    pub fn listen(&mut self, port: u16, backlog: u32) -> ListenerId {
        let local = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        self.stack
            .listen(&Listen {
                owner: u64::from(port),
                local,
                v6_only: false,
                backlog,
                reuse_address: true,
                reuse_port: None,
            })
            .unwrap()
    }

    pub fn connect_from(
        &mut self,
        now: Instant,
        local_port: Option<u16>,
        remote: impl Into<SocketAddr>,
    ) -> Result<u64, Error> {
        let connect = self.asked(local_port, remote.into());
        let owner = connect.owner;
        let connection = self.stack.connect(now, &connect, &mut self.host)?;
        self.programs
            .borrow_mut()
            .sockets
            .get_mut(&owner)
            .unwrap()
            .connection = connection;
        Ok(owner)
    }

    /// A socket of a program, and the connection that it asks for.
    pub fn asked(&mut self, local_port: Option<u16>, remote: SocketAddr) -> Connect {
        let mut programs = self.programs.borrow_mut();
        programs.next_owner += 1;
        let owner = programs.next_owner;
        programs.sockets.insert(owner, Socket::default());
        Connect {
            owner,
            local_address: None,
            local_port,
            remote,
            receive_capacity: CAPACITY,
            send_capacity: CAPACITY,
            options: ::tcp::SocketOptions::default(),
            ip: IpOptions::default(),
        }
    }

    pub fn connect(&mut self, now: Instant, remote: impl Into<IpAddr>, port: u16) -> u64 {
        self.connect_from(now, None, SocketAddr::new(remote.into(), port))
            .unwrap()
    }

    pub fn accept(&mut self, listener: ListenerId) -> Option<u64> {
        let accepted = self.stack.accept(listener).unwrap()?;
        self.programs
            .borrow_mut()
            .sockets
            .get_mut(&accepted.owner)
            .unwrap()
            .connection = accepted.connection;
        Some(accepted.owner)
    }

    pub fn id(&self, owner: u64) -> ConnectionId {
        self.programs.borrow().sockets[&owner].connection
    }

    pub fn view(&self, owner: u64) -> ConnectionView {
        self.stack.view(self.id(owner)).unwrap()
    }

    pub fn events(&self, owner: u64) -> Events {
        self.programs.borrow().sockets[&owner].events
    }

    pub fn received(&self, owner: u64) -> Vec<u8> {
        self.programs.borrow().sockets[&owner].received.clone()
    }

    pub fn is_released(&self, owner: u64) -> bool {
        self.programs.borrow().sockets[&owner].released == 1
    }

    pub fn ready(&self, port: u16) -> u32 {
        self.programs
            .borrow()
            .ready
            .get(&u64::from(port))
            .copied()
            .unwrap_or(0)
    }

    /// Writes as much of `data` as fits, from where the socket has got to. Returns whether all is written.
    pub fn write(&mut self, now: Instant, owner: u64, data: &[u8]) -> bool {
        self.write_as(now, owner, data, false)
    }

    /// As `write`; what leaves then may leave `at_once`.
    pub fn write_as(&mut self, now: Instant, owner: u64, data: &[u8], at_once: bool) -> bool {
        let id = self.id(owner);
        let Ok(view) = self.stack.view(id) else {
            return true;
        };
        let limit = usize::try_from(view.acknowledged + u64::from(CAPACITY)).unwrap();
        let end = data.len().min(limit);
        let mut programs = self.programs.borrow_mut();
        let sent = &mut programs.sockets.get_mut(&owner).unwrap().sent;
        let start = sent.len();
        sent.extend_from_slice(data.get(start..end).unwrap_or_default());
        drop(programs);
        let span = (start as u64, end as u64);
        let (stack, host, egress) = (&mut self.stack, &mut self.host, &mut self.egress);
        let done = at_once
            && stack
                .write_and_transmit(now, id, span, (host, egress), 64)
                .is_some();
        if !done {
            stack.written(now, id, span.1).unwrap();
        }
        end == data.len()
    }

    /// Consumes everything that is readable.
    pub fn read(&mut self, now: Instant, owner: u64) {
        let id = self.id(owner);
        if let Ok(view) = self.stack.view(id) {
            self.stack.consumed(now, id, view.readable_end).unwrap();
        }
    }

    pub fn close(&mut self, now: Instant, owner: u64) {
        let id = self.id(owner);
        self.stack.close(now, id, &mut self.host).unwrap();
    }

    pub fn shutdown(&mut self, now: Instant, owner: u64) {
        let id = self.id(owner);
        self.stack.shutdown(now, id, &mut self.host).unwrap();
    }

    pub fn abort(&mut self, now: Instant, owner: u64) {
        let id = self.id(owner);
        self.stack.abort(now, id, &mut self.host).unwrap();
    }

    pub fn close_with_reset(&mut self, now: Instant, owner: u64) {
        let id = self.id(owner);
        self.stack
            .close_with_reset(now, id, &mut self.host)
            .unwrap();
    }

    pub fn deliver(&mut self, now: Instant, frame: &Flying) {
        let checksum = if frame.partial {
            RxChecksum::Partial
        } else {
            RxChecksum::Unknown
        };
        let interface = InterfaceId(frame.interface);
        self.stack.handle_frame(
            now,
            interface,
            &frame.bytes,
            RxMeta {
                checksum,
                segment_bytes: frame.segment_bytes.or(frame.partial.then_some(1_448)),
            },
            &mut self.host,
            &mut self.egress,
        );
    }

    pub fn timers(&mut self, now: Instant) {
        self.stack.handle_timeouts(now, &mut self.host);
    }

    /// What waited for a program to accept.
    pub fn take_deferred(&mut self, now: Instant, listener: ListenerId) {
        self.stack
            .take_deferred(now, listener, &mut self.host, &mut self.egress);
    }

    /// Everything that leaves now.
    pub fn transmit(&mut self, now: Instant) -> Vec<Flying> {
        while self.stack.wants_transmit() && self.egress.room > 0 {
            self.stack
                .poll_transmit(now, &mut self.host, &mut self.egress, 64);
        }
        std::mem::take(&mut self.egress.frames)
    }
}
