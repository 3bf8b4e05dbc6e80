//! TCP headers (RFC 9293 §3.1) and their options (RFC 9293 §3.2, RFC 7323, RFC 2018).
//!
//! `parse` does not verify the checksum, which covers addresses of the layer below and is often the
//! device's work: [`crate::checksum::verify_tcp_v4`] does. Values are not judged here: whether a window
//! scale of 200 or an MSS on a segment without SYN means anything is decided in `tcp`.

mod options;
mod plain;
mod sack;
#[cfg(test)]
mod tests;

pub use options::{AccurateEcn, FastOpenCookie, Options, Timestamps};
pub use plain::Plain;
pub use sack::SackBlocks;

use crate::{Error, header_mut, split_header};

/// Accurate ECN, beside the data offset.
const AE: u8 = 1;

/// Where the checksum stands in the header, as partial checksums need it.
pub const CHECKSUM_OFFSET: u16 = 16;

bitflags::bitflags! {
    /// The control bits.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Flags: u8 {
        /// No more data from the sender.
        const FIN = 0x01;
        /// Synchronize sequence numbers.
        const SYN = 0x02;
        /// Reset the connection.
        const RST = 0x04;
        /// Push to the application.
        const PSH = 0x08;
        /// The acknowledgment field is valid.
        const ACK = 0x10;
        /// The urgent pointer is valid.
        const URG = 0x20;
        /// ECN echo (RFC 3168 §6.1).
        const ECE = 0x40;
        /// Congestion window reduced (RFC 3168 §6.1).
        const CWR = 0x80;
    }
}

/// A TCP header with the options that this stack knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Header {
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
    /// Sequence number of the first byte, or of the SYN.
    pub seq: u32,
    /// Next sequence number that the sender expects, if [`Flags::ACK`] is set.
    pub ack: u32,
    /// Control bits.
    pub flags: Flags,
    /// The bit before [`Flags::CWR`]: accurate ECN (RFC 9768 §3.1).
    pub ae: bool,
    /// Receive window of the sender, not scaled.
    pub window: u16,
    /// Offset of the end of urgent data from `seq`, if [`Flags::URG`] is set.
    pub urgent: u16,
    /// The options.
    pub options: Options,
}

impl Header {
    /// Bytes of a header without options.
    pub const LEN: usize = 20;
    /// Bytes of the longest header.
    pub const MAX_LEN: usize = 60;

    /// Reads the header; returns it with the payload. Options that are not known are skipped; of an
    /// option that appears twice the last one counts.
    ///
    /// # Errors
    /// [`Error::Truncated`] when the input ends before the header does, [`Error::Malformed`] for an
    /// impossible data offset or option length.
    #[inline]
    pub fn parse(segment: &[u8]) -> Result<(Header, &[u8]), Error> {
        let (fixed, rest) = split_header::<{ Header::LEN }>(segment)?;
        let options_len = (usize::from(fixed[12] >> 4) * 4)
            .checked_sub(Header::LEN)
            .ok_or(Error::Malformed)?;
        let (options, payload) = rest.split_at_checked(options_len).ok_or(Error::Truncated)?;
        let u16_at = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let u32_at = |at: usize| {
            u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
        };
        let header = Header {
            source_port: u16_at(0),
            destination_port: u16_at(2),
            seq: u32_at(4),
            ack: u32_at(8),
            flags: Flags::from_bits_retain(fixed[13]),
            ae: fixed[12] & AE != 0,
            window: u16_at(14),
            urgent: u16_at(18),
            options: Options::parse(options)?,
        };
        Ok((header, payload))
    }

    /// Bytes that [`Header::emit`] writes: the header with its options, padded to whole words.
    #[must_use]
    #[inline]
    pub fn header_len(&self) -> usize {
        Header::LEN + self.options.emit_len()
    }

    /// Writes the header to the start of `out` with a checksum field of 0; returns its length. SACK
    /// blocks that do not fit beside the other options are left out, the last ones first.
    ///
    /// # Panics
    /// When `out` is shorter than [`Header::header_len`].
    #[inline]
    #[track_caller]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let len = self.header_len();
        let fixed = header_mut::<{ Header::LEN }>(out);
        fixed[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        fixed[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        fixed[4..8].copy_from_slice(&self.seq.to_be_bytes());
        fixed[8..12].copy_from_slice(&self.ack.to_be_bytes());
        let words = u8::try_from(len / 4).expect("invariant: a header is at most 15 words long");
        fixed[12] = words << 4 | if self.ae { AE } else { 0 };
        fixed[13] = self.flags.bits();
        fixed[14..16].copy_from_slice(&self.window.to_be_bytes());
        fixed[16..18].copy_from_slice(&[0, 0]);
        fixed[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        self.options.emit(&mut out[Header::LEN..len]);
        len
    }
}
