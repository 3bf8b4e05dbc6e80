//! A connection with a scripted peer (`Script`) and two connections on a bad cable (`Pair`), both on
//! virtual time. Numbers in scripts are relative to the initial sequence numbers, as tcpdump shows.

use crate::{
    Algorithm, Config, Connection, Duration, Events, Instant, RangeSlot, ReceiveWindow, SeqNumber,
    SocketOptions, Transmit, TransmitLimits,
};
use std::collections::BTreeMap;
use wire::tcp::{Flags, Header, Options, SackBlocks};

pub const ISS: u32 = 1_000;
pub const IRS: u32 = 0xffff_ff00;

/// Ranges for which [`Memory`] has room.
pub const ROOM_SLOTS: usize = 1_024;

/// A receive window that grows without end and remembers what is where.
#[derive(Default)]
pub struct Memory {
    pub bytes: Vec<u8>,
    /// What it lends for ranges; empty while nobody has asked.
    pub slots: Vec<RangeSlot>,
}

impl ReceiveWindow for Memory {
    fn write(&mut self, offset: u64, data: &[u8]) {
        let start = usize::try_from(offset).unwrap();
        if self.bytes.len() < start + data.len() {
            self.bytes.resize(start + data.len(), 0);
        }
        self.bytes[start..start + data.len()].copy_from_slice(data);
    }

    fn claim_room(&mut self) -> Option<u32> {
        assert!(self.slots.is_empty(), "a connection holds one room at most");
        self.slots = vec![RangeSlot::default(); ROOM_SLOTS];
        Some(1)
    }

    fn room(&mut self, room: u32) -> Option<&mut [RangeSlot]> {
        assert_eq!((room, self.slots.len()), (1, ROOM_SLOTS));
        Some(&mut self.slots)
    }

