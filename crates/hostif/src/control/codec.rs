//! Control messages to bytes and back. Every message starts with magic, version and kind.
//!
//! Parsing hostile bytes gives `Invalid`, never a panic, and reads nothing twice. Trailing bytes are
//! invalid: a message is exactly its packet.

use core::net::IpAddr;

mod lists;

use super::message::{
    Adopted, MAX_OPEN, MAX_PREPARE, MESSAGE_BYTES, Opened, QueryKind, Reply, Request, Welcome,
};
use crate::descriptor::{address_bytes, address_from_bytes};
use crate::id::SocketId;
use crate::steering::{CORES_MAX, Steering};
use crate::sync::moderation::Moderation;
use crate::{MAX_VERSION, MIN_VERSION};

const MAGIC: u32 = u32::from_le_bytes(*b"SHNT");
const MAX_TEXT_BYTES: usize = 1024;

const HELLO: u16 = 1;
const OPEN: u16 = 2;
const PREPARE: u16 = 3;
const FORK: u16 = 4;
const MAP_REGION: u16 = 5;
const ADDRESSES: u16 = 6;
const QUERY: u16 = 7;
const JOIN: u16 = 8;
const MODERATE: u16 = 9;
const ADOPT: u16 = 10;
const SHARE: u16 = 11;
const MAP_AREA: u16 = 12;
const SIGNALS: u16 = 13;
const MAP_HOLDERS: u16 = 14;
const YIELD: u16 = 15;
const OPEN_DATAGRAM: u16 = 16;
const SHARE_FILE: u16 = 17;
const CAPTURE: u16 = 18;
const REPLY: u16 = 0x100;
const REFUSED: u16 = 0x1ff;

/// The bytes are no message of a version that this code speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// Not one of our messages at all, or one that is cut short or too long.
    #[error("malformed control message")]
    Malformed,
    /// A version that this code does not speak.
    #[error("control message of version {0}")]
    Version(u16),
    /// A kind that this version does not know.
    #[error("control message of unknown kind {0}")]
    Kind(u16),
}

struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn new(kind: u16) -> Writer {
        let mut writer = Writer {
            bytes: Vec::with_capacity(64),
        };
        writer.u32(MAGIC).u16(MAX_VERSION).u16(kind);
        writer
    }

    fn raw(&mut self, bytes: &[u8]) -> &mut Writer {
        self.bytes.extend_from_slice(bytes);
        self
    }

    fn u8(&mut self, value: u8) -> &mut Writer {
        self.raw(&[value])
    }

    fn u16(&mut self, value: u16) -> &mut Writer {
        self.raw(&value.to_le_bytes())
    }

    fn u32(&mut self, value: u32) -> &mut Writer {
        self.raw(&value.to_le_bytes())
    }

    fn u64(&mut self, value: u64) -> &mut Writer {
        self.raw(&value.to_le_bytes())
    }

    fn address(&mut self, address: Option<IpAddr>) -> &mut Writer {
        let (family, bytes) = address.map_or((0, [0; 16]), address_bytes);
        self.u8(family).raw(&bytes)
    }

    fn count(&mut self, count: usize) -> &mut Writer {
        self.u16(u16::try_from(count).expect("invariant: lists are cut to their bounds"))
    }

    fn finish(&mut self) -> Vec<u8> {
        debug_assert!(self.bytes.len() <= MESSAGE_BYTES);
        core::mem::take(&mut self.bytes)
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Invalid> {
        let (first, rest) = self
            .bytes
            .split_first_chunk::<N>()
            .ok_or(Invalid::Malformed)?;
        self.bytes = rest;
        Ok(*first)
    }

    fn u8(&mut self) -> Result<u8, Invalid> {
        Ok(self.array::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16, Invalid> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, Invalid> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Invalid> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn address(&mut self) -> Result<Option<IpAddr>, Invalid> {
        let family = self.u8()?;
        let bytes = self.array()?;
        match family {
            0 => Ok(None),
            _ => address_from_bytes(family, bytes)
                .map(Some)
                .ok_or(Invalid::Malformed),
        }
    }

    fn count(&mut self, low: usize, high: usize) -> Result<usize, Invalid> {
        let count = usize::from(self.u16()?);
        if (low..=high).contains(&count) {
            Ok(count)
        } else {
            Err(Invalid::Malformed)
        }
    }

    fn count_u16(&mut self, high: usize) -> Result<u16, Invalid> {
        let count = self.count(1, high)?;
        u16::try_from(count).map_err(|_| Invalid::Malformed)
    }
}

/// Checks the start of a message and returns its kind. `Hello` and `Refused` are read in any version.
fn open(bytes: &[u8]) -> Result<(u16, Reader<'_>), Invalid> {
    if bytes.len() > MESSAGE_BYTES {
        return Err(Invalid::Malformed);
    }
    let mut reader = Reader { bytes };
    if reader.u32()? != MAGIC {
        return Err(Invalid::Malformed);
    }
    let version = reader.u16()?;
    let kind = reader.u16()?;
    let timeless = kind == HELLO || kind == REFUSED;
    if !timeless && !(MIN_VERSION..=MAX_VERSION).contains(&version) {
        return Err(Invalid::Version(version));
    }
    Ok((kind, reader))
}

fn finished<T>(message: T, reader: &Reader<'_>) -> Result<T, Invalid> {
    if reader.bytes.is_empty() {
        Ok(message)
    } else {
        Err(Invalid::Malformed)
    }
}

impl Request {
    /// The message as a packet.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match *self {
            Request::Hello {
                min_version,
                max_version,
                pid,
            } => Writer::new(HELLO)
                .u16(min_version)
                .u16(max_version)
                .u32(pid)
                .finish(),
            Request::Open { count } => Writer::new(OPEN).u16(count).finish(),
            Request::Prepare { count } => Writer::new(PREPARE).u16(count).finish(),
            Request::OpenDatagram => Writer::new(OPEN_DATAGRAM).finish(),
            Request::ShareFile => Writer::new(SHARE_FILE).finish(),
            Request::Fork => Writer::new(FORK).finish(),
            Request::Join { core } => Writer::new(JOIN).u16(core).finish(),
            Request::MapRegion { region } => Writer::new(MAP_REGION).u32(region).finish(),
            Request::Adopt => Writer::new(ADOPT).finish(),
            // 0: all of them.
            Request::Share { socket } => Writer::new(SHARE)
                .u64(socket.map_or(0, SocketId::to_bits))
                .finish(),
            Request::MapArea { channel_region } => {
                Writer::new(MAP_AREA).u32(channel_region).finish()
            }
            Request::MapHolders => Writer::new(MAP_HOLDERS).finish(),
            Request::Yield => Writer::new(YIELD).finish(),
            Request::Signals { socket } => Writer::new(SIGNALS).u64(socket.to_bits()).finish(),
            Request::Addresses => Writer::new(ADDRESSES).finish(),
            // 0 events: as many as fit the ring.
            Request::Moderate(Moderation { every, after_us }) => Writer::new(MODERATE)
                .u32(every.unwrap_or(0))
                .u32(after_us)
                .finish(),
            Request::Capture(filter) => Writer::new(CAPTURE)
                .u32(filter.snap_bytes)
                .address(filter.host)
                .u16(filter.port.unwrap_or(0))
                .u8(filter.protocol as u8)
                .finish(),
            Request::Query { kind } => {
                let kind = match kind {
                    QueryKind::Status => 1,
                    QueryKind::Sockets => 2,
                    QueryKind::Sessions => 3,
                    QueryKind::Interfaces => 4,
                };
                Writer::new(QUERY).u16(kind).finish()
            }
        }
    }

    /// Reads a packet from a program.
    pub fn decode(bytes: &[u8]) -> Result<Request, Invalid> {
        let (kind, mut reader) = open(bytes)?;
        let request = match kind {
            HELLO => Request::Hello {
                min_version: reader.u16()?,
                max_version: reader.u16()?,
                pid: reader.u32()?,
            },
            OPEN => Request::Open {
                count: reader.count_u16(MAX_OPEN)?,
            },
            PREPARE => Request::Prepare {
                count: reader.count_u16(MAX_PREPARE)?,
            },
            OPEN_DATAGRAM => Request::OpenDatagram,
            SHARE_FILE => Request::ShareFile,
            FORK => Request::Fork,
            JOIN => Request::Join {
                core: reader.u16()?,
            },
            MAP_REGION => Request::MapRegion {
                region: reader.u32()?,
            },
            ADOPT => Request::Adopt,
            SHARE => Request::Share {
                socket: match reader.u64()? {
                    0 => None,
                    bits => Some(SocketId::from_bits(bits).ok_or(Invalid::Malformed)?),
                },
            },
            MAP_AREA => Request::MapArea {
                channel_region: reader.u32()?,
            },
            MAP_HOLDERS => Request::MapHolders,
            YIELD => Request::Yield,
            SIGNALS => Request::Signals {
                socket: SocketId::from_bits(reader.u64()?).ok_or(Invalid::Malformed)?,
            },
            ADDRESSES => Request::Addresses,
            MODERATE => Request::Moderate(Moderation {
                every: Some(reader.u32()?).filter(|&every| every != 0),
                after_us: reader.u32()?,
            }),
            CAPTURE => Request::Capture(lists::decode_filter(&mut reader)?),
            QUERY => Request::Query {
                kind: match reader.u16()? {
                    1 => QueryKind::Status,
                    2 => QueryKind::Sockets,
                    3 => QueryKind::Sessions,
                    4 => QueryKind::Interfaces,
                    other => return Err(Invalid::Kind(other)),
                },
            },
            other => return Err(Invalid::Kind(other)),
        };
        finished(request, &reader)
    }
}

