//! Captures: which frames a reader wants of a core, and how they come to it.
//!
//! The answer to [`super::Request::Capture`] carries one end of a stream socket. On it come records: [`CaptureRecord`] in
//! 32 bytes, then as many bytes of the frame as it says. The core never waits for the reader: what finds no room is
//! dropped and counted. The capture ends when the reader closes either socket.

use core::net::IpAddr;

/// Bytes of a frame that are captured at most.
pub const SNAP_BYTES_MAX: u32 = 256 * 1024;

/// Bytes of a [`CaptureRecord`].
pub const RECORD_BYTES: usize = 32;

/// What frames carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum CaptureProtocol {
    /// Anything.
    #[default]
    Any = 0,
    /// TCP.
    Tcp = 1,
    /// UDP.
    Udp = 2,
    /// ICMP and ICMPv6.
    Icmp = 3,
    /// ARP.
    Arp = 4,
}

impl CaptureProtocol {
    /// By its number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Any),
            1 => Some(Self::Tcp),
            2 => Some(Self::Udp),
            3 => Some(Self::Icmp),
            4 => Some(Self::Arp),
            _ => None,
        }
    }
}

/// Which frames are wanted: those for which all hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CaptureFilter {
    /// So many bytes of each at most, 1 to [`SNAP_BYTES_MAX`].
    pub snap_bytes: u32,
    /// From or to this address.
    pub host: Option<IpAddr>,
    /// From or to this port; never 0.
    pub port: Option<u16>,
    /// That carry this.
    pub protocol: CaptureProtocol,
}

/// What is told before each frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CaptureRecord {
    /// Bytes of the frame that follow; 0 with `frame_bytes` 0: no frame, only news of `dropped_frames`.
    pub captured_bytes: u32,
    /// Bytes that it had.
    pub frame_bytes: u32,
    /// When, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Frames so far that were wanted and found no room.
    pub dropped_frames: u64,
    /// Sent by the core, not received.
    pub is_sent: bool,
}

impl CaptureRecord {
    /// As it stands in the stream, little-endian.
    #[must_use]
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[0..4].copy_from_slice(&self.captured_bytes.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.frame_bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.time_ns.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.dropped_frames.to_le_bytes());
        bytes[24] = u8::from(self.is_sent);
        bytes
    }

    /// Reads one; `None`: no engine has written this.
    #[must_use]
    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<16>()?;
        let (captured, frame) = head.split_first_chunk::<4>()?;
        let (frame, time) = frame.split_first_chunk::<4>()?;
        let (dropped, rest) = rest.split_first_chunk::<8>()?;
        let record = Self {
            captured_bytes: u32::from_le_bytes(*captured),
            frame_bytes: u32::from_le_bytes(*frame),
            time_ns: u64::from_le_bytes(*time.first_chunk()?),
            dropped_frames: u64::from_le_bytes(*dropped),
            is_sent: rest[0] == 1,
        };
        let is_possible = record.captured_bytes <= record.frame_bytes.min(SNAP_BYTES_MAX)
            && rest[0] <= 1
            && rest[1..].iter().all(|&byte| byte == 0);
        is_possible.then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_what_cannot_be_is_refused() {
        let record = CaptureRecord {
            captured_bytes: 100,
            frame_bytes: 1514,
            time_ns: 1 << 60,
            dropped_frames: 7,
            is_sent: true,
        };
        let bytes = record.encode();
        assert_eq!(CaptureRecord::decode(&bytes), Some(record));
        for (at, value) in [(1, 0xff), (24, 2), (31, 1)] {
            let mut other = bytes;
            other[at] = value;
            assert_eq!(CaptureRecord::decode(&other), None, "{at}");
        }
    }
}
