//! The headers of a datagram.

use crate::link::output::Envelope;
use wire::checksum::Sum;
use wire::ipv4::Protocol;
use wire::udp;

/// What the IP and UDP headers of a datagram say.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderFields {
    pub(super) envelope: Envelope,
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
    pub(super) dont_fragment: bool,
}

impl HeaderFields {
    /// Writes the UDP header, without checksum.
    pub(super) fn emit_udp(&self, payload_len: usize, out: &mut [u8]) {
        let header = udp::Header {
            source_port: self.source_port,
            destination_port: self.destination_port,
        };
        header.emit(payload_len, out);
    }

    /// The sum of the pseudo header.
    pub(super) fn pseudo_header(&self, datagram_len: usize) -> Sum {
        let (source, destination) = (self.envelope.source, self.envelope.destination);
        Sum::new().pseudo_header(source, destination, Protocol::UDP, datagram_len)
    }
}

/// Writes the checksum field of a UDP header.
pub(super) fn put_checksum(header: &mut [u8], value: u16) {
    let field = usize::from(udp::CHECKSUM_OFFSET);
    header[field..field + 2].copy_from_slice(&value.to_be_bytes());
}
