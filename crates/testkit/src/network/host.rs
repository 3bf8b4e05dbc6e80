//! One host: a stack, its interface, and a program with one connection. The only file of the
//! deterministic network that knows the stack's interface.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use nic::{PartialChecksum, SharedSlice, TxFrame};
use stack::{
    AcceptReady, Busy, Config, Connect, ConnectionId, ConnectionView, Egress, EgressCaps, Frame,
    Host as StackHost, Incoming, InterfaceAddress, InterfaceConfig, InterfaceId, IpOptions, Listen,
    ListenerId, Payload, Resolution, Route, RxMeta, Stack, Tables,
};
use tcp::{ConnectionError, Events, Instant, SocketOptions};
use wire::ethernet;

use super::{
    content::{self, Received},
    path::Path,
    scenario::{Plan, Scenario},
    simulation::Node,
};

/// Where host 1 listens.
pub const PORT: u16 = 7;
const OWNER: u64 = 1;
const LISTENER: u64 = 2;

/// The program of a host, and what the stack told it.
struct Program {
    plan: Plan,
    /// What the other program sends.
    received: Received,
    /// Checked so far.
    readable: u64,
    connection: Option<ConnectionId>,
    next_write_us: u64,
    next_read_us: u64,
    ended: bool,
    closed: bool,
    released: bool,
    notifications: u64,
    /// What must not have happened.
    fault: Option<String>,
    error: Option<ConnectionError>,
}

/// Takes what the stack sends and puts it on the path.
struct Outlet<'p> {
    path: &'p mut Path,
    host: usize,
    now_us: u64,
    max_segment_bytes: u32,
    /// The stream that this host's program sends.
    stream: u64,
    payload: &'p mut Vec<u8>,
    frames: &'p mut u64,
    asked: &'p mut Vec<IpAddr>,
}

/// A host.
pub struct Host<'m> {
    index: usize,
    stack: Stack<'m>,
    program: Program,
    listener: Option<ListenerId>,
    max_segment_bytes: u32,
    stream: u64,
    payload: Vec<u8>,
    frames: u64,
}

/// What a program is doing, for whoever judges the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Bytes consumed in order.
    pub consumed: u64,
    /// Bytes of ours that the peer has acknowledged.
    pub acknowledged: u64,
    /// Times the program was told that something changed.
    pub notifications: u64,
    /// The connection stands, or has stood.
    pub connected: bool,
    /// The program is done and has closed.
    pub closed: bool,
    /// The stack has let go of the connection.
    pub released: bool,
}

/// The address of a host.
pub fn address(host: usize) -> Ipv4Addr {
    let last = u8::try_from(host + 1).expect("invariant: two hosts");
    Ipv4Addr::new(10, 0, 0, last)
}

/// The hardware address of a host's interface.
pub fn hardware(host: usize) -> ethernet::Address {
    let last = u8::try_from(host + 1).expect("invariant: two hosts");
    ethernet::Address([2, 0, 0, 0, 0, last])
}

fn instant(now_us: u64) -> Instant {
    Instant::from_us(START_US + now_us)
}

/// The stack's clock at the start of a run: not zero, so that nothing passes by accident.
const START_US: u64 = 1_000_000_000;

const NIC: InterfaceId = InterfaceId(0);

impl<'m> Host<'m> {
    /// Host `index` of a scenario; host 1 listens, host 0 connects.
    pub fn new(tables: Tables<'m>, scenario: &Scenario, index: usize) -> Self {
        let now = instant(0);
        let secret = [u8::try_from(index).expect("invariant: two hosts"); 16];
        let mut stack = Stack::new(tables, Config::new(secret)).expect("invariant: sound tables");
        prepare(&mut stack, now, index);
        let plan = scenario.plans[index];
        let stream = |host: usize| scenario.seed * 2 + host as u64;
        let program = Program {
            plan,
            received: Received::new(stream(1 - index), scenario.plans[1 - index].send),
            readable: 0,
            connection: None,
            next_write_us: 0,
            next_read_us: plan.read_from_us,
            ended: false,
            closed: false,
            released: false,
            notifications: 0,
            fault: None,
            error: None,
        };
        let mut host = Self {
            index,
            stack,
            program,
            listener: None,
            max_segment_bytes: scenario.max_segment_bytes,
            stream: stream(index),
            payload: Vec::new(),
            frames: 0,
        };
        if index == 1 {
            host.listen();
        } else {
            host.connect(now);
        }
        host
    }

