//! One established connection, and what happens to it. Payload is neither copied nor summed, because that is
//! the window's and the device's work: what is measured is the stack's.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use stack::{
    AcceptReady, Busy, Config, ConnectionId, Egress, EgressCaps, Frame, HeapTables, Host, Incoming,
    InterfaceAddress, InterfaceConfig, InterfaceId, IpOptions, Listen, ListenerId, Payload,
    Resolution, RxChecksum, RxMeta, Stack,
};
use tcp::{Duration, Events, Instant, SocketOptions};
use wire::{
    ethernet, ipv4, ipv6,
    tcp::{Flags, Header, Options, Timestamps},
};

const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OURS_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const THEIRS_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
const HARDWARE: [ethernet::Address; 2] = [
    ethernet::Address([2, 0, 0, 0, 0, 1]),
    ethernet::Address([2, 0, 0, 0, 0, 2]),
];
const NIC: InterfaceId = InterfaceId(0);
const PORT: u16 = 80;
const WINDOW: u32 = 1 << 22;
/// Where a TCP header has its source port and its numbers.
const PORT_AT: usize = 0;
const SEQ_AT: usize = 4;
const ACK_AT: usize = 8;

/// The version of IP that a flow uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Payload of a full segment with timestamps in a frame of 1,514 bytes.
    const fn segment_bytes(self) -> u32 {
        match self {
            Self::V4 => 1_448,
            Self::V6 => 1_428,
        }
    }

    /// Bytes before the TCP header.
    const fn tcp_at(self) -> usize {
        ethernet::Header::LEN
            + match self {
                Self::V4 => ipv4::Header::LEN,
                Self::V6 => ipv6::Header::LEN,
            }
    }

    /// Our address and the peer's.
    fn addresses(self) -> [IpAddr; 2] {
        match self {
            Self::V4 => [OURS.into(), THEIRS.into()],
            Self::V6 => [OURS_V6.into(), THEIRS_V6.into()],
        }
    }

    /// Writes the headers before the TCP header.
    fn emit(self, len: usize, bytes: &mut [u8]) {
        let link = ethernet::Header {
            destination: HARDWARE[0],
            source: HARDWARE[1],
            ethertype: match self {
                Self::V4 => ethernet::EtherType::IPV4,
                Self::V6 => ethernet::EtherType::IPV6,
            },
        };
        link.emit(bytes);
        let packet = &mut bytes[ethernet::Header::LEN..];
        match self {
            Self::V4 => ipv4::Header {
                identification: 1,
                ..ipv4::Header::new(THEIRS, OURS, ipv4::Protocol::TCP)
            }
            .emit(len, packet),
            Self::V6 => ipv6::Header {
                source: THEIRS_V6,
                destination: OURS_V6,
                next_header: ipv6::Protocol::TCP,
                hop_limit: 64,
                traffic_class: 0,
                flow_label: 7,
            }
            .emit(len, packet),
        }
    }
}

/// Windows that nobody looks into.
#[derive(Default)]
struct Windows {
    released: u64,
}

impl Host for Windows {
    fn receive(&mut self, _: u64, offset: u64, data: &[u8]) {
        black_box((offset, data.len()));
    }

    fn on_events(&mut self, _: ConnectionId, _: u64, events: Events, tcp: &tcp::Connection) {
        black_box((events, tcp.readable_end()));
    }

    fn on_incoming(&mut self, _: ListenerId, _: u64, _: SocketAddr) -> Option<Incoming> {
        Some(Incoming {
            owner: 1,
            receive_capacity: WINDOW,
            send_capacity: WINDOW,
            options: SocketOptions::default(),
            ip: IpOptions::default(),
        })
    }

    fn on_accept_ready(&mut self, _: ListenerId, _: u64, _: AcceptReady) {}

    fn on_released(&mut self, _: ConnectionId, _: u64) {
        self.released += 1;
    }
}

/// A device that takes everything and keeps what the next step needs to know.
#[derive(Default)]
struct Device {
    family: Family,
    frames: u64,
    /// Sequence number one past the last frame's payload.
    end: u32,
}

impl Egress for Device {
    fn caps(&self, _: InterfaceId) -> EgressCaps {
        EgressCaps::default()
    }

