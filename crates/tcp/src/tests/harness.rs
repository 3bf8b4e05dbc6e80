//! A connection with a scripted peer (`Script`), on virtual time. Numbers in scripts are relative to the
//! initial sequence numbers, as tcpdump shows.

use crate::{
    Algorithm, Config, Connection, Duration, Events, Instant, RangeSlot, ReceiveWindow, SeqNumber,
    SocketOptions, Transmit, TransmitLimits,
    send::flight_pool::{FlightPool, OneBlock},
};
use wire::tcp::{Flags, Header, Options, SackBlocks};

pub const ISS: u32 = 1_000;
pub const IRS: u32 = 0xffff_ff00;

/// Ranges for which [`Memory`] has a block.
pub const ROOM_SLOTS: usize = 1_024;

/// A receive window that grows without end and remembers what is where.
#[derive(Default)]
pub struct Memory {
    pub bytes: Vec<u8>,
    /// What it lends for ranges; empty while nobody has asked.
    pub slots: Vec<RangeSlot>,
    /// What it lends for a flight.
    pub flights: OneBlock,
}

impl ReceiveWindow for Memory {
    fn write(&mut self, offset: u64, data: &[u8]) {
        let start = usize::try_from(offset).unwrap();
        if self.bytes.len() == start {
            self.bytes.extend_from_slice(data);
            return;
        }
        if self.bytes.len() < start + data.len() {
            self.bytes.resize(start + data.len(), 0);
        }
        self.bytes[start..start + data.len()].copy_from_slice(data);
    }

    fn claim_block(&mut self) -> Option<u32> {
        assert!(
            self.slots.is_empty(),
            "a connection holds one block at most"
        );
        self.slots = vec![RangeSlot::default(); ROOM_SLOTS];
        Some(1)
    }

    fn block(&mut self, block: u32) -> Option<&mut [RangeSlot]> {
        assert_eq!((block, self.slots.len()), (1, ROOM_SLOTS));
        Some(&mut self.slots)
    }

    fn give_back_block(&mut self, block: u32) {
        assert_eq!((block, self.slots.len()), (1, ROOM_SLOTS));
        self.slots.clear();
    }

    fn flights(&mut self) -> &mut dyn FlightPool {
        &mut self.flights
    }
}

/// Options off by default, so that each case names what it needs.
pub fn plain() -> Config {
    Config {
        window_scaling: false,
        timestamps: false,
        sack: false,
        receive_capacity: 65_536,
        send_capacity: 1 << 20,
        mss: 1_000,
        options: SocketOptions {
            congestion: Algorithm::Reno,
            ..SocketOptions::default()
        },
        ..Config::default()
    }
}

pub const LIMITS: TransmitLimits = TransmitLimits {
    mss: 1_000,
    max_payload: 1_000,
};

pub struct Script {
    pub conn: Connection,
    pub now: Instant,
    pub memory: Memory,
    pub limits: TransmitLimits,
}

/// A segment from the scripted peer; numbers relative, as `arrives` documents.
#[derive(Clone)]
pub struct Segment {
    pub header: Header,
    pub payload: Vec<u8>,
}

impl Segment {
    pub fn win(mut self, window: u16) -> Self {
        self.header.window = window;
        self
    }
    pub fn mss(mut self, mss: u16) -> Self {
        self.header.options.mss = Some(mss);
        self
    }
    pub fn sack_ok(mut self) -> Self {
        self.header.options.sack_permitted = true;
        self
    }
    pub fn wscale(mut self, shift: u8) -> Self {
        self.header.options.window_scale = Some(shift);
        self
    }
    pub fn ts(mut self, value: u32, echo: u32) -> Self {
        self.header.options.timestamps = Some(wire::tcp::Timestamps { value, echo });
        self
    }
    pub fn sack(mut self, left: u32, right: u32) -> Self {
        self.header
            .options
            .sack
            .push(ISS.wrapping_add(left), ISS.wrapping_add(right));
        self
    }
    pub fn urgent(mut self, pointer: u16) -> Self {
        self.header.flags |= Flags::URG;
        self.header.urgent = pointer;
        self
    }
}

/// `flags` as tcpdump writes them: S F R P and `.` for ACK.
pub fn seg(flags: &str, seq: u32, ack: u32, payload: &[u8]) -> Segment {
    let mut bits = Flags::empty();
    for letter in flags.chars() {
        bits |= match letter {
            'S' => Flags::SYN,
            'F' => Flags::FIN,
            'R' => Flags::RST,
            'P' => Flags::PSH,
            '.' => Flags::ACK,
            other => panic!("unknown flag {other}"),
        };
    }
    let header = Header {
        seq: IRS.wrapping_add(seq),
        ack: if bits.contains(Flags::ACK) {
            ISS.wrapping_add(ack)
        } else {
            0
        },
        flags: bits,
        window: 32_000,
        options: Options {
            sack: SackBlocks::default(),
            ..Options::default()
        },
        ..Header::default()
    };
    Segment {
        header,
        payload: payload.to_vec(),
    }
}