    fn listen(&mut self) {
        let listen = Listen {
            owner: LISTENER,
            local: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT),
            backlog: 8,
            reuse_address: true,
            reuse_port: None,
            v6_only: false,
        };
        self.listener = Some(self.stack.listen(&listen).expect("invariant: a free port"));
    }

    fn connect(&mut self, now: Instant) {
        let connect = Connect {
            owner: OWNER,
            local_address: None,
            local_port: None,
            remote: SocketAddr::new(address(1).into(), PORT),
            receive_capacity: self.program.plan.window_bytes,
            send_capacity: self.program.plan.window_bytes,
            options: options(&self.program.plan),
            ip: IpOptions::default(),
        };
        let connection = self.stack.connect(now, &connect, &mut self.program);
        self.program.connection = Some(connection.expect("invariant: a route and a free port"));
    }

    /// The kernel's part: the other host's hardware address.
    fn answer(&mut self, now_us: u64, asked: &[IpAddr]) {
        for address in asked {
            let peer = Some(hardware(1 - self.index));
            self.stack
                .set_neighbour(instant(now_us), NIC, *address, peer)
                .expect("invariant: the interface exists");
        }
    }

    /// What the program does whenever it runs.
    fn act(&mut self, now_us: u64) {
        let now = instant(now_us);
        if let Some(listener) = self.listener
            && self.program.connection.is_none()
            && let Ok(Some(accepted)) = self.stack.accept(listener)
        {
            self.program.connection = Some(accepted.connection);
        }
        let Some(id) = self.program.connection.filter(|_| !self.program.closed) else {
            return;
        };
        let Ok(view) = self.stack.view(id) else {
            return;
        };
        let Self { stack, program, .. } = self;
        if let Some(end) = program.read(now_us, &view) {
            let done = stack.consumed(now, id, end);
            program.note("consumed", done.is_ok());
        }
        if let Some(end) = program.write(now_us, &view) {
            let done = stack.written(now, id, end);
            program.note("written", done.is_ok());
        }
        let Ok(view) = stack.view(id) else { return };
        let all_sent = view.written == program.plan.send;
        let peer_ended = view.fin && view.consumed == view.readable_end;
        if !program.ended && all_sent && (peer_ended || !program.plan.waits_for_end) {
            let done = stack.shutdown(now, id, program);
            program.note("shutdown", done.is_ok());
            program.ended = true;
        }
        if program.ended && peer_ended {
            let done = stack.close(now, id, program);
            program.note("close", done.is_ok());
            program.closed = true;
        }
    }

    fn next_act_us(&self) -> Option<u64> {
        let id = self.program.connection.filter(|_| !self.program.closed)?;
        let view = self.stack.view(id).ok()?;
        let may_read = view.readable_end > view.consumed;
        let read = may_read.then_some(self.program.next_read_us);
        let may_write = self.program.room(&view) > 0;
        let write = may_write.then_some(self.program.next_write_us);
        read.into_iter().chain(write).min()
    }
}

impl Node for Host<'_> {
    fn deliver(&mut self, now_us: u64, path: &mut Path, frame: &[u8]) {
        let mut asked = Vec::new();
        let Self {
            index,
            stack,
            program,
            max_segment_bytes,
            stream,
            payload,
            frames,
            ..
        } = self;
        let mut outlet = Outlet {
            path,
            host: *index,
            now_us,
            max_segment_bytes: *max_segment_bytes,
            stream: *stream,
            payload,
            frames,
            asked: &mut asked,
        };
        stack.handle_frame(
            instant(now_us),
            NIC,
            frame,
            RxMeta::default(),
            program,
            &mut outlet,
        );
        self.answer(now_us, &asked);
    }

    fn run(&mut self, now_us: u64, path: &mut Path) {
        self.stack
            .handle_timeouts(instant(now_us), &mut self.program);
        self.act(now_us);
        while self.stack.wants_transmit() {
            let mut asked = Vec::new();
            let mut outlet = Outlet {
                path: &mut *path,
                host: self.index,
                now_us,
                max_segment_bytes: self.max_segment_bytes,
                stream: self.stream,
                payload: &mut self.payload,
                frames: &mut self.frames,
                asked: &mut asked,
            };
            self.stack
                .poll_transmit(instant(now_us), &mut self.program, &mut outlet, 64);
            self.answer(now_us, &asked);
        }
    }

    fn next_us(&self) -> Option<u64> {
        let timer = self
            .stack
            .next_deadline()
            .map(|at| at.as_us().saturating_sub(START_US));
        let program = self.next_act_us();
        timer.into_iter().chain(program).min()
    }

    fn progress(&self) -> Progress {
        let view = self
            .program
            .connection
            .and_then(|id| self.stack.view(id).ok());
        Progress {
            consumed: view.map_or(self.program.readable, |view| view.consumed),
            acknowledged: view.map_or(self.program.plan.send, |view| view.acknowledged),
            notifications: self.program.notifications,
            connected: self.program.connection.is_some(),
            closed: self.program.closed,
            released: self.program.released,
        }
    }

    fn fault(&self) -> Option<String> {
        let error = self.program.error.map(|error| format!("{error:?}"));
        let fault = self.program.fault.clone().or(error)?;
        Some(format!("host {}: {fault}", self.index))
    }

    fn frames(&self) -> u64 {
        self.frames
    }
}

