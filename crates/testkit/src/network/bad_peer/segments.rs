//! The segments that a bad peer sends, right ones and wrong ones.

use std::net::Ipv4Addr;

use wire::{
    checksum::{self, Sum},
    ethernet, ipv4,
    tcp::{Flags, Header, Options, SackBlocks, Timestamps},
};

use super::{BadPeer, Habit, LATE_US, WINDOW, low};

const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PORT: u16 = 7;
/// After so many bytes a habit closes the window for good.
const LAST_BYTE: u64 = 10_000;

/// A TCP segment to us whose checksums are right.
pub(super) fn parse(frame: &[u8]) -> Option<(Header, Vec<u8>)> {
    let (_, packet) = ethernet::Header::parse(frame).ok()?;
    let (ip, segment) = ipv4::Header::parse(packet).ok()?;
    if ip.protocol != ipv4::Protocol::TCP || ip.destination != OURS {
        return None;
    }
    if !checksum::verify_tcp_v4(ip.source, ip.destination, segment) {
        return None;
    }
    let (header, data) = Header::parse(segment).ok()?;
    Some((header, data.to_vec()))
}

impl BadPeer {
    pub(super) fn answer_syn(&mut self) {
        let mut options = Options::default();
        if self.habit != Habit::NoOptions {
            options.mss = self.habit.mss();
            options.sack_permitted = self.habit.has_sack();
            options.timestamps = self.timestamps();
        }
        let header = Header {
            seq: self.own_start,
            flags: Flags::SYN | Flags::ACK,
            options,
            ..self.header()
        };
        self.push(&header, &[]);
    }

    /// Acknowledges what has come, as the habit has it.
    pub(super) fn acknowledge(&mut self) {
        match self.habit {
            Habit::StretchesAcks => {
                self.unacked_segments += 1;
                if self.unacked_segments < 50 {
                    self.ack_due_us.get_or_insert(self.now_us + LATE_US);
                    return;
                }
                self.unacked_segments = 0;
                self.ack_now();
            }
            Habit::RepeatsAcks => (0..5).for_each(|_| self.ack_now()),
            Habit::DividesAcks => {
                let whole = self.header();
                for piece in (0..10).rev() {
                    let ack = whole.ack.wrapping_sub(piece * 100);
                    // Not below what was acknowledged at the start.
                    let first = self.their_start.unwrap_or(0).wrapping_add(1);
                    if ack.wrapping_sub(first) < 1 << 31 {
                        self.push(&Header { ack, ..whole }, &[]);
                    }
                }
            }
            _ => self.ack_now(),
        }
    }

    pub(super) fn ack_now(&mut self) {
        let header = self.header();
        self.push(&header, &[]);
    }

    pub(super) fn data(&mut self, start: u64, end: u64) {
        let mut header = self.header();
        header.seq = self.sequence(start);
        if self.habit == Habit::Urgent && self.random.one_in(3) {
            header.flags |= Flags::URG;
            header.urgent = u16::try_from(self.random.below(2_000)).unwrap_or(1);
        }
        let bytes = self.bytes(start, end);
        self.push(&header, &bytes);
        if self.habit == Habit::Overlaps {
            let back = self.random.below(start.min(3_000) + 1);
            let bytes = self.bytes(start - back, end);
            header.seq = self.sequence(start - back);
            let most = bytes.len().min(1_400);
            self.push(&header, &bytes[..most]);
        }
    }

    pub(super) fn end(&mut self) {
        let mut header = self.header();
        header.seq = self.sequence(self.sending.total);
        header.flags |= Flags::FIN;
        self.push(&header, &[]);
        let has_all = self.receiving.end == Some(self.receiving.next);
        if self.habit == Habit::DataAfterEnd && has_all {
            header.flags.remove(Flags::FIN);
            header.seq = header.seq.wrapping_add(1);
            self.push(&header, &[0xbd; 500]);
        }
    }