impl Reply {
    /// The message as a packet; lists and texts beyond their bounds are cut.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Reply::Welcome(welcome) => Writer::new(REPLY | HELLO)
                .u16(welcome.version)
                .u16(welcome.core)
                .u16(welcome.steering.cores)
                .u32(welcome.steering.key)
                .u32(welcome.session)
                .u32(welcome.region)
                .finish(),
            Reply::Opened(sockets) => {
                let sockets = &sockets[..sockets.len().min(MAX_OPEN)];
                let mut writer = Writer::new(REPLY | OPEN);
                writer.count(sockets.len());
                for opened in sockets {
                    writer.u64(opened.socket.to_bits()).u32(opened.header);
                }
                writer.finish()
            }
            Reply::Prepared { first, count } => Writer::new(REPLY | PREPARE)
                .u32(*first)
                .u16(*count)
                .finish(),
            Reply::Forked { session } => Writer::new(REPLY | FORK).u32(*session).finish(),
            Reply::Joined => Writer::new(REPLY | JOIN).finish(),
            Reply::Moderated => Writer::new(REPLY | MODERATE).finish(),
            Reply::Adopted(adopted) => Writer::new(REPLY | ADOPT)
                .u64(adopted.socket.to_bits())
                .u32(adopted.region)
                .u32(adopted.header)
                .finish(),
            Reply::Shared => Writer::new(REPLY | SHARE).finish(),
            Reply::Region { region } => Writer::new(REPLY | MAP_REGION).u32(*region).finish(),
            Reply::ChannelRegion { channel_region } => {
                Writer::new(REPLY | MAP_AREA).u32(*channel_region).finish()
            }
            Reply::Holders => Writer::new(REPLY | MAP_HOLDERS).finish(),
            Reply::Yields => Writer::new(REPLY | YIELD).finish(),
            Reply::Signals => Writer::new(REPLY | SIGNALS).finish(),
            Reply::Addresses(own) => own.encode(),
            Reply::Capture => Writer::new(REPLY | CAPTURE).finish(),
            Reply::Report => Writer::new(REPLY | QUERY).finish(),
            Reply::Refused { errno, text } => {
                let mut end = text.len().min(MAX_TEXT_BYTES);
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                let mut writer = Writer::new(REFUSED);
                writer
                    .u16(*errno)
                    .count(end)
                    .raw(&text.as_bytes()[..end])
                    .finish()
            }
        }
    }

    /// Reads a packet from an engine.
    pub fn decode(bytes: &[u8]) -> Result<Reply, Invalid> {
        let (kind, mut reader) = open(bytes)?;
        let reply = match kind {
            REFUSED => {
                let errno = reader.u16()?;
                let len = reader.count(0, MAX_TEXT_BYTES)?;
                let (text, rest) = reader
                    .bytes
                    .split_at_checked(len)
                    .ok_or(Invalid::Malformed)?;
                reader.bytes = rest;
                Reply::Refused {
                    errno,
                    text: String::from_utf8_lossy(text).into_owned(),
                }
            }
            _ if kind & REPLY == 0 => return Err(Invalid::Kind(kind)),
            _ => Reply::decode_answer(kind & !REPLY, &mut reader)?,
        };
        finished(reply, &reader)
    }

    fn decode_answer(to: u16, reader: &mut Reader<'_>) -> Result<Reply, Invalid> {
        Ok(match to {
            HELLO => Reply::Welcome(Welcome {
                version: reader.u16()?,
                core: reader.u16()?,
                steering: Steering {
                    cores: reader.count_u16(usize::from(CORES_MAX))?,
                    key: reader.u32()?,
                },
                session: reader.u32()?,
                region: reader.u32()?,
            }),
            OPEN => {
                let count = reader.count(0, MAX_OPEN)?;
                let sockets = (0..count).map(|_| {
                    let socket = SocketId::from_bits(reader.u64()?).ok_or(Invalid::Malformed)?;
                    Ok(Opened {
                        socket,
                        header: reader.u32()?,
                    })
                });
                Reply::Opened(sockets.collect::<Result<_, Invalid>>()?)
            }
            PREPARE => Reply::Prepared {
                first: reader.u32()?,
                count: reader.count_u16(MAX_PREPARE)?,
            },
            FORK => Reply::Forked {
                session: reader.u32()?,
            },
            JOIN => Reply::Joined,
            ADOPT => Reply::Adopted(Adopted {
                socket: SocketId::from_bits(reader.u64()?).ok_or(Invalid::Malformed)?,
                region: reader.u32()?,
                header: reader.u32()?,
            }),
            SHARE => Reply::Shared,
            MODERATE => Reply::Moderated,
            MAP_REGION => Reply::Region {
                region: reader.u32()?,
            },
            MAP_AREA => Reply::ChannelRegion {
                channel_region: reader.u32()?,
            },
            MAP_HOLDERS => Reply::Holders,
            YIELD => Reply::Yields,
            SIGNALS => Reply::Signals,
            ADDRESSES => Reply::Addresses(lists::decode_addresses(reader)?),
            CAPTURE => Reply::Capture,
            QUERY => Reply::Report,
            other => return Err(Invalid::Kind(REPLY | other)),
        })
    }
}
