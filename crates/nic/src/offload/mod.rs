//! What a device cannot do, done in software: finishing partial checksums and cutting large
//! segments into frames. Every driver therefore takes the same [`TxFrame`].
//!
//! Read first: RFC 1071 (the checksum), RFC 9293 §3.1 (the TCP header), and the kernel's
//! `Documentation/networking/segmentation-offloads.rst`, whose rules for flags and identification
//! the cutting follows. TCP only, over IPv4 and over IPv6 without extension headers; a frame behind a
//! VLAN tag is not cut.

mod pieces;
#[cfg(test)]
mod tests;

use ::wire::checksum::Sum;
use ::wire::ethernet::{self, EtherType};
use ::wire::ipv4::{self, Protocol};
use ::wire::ipv6;
use ::wire::virtio::fill_partial;

use crate::driver::{PartialChecksum, TxFrame};
use crate::shared_slice::SharedSlice;
pub(crate) use pieces::Pieces;

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;
const TCP_HEADER_LEN: usize = 20;

/// Why a frame cannot be finished in software.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The checksum field lies outside the frame.
    #[error(
        "the partial checksum at byte {start} + {offset} lies outside the frame of {len} bytes"
    )]
    ChecksumOutside {
        /// Where summing was to start.
        start: u16,
        /// Where the field was to be, from there.
        offset: u16,
        /// Bytes of the frame.
        len: usize,
    },
    /// Only TCP right behind its IP header can be cut.
    #[error("a large segment that is not TCP over IPv4 or IPv6 cannot be cut")]
    NotTcp,
    /// The segment size is zero.
    #[error("a segment size of 0 cannot be cut to")]
    NoSegmentSize,
}

/// Finishes the checksum of a frame that lies in one piece.
///
/// # Errors
/// [`Error::ChecksumOutside`]; the frame is then unchanged.
pub fn complete_checksum(frame: &mut [u8], checksum: PartialChecksum) -> Result<(), Error> {
    let PartialChecksum { start, offset } = checksum;
    let len = frame.len();
    fill_partial(frame, start, offset).map_err(|_| Error::ChecksumOutside { start, offset, len })
}

/// Where the transport checksum of a received IP frame lies, for frames that arrive as
/// [`crate::RxChecksum::Partial`]; `None` for anything but unfragmented TCP and UDP.
#[must_use]
pub fn locate_checksum(frame: &[u8]) -> Option<PartialChecksum> {
    let (link, packet) = ethernet::Header::parse(frame).ok()?;
    let (protocol, header_len) = match link.ethertype {
        EtherType::IPV4 => {
            let (header, _) = ipv4::Header::parse(packet).ok()?;
            if header.is_fragment() {
                return None;
            }
            (header.protocol, header.header_len)
        }
        EtherType::IPV6 => {
            let (header, _) = ipv6::Header::parse(packet).ok()?;
            (header.next_header, ipv6::Header::LEN)
        }
        _ => return None,
    };
    let offset = match protocol {
        Protocol::TCP => 16,
        Protocol::UDP => 6,
        _ => return None,
    };
    let start = u16::try_from(ethernet::Header::LEN + header_len).ok()?;
    Some(PartialChecksum { start, offset })
}

/// Buffers for finishing frames, kept by a driver so that no frame allocates after start.
#[derive(Debug, Default)]
pub struct Finisher {
    whole: Vec<u8>,
    segment: Vec<u8>,
}

impl Finisher {
    /// Buffers that grow to the largest frame seen.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Hands `frame` to `sink` as frames that need nothing more: in one piece, cut to the segment
    /// size, with every checksum finished. Returns how many frames that made.
    ///
    /// Payload is copied before it is summed, so a program that changes its window meanwhile
    /// sends other bytes, but never a frame whose checksum does not match them.
    ///
    /// # Errors
    /// The frame contradicts itself; nothing was handed on.
    pub fn finish(
        &mut self,
        frame: &TxFrame<'_>,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, Error> {
        self.whole.clear();
        self.whole.extend_from_slice(frame.headers);
        for span in &frame.payload {
            span.append_to(&mut self.whole);
        }
        match frame.segment_size {
            Some(size) if frame.is_large() => cut(&self.whole, size, &mut self.segment, sink),
            _ => {
                if let Some(checksum) = frame.checksum {
                    complete_checksum(&mut self.whole, checksum)?;
                }
                sink(&self.whole);
                Ok(1)
            }
        }
    }