    /// What the habit sends besides, after every arrival.
    pub(super) fn misbehave(&mut self) {
        if !self.random.one_in(3) {
            return;
        }
        let mut header = self.header();
        let any = low(self.random.draw());
        match self.habit {
            Habit::AcksUnsent => header.ack = header.ack.wrapping_add(100_000),
            Habit::AcksOld => header.ack = header.ack.wrapping_sub(any >> 1),
            Habit::RepeatsSynAck => {
                header.seq = self.own_start;
                header.flags = Flags::SYN | Flags::ACK;
                header.options.mss = Some(100);
                header.options.window_scale = Some(14);
            }
            Habit::BeyondWindow => {
                header.seq = header.seq.wrapping_add(8 << 20).wrapping_add(any >> 2);
                self.push(&header, &[0xbd; 700]);
                return;
            }
            Habit::ResetStorm => {
                header.seq = any;
                header.flags = Flags::RST;
            }
            Habit::SynStorm => {
                header.seq = any;
                header.flags = Flags::SYN;
            }
            Habit::OldTimestamps => {
                let echo = self.timestamp.unwrap_or(0);
                let value = low(self.now_us / 1_000).wrapping_sub(1 + (any >> 8));
                header.options.timestamps = Some(Timestamps { value, echo });
                header.seq = header.seq.wrapping_add(any % 2_000);
                self.push(&header, &[0xbd; 300]);
                return;
            }
            _ => return,
        }
        self.push(&header, &[]);
    }

    /// The header of an acknowledgment.
    pub(super) fn header(&mut self) -> Header {
        let mut timestamps = self.timestamps();
        if self.habit == Habit::StrangeEcho
            && let Some(timestamps) = &mut timestamps
        {
            timestamps.echo = low(self.random.draw());
        }
        Header {
            source_port: PORT,
            destination_port: self.their_port,
            seq: self.sequence(self.sending.highest),
            ack: self.acknowledgment(),
            flags: Flags::ACK,
            window: self.window(),
            ae: false,
            urgent: 0,
            options: Options {
                timestamps,
                sack: self.sack(),
                ..Options::default()
            },
        }
    }

    fn window(&mut self) -> u16 {
        match self.habit {
            Habit::ShrinksWindow if self.random.one_in(2) => 1_000,
            Habit::SillyWindow => 10,
            Habit::NeverOpens => {
                let left = LAST_BYTE.saturating_sub(self.receiving.next);
                u16::try_from(left).unwrap_or(WINDOW).min(WINDOW)
            }
            _ => WINDOW,
        }
    }

    fn sack(&mut self) -> SackBlocks {
        let mut blocks = SackBlocks::new();
        if !self.habit.has_sack() {
            return blocks;
        }
        let start = self.their_start.unwrap_or(0).wrapping_add(1);
        let most = if self.habit.has_timestamps() { 3 } else { 4 };
        // RFC 2018 wants the newest first; the last ones are near enough for a bad peer.
        for (left, right) in self.receiving.held.iter().rev().take(most) {
            blocks.push(
                start.wrapping_add(low(*left)),
                start.wrapping_add(low(*right)),
            );
        }
        if self.habit == Habit::LiesInSack && self.random.one_in(3) {
            blocks = SackBlocks::new();
            for _ in 0..3 {
                let near = self.acknowledgment();
                let offset = |random: u64| low(random % 200_000).wrapping_sub(50_000);
                let left = near.wrapping_add(offset(self.random.draw()) | 1 << 20);
                let right = near.wrapping_sub(offset(self.random.draw()));
                blocks.push(left, right);
            }
        }
        blocks
    }

    fn push(&mut self, header: &Header, data: &[u8]) {
        let mut segment = vec![0; header.header_len()];
        header.emit(&mut segment);
        segment.extend_from_slice(data);
        let sum = Sum::new()
            .pseudo_header_v4(OURS, THEIRS, ipv4::Protocol::TCP, segment.len())
            .add(&segment)
            .finish();
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        let ip = ipv4::Header::new(OURS, THEIRS, ipv4::Protocol::TCP);
        let link = ethernet::Header {
            destination: ethernet::Address([2, 0, 0, 0, 0, 1]),
            source: ethernet::Address([2, 0, 0, 0, 0, 2]),
            ethertype: ethernet::EtherType::IPV4,
        };
        let mut frame = vec![0; ethernet::Header::LEN + ipv4::Header::LEN];
        link.emit(&mut frame);
        ip.emit(segment.len(), &mut frame[ethernet::Header::LEN..]);
        frame.extend_from_slice(&segment);
        self.out.push(frame);
    }
}
