//! Two ends of a wire behind impaired cables.

use nic::wire::{Config, WireEnd};
use nic::{PartialChecksum, SharedSlice};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::Duration;

use super::*;

/// How long is waited for what should take milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Of a sleep that nothing ends.
const SLEEP: Duration = Duration::from_secs(10);

/// Sleeps until the driver has something; false: nothing came for [`SLEEP`].
fn sleep(driver: &mut impl Driver) -> bool {
    if !driver.prepare_wait().unwrap() {
        return true;
    }
    let deadline = driver.wait_deadline_us().map(Duration::from_micros);
    let timeout = Timespec::try_from(deadline.unwrap_or(SLEEP)).unwrap();
    let fd = driver.wait_fd().unwrap();
    let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap();
    ready > 0 || deadline.is_some()
}

/// A TCP frame of `payload_len` bytes with the checksum left unfinished.
fn large_segment_headers(payload_len: usize) -> Vec<u8> {
    let total = u16::try_from(40 + payload_len).unwrap().to_be_bytes();
    let mut headers = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    headers.extend([0x45, 0, total[0], total[1], 0, 1, 0x40, 0, 64, 6, 0, 0]);
    headers.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    headers.extend([
        0x12, 0x34, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0,
    ]);
    headers
}

#[test]
fn an_impaired_wire_cuts_large_segments_and_counts_what_it_loses() {
    let (left, right) = WireEnd::pair(&Config::default()).unwrap();
    let lossy = "loss=20%,delay=1ms".parse().unwrap();
    let mut left = Impaired::new(left, Impairment::default(), lossy, 5);
    let mut right = Impaired::new(right, Impairment::default(), Impairment::default(), 6);
    let payload = vec![3; 58_400];
    let headers = large_segment_headers(payload.len());
    let frame = TxFrame {
        headers: &headers,
        payload: TxFrame::spans([SharedSlice::from(&payload[..])]),
        checksum: Some(PartialChecksum {
            start: 34,
            offset: 16,
        }),
        segment_size: Some(1460),
    };
    for _ in 0..10 {
        assert_eq!(left.tx_burst(&[frame]).unwrap(), 1);
    }
    let began = Instant::now();
    let mut arrived = 0_u64;
    while left.cable_counters()[1].lost + arrived < 400 {
        assert!(began.elapsed() < PATIENCE, "{arrived} arrived");
        left.rx_burst(8, &mut |_| ()).unwrap();
        right
            .rx_burst(64, &mut |frame| {
                assert_eq!((frame.bytes.len(), frame.segment_size), (1514, None));
                arrived += 1;
            })
            .unwrap();
    }
    let [_, sent] = left.cable_counters();
    assert_eq!(sent.offered, 400);
    assert_eq!(sent.lost + arrived, 400);
    assert!(
        (40..=120).contains(&sent.lost),
        "{} of 400 lost at 20 %",
        sent.lost
    );
}

#[test]
fn an_impaired_driver_wakes_for_frames_that_are_on_the_way() {
    let (mut left, right) = WireEnd::pair(&Config::default()).unwrap();
    let slow: Impairment = "delay=20ms".parse().unwrap();
    let mut right = Impaired::new(right, slow, Impairment::default(), 1);
    let began = Instant::now();
    left.tx_burst(&[TxFrame::plain(b"frame")]).unwrap();
    let mut arrived = 0;
    while arrived == 0 {
        arrived = right.rx_burst(8, &mut |_| ()).unwrap();
        assert!(arrived > 0 || sleep(&mut right));
    }
    let elapsed = began.elapsed();
    assert!(elapsed >= Duration::from_millis(20), "{elapsed:?}");
    assert!(elapsed < SLEEP, "{elapsed:?}");
}
