//! Two ends of a wire, with and without sleep.

use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

fn pair() -> (WireEnd, WireEnd) {
    WireEnd::pair(&Config {
        ring_bytes: RING_BYTES_MIN,
        ..Config::default()
    })
    .unwrap()
}

/// Sleeps until the driver has something; false: nothing came for ten seconds.
fn sleep(driver: &mut impl Driver) -> bool {
    if !driver.prepare_wait().unwrap() {
        return true;
    }
    let limit_us = driver.wait_deadline_us().unwrap_or(10_000_000);
    let timeout = Timespec::try_from(Duration::from_micros(limit_us)).unwrap();
    let fd = driver.wait_fd().unwrap();
    let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap();
    ready > 0 || limit_us < 10_000_000
}

/// Sends all frames that `next` makes, sleeping whenever the wire is full.
fn send_all(end: &mut WireEnd, count: u64, len: impl Fn(u64) -> usize) {
    for index in 0..count {
        let mut bytes = vec![u8::try_from(index % 251).unwrap(); len(index)];
        bytes[..8].copy_from_slice(&index.to_le_bytes());
        while end.tx_burst(&[TxFrame::plain(&bytes)]).unwrap() == 0 {
            assert!(sleep(end), "no room for frame {index} within ten seconds");
        }
    }
}

fn receive_all(end: &mut WireEnd, count: u64, len: impl Fn(u64) -> usize) {
    let mut expected = 0;
    while expected < count {
        let received = end
            .rx_burst(32, &mut |frame| {
                let fill = u8::try_from(expected % 251).unwrap();
                assert_eq!(frame.bytes[..8], expected.to_le_bytes());
                assert_eq!(frame.bytes.len(), len(expected));
                assert!(frame.bytes[8..].iter().all(|byte| *byte == fill));
                expected += 1;
            })
            .unwrap();
        assert!(
            received > 0 || sleep(end),
            "frame {expected} did not arrive within ten seconds"
        );
    }
}

#[test]
fn frames_cross_between_sleeping_threads_without_loss() {
    const COUNT: u64 = 200_000;
    // From a bare counter to more than 64 KiB, now and then.
    let len = |index: u64| match index % 1000 {
        0 => MAX_FRAME_BYTES,
        rest => 8 + usize::try_from(rest).unwrap() % 120,
    };
    let (mut left, mut right) = pair();
    let sender = thread::spawn(move || {
        send_all(&mut left, COUNT, len);
        left
    });
    receive_all(&mut right, COUNT, len);
    let left = sender.join().unwrap();
    assert_eq!(left.counters().tx_frames, COUNT);
    assert_eq!(left.counters().tx_bytes, right.counters().rx_bytes);
}

#[test]
fn an_end_adopted_from_descriptors_answers_while_both_sleep() {
    let (mut left, fds) = WireEnd::create(&Config::default()).unwrap();
    let mut right = WireEnd::from_fds(fds).unwrap();
    let echo = thread::spawn(move || {
        for _ in 0..5000 {
            let mut frame = Vec::new();
            while right
                .rx_burst(1, &mut |found| frame = found.bytes.to_vec())
                .unwrap()
                == 0
            {
                assert!(sleep(&mut right), "no request within ten seconds");
            }
            assert_eq!(right.tx_burst(&[TxFrame::plain(&frame)]).unwrap(), 1);
        }
    });
    for index in 0_u32..5000 {
        let sent = index.to_le_bytes();
        assert_eq!(left.tx_burst(&[TxFrame::plain(&sent)]).unwrap(), 1);
        let mut frame = Vec::new();
        while left
            .rx_burst(1, &mut |found| frame = found.bytes.to_vec())
            .unwrap()
            == 0
        {
            assert!(sleep(&mut left), "no answer within ten seconds");
        }
        assert_eq!(frame, sent);
    }
    echo.join().unwrap();
}

#[test]
fn a_full_wire_takes_fewer_frames_and_goes_on_when_read() {
    let (mut left, mut right) = pair();
    let bytes = [1; 60_000];
    let frames = [TxFrame::plain(&bytes); 8];
    let taken = left.tx_burst(&frames).unwrap();
    assert!((1..8).contains(&taken), "{taken}");
    assert_eq!(left.counters().tx_busy, 1);
    assert!(
        left.prepare_wait().unwrap(),
        "nothing was read: there is no room"
    );
    assert_eq!(right.rx_burst(8, &mut |_| ()).unwrap(), taken);
    let fd = left.wait_fd().unwrap();
    assert_eq!(
        poll(
            &mut [PollFd::new(&fd, PollFlags::IN)],
            Some(&Timespec::default())
        )
        .unwrap(),
        1
    );
    assert!(left.tx_burst(&frames).unwrap() > 0);
}

#[test]
fn nobody_is_rung_who_is_awake() {
    let (mut left, mut right) = pair();
    left.tx_burst(&[TxFrame::plain(b"frame")]).unwrap();
    let is_rung = |end: &WireEnd| {
        let fd = end.wait_fd().unwrap();
        poll(
            &mut [PollFd::new(&fd, PollFlags::IN)],
            Some(&Timespec::default()),
        )
        .unwrap()
            == 1
    };
    assert!(!is_rung(&right));
    assert!(!right.prepare_wait().unwrap(), "a frame waits");
    assert_eq!(right.rx_burst(8, &mut |_| ()).unwrap(), 1);
    assert!(right.prepare_wait().unwrap());
    left.tx_burst(&[TxFrame::plain(b"frame")]).unwrap();
    assert!(is_rung(&right));
}

#[test]
fn both_ends_know_their_own_address_and_the_same_mtu() {
    let addresses = [
        ethernet::Address([2, 0, 0, 0, 0, 1]),
        ethernet::Address([2, 0, 0, 0, 0, 2]),
    ];
    let config = Config {
        mtu: 9000,
        hardware_addresses: Some(addresses),
        ..Config::default()
    };
    let (left, right) = WireEnd::pair(&config).unwrap();
    assert_eq!(left.caps().hardware_address, addresses[0]);
    assert_eq!(right.caps().hardware_address, addresses[1]);
    assert_eq!((left.caps().mtu, right.caps().mtu), (9000, 9000));
}

#[test]
fn memory_that_is_no_wire_is_refused() {
    let (_left, fds) = WireEnd::create(&Config::default()).unwrap();
    let plain = rustix::fs::memfd_create("plain", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let unsealed = WireFds {
        region: plain,
        doorbells: fds.doorbells,
    };
    assert!(matches!(
        WireEnd::from_fds(unsealed),
        Err(OpenError::System { .. })
    ));
    let small = Config {
        ring_bytes: 4096,
        ..Config::default()
    };
    assert!(matches!(
        WireEnd::create(&small),
        Err(OpenError::RingSize { ring_bytes: 4096 })
    ));
}
