//! The pcapng file format (draft-ietf-opsawg-pcapng), written with nanosecond times, and read
//! together with its predecessor pcap (draft-ietf-opsawg-pcap). Ethernet only.
//!
//! Blocks and options that replay does not need are skipped; name resolution, statistics and
//! secrets are neither written nor read.

use std::io::{self, Write};
use std::ops::Range;

const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const OPTION_END: u16 = 0;
const OPTION_IF_NAME: u16 = 2;
const OPTION_IF_TSRESOL: u16 = 9;
const OPTION_EPB_FLAGS: u16 = 2;
const LINKTYPE_ETHERNET: u16 = 1;
const PCAP_MICROSECONDS: u32 = 0xa1b2_c3d4;
const PCAP_NANOSECONDS: u32 = 0xa1b2_3c4d;
const NANOSECONDS: u128 = 1_000_000_000;

/// Which way a frame went, seen from the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    Inbound,
    /// Transmitted.
    Outbound,
}

/// Why a capture cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Not a capture at all.
    #[error("not a pcapng or pcap file: record one with `shunt capture` or tcpdump -w")]
    NotACapture,
    /// A block contradicts itself.
    #[error("the capture is damaged at byte {at}")]
    Damaged {
        /// Where the block starts.
        at: usize,
    },
    /// Another link layer.
    #[error(
        "the capture's link type is {link_type}, not Ethernet (1): capture on an Ethernet interface"
    )]
    NotEthernet {
        /// The type found.
        link_type: u32,
    },
}

/// Writes one section with some interfaces.
pub struct Writer<W: Write> {
    output: W,
}

fn padding(len: usize) -> usize {
    len.next_multiple_of(4) - len
}

fn too_long<T>(_: T) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "a frame is too long for a pcapng block",
    )
}

impl<W: Write> Writer<W> {
    /// Starts the file, with an interface of each name, of which the first 64 bytes count.
    ///
    /// # Errors
    /// The output fails.
    pub fn new(output: W, interfaces: &[&str]) -> io::Result<Self> {
        let mut writer = Self { output };
        let mut section = Vec::new();
        section.extend(BYTE_ORDER.to_le_bytes());
        section.extend([1, 0, 0, 0]); // version 1.0
        section.extend(u64::MAX.to_le_bytes()); // length of the section not known
        writer.block(SECTION, &section)?;

        for interface in interfaces {
            writer.interface(interface)?;
        }
        Ok(writer)
    }

    fn interface(&mut self, interface: &str) -> io::Result<()> {
        let name = &interface.as_bytes()[..interface.len().min(64)];
        let mut block = Vec::new();
        block.extend(LINKTYPE_ETHERNET.to_le_bytes());
        block.extend([0; 6]); // reserved, no limit on length
        block.extend(OPTION_IF_NAME.to_le_bytes());
        block.extend(u16::try_from(name.len()).map_err(too_long)?.to_le_bytes());
        block.extend(name);
        block.extend(vec![0; padding(name.len())]);
        block.extend(OPTION_IF_TSRESOL.to_le_bytes());
        block.extend([1, 0, 9, 0, 0, 0]); // one byte: 10^-9 s; padded
        block.extend(OPTION_END.to_le_bytes());
        block.extend([0; 2]);
        self.block(INTERFACE, &block)
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let total = u32::try_from(12 + body.len())
            .map_err(too_long)?
            .to_le_bytes();
        self.output.write_all(&kind.to_le_bytes())?;
        self.output.write_all(&total)?;
        self.output.write_all(body)?;
        self.output.write_all(&total)
    }