    fn transmit(&mut self, frame: &Frame<'_>) -> Result<(), Busy> {
        self.frames += 1;
        let seq_at = self.family.tcp_at() + SEQ_AT;
        let seq = frame.headers.get(seq_at..seq_at + 4);
        let seq = seq.and_then(|bytes| bytes.try_into().ok());
        let len = match frame.payload {
            Payload::Window { len, .. } => len,
            _ => 0,
        };
        self.end = seq.map_or(0, u32::from_be_bytes).wrapping_add(len);
        black_box(frame.headers);
        Ok(())
    }

    fn resolve(&mut self, _: InterfaceId, _: IpAddr) {}
}

/// A stack with one listener and, after [`Flow::established`], one connection.
pub struct Flow<'m> {
    stack: Stack<'m>,
    host: Windows,
    device: Device,
    now: Instant,
    listener: ListenerId,
    connection: ConnectionId,
    /// What the peer sends next, and what we sent.
    their_seq: u32,
    our_seq: u32,
    full: Vec<u8>,
    ack: Vec<u8>,
    /// What opens and ends a connection: made once, because making them is not the stack's work.
    opening: Opening,
    port: u16,
    written: u64,
}

/// The peer's frames of a handshake, and its reset.
#[derive(Default)]
struct Opening {
    syn: Vec<u8>,
    ack: Vec<u8>,
    rst: Vec<u8>,
}

/// Memory for a flow; `is_kept`: as an engine has it that a keeper can replace, so that a change of a connection that
/// is interrupted can be undone.
pub fn memory(is_kept: bool) -> HeapTables {
    let tables = HeapTables::new(1_024, 4, 1_024).expect("a few rows are no burden");
    if is_kept {
        return tables.with_undo().expect("a row more is no burden");
    }
    tables
}

impl<'m> Flow<'m> {
    /// A connection that has sent and received nothing.
    pub fn established(memory: &'m mut HeapTables, family: Family) -> Self {
        let [ours, theirs] = family.addresses();
        let now = Instant::from_us(1_000_000_000);
        let mut stack = Stack::new(memory.tables(), Config::new([7; 16])).expect("sound tables");
        let config = InterfaceConfig {
            hardware: HARDWARE[0],
            mtu: 1_500,
            resolution: Resolution::External,
            scope_id: 1,
            router_discovery: false,
        };
        stack.add_interface(config).expect("room for one");
        let own = InterfaceAddress {
            address: ours,
            prefix_len: 24,
        };
        stack.add_address(now, NIC, own).expect("room for one");
        stack
            .set_neighbour(now, NIC, theirs, Some(HARDWARE[1]))
            .expect("room for one");
        let listen = Listen {
            owner: 9,
            local: SocketAddr::new(ours, PORT),
            backlog: 128,
            reuse_address: true,
            reuse_port: None,
            v6_only: false,
        };
        let listener = stack.listen(&listen).expect("a free port");
        let mut flow = Self {
            stack,
            host: Windows::default(),
            device: Device {
                family,
                ..Device::default()
            },
            now,
            listener,
            connection: ConnectionId::default(),
            their_seq: 0,
            our_seq: 0,
            full: Vec::new(),
            ack: Vec::new(),
            opening: Opening::default(),
            port: 1_000,
            written: 0,
        };
        flow.opening = Opening {
            syn: flow.frame(Flags::SYN, 0),
            ack: flow.frame(Flags::ACK, 0),
            rst: flow.frame(Flags::RST, 0),
        };
        flow.connect();
        flow.full = flow.frame(Flags::ACK, family.segment_bytes());
        flow.ack = flow.frame(Flags::ACK, 0);
        // Past the start, when every segment is acknowledged at once.
        for _ in 0..64 {
            flow.receive_segment();
        }
        flow
    }

