//! What is recorded can be read and played, by us and from files written by others.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use wire::ethernet::Address;

use super::format::{Writer, read};
use super::*;
use nic::driver::{Driver, TxFrame};
use nic::wire::WireEnd;

const US: Address = Address([2, 0, 0, 0, 0, 1]);

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn capture(packets: &[(u64, Direction, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, &["eth0"]).unwrap();
    for (time_ns, direction, bytes) in packets {
        let len = u32::try_from(bytes.len()).unwrap();
        writer
            .packet((0, *direction), *time_ns, bytes, len)
            .unwrap();
    }
    file
}

fn drain(replay: &mut Replay) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    replay
        .rx_burst(usize::MAX, &mut |frame| frames.push(frame.bytes.to_vec()))
        .unwrap();
    frames
}

fn packet() -> impl Strategy<Value = (u64, Direction, Vec<u8>)> {
    let direction = prop_oneof![Just(Direction::Inbound), Just(Direction::Outbound)];
    (
        any::<u64>(),
        direction,
        proptest::collection::vec(any::<u8>(), 0..200),
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read(packets in proptest::collection::vec(packet(), 0..20)) {
        let file = capture(&packets);
        let found: Vec<_> = read(&file)
            .unwrap()
            .into_iter()
            .map(|packet| {
                (packet.time_ns, packet.direction.unwrap(), file[packet.bytes].to_vec())
            })
            .collect();
        prop_assert_eq!(found, packets);
    }

    #[test]
    fn a_capture_cut_anywhere_gives_its_whole_frames(
        packets in proptest::collection::vec(packet(), 1..5), cut in 0_usize..500,
    ) {
        let file = capture(&packets);
        let cut = cut.min(file.len());
        if let Ok(found) = read(&file[..cut]) {
            prop_assert!(found.len() <= packets.len());
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(
        packets in proptest::collection::vec(packet(), 1..4),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut file = capture(&packets);
        for (index, byte) in changes {
            let at = index.index(file.len());
            file[at] = byte;
        }
        let _ = read(&file);
    }
}

/// A pcap file as tcpdump writes it on a big-endian host, with microseconds.
fn classic_pcap(frames: &[(u32, u32, &[u8])]) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(0xa1b2_c3d4_u32.to_be_bytes());
    file.extend([0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 1]);
    for (seconds, micros, frame) in frames {
        let len = u32::try_from(frame.len()).unwrap();
        for word in [*seconds, *micros, len, len] {
            file.extend(word.to_be_bytes());
        }
        file.extend_from_slice(frame);
    }
    file
}

#[test]
fn a_classic_capture_with_microseconds_is_read() {
    let file = classic_pcap(&[(1, 500_000, b"one"), (2, 7, b"two")]);
    let packets = read(&file).unwrap();
    let times: Vec<u64> = packets.iter().map(|packet| packet.time_ns).collect();
    assert_eq!(times, [1_500_000_000, 2_000_007_000]);
    assert_eq!(file[packets[1].bytes.clone()], *b"two");
}

#[test]
fn a_pcapng_without_a_resolution_counts_microseconds() {
    let mut file = capture(&[(5_000, Direction::Inbound, b"frame".to_vec())]);
    // Turns the resolution option of the interface into an unknown one.
    let option = [9, 0, 1, 0, 9, 0, 0, 0];
    let at = file.windows(8).position(|window| window == option).unwrap();
    file[at] = 99;
    assert_eq!(read(&file).unwrap()[0].time_ns, 5_000_000);
}

#[test]
fn other_files_and_link_types_are_refused_by_name() {
    assert_eq!(read(b"#!/bin/sh\n"), Err(FormatError::NotACapture));
    assert_eq!(read(b""), Err(FormatError::NotACapture));
    let mut raw_ip = classic_pcap(&[]);
    raw_ip[23] = 101;
    assert_eq!(
        read(&raw_ip),
        Err(FormatError::NotEthernet { link_type: 101 })
    );
}

#[test]
fn both_directions_are_recorded_and_the_inbound_one_is_played() {
    let output = Shared::default();
    let (left, mut right) = WireEnd::pair(&nic::wire::Config::default()).unwrap();
    let mut left = Recorder::new(left, Box::new(output.clone()), "wire").unwrap();
    right.tx_burst(&[TxFrame::plain(b"to left")]).unwrap();
    left.tx_burst(&[TxFrame::plain(b"to right")]).unwrap();
    left.rx_burst(8, &mut |_| ()).unwrap();
    assert_eq!(left.recorded(), (2, 0));
    drop(left);
    let file = output.0.lock().unwrap().clone();
    let directions: Vec<_> = read(&file)
        .unwrap()
        .into_iter()
        .map(|packet| packet.direction.unwrap())
        .collect();
    assert_eq!(directions, [Direction::Outbound, Direction::Inbound]);
    let mut replay = Replay::from_bytes(file, &Config::new(US)).unwrap();
    assert_eq!(drain(&mut replay), [b"to left"]);
    assert!(replay.is_finished());
}

#[test]
fn a_failing_file_stops_the_recording_and_not_the_frames() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0 -= 1;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (left, mut right) = WireEnd::pair(&nic::wire::Config::default()).unwrap();
    let mut left = Recorder::new(left, Box::new(Full(1)), "wire").unwrap();
    let frame = [0; 60_000];
    for _ in 0..100 {
        assert_eq!(left.tx_burst(&[TxFrame::plain(&frame)]).unwrap(), 1);
        assert_eq!(right.rx_burst(1, &mut |_| ()).unwrap(), 1);
    }
    let (recorded, unrecorded) = left.recorded();
    assert!(
        unrecorded > 0 && recorded + unrecorded == 100,
        "{recorded} + {unrecorded}"
    );
    assert_eq!(left.flush().unwrap_err().kind(), io::ErrorKind::StorageFull);
}

#[test]
fn frames_arrive_as_far_apart_as_they_were_recorded() {
    let file = capture(&[
        (1_000_000_000, Direction::Inbound, b"first".to_vec()),
        (1_030_000_000, Direction::Inbound, b"second".to_vec()),
    ]);
    let config = Config {
        timing: Timing::Recorded,
        ..Config::new(US)
    };
    let mut replay = Replay::from_bytes(file, &config).unwrap();
    let began = Instant::now();
    assert_eq!(drain(&mut replay), [b"first"]);
    assert!(replay.prepare_wait().unwrap());
    let wait_us = replay.wait_deadline_us().unwrap();
    assert!((1..=30_000).contains(&wait_us), "{wait_us}");
    std::thread::sleep(Duration::from_micros(wait_us));
    assert_eq!(drain(&mut replay), [b"second"]);
    assert!(began.elapsed() >= Duration::from_millis(30));
    assert_eq!(replay.wait_deadline_us(), None);
}

#[test]
fn transmitted_frames_are_kept_up_to_the_limit() {
    let config = Config {
        transmitted_max: 2,
        ..Config::new(US)
    };
    let mut replay = Replay::from_bytes(capture(&[]), &config).unwrap();
    assert_eq!(replay.tx_burst(&[TxFrame::plain(b"a"); 3]).unwrap(), 3);
    assert_eq!(replay.transmitted(), [b"a", b"a"]);
    assert_eq!(replay.counters().tx_dropped, 1);
}