/// One sent segment as text: `P. 1:11 ack 1`, with `win`, options where they matter.
pub fn text(transmit: &Transmit) -> String {
    let h = &transmit.header;
    let mut out = String::new();
    for (flag, letter) in [
        (Flags::SYN, 'S'),
        (Flags::FIN, 'F'),
        (Flags::RST, 'R'),
        (Flags::PSH, 'P'),
        (Flags::ACK, '.'),
    ] {
        if h.flags.contains(flag) && !(flag == Flags::PSH && transmit.len == 0) {
            out.push(letter);
        }
    }
    let seq = h.seq.wrapping_sub(ISS);
    out += &format!(" {seq}:{}", seq.wrapping_add(transmit.len));
    if h.flags.contains(Flags::ACK) {
        out += &format!(" ack {}", h.ack.wrapping_sub(IRS));
    }
    for (left, right) in h.options.sack.iter() {
        out += &format!(
            " sack {}:{}",
            left.wrapping_sub(IRS),
            right.wrapping_sub(IRS)
        );
    }
    out
}

/// An established connection with ten segments in flight and as much again waiting.
pub fn ten_in_flight(config: &Config, syn_ack: Segment) -> Script {
    let mut script = Script::established_with(config, syn_ack.mss(1_000).win(60_000));
    script.writes(20_000);
    assert_eq!(script.sent().len(), 10, "initial window (RFC 6928)");
    script
}

pub fn with_sack() -> Script {
    let config = Config {
        sack: true,
        ..plain()
    };
    ten_in_flight(&config, seg("S.", 0, 1, b"").sack_ok())
}

impl Script {
    pub fn connecting(config: &Config) -> Self {
        Self::around(Connection::connect(config, SeqNumber(ISS), Instant::ZERO))
    }

    pub fn accepting(config: &Config, syn: &Segment) -> Self {
        Self::around(Connection::accept(
            config,
            SeqNumber(ISS),
            Instant::ZERO,
            &syn.header,
        ))
    }

    fn around(conn: Connection) -> Self {
        Self {
            conn,
            now: Instant::ZERO,
            memory: Memory::default(),
            limits: LIMITS,
        }
    }

    /// An established connection that we opened; the SYN exchange is over.
    pub fn established(config: &Config) -> Self {
        Self::established_with(config, seg("S.", 0, 1, b"").mss(1_000))
    }

    pub fn established_with(config: &Config, syn_ack: Segment) -> Self {
        let mut script = Self::connecting(config);
        script.leaves(&["S 0:0"]);
        script.wait_us(1_000);
        assert!(script.arrives(syn_ack).contains(Events::ESTABLISHED));
        script.leaves(&[". 1:1 ack 1"]);
        script.conn.rcv.quick_acks = 0;
        script
    }

    pub fn arrives(&mut self, segment: Segment) -> Events {
        self.conn.handle_segment(
            self.now,
            &segment.header,
            &segment.payload,
            &mut self.memory,
        )
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        let pool = &mut self.memory.flights;
        self.conn.poll_transmit(self.now, &self.limits, pool)
    }

    pub fn sent(&mut self) -> Vec<Transmit> {
        let mut out = Vec::new();
        while let Some(transmit) = self.poll_transmit() {
            out.push(transmit);
            assert!(out.len() < 10_000, "poll_transmit never ends");
        }
        out
    }

    /// What leaves now, as relative sequence numbers and lengths.
    pub fn ranges(&mut self) -> Vec<(u32, u32)> {
        let sent = self.sent();
        sent.iter()
            .map(|transmit| (transmit.header.seq.wrapping_sub(ISS), transmit.len))
            .collect()
    }

    /// A bare ACK arrives, with these blocks.
    pub fn acked(&mut self, ack: u32, blocks: &[(u32, u32)]) -> Events {
        let bare = seg(".", 1, ack, b"").win(60_000);
        self.arrives(
            blocks
                .iter()
                .fold(bare, |segment, &(left, right)| segment.sack(left, right)),
        )
    }

    #[track_caller]
    pub fn leaves(&mut self, expected: &[&str]) {
        let sent: Vec<String> = self.sent().iter().map(text).collect();
        assert_eq!(sent, expected, "at {} us", self.now.as_us());
    }

    pub fn writes(&mut self, bytes: u64) -> Events {
        let end = self.conn.snd.written_offset() + bytes;
        self.conn
            .handle_written(self.now, end)
            .expect("the send window has block")
    }

    pub fn consumes_all(&mut self) -> Events {
        self.conn
            .handle_consumed(self.now, self.conn.readable_end())
            .expect("readable")
    }

    /// Lets time pass without looking at timers.
    pub fn wait_us(&mut self, us: u64) {
        self.now += Duration::from_us(us);
    }

    /// A router could carry no more than `mss`.
    pub fn too_big(&mut self, mss: u16) -> Events {
        self.conn
            .handle_packet_too_big(self.now, mss, &mut self.memory.flights)
    }

    /// Timers that have expired fire.
    pub fn times_out(&mut self) -> Events {
        self.conn.handle_timeout(self.now, &mut self.memory.flights)
    }

    /// Jumps to the next timer and lets it fire; returns the milliseconds that passed.
    pub fn next_timer(&mut self) -> (u64, Events) {
        let deadline = self.conn.deadline().expect("a timer runs");
        let passed = deadline.since(self.now).as_us() / 1_000;
        self.now = self.now.max(deadline);
        (passed, self.times_out())
    }
}
