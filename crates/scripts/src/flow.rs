//! One connection of the scripted peer: its initial sequence numbers, and what it says where the script
//! does not: the next sequence number, the last acknowledgment and window, timestamps.

use std::collections::VecDeque;

use crate::agent::{pattern, peer_port};
use crate::expression::Values;
use crate::frame::{Tcp, TcpOption, flags};
use crate::script::{Cookie, Match, Options, Segment, TcpOption as Wanted};

/// Window of an ordinary peer once its scale counts: with the usual shift of 7, 64 KiB.
const USUAL_SCALED_WINDOW: u16 = 512;
/// Where the peer's timestamp clock starts.
const CLOCK_START: u32 = 1_000_000;

/// The peer's end of a connection.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The peer's port.
    pub peer_port: u16,
    /// The host's port.
    pub host_port: u16,
    /// The peer's initial sequence number.
    pub peer_isn: u32,
    /// The host's, once it is known.
    pub host_isn: Option<u32>,
    /// The largest acknowledgment that the host has sent, as on the wire.
    pub host_ack: Option<u32>,
    /// One after the last sequence number that the host has sent, as on the wire.
    pub host_next: u32,
    next_seq: i64,
    ack: i64,
    window: u16,
    has_clock: bool,
    last_timestamp: u32,
    /// The cookie that the host gave or showed last.
    cookie: Vec<u8>,
    /// Number and payload of the segments that the host has sent last, for quotations.
    sent: VecDeque<(u32, usize)>,
}

/// Segments that an ICMP error can quote.
const QUOTABLE: usize = 64;

/// A number as a segment's field.
fn narrow<T: TryFrom<i64>>(what: &str, number: i64) -> Result<T, String> {
    T::try_from(number).map_err(|_| format!("{what} {number} does not fit its field"))
}

/// The number that an arriving segment shall carry.
fn given(wanted: Option<&Match>, usual: i64, values: &Values) -> Result<i64, String> {
    match wanted {
        None => Ok(usual),
        Some(Match::Is(expression, None)) => expression.value(values),
        Some(_) => Err("an arriving segment carries numbers, not patterns".to_owned()),
    }
}

impl Flow {
    /// A connection that does not exist yet.
    pub fn new(number: u16, host_port: u16, peer_isn: u32) -> Self {
        Self {
            peer_port: peer_port(number),
            host_port,
            peer_isn,
            host_isn: None,
            host_ack: None,
            host_next: 0,
            next_seq: 0,
            ack: 0,
            window: u16::MAX,
            has_clock: false,
            last_timestamp: 0,
            cookie: Vec::new(),
            sent: VecDeque::new(),
        }
    }

    /// A relative sequence number of the peer as on the wire.
    pub fn peer_number(&self, relative: i64) -> u32 {
        wire(self.peer_isn, relative)
    }

    /// The same for the host's.
    pub fn host_number(&self, relative: i64) -> u32 {
        wire(self.host_isn.unwrap_or(0), relative)
    }

    /// Notes what a segment of the host says.
    pub fn on_host_segment(&mut self, tcp: &Tcp) {
        if tcp.flags & flags::SYN != 0 && self.host_isn.is_none() {
            self.host_isn = Some(tcp.seq);
            self.host_port = tcp.source_port;
        }
        if tcp.flags & (flags::ACK | flags::RST) == flags::ACK {
            self.host_ack = Some(tcp.ack);
        }
        if self.sent.len() == QUOTABLE {
            self.sent.pop_front();
        }
        self.sent.push_back((tcp.seq, tcp.payload.len()));
        let len = u32::try_from(tcp.payload.len()).unwrap_or(0);
        let controls =
            u32::from(tcp.flags & flags::SYN != 0) + u32::from(tcp.flags & flags::FIN != 0);
        self.host_next = tcp.seq.wrapping_add(len).wrapping_add(controls);
        for option in &tcp.options {
            match option {
                TcpOption::Timestamps(value, _) => self.last_timestamp = *value,
                TcpOption::FastOpen(cookie) if !cookie.is_empty() => self.cookie.clone_from(cookie),
                _ => {}
            }
        }
    }

