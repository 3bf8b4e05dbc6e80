//! Software offloads against a naive oracle that shares no code with them.

use proptest::prelude::*;

use super::*;
use crate::shared_slice::SharedSlice;

/// RFC 1071, one byte pair after the other.
fn naive_sum(parts: &[&[u8]]) -> u16 {
    let bytes: Vec<u8> = parts.concat();
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u32::from(pair[0]) * 256 + u32::from(low);
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

#[derive(Debug, Clone)]
struct Segment {
    is_v6: bool,
    identification: u16,
    seq: u32,
    flags: u8,
    ip_options: usize,
    tcp_options: Vec<u8>,
    payload: Vec<u8>,
}

impl Segment {
    /// The frame, complete, written field by field.
    fn frame(&self) -> Vec<u8> {
        let tcp_len = 20 + self.tcp_options.len();
        let ip = self.ip_header(tcp_len + self.payload.len());
        let mut tcp = vec![0x12, 0x34, 0x00, 0x50];
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend([
            0,
            0,
            0,
            9,
            u8::try_from(tcp_len / 4).unwrap() << 4,
            self.flags,
        ]);
        tcp.extend([0x40, 0, 0, 0, 0, 0]);
        tcp.extend(&self.tcp_options);
        let length = u16::try_from(tcp_len + self.payload.len())
            .unwrap()
            .to_be_bytes();
        let pseudo = [self.addresses(&ip), &[0, 6], &length].concat();
        let sum = !naive_sum(&[&pseudo, &tcp, &self.payload]);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let mut ethernet = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        if self.is_v6 {
            ethernet[12..].copy_from_slice(&[0x86, 0xdd]);
        }
        [&ethernet[..], &ip, &tcp, &self.payload].concat()
    }

    fn ip_len(&self) -> usize {
        if self.is_v6 { 40 } else { 20 + self.ip_options }
    }

    fn ip_header(&self, payload: usize) -> Vec<u8> {
        if self.is_v6 {
            let mut ip = vec![0x61, 0x23, 0x45, 0x67];
            ip.extend(u16::try_from(payload).unwrap().to_be_bytes());
            ip.extend([6, 64]);
            ip.extend((0..32).map(|n| n * 7));
            return ip;
        }
        let ip_len = self.ip_len();
        let total = u16::try_from(ip_len + payload).unwrap();
        let mut ip = vec![0x40 | u8::try_from(ip_len / 4).unwrap(), 0x02];
        ip.extend(total.to_be_bytes());
        ip.extend(self.identification.to_be_bytes());
        ip.extend([0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        ip.extend(vec![1; self.ip_options]);
        let sum = !naive_sum(&[&ip]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        ip
    }

    fn addresses<'a>(&self, ip: &'a [u8]) -> &'a [u8] {
        if self.is_v6 { &ip[8..40] } else { &ip[12..20] }
    }

    fn headers_len(&self) -> usize {
        14 + self.ip_len() + 20 + self.tcp_options.len()
    }

    /// The headers as the stack leaves them: the field holds the folded pseudo-header sum.
    fn partial_headers(&self) -> (Vec<u8>, PartialChecksum) {
        let mut headers = self.frame()[..self.headers_len()].to_vec();
        let tcp = 14 + self.ip_len();
        let length = u16::try_from(20 + self.tcp_options.len() + self.payload.len()).unwrap();
        let addresses = self.addresses(&headers[14..]);
        let pseudo = [addresses, &[0, 6], &length.to_be_bytes()[..]].concat();
        let sum = naive_sum(&[&pseudo]);
        headers[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
        (
            headers,
            PartialChecksum {
                start: u16::try_from(tcp).unwrap(),
                offset: 16,
            },
        )
    }

    /// What the frames on the wire must be, one after the other.
    fn cut(&self, size: usize) -> Vec<Vec<u8>> {
        let count = self.payload.chunks(size).count();
        let one = |(index, payload): (usize, &[u8])| {
            let mut flags = self.flags;
            if index + 1 != count {
                flags &= !0x09;
            }
            if index != 0 {
                flags &= !0x80;
            }
            let offset = u32::try_from(index * size).unwrap();
            Segment {
                identification: self
                    .identification
                    .wrapping_add(u16::try_from(index).unwrap()),
                seq: self.seq.wrapping_add(offset),
                flags,
                payload: payload.to_vec(),
                ..self.clone()
            }
            .frame()
        };
        self.payload.chunks(size).enumerate().map(one).collect()
    }
}

fn segment(payload_max: usize) -> impl Strategy<Value = Segment> {
    let options = (0_usize..=2).prop_map(|words| words * 4);
    let tcp_options = (0_usize..=10).prop_map(|words| vec![1; words * 4]);
    let payload = proptest::collection::vec(any::<u8>(), 1..payload_max);
    (
        any::<bool>(),
        any::<u16>(),
        any::<u32>(),
        any::<u8>(),
        options,
        tcp_options,
        payload,
    )
        .prop_map(
            |(is_v6, identification, seq, flags, ip_options, tcp_options, payload)| Segment {
                is_v6,
                identification,
                seq,
                flags,
                ip_options,
                tcp_options,
                payload,
            },
        )
}

fn finish(frame: &TxFrame<'_>) -> Result<Vec<Vec<u8>>, Error> {
    let mut frames = Vec::new();
    let count = Finisher::new().finish(frame, &mut |bytes| frames.push(bytes.to_vec()))?;
    assert_eq!(count, frames.len());
    Ok(frames)
}

/// A frame of `len` bytes, written in pieces of `piece`.
fn in_pieces(mut pieces: Pieces<'_, '_>, len: usize, piece: usize) -> Vec<u8> {
    let mut frame = vec![0xee; len];
    for target in frame.chunks_mut(piece) {
        pieces.write(target);
    }
    if let Some((at, sum)) = pieces.checksum() {
        frame[at..at + 2].copy_from_slice(&sum);
    }
    frame
}

/// Equal, but for a checksum of 0 that may be written as 0xffff.
fn assert_same_frames(found: &[Vec<u8>], expected: &[Vec<u8>], checksum_at: usize) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let mut found = found.clone();
        if expected[checksum_at..checksum_at + 2] == [0, 0] {
            found[checksum_at..checksum_at + 2].fill(0);
        }
        assert_eq!(&found, expected);
    }
}

proptest! {
    #[test]
    fn a_large_segment_is_cut_as_the_oracle_cuts_it(
        segment in segment(9000), size in 1_u16..3000, split in 0_usize..9000, piece in 160_usize..3000,
    ) {
        let (headers, checksum) = segment.partial_headers();
        let (left, right) = segment.payload.split_at(split.min(segment.payload.len()));
        let frame = TxFrame {
            headers: &headers,
            payload: TxFrame::spans([left.into(), right.into()]),
            checksum: Some(checksum),
            segment_size: Some(size),
        };
        let expected = segment.cut(usize::from(size));
        assert_same_frames(&finish(&frame).unwrap(), &expected, usize::from(checksum.start) + 16);

        let cuts = Cuts::of(&frame).unwrap();
        let cut = |index| {
            let mut target = vec![0xee; cuts.frame_len(index)];
            cuts.write(&frame, index, &mut target);
            target
        };
        let frames: Vec<_> = (0..cuts.count()).map(cut).collect();
        assert_same_frames(&frames, &expected, usize::from(checksum.start) + 16);

        let written = |index| in_pieces(Pieces::of_cut(&frame, &cuts, index), cuts.frame_len(index), piece);
        let frames: Vec<_> = (0..cuts.count()).map(written).collect();
        assert_same_frames(&frames, &expected, usize::from(checksum.start) + 16);
    }

    #[test]
    fn a_partial_checksum_is_finished_over_headers_and_spans(
        segment in segment(1500), split in 0_usize..1500, piece in 1_usize..1600,
    ) {
        let (headers, checksum) = segment.partial_headers();
        let (left, right) = segment.payload.split_at(split.min(segment.payload.len()));
        let frame = TxFrame {
            headers: &headers,
            payload: TxFrame::spans([left.into(), right.into()]),
            checksum: Some(checksum),
            segment_size: None,
        };
        let expected = [segment.frame()];
        assert_same_frames(&finish(&frame).unwrap(), &expected, usize::from(checksum.start) + 16);
        let written = in_pieces(Pieces::of(&frame), frame.frame_len(), piece);
        assert_same_frames(&[written], &expected, usize::from(checksum.start) + 16);
        let complete = TxFrame { checksum: None, ..frame };
        let all = [&headers[..], &segment.payload].concat();
        assert_eq!(in_pieces(Pieces::of(&complete), all.len(), piece), all);
    }

    #[test]
    fn a_merged_frame_is_cut_back_whatever_its_checksum_field_holds(
        segment in segment(9000), size in 1_u16..3000, field in any::<[u8; 2]>(),
    ) {
        let mut merged = segment.frame();
        let at = 14 + segment.ip_len() + 16;
        merged[at..at + 2].copy_from_slice(&field);
        let mut frames = Vec::new();
        Finisher::new().unmerge(&merged, size, &mut |bytes| frames.push(bytes.to_vec())).unwrap();
        assert_same_frames(&frames, &segment.cut(usize::from(size)), at);
    }

    #[test]
    fn no_bytes_make_the_cutting_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..120), size in any::<u16>(),
    ) {
        let mut bytes = bytes;
        if bytes.len() > 24 {
            bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
            bytes[23] = 6;
        }
        let _ = Finisher::new().unmerge(&bytes, size, &mut |_| ());
        let _ = locate_checksum(&bytes);
    }
}

