//! Datagrams in shared memory: a window of a datagram socket holds records instead of a stream.
//!
//! A record is a header of 64 bytes, its payload, and padding to the next multiple of 64; positions in
//! headers and descriptors count bytes of records, so that a header never wraps around the window's end
//! and a payload may. The send window is halved: records to send in the first half, what the error queue
//! (`MSG_ERRQUEUE`) holds in the second.
//!
//! Decoding checks every field. Whether a record lies within what was announced is the reader's to check.

use core::net::{IpAddr, SocketAddr, SocketAddrV6};

use crate::descriptor::{Malformed, address_bytes, address_from_bytes};
use crate::window::WindowSpan;

/// Bytes of a record's header; records begin at multiples of this.
pub const RECORD_BYTES: usize = 64;
const ROOM_UNIT: u32 = 64;
const _: () = assert!(ROOM_UNIT as usize == RECORD_BYTES);
/// Most bytes of payload in a record: what a UDP length field can say.
pub const PAYLOAD_MAX: u32 = 65_535 - 8;
/// Bytes of the error queue at most.
const ERRORS_MAX_BYTES: u32 = 16 * 1024;

/// A header as it lies in the window.
pub type RawRecord = [u8; RECORD_BYTES];

/// Bytes that a record with `len` bytes of payload takes.
#[must_use]
pub fn record_bytes(len: u32) -> u64 {
    let header = RECORD_BYTES as u64;
    header + u64::from(len).next_multiple_of(header)
}

/// Bytes of a receive ring that a datagram of `len` bytes is counted as: what Linux charges a socket for it
/// (`skb->truesize`): a `sk_buff`, and memory of a power of two for headers, payload and `skb_shared_info`. So a
/// queue that nobody reads holds as many datagrams as the kernel's, and the oldest is no older.
#[must_use]
pub fn charged_bytes(len: u32) -> u64 {
    const SK_BUFF: u64 = 256;
    /// Of the slab from which the smallest heads come.
    const SMALL_HEAD: u64 = 576;
    const HEADERS_AND_SHARED_INFO: u64 = 64 + 320;
    let needed = u64::from(len) + HEADERS_AND_SHARED_INFO;
    let head = if needed <= 512 {
        SMALL_HEAD
    } else {
        needed.next_power_of_two()
    };
    SK_BUFF + head
}

/// The parts of a pair of windows that a datagram socket uses; both spans have power-of-two sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rings {
    /// Datagrams to send.
    pub send: WindowSpan,
    /// Datagrams that have arrived.
    pub receive: WindowSpan,
    /// The error queue.
    pub errors: WindowSpan,
}

impl Rings {
    /// In these windows, with about as many bytes for either direction as asked for.
    #[must_use]
    pub fn new(
        send: WindowSpan,
        receive: WindowSpan,
        send_bytes: u32,
        receive_bytes: u32,
    ) -> Rings {
        let fit = |wanted: u32, most: u32| wanted.clamp(1, most).next_power_of_two().min(most);
        let half = send.size / 2;
        Rings {
            send: WindowSpan {
                offset: send.offset,
                size: fit(send_bytes, half),
            },
            receive: WindowSpan {
                offset: receive.offset,
                size: fit(receive_bytes, receive.size),
            },
            errors: Self::errors(send),
        }
    }

    /// The error queue in a send window.
    #[must_use]
    pub fn errors(send: WindowSpan) -> WindowSpan {
        let half = send.size / 2;
        WindowSpan {
            offset: send.offset + u64::from(half),
            size: half.min(ERRORS_MAX_BYTES),
        }
    }
}

/// A datagram that has arrived, without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Bytes of payload.
    pub len: u32,
    /// From this record's start to where the next one begins: at least [`record_bytes`] of `len`.
    pub room: u32,
    /// Several datagrams of one sender follow one another, each of so many bytes but the last
    /// (`UDP_GRO`); 0: it is one datagram.
    pub segment_bytes: u16,
    /// Who sent it.
    pub source: SocketAddr,
    /// To which address; a group or a broadcast address perhaps.
    pub destination: IpAddr,
    /// By which of the engine's interfaces it came: its scope.
    pub interface: u32,
    /// Type of service, or traffic class.
    pub tos: u8,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// When the engine took it in, nanoseconds since 1970.
    pub timestamp_ns: u64,
}