    /// Appends a frame seen at `time_ns` since 1970 on the interface of that number, of which the first `bytes` were kept
    /// of `frame_bytes`.
    ///
    /// # Errors
    /// The output fails, or the frame is too long for the format.
    pub fn packet(
        &mut self,
        (interface, direction): (u32, Direction),
        time_ns: u64,
        bytes: &[u8],
        frame_bytes: u32,
    ) -> io::Result<()> {
        let pad = padding(bytes.len());
        // Block and packet headers 28, options 12, trailer 4.
        let total = u32::try_from(28 + bytes.len() + pad + 16)
            .map_err(too_long)?
            .to_le_bytes();
        let len = u32::try_from(bytes.len()).map_err(too_long)?.to_le_bytes();
        let [t0, t1, t2, t3, t4, t5, t6, t7] = time_ns.to_le_bytes();
        let mut head = [0; 28];
        head[0..4].copy_from_slice(&ENHANCED_PACKET.to_le_bytes());
        head[4..8].copy_from_slice(&total);
        head[8..12].copy_from_slice(&interface.to_le_bytes());
        head[12..20].copy_from_slice(&[t4, t5, t6, t7, t0, t1, t2, t3]); // high half first
        head[20..24].copy_from_slice(&len);
        head[24..28].copy_from_slice(&frame_bytes.to_le_bytes());
        let flags: u8 = match direction {
            Direction::Inbound => 1,
            Direction::Outbound => 2,
        };
        let mut tail = [0; 16];
        tail[0..2].copy_from_slice(&OPTION_EPB_FLAGS.to_le_bytes());
        tail[2] = 4;
        tail[4] = flags;
        tail[12..16].copy_from_slice(&total);
        self.output.write_all(&head)?;
        self.output.write_all(bytes)?;
        self.output.write_all(&[0; 3][..pad])?;
        self.output.write_all(&tail)
    }

    /// Hands on what is held back.
    ///
    /// # Errors
    /// The output fails.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// A frame of a capture: where its bytes lie in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packet {
    pub time_ns: u64,
    pub direction: Option<Direction>,
    pub bytes: Range<usize>,
    /// The capture holds only the start of the frame.
    pub truncated: bool,
}

/// Finds the frames of a capture. A last block that is cut off ends it without an error: the
/// recording program was killed.
pub(super) fn read(file: &[u8]) -> Result<Vec<Packet>, FormatError> {
    let magic: [u8; 4] = *file.first_chunk().ok_or(FormatError::NotACapture)?;
    if u32::from_le_bytes(magic) == SECTION {
        return Reader {
            file,
            big_endian: false,
            ticks: Vec::new(),
            last_ns: 0,
        }
        .pcapng();
    }
    for (big_endian, magic) in [
        (false, u32::from_le_bytes(magic)),
        (true, u32::from_be_bytes(magic)),
    ] {
        let ticks = match magic {
            PCAP_MICROSECONDS => 1_000_000,
            PCAP_NANOSECONDS => NANOSECONDS,
            _ => continue,
        };
        return Reader {
            file,
            big_endian,
            ticks: vec![ticks],
            last_ns: 0,
        }
        .pcap();
    }
    Err(FormatError::NotACapture)
}

struct Reader<'a> {
    file: &'a [u8],
    big_endian: bool,
    /// Ticks per second of each interface's clock.
    ticks: Vec<u128>,
    last_ns: u64,
}

