//! The header that nearly every segment of an established connection has, read without a look at anything else.

use super::{Flags, Header, Options, Timestamps, options};

/// ACK, perhaps PSH, and no options but timestamps where senders put them (RFC 7323 appendix A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// Sequence number of the first byte.
    pub seq: u32,
    /// Next sequence number that the sender expects.
    pub ack: u32,
    /// Receive window of the sender, not scaled.
    pub window: u16,
    /// [`Flags::PSH`].
    pub is_pushed: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
}

/// The data offset without options, and with timestamps alone; the bits below it are zero.
const BARE: u8 = 5 << 4;
const STAMPED: u8 = 8 << 4;
const STAMPED_LEN: usize = Header::LEN + options::ALIGNED_TIMESTAMPS_LEN;

impl Plain {
    /// The longest such header, bytes.
    pub const MAX_LEN: usize = STAMPED_LEN;

    /// The header with the payload; `None`: it is another one, or none at all.
    #[must_use]
    #[inline]
    pub fn parse(segment: &[u8]) -> Option<(Plain, &[u8])> {
        let (fixed, rest) = segment.split_first_chunk::<{ Header::LEN }>()?;
        let flags = fixed[13];
        if flags | Flags::PSH.bits() != (Flags::ACK | Flags::PSH).bits() {
            return None;
        }
        let (timestamps, payload) = match fixed[12] {
            STAMPED => {
                let (option, payload) =
                    rest.split_first_chunk::<{ STAMPED_LEN - Header::LEN }>()?;
                if option[..4] != options::ALIGNED_TIMESTAMPS {
                    return None;
                }
                let timestamps = Timestamps {
                    value: u32_at(option, 4),
                    echo: u32_at(option, 8),
                };
                (Some(timestamps), payload)
            }
            BARE => (None, rest),
            _ => return None,
        };
        let plain = Plain {
            seq: u32_at(fixed, 4),
            ack: u32_at(fixed, 8),
            window: u16::from_be_bytes([fixed[14], fixed[15]]),
            is_pushed: flags & Flags::PSH.bits() != 0,
            timestamps,
        };
        Some((plain, payload))
    }

    /// Writes what all headers between these ports have in common.
    pub(crate) fn prepare(ports: [u16; 2], out: &mut [u8; STAMPED_LEN]) {
        out[0..2].copy_from_slice(&ports[0].to_be_bytes());
        out[2..4].copy_from_slice(&ports[1].to_be_bytes());
        out[Header::LEN..Header::LEN + 4].copy_from_slice(&options::ALIGNED_TIMESTAMPS);
    }

    /// Writes what differs between neighbours.
    #[inline(always)]
    pub(crate) fn refill(seq: u32, is_pushed: bool, out: &mut [u8; STAMPED_LEN]) {
        out[4..8].copy_from_slice(&seq.to_be_bytes());
        let push = u8::from(is_pushed) * Flags::PSH.bits();
        out[13] = Flags::ACK.bits() | push;
    }

    /// Writes the rest of the header, but for the checksum; returns its length.
    #[inline(always)]
    pub(crate) fn fill(&self, out: &mut [u8; STAMPED_LEN]) -> u8 {
        out[8..12].copy_from_slice(&self.ack.to_be_bytes());
        out[14..16].copy_from_slice(&self.window.to_be_bytes());
        let Some(timestamps) = self.timestamps else {
            out[12] = BARE;
            return BARE >> 2;
        };
        out[12] = STAMPED;
        out[24..28].copy_from_slice(&timestamps.value.to_be_bytes());
        out[28..32].copy_from_slice(&timestamps.echo.to_be_bytes());
        STAMPED >> 2
    }

    /// Writes the header to the start of `out`, with the ports of sender and receiver and a checksum field of 0;
    /// returns its length.
    #[cfg(test)]
    pub(crate) fn emit(&self, ports: [u16; 2], out: &mut [u8]) -> usize {
        let mut header = [0; STAMPED_LEN];
        Self::prepare(ports, &mut header);
        let len = usize::from(self.fill(&mut header));
        Self::refill(self.seq, self.is_pushed, &mut header);
        out[..len].copy_from_slice(&header[..len]);
        len
    }

    /// The same as any header is told; the ports are left out.
    #[must_use]
    #[inline]
    pub fn header(&self) -> Header {
        let mut flags = Flags::ACK;
        flags.set(Flags::PSH, self.is_pushed);
        Header {
            seq: self.seq,
            ack: self.ack,
            flags,
            window: self.window,
            options: Options {
                timestamps: self.timestamps,
                ..Options::default()
            },
            ..Header::default()
        }
    }
}

fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_read_is_what_any_header_says(
            ports: [u8; 4], numbers: [u8; 8], offset in prop_oneof![Just(0x50_u8), Just(0x80), any::<u8>()],
            flags in prop_oneof![Just(0x10_u8), Just(0x18), any::<u8>()], window: [u8; 2], sums: [u8; 2],
            start in prop_oneof![Just([1_u8, 1, 8, 10]), any::<[u8; 4]>()], rest: Vec<u8>,
        ) {
            let mut segment = [&ports[..], &numbers, &[offset, flags], &window, &sums, &[0; 2], &start].concat();
            segment.extend(rest);
            let any = Header::parse(&segment);
            if let Some((plain, payload)) = Plain::parse(&segment) {
                let (mut header, any_payload) = any.unwrap();
                (header.source_port, header.destination_port) = (0, 0);
                prop_assert_eq!((plain.header(), payload), (header, any_payload));
                let ports = [7, 80];
                (header.source_port, header.destination_port) = (ports[0], ports[1]);
                let mut emitted = [[0xff; Header::MAX_LEN]; 2];
                let len = header.emit(&mut emitted[0]);
                prop_assert_eq!(plain.emit(ports, &mut emitted[1]), len);
                prop_assert_eq!(emitted[0], emitted[1]);
            } else if let Ok((header, _)) = any {
                let is_stamped = offset == 0x80 && segment[20..24] == [1, 1, 8, 10];
                let is_usual = offset == 0x50 || is_stamped;
                prop_assert!(!(is_usual && header.flags & !Flags::PSH == Flags::ACK));
            }
        }
    }
}