    /// The segments that a line lets arrive, `now_ms` after the script's start.
    ///
    /// # Errors
    /// What the script gives and does not fit.
    pub fn segments(
        &mut self,
        wanted: &Segment,
        values: &Values,
        now_ms: u32,
    ) -> Result<Vec<Tcp>, String> {
        let seq = given(wanted.seq.as_ref(), self.next_seq, values)?;
        let len = given(wanted.len.as_ref(), 0, values)?;
        if !(0..=1 << 20).contains(&len) {
            return Err(format!("{len} bytes of payload"));
        }
        let piece = match &wanted.train {
            Some(size) => size.value(values)?.max(1),
            None => len.max(1),
        };
        let mut pieces: Vec<(i64, i64)> = Vec::new();
        let mut at = 0;
        while at < len {
            pieces.push((seq + at, piece.min(len - at)));
            at += piece;
        }
        if pieces.is_empty() {
            pieces.push((seq, 0));
        }
        let one = |(seq, len)| self.segment(wanted, seq, len, values, now_ms);
        pieces.into_iter().map(one).collect()
    }

    fn segment(
        &mut self,
        wanted: &Segment,
        seq: i64,
        len: i64,
        values: &Values,
        now_ms: u32,
    ) -> Result<Tcp, String> {
        let is_syn = wanted.flags & flags::SYN != 0;
        let has_ack = wanted.flags & flags::ACK != 0;
        let ack = given(wanted.ack.as_ref(), self.ack, values)?;
        let window = given(wanted.window.as_ref(), self.window.into(), values)?;
        let window = narrow("window", window)?;
        let urgent = narrow("urgent pointer", given(wanted.urgent.as_ref(), 0, values)?)?;
        let options = self.options(wanted, values, now_ms)?;
        let first = if is_syn { seq } else { seq - 1 };
        let positions = u64::try_from(first).unwrap_or(0)..;
        let tcp = Tcp {
            source_port: self.peer_port,
            destination_port: self.host_port,
            seq: self.peer_number(seq),
            ack: if has_ack { self.host_number(ack) } else { 0 },
            flags: wanted.flags,
            window,
            urgent,
            payload: positions
                .take(usize::try_from(len).unwrap_or(0))
                .map(pattern)
                .collect(),
            is_checksum_right: !wanted.bad_checksum,
            options,
        };
        self.remember(wanted, &tcp, seq, ack);
        Ok(tcp)
    }

    /// What the next segment repeats.
    fn remember(&mut self, wanted: &Segment, tcp: &Tcp, seq: i64, ack: i64) {
        let has = |bit| i64::from(wanted.flags & bit != 0);
        let len = i64::try_from(tcp.payload.len()).unwrap_or(0);
        self.next_seq = self
            .next_seq
            .max(seq + len + has(flags::SYN) + has(flags::FIN));
        if has(flags::ACK) == 1 {
            self.ack = ack;
        }
        self.window = tcp.window;
        if has(flags::SYN) == 1
            && tcp
                .options
                .iter()
                .any(|one| matches!(one, TcpOption::WindowScale(_)))
        {
            self.window = USUAL_SCALED_WINDOW;
        }
    }

    fn options(
        &mut self,
        wanted: &Segment,
        values: &Values,
        now_ms: u32,
    ) -> Result<Vec<TcpOption>, String> {
        let none = Options::default();
        let list = &wanted.options.as_ref().unwrap_or(&none).list;
        let says_timestamps = |option: &Wanted| {
            matches!(
                option,
                Wanted::Timestamps(..) | Wanted::TimestampsAuto | Wanted::NoTimestamps
            )
        };
        let mut options = Vec::new();
        let is_reset = wanted.flags & flags::RST != 0;
        if self.has_clock && !is_reset && !list.iter().any(says_timestamps) {
            options.extend([TcpOption::Nop, TcpOption::Nop, self.timestamps(now_ms)]);
        }
        for option in list {
            if let Some(option) = self.option(option, values, now_ms)? {
                options.push(option);
            }
        }
        if list
            .iter()
            .any(|option| matches!(option, Wanted::TimestampsAuto))
        {
            self.has_clock = true;
        }
        Ok(options)
    }