impl Reader<'_> {
    fn word(&self, at: usize) -> Option<u32> {
        let bytes = *self.file.get(at..)?.first_chunk()?;
        Some(if self.big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }

    fn half(&self, at: usize) -> Option<u16> {
        let bytes = *self.file.get(at..)?.first_chunk()?;
        Some(if self.big_endian {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        })
    }

    fn len(&self, at: usize) -> Option<usize> {
        usize::try_from(self.word(at)?).ok()
    }

    fn pcap(&self) -> Result<Vec<Packet>, FormatError> {
        let link_type = self.word(20).ok_or(FormatError::NotACapture)? & 0x0fff_ffff;
        if link_type != u32::from(LINKTYPE_ETHERNET) {
            return Err(FormatError::NotEthernet { link_type });
        }
        let mut packets = Vec::new();
        let mut at = 24;
        while let Some((packet, next)) = self.pcap_record(at) {
            packets.push(packet);
            at = next;
        }
        Ok(packets)
    }

    fn pcap_record(&self, at: usize) -> Option<(Packet, usize)> {
        let (seconds, fraction) = (self.word(at)?, self.word(at + 4)?);
        let end = (at + 16).checked_add(self.len(at + 8)?)?;
        let bytes = at + 16..end;
        self.file.get(bytes.clone())?;
        let fraction_ns = u128::from(fraction) * NANOSECONDS / self.ticks[0];
        let time_ns = u128::from(seconds) * NANOSECONDS + fraction_ns;
        let truncated = self.len(at + 12)? > bytes.len();
        let time_ns = u64::try_from(time_ns).ok()?;
        Some((
            Packet {
                time_ns,
                direction: None,
                bytes,
                truncated,
            },
            end,
        ))
    }

    fn pcapng(&mut self) -> Result<Vec<Packet>, FormatError> {
        let mut packets = Vec::new();
        let mut at = 0;
        loop {
            // The type of a section block reads the same in both byte orders.
            if self.word(at) == Some(SECTION) {
                self.section(at)?;
            }
            let Some((kind, total)) = self.word(at).zip(self.len(at + 4)) else {
                break;
            };
            let damaged = FormatError::Damaged { at };
            if total < 12 || !total.is_multiple_of(4) {
                return Err(damaged);
            }
            let Some(end) = at.checked_add(total).filter(|end| *end <= self.file.len()) else {
                break;
            };
            let body = at + 8..end - 4;
            match kind {
                INTERFACE => self.interface(body)?,
                ENHANCED_PACKET => packets.push(self.enhanced(body).ok_or(damaged)?),
                SIMPLE_PACKET => packets.push(self.simple(body).ok_or(damaged)?),
                _ => {}
            }
            at = end;
        }
        Ok(packets)
    }

    fn section(&mut self, at: usize) -> Result<(), FormatError> {
        self.ticks.clear();
        for big_endian in [false, true] {
            self.big_endian = big_endian;
            if self.word(at + 8) == Some(BYTE_ORDER) {
                return Ok(());
            }
        }
        Err(FormatError::Damaged { at })
    }

    fn interface(&mut self, body: Range<usize>) -> Result<(), FormatError> {
        let damaged = FormatError::Damaged { at: body.start };
        let link_type = self.half(body.start).ok_or(damaged)?;
        if link_type != LINKTYPE_ETHERNET {
            return Err(FormatError::NotEthernet {
                link_type: u32::from(link_type),
            });
        }
        let resolution = self
            .option(body.start + 8..body.end, OPTION_IF_TSRESOL)
            .and_then(|value| self.file.get(value.start).copied());
        let ticks = match resolution {
            None => Some(1_000_000),
            Some(power) if power & 0x80 == 0 => 10_u128.checked_pow(u32::from(power)),
            Some(power) => 2_u128.checked_pow(u32::from(power & 0x7f)),
        };
        self.ticks.push(ticks.ok_or(damaged)?);
        Ok(())
    }

    fn option(&self, mut options: Range<usize>, wanted: u16) -> Option<Range<usize>> {
        while options.start + 4 <= options.end {
            let (code, len) = (
                self.half(options.start)?,
                usize::from(self.half(options.start + 2)?),
            );
            let value = options.start + 4..options.start + 4 + len;
            if code == OPTION_END || value.end > options.end {
                return None;
            }
            if code == wanted {
                return Some(value);
            }
            options.start = value.start + len.next_multiple_of(4);
        }
        None
    }

    fn enhanced(&mut self, body: Range<usize>) -> Option<Packet> {
        let at = body.start;
        let ticks_per_second = *self.ticks.get(self.len(at)?)?;
        let ticks = u64::from(self.word(at + 4)?) << 32 | u64::from(self.word(at + 8)?);
        let captured = self.len(at + 12)?;
        let end = (at + 20)
            .checked_add(captured)
            .filter(|end| *end <= body.end)?;
        let time_ns = u128::from(ticks).checked_mul(NANOSECONDS)? / ticks_per_second;
        self.last_ns = u64::try_from(time_ns).ok()?;
        let flags = self
            .option(
                at + 20 + captured.next_multiple_of(4)..body.end,
                OPTION_EPB_FLAGS,
            )
            .and_then(|value| self.word(value.start));
        let direction = match flags.unwrap_or(0) & 3 {
            1 => Some(Direction::Inbound),
            2 => Some(Direction::Outbound),
            _ => None,
        };
        let truncated = self.len(at + 16)? > captured;
        Some(Packet {
            time_ns: self.last_ns,
            direction,
            bytes: at + 20..end,
            truncated,
        })
    }

    /// A simple packet has no time of its own: it takes the one before.
    fn simple(&self, body: Range<usize>) -> Option<Packet> {
        let original = self.len(body.start)?;
        let start = body.start + 4;
        let room = body.end.checked_sub(start)?;
        let bytes = start..start + original.min(room);
        let truncated = original > room;
        Some(Packet {
            time_ns: self.last_ns,
            direction: None,
            bytes,
            truncated,
        })
    }
}