    /// Cuts a received, merged frame back into the frames it was merged from; the checksum field
    /// of `frame` is not looked at.
    ///
    /// # Errors
    /// The frame is not TCP over IP; nothing was handed on.
    pub fn unmerge(
        &mut self,
        frame: &[u8],
        segment_size: u16,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, Error> {
        cut(frame, segment_size, &mut self.segment, sink)
    }
}

/// Where the headers of a large segment lie.
struct Layout {
    is_v6: bool,
    ip: usize,
    tcp: usize,
    payload: usize,
    end: usize,
}

impl Layout {
    /// Where the checksum of TCP lies.
    fn checksum(&self) -> usize {
        self.tcp + 16
    }
}

/// One of the frames that a large segment is cut to.
struct Cut {
    /// Which one.
    number: u16,
    /// Bytes of payload before it.
    offset: usize,
    /// Bytes of its own payload.
    payload: usize,
    is_last: bool,
}

fn layout(frame: &[u8]) -> Option<Layout> {
    let ip = ethernet::Header::LEN;
    let ethertype: [u8; 2] = *frame.get(12..14)?.first_chunk()?;
    let is_v6 = ethertype == EtherType::IPV6.0.to_be_bytes();
    if !is_v6 && ethertype != EtherType::IPV4.0.to_be_bytes() {
        return None;
    }
    let version_and_length = *frame.get(ip)?;
    let (version, protocol_at, header_len) = if is_v6 {
        (6, 6, ipv6::Header::LEN)
    } else {
        (4, 9, usize::from(version_and_length & 0x0f) * 4)
    };
    if version_and_length >> 4 != version || *frame.get(ip + protocol_at)? != Protocol::TCP.0 {
        return None;
    }
    let tcp = ip + header_len;
    let payload = tcp + usize::from(*frame.get(tcp + 12)? >> 4) * 4;
    let shortest = header_len >= ipv4::Header::LEN && payload >= tcp + TCP_HEADER_LEN;
    (shortest && payload <= frame.len()).then_some(Layout {
        is_v6,
        ip,
        tcp,
        payload,
        end: frame.len(),
    })
}

/// A large segment to be cut straight into a device's memory: one copy of the payload, in pieces of the
/// caller's choice of moment.
pub(crate) struct Cuts {
    layout: Layout,
    step: usize,
    payload_len: usize,
}

impl Cuts {
    /// # Errors
    /// The frame is not TCP over IP, or has no segment size.
    pub(crate) fn of(frame: &TxFrame<'_>) -> Result<Self, Error> {
        let layout = layout(frame.headers).ok_or(Error::NotTcp)?;
        if layout.payload != frame.headers.len() {
            return Err(Error::NotTcp);
        }
        let step = usize::from(frame.segment_size.unwrap_or_default());
        if step == 0 {
            return Err(Error::NoSegmentSize);
        }
        Ok(Self {
            layout,
            step,
            payload_len: frame.payload_len(),
        })
    }

    /// Frames that it makes.
    pub(crate) fn count(&self) -> usize {
        self.payload_len.div_ceil(self.step).max(1)
    }

    /// Bytes of frame `index`.
    pub(crate) fn frame_len(&self, index: usize) -> usize {
        let rest = self.payload_len.saturating_sub(index * self.step);
        self.layout.payload + rest.min(self.step)
    }

    /// Writes frame `index` of `frame`, which must be the one that this was made of, to `target`, which must
    /// be as long as [`Cuts::frame_len`] says.
    #[cfg(any(test, feature = "dpdk"))]
    pub(crate) fn write(&self, frame: &TxFrame<'_>, index: usize, target: &mut [u8]) {
        let mut pieces = Pieces::of_cut(frame, self, index);
        pieces.write(target);
        if let Some((at, sum)) = pieces.checksum() {
            target[at..at + 2].copy_from_slice(&sum);
        }
    }