    /// A frame of the peer's.
    fn frame(&self, flags: Flags, payload: u32) -> Vec<u8> {
        let syn = flags.contains(Flags::SYN);
        let header = Header {
            source_port: self.port,
            destination_port: PORT,
            seq: self.their_seq,
            ack: self.our_seq,
            flags,
            window: if syn { 65_535 } else { 60_000 },
            options: Options {
                mss: syn.then_some(1_460),
                window_scale: syn.then_some(7),
                sack_permitted: syn,
                timestamps: Some(Timestamps { value: 1, echo: 0 }),
                ..Options::default()
            },
            ..Header::default()
        };
        let payload = usize::try_from(payload).expect("a segment fits");
        let len = header.header_len() + payload;
        let tcp_at = self.device.family.tcp_at();
        let mut bytes = vec![0; tcp_at + len];
        self.device.family.emit(len, &mut bytes);
        header.emit(&mut bytes[tcp_at..]);
        bytes
    }

    /// Puts the port and the numbers of now into a frame of the peer's.
    fn renumber(&self, frame: &mut [u8]) {
        let tcp = &mut frame[self.device.family.tcp_at()..];
        tcp[PORT_AT..PORT_AT + 2].copy_from_slice(&self.port.to_be_bytes());
        tcp[SEQ_AT..SEQ_AT + 4].copy_from_slice(&self.their_seq.to_be_bytes());
        tcp[ACK_AT..ACK_AT + 4].copy_from_slice(&self.our_seq.to_be_bytes());
    }

    fn deliver(&mut self, frame: &[u8]) {
        let meta = RxMeta {
            checksum: RxChecksum::Verified,
            ..RxMeta::default()
        };
        let Self {
            stack,
            host,
            device,
            now,
            ..
        } = self;
        stack.handle_frame(*now, NIC, frame, meta, host, device);
    }

    fn transmit(&mut self) {
        while self.stack.wants_transmit() {
            self.stack
                .poll_transmit(self.now, &mut self.host, &mut self.device, 64);
        }
    }

    /// A handshake from the peer's SYN to accept.
    pub fn connect(&mut self) {
        self.port = self.port.wrapping_add(1).max(1_000);
        self.their_seq = 100;
        self.our_seq = 0;
        let mut opening = std::mem::take(&mut self.opening);
        self.renumber(&mut opening.syn);
        self.deliver(&opening.syn);
        self.transmit();
        self.their_seq = 101;
        self.our_seq = self.device.end.wrapping_add(1);
        self.renumber(&mut opening.ack);
        self.deliver(&opening.ack);
        self.opening = opening;
        self.transmit();
        let accepted = self.stack.accept(self.listener).expect("a listener");
        self.connection = accepted.expect("a connection").connection;
    }

    /// A handshake, and the reset that makes room for the next one.
    pub fn connect_and_reset(&mut self) {
        self.connect();
        let mut rst = std::mem::take(&mut self.opening.rst);
        self.renumber(&mut rst);
        self.deliver(&rst);
        self.opening.rst = rst;
        let Self {
            stack, host, now, ..
        } = self;
        stack
            .close(*now, self.connection, host)
            .expect("still held");
        self.transmit();
        self.now += Duration::from_us(10);
    }

    /// A full segment in order, the program's reading of it, and the ACK if one is due.
    pub fn receive_segment(&mut self) {
        let mut frame = std::mem::take(&mut self.full);
        self.renumber(&mut frame);
        self.deliver(&frame);
        self.full = frame;
        self.their_seq = self
            .their_seq
            .wrapping_add(self.device.family.segment_bytes());
        let view = self.stack.view(self.connection).expect("it stands");
        self.stack
            .consumed(self.now, self.connection, view.readable_end)
            .expect("it was received");
        self.transmit();
        self.now += Duration::from_us(2);
    }

    /// Two full segments that leave, and the peer's ACK of both.
    pub fn send_two_segments(&mut self) {
        self.written += 2 * u64::from(self.device.family.segment_bytes());
        self.stack
            .written(self.now, self.connection, self.written)
            .expect("there is room");
        self.transmit();
        self.our_seq = self.device.end;
        let mut frame = std::mem::take(&mut self.ack);
        self.renumber(&mut frame);
        self.now += Duration::from_us(100);
        self.deliver(&frame);
        self.ack = frame;
        self.transmit();
    }

    /// Frames that left so far: to see that what is measured happens.
    pub fn frames(&self) -> u64 {
        self.device.frames
    }
}