/// A datagram to send, without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outgoing {
    /// Bytes of payload.
    pub len: u32,
    /// Cut the payload into datagrams of so many bytes (`UDP_SEGMENT`); 0: it is one.
    pub segment_bytes: u16,
    /// Where to; `None`: the connected peer.
    pub destination: Option<SocketAddr>,
    /// Source address (`IP_PKTINFO`), if the program chose one with this call.
    pub source: Option<IpAddr>,
    /// Interface by its scope; 0: as routed.
    pub interface: u32,
    /// Type of service, if other than the socket's.
    pub tos: Option<u8>,
    /// Time to live, if other than the socket's.
    pub ttl: Option<u8>,
    /// Which times of sending the program asks for: bits of [`crate::stamp`].
    pub stamps: u8,
    /// The key that the times are reported under.
    pub stamp_key: u32,
}

/// An entry of the error queue, without the payload that it quotes (`sock_extended_err` of ip(7)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Bytes of the quoted payload.
    pub len: u32,
    /// What the program shall see.
    pub errno: u16,
    /// `SO_EE_ORIGIN_*`.
    pub origin: u8,
    /// Type of the ICMP message.
    pub kind: u8,
    /// Its code.
    pub code: u8,
    /// More about it (`ee_info`): the next hop's MTU.
    pub info: u32,
    /// And more (`ee_data`): of a time of sending, its key.
    pub data: u32,
    /// Whom the lost datagram was for.
    pub destination: SocketAddr,
    /// Who reported it, if not this host.
    pub offender: Option<IpAddr>,
    /// When, nanoseconds since 1970.
    pub timestamp_ns: u64,
}

const HAS_TOS: u8 = 1;
const HAS_TTL: u8 = 2;

impl Received {
    /// As bytes of the window.
    #[must_use]
    pub fn encode(&self) -> RawRecord {
        let mut raw = Writer::default();
        raw.u32(0, self.len);
        raw.socket_address(8, 4, Some(self.source));
        raw.address(28, 5, Some(self.destination));
        raw.u16(44, self.segment_bytes);
        raw.u8(46, self.tos);
        raw.u8(47, self.ttl);
        raw.u32(48, self.interface);
        raw.u32(52, self.room);
        raw.u64(56, self.timestamp_ns);
        raw.0
    }

    /// Reads it back.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(raw: &RawRecord) -> Result<Received, Malformed> {
        let raw = Reader(raw);
        let (len, room) = (raw.len()?, raw.u32(52));
        // Records begin at whole lines, so that a header never wraps around the window's end.
        if u64::from(room) < record_bytes(len) || room % ROOM_UNIT != 0 {
            return Err(Malformed);
        }
        Ok(Received {
            len,
            room,
            segment_bytes: raw.u16(44),
            source: raw.socket_address(8, 4)?.ok_or(Malformed)?,
            destination: raw.address(28, 5)?.ok_or(Malformed)?,
            interface: raw.u32(48),
            tos: raw.u8(46),
            ttl: raw.u8(47),
            timestamp_ns: raw.u64(56),
        })
    }
}

impl Outgoing {
    /// As bytes of the window.
    #[must_use]
    pub fn encode(&self) -> RawRecord {
        let mut raw = Writer::default();
        raw.u32(0, self.len);
        raw.socket_address(8, 4, self.destination);
        raw.address(28, 5, self.source);
        raw.u16(44, self.segment_bytes);
        raw.u8(46, self.tos.unwrap_or(0));
        raw.u8(47, self.ttl.unwrap_or(0));
        raw.u32(48, self.interface);
        let given = |present: bool, bit| if present { bit } else { 0 };
        raw.u8(
            52,
            given(self.tos.is_some(), HAS_TOS) | given(self.ttl.is_some(), HAS_TTL),
        );
        raw.u8(53, self.stamps);
        raw.u32(56, self.stamp_key);
        raw.0
    }