    fn give_back_room(&mut self, room: u32) {
        assert_eq!((room, self.slots.len()), (1, ROOM_SLOTS));
        self.slots.clear();
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

    pub fn sent(&mut self) -> Vec<Transmit> {
        let mut out = Vec::new();
        while let Some(transmit) = self.conn.poll_transmit(self.now, &self.limits) {
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
            .expect("the send window has room")
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

    /// Jumps to the next timer and lets it fire; returns the milliseconds that passed.
    pub fn next_timer(&mut self) -> (u64, Events) {
        let deadline = self.conn.deadline().expect("a timer runs");
        let passed = deadline.since(self.now).as_us() / 1_000;
        self.now = self.now.max(deadline);
        (passed, self.conn.handle_timeout(self.now))
    }
}

/// How the cable between a [`Pair`] misbehaves.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub loss_per_mille: u64,
    pub duplicate_per_mille: u64,
    pub delay_us: u64,
    pub jitter_us: u64,
}

/// Two connections joined by a seeded cable.
pub struct Pair {
    pub ends: [Connection; 2],
    pub memories: [Memory; 2],
    pub now: Instant,
    pub limits: TransmitLimits,
    pub weather: Weather,
    rng: u64,
    cable: BTreeMap<(u64, u64), (usize, Transmit)>,
    next_id: u64,
    pub segments: u64,
    /// Segments with payload that the cable lost.
    pub lost: u64,
    /// Large segments are cut before the cable, as a device cuts them; else they travel whole, as a
    /// receiver merges them.
    pub cuts: bool,
    /// Longer IP packets are swallowed without a word.
    pub mtu: u32,
    /// How many were.
    pub swallowed: u64,
}

/// The segments that a device makes of one.
fn cut(transmit: &Transmit) -> Vec<Transmit> {
    let Some(size) = transmit.segment_size.map(u32::from) else {
        return vec![*transmit];
    };
    let starts = (0..transmit.len).step_by(usize::try_from(size).unwrap());
    let piece = |from: u32| {
        let len = size.min(transmit.len - from);
        let mut header = transmit.header;
        header.seq = header.seq.wrapping_add(from);
        if from + len < transmit.len {
            header.flags -= Flags::FIN | Flags::PSH;
        }
        Transmit {
            header,
            offset: transmit.offset + u64::from(from),
            len,
            segment_size: None,
            ecn: transmit.ecn,
        }
    };
    starts.map(piece).collect()
}

impl Pair {
    pub fn new(config: [Config; 2], weather: Weather, limits: TransmitLimits, seed: u64) -> Self {
        let now = Instant::from_us(1);
        let client = Connection::connect(&config[0], SeqNumber(ISS), now);
        let mut pair = Self {
            ends: [client, Connection::default()],
            memories: [Memory::default(), Memory::default()],
            now,
            limits,
            weather,
            rng: seed | 1,
            cable: BTreeMap::new(),
            next_id: 0,
            segments: 0,
            lost: 0,
            cuts: false,
            mtu: u32::MAX,
            swallowed: 0,
        };
        // The listener: the first SYN that gets through makes the other end.
        for _ in 0..1_000 {
            pair.transmit(0);
            if let Some((_, (_, syn))) = pair.cable.pop_first() {
                pair.now += Duration::from_us(weather.delay_us);
                pair.ends[1] =
                    Connection::accept(&config[1], SeqNumber(IRS), pair.now, &syn.header);
                return pair;
            }
            pair.now = pair.ends[0].deadline().expect("SYN timer");
            let _ = pair.ends[0].handle_timeout(pair.now);
        }
        panic!("no SYN got through");
    }

    fn random(&mut self) -> u64 {
        // xorshift64: any stream that a seed repeats will do.
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng
    }

    /// The bytes that end `end` writes.
    pub fn byte(end: usize, offset: u64) -> u8 {
        (offset
            .wrapping_mul(31)
            .wrapping_add(offset >> 8)
            .wrapping_add(end as u64 * 101)
            & 0xff) as u8
    }

    pub fn transmit(&mut self, from: usize) {
        while let Some(transmit) = self.ends[from].poll_transmit(self.now, &self.limits) {
            self.segments += 1;
            let pieces = if self.cuts {
                cut(&transmit)
            } else {
                vec![transmit]
            };
            for piece in pieces {
                self.carry(from, piece);
            }
        }
    }

    fn carry(&mut self, from: usize, transmit: Transmit) {
        let headers_len = 20 + u32::try_from(transmit.header.header_len()).unwrap();
        if headers_len + transmit.len > self.mtu {
            self.swallowed += 1;
            return;
        }
        let copies = 1 + u64::from(self.random() % 1_000 < self.weather.duplicate_per_mille);
        for _ in 0..copies {
            if self.random() % 1_000 < self.weather.loss_per_mille {
                self.lost += u64::from(transmit.len > 0);
                continue;
            }
            let jitter = self.random() % (self.weather.jitter_us + 1);
            let at = self.now.as_us() + self.weather.delay_us + jitter;
            self.cable.insert((at, self.next_id), (from, transmit));
            self.next_id += 1;
        }
    }

    /// Runs until `done`, or panics at the virtual `limit_s`.
    pub fn run(&mut self, limit_s: u64, mut step: impl FnMut(&mut Self) -> bool) {
        let limit = self.now + Duration::from_secs(limit_s);
        for steps in 0.. {
            assert!(
                steps < 2_000_000,
                "live lock: {:?} {:?}",
                self.ends[0],
                self.ends[1]
            );
            let done = step(self);
            self.transmit(0);
            self.transmit(1);
            if done {
                return;
            }
            assert!(
                self.now < limit,
                "no progress: {:?} {:?}",
                self.ends[0].info(),
                self.ends[1].info()
            );
            self.advance();
        }
    }

    fn advance(&mut self) {
        let arrival = self
            .cable
            .first_key_value()
            .map(|(&(at, _), _)| Instant::from_us(at));
        let timer = self.ends.iter().filter_map(Connection::deadline).min();
        let Some(next) = arrival.into_iter().chain(timer).min() else {
            panic!(
                "silence for ever: {:?} {:?}",
                self.ends[0].info(),
                self.ends[1].info()
            )
        };
        self.now = self.now.max(next);
        if let Some((_, (from, transmit))) = arrival
            .filter(|&at| at <= self.now)
            .and_then(|_| self.cable.pop_first())
        {
            let to = 1 - from;
            let payload: Vec<u8> = (0..u64::from(transmit.len))
                .map(|i| Self::byte(from, transmit.offset + i))
                .collect();
            let _ = self.ends[to].handle_segment(
                self.now,
                &transmit.header,
                &payload,
                &mut self.memories[to],
            );
        }
        for end in &mut self.ends {
            if end.deadline().is_some_and(|deadline| deadline <= self.now) {
                let _ = end.handle_timeout(self.now);
            }
        }
    }
}
