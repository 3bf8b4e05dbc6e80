//! TCP segments with every option that a script can name.

use std::net::IpAddr;

use super::{IpFields, Link, TCP, checksum, pseudo_header, wrap};

/// A segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
    /// Sequence number, as it is on the wire.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Control bits.
    pub flags: u8,
    /// Window.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options in order.
    pub options: Vec<Option>,
    /// What it carries.
    pub payload: Vec<u8>,
    /// Whether the checksum is right.
    pub is_checksum_right: bool,
}

/// One option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Option {
    /// End of the list.
    End,
    /// No operation.
    Nop,
    /// Maximum segment size.
    Mss(u16),
    /// Window scale.
    WindowScale(u8),
    /// SACK permitted.
    SackPermitted,
    /// SACK blocks.
    Sack(Vec<(u32, u32)>),
    /// Value and echo.
    Timestamps(u32, u32),
    /// Fast Open cookie, empty: a request.
    FastOpen(Vec<u8>),
    /// Any other: kind, and the bytes after its length.
    Other(u8, Vec<u8>),
}

impl Option {
    fn parse(kind: u8, body: &[u8]) -> Self {
        let word =
            |at: usize| u32::from_be_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
        match (kind, body.len()) {
            (2, 2) => Self::Mss(u16::from_be_bytes([body[0], body[1]])),
            (3, 1) => Self::WindowScale(body[0]),
            (4, 0) => Self::SackPermitted,
            (5, len) if len > 0 && len % 8 == 0 => Self::Sack(
                (0..len)
                    .step_by(8)
                    .map(|at| (word(at), word(at + 4)))
                    .collect(),
            ),
            (8, 8) => Self::Timestamps(word(0), word(4)),
            (34, _) => Self::FastOpen(body.to_vec()),
            _ => Self::Other(kind, body.to_vec()),
        }
    }

    fn emit(&self, out: &mut Vec<u8>) {
        let (kind, body) = match self {
            Self::End => return out.push(0),
            Self::Nop => return out.push(1),
            Self::Mss(value) => (2, value.to_be_bytes().to_vec()),
            Self::WindowScale(shift) => (3, vec![*shift]),
            Self::SackPermitted => (4, Vec::new()),
            Self::Sack(blocks) => {
                let edges = blocks.iter().flat_map(|(left, right)| [*left, *right]);
                (5, edges.flat_map(u32::to_be_bytes).collect())
            }
            Self::Timestamps(value, echo) => {
                (8, [value.to_be_bytes(), echo.to_be_bytes()].concat())
            }
            Self::FastOpen(cookie) => (34, cookie.clone()),
            Self::Other(kind, body) => (*kind, body.clone()),
        };
        out.push(kind);
        out.push(u8::try_from(body.len() + 2).unwrap_or(u8::MAX));
        out.extend(body);
    }
}

impl Tcp {
    /// Takes a segment apart; `None` where its header is malformed.
    pub fn parse(from: IpAddr, to: IpAddr, segment: &[u8]) -> std::option::Option<Self> {
        let header = segment.first_chunk::<20>()?;
        let header_len = usize::from(header[12] >> 4) * 4;
        let mut rest = segment.get(20..header_len)?;
        let mut options = Vec::new();
        while let Some((&kind, after)) = rest.split_first() {
            if kind < 2 {
                options.push(if kind == 0 { Option::End } else { Option::Nop });
                rest = if kind == 0 { &[] } else { after };
                continue;
            }
            let len = usize::from(*after.first()?);
            options.push(Option::parse(kind, rest.get(2..len)?));
            rest = &rest[len..];
        }
        let u16_at = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let u32_at = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let pseudo = pseudo_header(from, to, TCP, segment.len());
        Some(Self {
            source_port: u16_at(0),
            destination_port: u16_at(2),
            seq: u32_at(4),
            ack: u32_at(8),
            flags: header[13],
            window: u16_at(14),
            urgent: u16_at(18),
            options,
            payload: segment[header_len..].to_vec(),
            is_checksum_right: checksum(&[&pseudo, segment]) == 0,
        })
    }

    /// The segment's bytes; a wrong checksum where `is_checksum_right` says so.
    fn emit(&self, from: IpAddr, to: IpAddr) -> Vec<u8> {
        let mut options = Vec::new();
        self.options
            .iter()
            .for_each(|option| option.emit(&mut options));
        // Fifteen words at most in all: the script is wrong where they do not fit, and the host sees that.
        options.truncate(40);
        options.resize(options.len().next_multiple_of(4), 0);
        let words =
            u8::try_from(5 + options.len() / 4).expect("invariant: at most 40 bytes of options");
        let mut segment = Vec::with_capacity(60 + self.payload.len());
        segment.extend(self.source_port.to_be_bytes());
        segment.extend(self.destination_port.to_be_bytes());
        segment.extend(self.seq.to_be_bytes());
        segment.extend(self.ack.to_be_bytes());
        segment.extend([words << 4, self.flags]);
        segment.extend(self.window.to_be_bytes());
        segment.extend([0, 0]);
        segment.extend(self.urgent.to_be_bytes());
        segment.extend(&options);
        segment.extend(&self.payload);
        let pseudo = pseudo_header(from, to, TCP, segment.len());
        let mut sum = checksum(&[&pseudo, &segment]);
        if !self.is_checksum_right {
            sum ^= 0x5555;
        }
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        segment
    }

    /// The frame that brings it to the host.
    pub fn frame(&self, link: &Link, fields: IpFields) -> Vec<u8> {
        wrap(link, TCP, fields, &self.emit(link.peer, link.host))
    }

    /// The segment with these numbers as the host sent it, for a quotation.
    pub fn quoted(&self, link: &Link) -> Vec<u8> {
        self.emit(link.host, link.peer)
    }
}