fn prepare(stack: &mut Stack<'_>, now: Instant, index: usize) {
    let config = InterfaceConfig {
        hardware: hardware(index),
        mtu: 1_500,
        resolution: Resolution::External,
        scope_id: 1,
        router_discovery: false,
    };
    let own = InterfaceAddress {
        address: address(index).into(),
        prefix_len: 24,
    };
    let route = Route {
        destination: Ipv4Addr::UNSPECIFIED.into(),
        prefix_len: 0,
        gateway: Some(address(1 - index).into()),
        interface: NIC,
        metric: 0,
        source: None,
    };
    let done = stack.add_interface(config).is_ok()
        && stack.add_address(now, NIC, own).is_ok()
        && stack.add_route(route).is_ok();
    assert!(done, "invariant: a new stack takes an interface");
}

fn options(plan: &Plan) -> SocketOptions {
    SocketOptions {
        nodelay: plan.nodelay,
        ..SocketOptions::default()
    }
}

impl Program {
    /// Up to where to consume now, if at all.
    fn read(&mut self, now_us: u64, view: &ConnectionView) -> Option<u64> {
        if view.readable_end > self.readable {
            let checked = self
                .received
                .check_readable(self.readable, view.readable_end);
            if let Err(fault) = checked {
                self.fault.get_or_insert(fault);
            }
            self.readable = view.readable_end;
        }
        let waiting = view.readable_end - view.consumed;
        if waiting == 0 || now_us < self.next_read_us {
            return None;
        }
        self.next_read_us = now_us + self.plan.read_gap_us;
        Some(view.consumed + waiting.min(self.plan.read_bytes))
    }

    /// Up to where to write now, if at all.
    fn write(&mut self, now_us: u64, view: &ConnectionView) -> Option<u64> {
        let room = self.room(view);
        if room == 0 || now_us < self.next_write_us {
            return None;
        }
        self.next_write_us = now_us + self.plan.write_gap_us;
        Some(view.written + room.min(self.plan.write_bytes))
    }

    fn room(&self, view: &ConnectionView) -> u64 {
        let window = view.acknowledged + u64::from(self.plan.window_bytes);
        window.min(self.plan.send).saturating_sub(view.written)
    }

    fn note(&mut self, what: &str, done: bool) {
        if !done {
            self.fault.get_or_insert(format!("{what} was refused"));
        }
    }
}

impl StackHost for Program {
    fn receive(&mut self, _: u64, offset: u64, data: &[u8]) {
        if let Err(fault) = self.received.place(offset, data) {
            self.fault.get_or_insert(fault);
        }
    }

    fn on_events(&mut self, _: ConnectionId, _: u64, _: Events, tcp: &tcp::Connection) {
        self.notifications += 1;
        self.error = self.error.or(tcp.error());
    }

    fn on_incoming(&mut self, _: ListenerId, _: u64, _: SocketAddr) -> Option<Incoming> {
        Some(Incoming {
            owner: OWNER,
            receive_capacity: self.plan.window_bytes,
            send_capacity: self.plan.window_bytes,
            options: options(&self.plan),
            ip: IpOptions::default(),
        })
    }

    fn on_accept_ready(&mut self, _: ListenerId, _: u64, _: AcceptReady) {}

    fn on_released(&mut self, connection: ConnectionId, _: u64) {
        // A half-open connection that a stray SYN made may go while the real one lives.
        if self.connection == Some(connection) {
            self.released = true;
        }
    }
}

impl Egress for Outlet<'_> {
    fn caps(&self, _: InterfaceId) -> EgressCaps {
        EgressCaps {
            max_segment_bytes: self.max_segment_bytes,
        }
    }

    fn transmit(&mut self, frame: &Frame<'_>) -> Result<(), Busy> {
        self.payload.clear();
        match frame.payload {
            Payload::None => {}
            Payload::Bytes(bytes) => self.payload.extend_from_slice(bytes),
            Payload::Window { offset, len, .. } => {
                let len = usize::try_from(len).expect("invariant: a segment fits");
                self.payload.resize(len, 0);
                content::fill(self.stream, offset, self.payload);
            }
        }
        let frame = TxFrame {
            headers: frame.headers,
            payload: TxFrame::spans([SharedSlice::from(self.payload.as_slice())]),
            checksum: frame.checksum.map(|checksum| PartialChecksum {
                start: checksum.start,
                offset: checksum.offset,
            }),
            segment_size: frame.segment_size,
        };
        *self.frames += 1;
        self.path.offer(self.now_us, self.host, &frame);
        Ok(())
    }

    fn resolve(&mut self, _: InterfaceId, address: IpAddr) {
        self.asked.push(address);
    }
}