#[test]
fn a_checksum_outside_the_frame_is_an_error_and_sends_nothing() {
    let headers = [0_u8; 40];
    let checksum = PartialChecksum {
        start: 34,
        offset: 16,
    };
    let frame = TxFrame {
        checksum: Some(checksum),
        ..TxFrame::plain(&headers)
    };
    let expected = Error::ChecksumOutside {
        start: 34,
        offset: 16,
        len: 40,
    };
    assert_eq!(finish(&frame), Err(expected));
}

#[test]
fn a_large_segment_of_another_protocol_is_an_error() {
    let headers = [0_u8; 60];
    let payload = [0_u8; 100];
    let spans = TxFrame::spans([SharedSlice::from(&payload[..])]);
    let frame = TxFrame {
        payload: spans,
        segment_size: Some(10),
        ..TxFrame::plain(&headers)
    };
    assert_eq!(finish(&frame), Err(Error::NotTcp));
}

#[test]
fn the_checksum_of_udp_and_tcp_is_found_and_no_other() {
    let segment = Segment {
        is_v6: false,
        identification: 1,
        seq: 2,
        flags: 0x10,
        ip_options: 0,
        tcp_options: vec![],
        payload: vec![1, 2, 3],
    };
    let mut frame = segment.frame();
    assert_eq!(
        locate_checksum(&frame),
        Some(PartialChecksum {
            start: 34,
            offset: 16
        })
    );
    let set_protocol = |frame: &mut Vec<u8>, protocol: u8| {
        frame[23] = protocol;
        frame[24..26].fill(0);
        let sum = !naive_sum(&[&frame[14..34]]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    };
    set_protocol(&mut frame, 17);
    assert_eq!(
        locate_checksum(&frame),
        Some(PartialChecksum {
            start: 34,
            offset: 6
        })
    );
    set_protocol(&mut frame, 1);
    assert_eq!(locate_checksum(&frame), None);
    let over_v6 = Segment {
        is_v6: true,
        ..segment
    };
    assert_eq!(
        locate_checksum(&over_v6.frame()),
        Some(PartialChecksum {
            start: 54,
            offset: 16
        })
    );
}
