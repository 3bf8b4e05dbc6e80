//! What crosses a wire, and what arrives, with offloads off.

use super::*;
use crate::PartialChecksum;
use crate::shared_slice::SharedSlice;
use crate::wire::{Config, WireEnd};
use ::wire::checksum::Sum;

const MSS: u16 = 1460;
const PAYLOAD: usize = 4000;
const HEADERS: usize = 54;

fn pair() -> (WireEnd, WireEnd) {
    WireEnd::pair(&Config::default()).unwrap()
}

/// Ethernet, IPv4 and TCP headers of a segment, whose checksum field holds the pseudo-header sum.
fn headers(payload: usize) -> Vec<u8> {
    let length = u16::try_from(20 + payload).unwrap();
    let mut ip = vec![0x45, 0];
    ip.extend((length + 20).to_be_bytes());
    ip.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = Sum::new().add(&ip).finish();
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut tcp = vec![0x12, 0x34, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10];
    tcp.extend([0x40, 0, 0, 0, 0, 0]);
    let pseudo = Sum::new().add(&ip[12..20]).add_u16(6).add_u16(length);
    tcp[16..18].copy_from_slice(&(!pseudo.finish()).to_be_bytes());
    let ethernet = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    [&ethernet[..], &ip, &tcp].concat()
}

/// Whether the TCP checksum of a whole frame is right.
fn is_summed(frame: &[u8]) -> bool {
    let (ip, tcp) = (&frame[14..34], &frame[34..]);
    let length = u16::try_from(tcp.len()).unwrap();
    let sum = Sum::new().add(&ip[12..20]).add_u16(6).add_u16(length);
    sum.add(tcp).finish() == 0
}

fn send(driver: &mut impl Driver, payload: &[u8]) {
    let headers = headers(payload.len());
    let frame = TxFrame {
        headers: &headers,
        payload: TxFrame::spans([SharedSlice::from(payload)]),
        checksum: Some(PartialChecksum {
            start: 34,
            offset: 16,
        }),
        segment_size: (payload.len() > usize::from(MSS)).then_some(MSS),
    };
    assert_eq!(driver.tx_burst(&[frame]).unwrap(), 1);
}

type Arrived = (Vec<u8>, RxChecksum, Option<u16>);

fn receive(driver: &mut impl Driver) -> Vec<Arrived> {
    let mut arrived = Vec::new();
    let sink = &mut |frame: RxFrame<'_>| {
        arrived.push((frame.bytes.to_vec(), frame.checksum, frame.segment_size));
    };
    driver.rx_burst(64, sink).unwrap();
    arrived
}

fn payload() -> Vec<u8> {
    (0..PAYLOAD)
        .map(|index| u8::try_from(index % 251).unwrap())
        .collect()
}

fn without(overrides: OffloadOverride, inner: WireEnd) -> Overridden<WireEnd> {
    Overridden::new(inner, overrides)
}

#[test]
fn without_segmentation_no_large_segment_is_asked_for() {
    let overrides = OffloadOverride {
        segmentation: true,
        ..OffloadOverride::default()
    };
    let (left, _right) = pair();
    assert!(left.caps().tso_max_bytes > 0);
    let left = without(overrides, left);
    assert_eq!(left.caps().tso_max_bytes, 0);
    assert!(left.caps().tx_checksum && left.caps().gro);
}

#[test]
fn without_merging_a_merged_frame_arrives_as_the_segments_it_was_merged_from() {
    let overrides = OffloadOverride {
        merging: true,
        ..OffloadOverride::default()
    };
    let (mut left, right) = pair();
    let mut right = without(overrides, right);
    assert!(!right.caps().gro);
    send(&mut left, &payload());
    let arrived = receive(&mut right);
    let lengths: Vec<usize> = arrived
        .iter()
        .map(|(bytes, ..)| bytes.len() - HEADERS)
        .collect();
    assert_eq!(lengths, [1460, 1460, 1080]);
    let bytes: Vec<u8> = arrived
        .iter()
        .flat_map(|(bytes, ..)| bytes[HEADERS..].to_vec())
        .collect();
    assert_eq!(bytes, payload());
    for (bytes, checksum, segment_size) in arrived {
        assert!(is_summed(&bytes));
        assert_eq!((checksum, segment_size), (RxChecksum::Verified, None));
    }
}

#[test]
fn without_checksum_offload_frames_leave_summed_and_none_is_large() {
    let overrides = OffloadOverride {
        checksums: true,
        ..OffloadOverride::default()
    };
    let (left, mut right) = pair();
    let mut left = without(overrides, left);
    let caps = left.caps();
    assert_eq!((caps.tx_checksum, caps.rx_checksum), (false, false));
    assert_eq!((caps.tso_max_bytes, caps.payload_by_address), (0, false));
    send(&mut left, &payload()[..100]);
    let arrived = receive(&mut right);
    let [(bytes, checksum, _)] = &arrived[..] else {
        panic!("{} frames", arrived.len())
    };
    assert!(is_summed(bytes));
    assert_ne!(*checksum, RxChecksum::Partial);
}

#[test]
fn without_checksum_offload_what_arrives_is_summed_and_for_the_stack_to_verify() {
    let overrides = OffloadOverride {
        checksums: true,
        merging: true,
        ..OffloadOverride::default()
    };
    let (mut left, right) = pair();
    let mut right = without(overrides, right);
    send(&mut left, &payload()[..100]);
    send(&mut left, &payload());
    let arrived = receive(&mut right);
    assert_eq!(arrived.len(), 4);
    for (bytes, checksum, _) in arrived {
        assert!(is_summed(&bytes));
        assert_eq!(checksum, RxChecksum::Unknown);
    }
}

#[test]
fn nothing_off_is_the_driver_itself() {
    let (left, _right) = pair();
    let caps = left.caps().clone();
    assert_eq!(
        *OffloadOverride::default().apply_to(Box::new(left)).caps(),
        caps
    );
}