    fn timestamps(&self, now_ms: u32) -> TcpOption {
        TcpOption::Timestamps(CLOCK_START.wrapping_add(now_ms), self.last_timestamp)
    }

    fn option(
        &self,
        option: &Wanted,
        values: &Values,
        now_ms: u32,
    ) -> Result<Option<TcpOption>, String> {
        let number = |wanted: &Match| given(Some(wanted), 0, values);
        // Timestamps are raw numbers that wrap.
        let word = |wanted: &Match| Ok::<_, String>(wire(0, number(wanted)?));
        Ok(Some(match option {
            Wanted::Mss(value) => TcpOption::Mss(narrow("mss", number(value)?)?),
            Wanted::WindowScale(value) => TcpOption::WindowScale(narrow("ws", number(value)?)?),
            Wanted::SackPermitted => TcpOption::SackPermitted,
            Wanted::Timestamps(value, echo) => TcpOption::Timestamps(word(value)?, word(echo)?),
            Wanted::TimestampsAuto => self.timestamps(now_ms),
            Wanted::NoTimestamps => return Ok(None),
            Wanted::Sack(blocks) => {
                let edge = |wanted: &Match| Ok::<_, String>(self.host_number(number(wanted)?));
                let block = |(left, right): &(Match, Match)| Ok((edge(left)?, edge(right)?));
                TcpOption::Sack(blocks.iter().map(block).collect::<Result<_, String>>()?)
            }
            Wanted::FastOpen(Cookie::Request) => TcpOption::FastOpen(Vec::new()),
            Wanted::FastOpen(Cookie::Bytes(bytes)) => TcpOption::FastOpen(bytes.clone()),
            Wanted::FastOpen(Cookie::Remembered) => {
                if self.cookie.is_empty() {
                    return Err("no cookie has been seen on this flow".to_owned());
                }
                TcpOption::FastOpen(self.cookie.clone())
            }
            Wanted::Nop => TcpOption::Nop,
            Wanted::Raw(kind, bytes) => TcpOption::Other(*kind, bytes.clone()),
        }))
    }

    /// The cookie that was seen last.
    pub fn cookie(&self) -> &[u8] {
        &self.cookie
    }

    /// Shows this cookie from now on.
    pub fn take_cookie(&mut self, cookie: &[u8]) {
        cookie.clone_into(&mut self.cookie);
    }

    /// The header of the host's segment that begins with this number, for ICMP's quotation.
    pub fn quotation(&self, relative: i64) -> Tcp {
        let seq = self.host_number(relative);
        let sent = self.sent.iter().rev().find(|(number, _)| *number == seq);
        Tcp {
            // Its length alone matters: what is quoted ends with the header.
            payload: vec![0; sent.map_or(0, |(_, len)| *len)],
            source_port: self.host_port,
            destination_port: self.peer_port,
            seq,
            ack: self.host_ack.unwrap_or(0),
            flags: flags::ACK,
            window: u16::MAX,
            is_checksum_right: true,
            ..Tcp::default()
        }
    }

    /// A reset that the host believes, so that nothing of this connection outlives its script.
    pub fn farewell(&self) -> Tcp {
        Tcp {
            source_port: self.peer_port,
            destination_port: self.host_port,
            seq: self.host_ack.unwrap_or(0),
            ack: self.host_next,
            flags: flags::RST | flags::ACK,
            is_checksum_right: true,
            ..Tcp::default()
        }
    }
}

/// `base` and a relative number, modulo 2³².
fn wire(base: u32, relative: i64) -> u32 {
    let offset =
        u32::try_from(relative.rem_euclid(1 << 32)).expect("invariant: reduced to 32 bits");
    base.wrapping_add(offset)
}

/// The distance of a number on the wire from a base, as a script writes it: just before the base it is negative.
pub fn relative(base: u32, number: u32) -> i64 {
    i64::from(number.wrapping_sub(base).cast_signed())
}