    fn of_frame(&self, index: usize) -> Cut {
        let offset = index * self.step;
        Cut {
            number: u16::try_from(index & 0xffff).expect("invariant: masked to 16 bits"),
            offset,
            payload: self.frame_len(index) - self.layout.payload,
            is_last: offset + self.step >= self.payload_len,
        }
    }
}

/// Copies the bytes of all spans from `start` on, as many as `target` takes.
pub(crate) fn copy_range(spans: &[SharedSlice<'_>], start: usize, target: &mut [u8]) {
    let (mut skip, mut rest) = (start, target);
    for span in spans {
        let (skipped, wanted) = span.split_at(skip);
        skip -= skipped.len();
        let (wanted, _) = wanted.split_at(rest.len());
        let copied = wanted.copy_to(rest);
        rest = &mut rest[copied..];
    }
}

fn cut(
    frame: &[u8],
    segment_size: u16,
    segment: &mut Vec<u8>,
    sink: &mut dyn FnMut(&[u8]),
) -> Result<usize, Error> {
    let layout = layout(frame).ok_or(Error::NotTcp)?;
    let step = usize::from(segment_size);
    if step == 0 {
        return Err(Error::NoSegmentSize);
    }
    let mut at = layout.payload;
    let mut index: u16 = 0;
    loop {
        let end = layout.end.min(at + step);
        segment.clear();
        segment.extend_from_slice(&frame[..layout.payload]);
        segment.extend_from_slice(&frame[at..end]);
        let cut = Cut {
            number: index,
            offset: at - layout.payload,
            payload: end - at,
            is_last: end == layout.end,
        };
        let (headers, payload) = segment.split_at_mut(layout.payload);
        let sum = rewrite(headers, &layout, cut).add(payload).finish();
        headers[layout.checksum()..][..2].copy_from_slice(&sum.to_be_bytes());
        sink(segment);
        index = index.wrapping_add(1);
        at = end;
        if at >= layout.end {
            return Ok(usize::from(index));
        }
    }
}

/// Makes the headers of one cut segment its own, but for the checksum of TCP: the sum is that of all but the payload, which
/// comes behind it.
fn rewrite(headers: &mut [u8], layout: &Layout, cut: Cut) -> Sum {
    let (front, tcp) = headers.split_at_mut(layout.tcp);
    let ip = &mut front[layout.ip..];
    let bytes = tcp.len() + cut.payload;
    let tcp_len = u16::try_from(bytes).unwrap_or(u16::MAX);
    let addresses = if layout.is_v6 {
        // RFC 8200 §3: the length of what follows the header.
        ip[4..6].copy_from_slice(&tcp_len.to_be_bytes());
        &ip[8..40]
    } else {
        rewrite_ipv4(ip, cut.number, bytes);
        &ip[12..20]
    };

    let first = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    // A sequence number wraps (RFC 9293 §3.4), so the truncated offset is the right one.
    let offset = u32::try_from(cut.offset & 0xffff_ffff).expect("invariant: masked to 32 bits");
    tcp[4..8].copy_from_slice(&first.wrapping_add(offset).to_be_bytes());
    if !cut.is_last {
        tcp[13] &= !(TCP_FIN | TCP_PSH);
    }
    if cut.number != 0 {
        // RFC 3168 §6.1.2: CWR says that the window was reduced once, so it is sent once.
        tcp[13] &= !TCP_CWR;
    }
    tcp[16..18].fill(0);
    // Both pseudo headers add up to this: addresses, protocol, length, and zeros.
    Sum::new()
        .add(addresses)
        .add_u16(u16::from(Protocol::TCP.0))
        .add_u16(tcp_len)
        .add(tcp)
}

fn rewrite_ipv4(ip: &mut [u8], index: u16, tcp_len: usize) {
    let total_len = u16::try_from(ip.len() + tcp_len).unwrap_or(u16::MAX);
    ip[2..4].copy_from_slice(&total_len.to_be_bytes());
    // RFC 6864 §4.1 lets atomic datagrams repeat the identification; counting up is what the
    // kernel's cutting does and what receivers merge best.
    let identification = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(index);
    ip[4..6].copy_from_slice(&identification.to_be_bytes());
    ip[10..12].fill(0);
    let sum = Sum::new().add(ip).finish();
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
}