    /// Reads and checks what a program wrote.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(raw: &RawRecord) -> Result<Outgoing, Malformed> {
        let raw = Reader(raw);
        let given = raw.u8(52);
        if given & !(HAS_TOS | HAS_TTL) != 0 {
            return Err(Malformed);
        }
        Ok(Outgoing {
            len: raw.len()?,
            segment_bytes: raw.u16(44),
            destination: raw.socket_address(8, 4)?,
            source: raw.address(28, 5)?,
            interface: raw.u32(48),
            tos: (given & HAS_TOS != 0).then_some(raw.u8(46)),
            ttl: (given & HAS_TTL != 0).then_some(raw.u8(47)),
            stamps: crate::stamp::decode(raw.u8(53).into())?,
            stamp_key: raw.u32(56),
        })
    }
}

impl Failure {
    /// As bytes of the window.
    #[must_use]
    pub fn encode(&self) -> RawRecord {
        let mut raw = Writer::default();
        raw.u32(0, self.len);
        raw.u16(6, self.errno);
        raw.socket_address(8, 4, Some(self.destination));
        raw.address(28, 5, self.offender);
        raw.u8(44, self.origin);
        raw.u8(45, self.kind);
        raw.u8(46, self.code);
        raw.u32(48, self.info);
        raw.u32(52, self.data);
        raw.u64(56, self.timestamp_ns);
        raw.0
    }

    /// Reads it back.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(raw: &RawRecord) -> Result<Failure, Malformed> {
        let raw = Reader(raw);
        Ok(Failure {
            len: raw.len()?,
            errno: raw.u16(6),
            origin: raw.u8(44),
            kind: raw.u8(45),
            code: raw.u8(46),
            info: raw.u32(48),
            data: raw.u32(52),
            destination: raw.socket_address(8, 4)?.ok_or(Malformed)?,
            offender: raw.address(28, 5)?,
            timestamp_ns: raw.u64(56),
        })
    }
}

/// Little-endian fields at fixed places.
struct Writer(RawRecord);

impl Default for Writer {
    fn default() -> Writer {
        Writer([0; RECORD_BYTES])
    }
}

impl Writer {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn u8(&mut self, at: usize, value: u8) {
        self.0[at] = value;
    }

    fn u16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_le_bytes());
    }

    fn u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    fn u64(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_le_bytes());
    }

    /// Sixteen bytes at `at`, the family at `family_at`.
    fn address(&mut self, at: usize, family_at: usize, address: Option<IpAddr>) {
        if let Some(address) = address {
            let (family, bytes) = address_bytes(address);
            self.u8(family_at, family);
            self.put(at, &bytes);
        }
    }

    /// Sixteen bytes and the port behind them; a scope (RFC 4007) shares the port's word.
    fn socket_address(&mut self, at: usize, family_at: usize, address: Option<SocketAddr>) {
        if let Some(address) = address {
            self.address(at, family_at, Some(address.ip()));
            self.u16(at + 16, address.port());
            if let SocketAddr::V6(address) = address {
                let scope = u16::try_from(address.scope_id()).unwrap_or(0);
                self.u16(at + 18, scope);
            }
        }
    }
}

struct Reader<'a>(&'a RawRecord);

impl Reader<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.0[at..at + N]);
        bytes
    }

    fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.bytes(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }

    fn len(&self) -> Result<u32, Malformed> {
        Some(self.u32(0))
            .filter(|len| *len <= PAYLOAD_MAX)
            .ok_or(Malformed)
    }

    fn address(&self, at: usize, family_at: usize) -> Result<Option<IpAddr>, Malformed> {
        match self.u8(family_at) {
            0 => Ok(None),
            family => match address_from_bytes(family, self.bytes(at)) {
                Some(address) => Ok(Some(address)),
                None => Err(Malformed),
            },
        }
    }

    fn socket_address(&self, at: usize, family_at: usize) -> Result<Option<SocketAddr>, Malformed> {
        let port = self.u16(at + 16);
        Ok(self.address(at, family_at)?.map(|address| match address {
            IpAddr::V4(_) => SocketAddr::new(address, port),
            IpAddr::V6(address) => {
                let scope = u32::from(self.u16(at + 18));
                SocketAddr::V6(SocketAddrV6::new(address, port, 0, scope))
            }
        }))
    }
}

#[cfg(test)]
mod tests;
