//! The driver over DPDK's own loop, net_ring: what a queue sends comes back to it. All in this process, without
//! privileges, huge pages or a network.

use super::*;
use crate::driver::{PartialChecksum, RxChecksum};
use crate::offload::Finisher;
use crate::shared_slice::SharedSlice;

/// A loop of its own for each test; DPDK starts with the first, so all have the same options.
fn config(device: &str) -> Config {
    let options = ["--no-huge", "-m", "512"].map(str::to_owned);
    Config {
        options: options.into(),
        ..Config::new(device)
    }
}

fn received(driver: &mut Dpdk) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let count = driver
        .rx_burst(1 << 20, &mut |frame| frames.push(frame.bytes.to_vec()))
        .unwrap();
    assert_eq!(count, frames.len());
    frames
}

/// Ethernet, IPv4 and TCP headers, with the pseudo header's sum.
fn tcp_headers(payload_len: usize) -> Vec<u8> {
    let mut headers = vec![0_u8; 54];
    headers[12..14].copy_from_slice(&[0x08, 0x00]);
    headers[14] = 0x45;
    let len = u16::try_from(40 + payload_len).unwrap();
    headers[16..18].copy_from_slice(&len.to_be_bytes());
    headers[23] = 6;
    headers[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    headers[46] = 0x50;
    headers[47] = 0x18;
    let sum = ::wire::checksum::Sum::new()
        .add(&headers[26..34])
        .add_u16(6)
        .add_u16(u16::try_from(20 + payload_len).unwrap())
        .finish();
    headers[50..52].copy_from_slice(&(!sum).to_be_bytes());
    let sum = ::wire::checksum::Sum::new().add(&headers[14..34]).finish();
    headers[24..26].copy_from_slice(&sum.to_be_bytes());
    headers
}

const TCP_SUM: PartialChecksum = PartialChecksum {
    start: 34,
    offset: 16,
};

/// The kernel asks for a card that is drawn, and waits until all of its queues have let it go.
#[test]
fn a_device_that_is_asked_back_is_let_go_and_named_and_taken_again() {
    let whose: CoreOfFrame = Arc::new(|_| 0);
    let mut cores = Dpdk::open_queues(&config("net_ring7"), 2, &whose).unwrap();
    let frame = vec![0xff; 60];
    let group = [0x33, 0x33, 0, 0, 0, 1];
    for core in &mut cores {
        assert_eq!(core.tx_burst(&[TxFrame::plain(&frame)]).unwrap(), 1);
        assert_eq!(core.attend(), Presence::Up);
    }
    cores[0].attached.as_ref().unwrap().port.recall();
    assert_eq!(cores[0].attend(), Presence::Gone);
    assert_eq!(cores[0].attend(), Presence::Gone, "another queue has it");
    assert_eq!(cores[1].attend(), Presence::Gone);
    for core in &mut cores {
        assert_eq!(received(core), Vec::<Vec<u8>>::new());
        assert_eq!(core.tx_burst(&[TxFrame::plain(&frame)]).unwrap(), 1);
        assert!(core.prepare_wait().unwrap(), "nothing is to be done");
        assert!(core.wait_fd().is_none() && core.wait_deadline_us().is_none());
        core.listen_to(group, true).unwrap();
        let counters = core.counters();
        assert_eq!((counters.tx_frames, counters.tx_dropped), (1, 1));
    }
    let said = cores[0].complaints();
    assert!(said[0].contains("\"net_ring7\" is gone"), "{said:?}");
    for core in &mut cores {
        assert!(matches!(core.attend(), Presence::Back { .. }));
        assert_eq!(core.attend(), Presence::Up);
        assert_eq!(core.complaints(), Vec::<String>::new());
        assert_eq!(core.tx_burst(&[TxFrame::plain(&frame)]).unwrap(), 1);
        core.flush_tx().unwrap();
        let counters = core.counters();
        assert_eq!((counters.tx_frames, counters.tx_dropped), (2, 1));
    }
    let [first, second] = &mut cores[..] else {
        panic!("two cores");
    };
    let mut back = received(first);
    assert_eq!(
        received(second),
        Vec::<Vec<u8>>::new(),
        "all is the first's"
    );
    back.extend(received(first));
    assert_eq!(back, [frame.clone(), frame]);
    drop(cores);
    // Its name is free again.
    drop(Dpdk::open(&config("net_ring7")).unwrap());
}

#[test]
fn frames_come_back_as_they_left_in_order_and_are_counted() {
    let mut driver = Dpdk::open(&config("net_ring0")).unwrap();
    let sent: Vec<Vec<u8>> = (0..700_u16)
        .map(|number| {
            let len = 60 + usize::from(number) * 2;
            let mut frame = vec![number.to_le_bytes()[0]; len];
            frame[..2].copy_from_slice(&number.to_be_bytes());
            frame
        })
        .collect();
    let frames: Vec<TxFrame<'_>> = sent.iter().map(|bytes| TxFrame::plain(bytes)).collect();
    assert_eq!(driver.tx_burst(&frames).unwrap(), 700);
    driver.flush_tx().unwrap();
    assert_eq!(received(&mut driver), sent);
    let bytes = sent.iter().map(|one| one.len() as u64).sum();
    let expected = Counters {
        rx_frames: 700,
        rx_bytes: bytes,
        tx_frames: 700,
        tx_bytes: bytes,
        ..Counters::default()
    };
    assert_eq!(driver.counters(), expected);
    assert_eq!(driver.mode(), Some("net_ring"));
    assert_eq!(driver.complaints(), Vec::<String>::new());
}

#[test]
fn a_busy_device_takes_a_part_and_the_rest_later() {
    let mut driver = Dpdk::open(&config("net_ring1")).unwrap();
    let sent: Vec<Vec<u8>> = (0..4000_u32)
        .map(|number| [&number.to_be_bytes()[..], &[0; 60]].concat())
        .collect();
    let frames: Vec<TxFrame<'_>> = sent.iter().map(|bytes| TxFrame::plain(bytes)).collect();
    let taken = driver.tx_burst(&frames).unwrap();
    assert!((PENDING..4000).contains(&taken), "{taken}");
    assert_eq!(driver.counters().tx_busy, 1);
    assert_eq!(driver.wait_deadline_us(), Some(BUSY_RETRY_US));
    let mut back = received(&mut driver);
    let mut at = taken;
    while at < 4000 {
        at += driver.tx_burst(&frames[at..]).unwrap();
        driver.flush_tx().unwrap();
        back.extend(received(&mut driver));
    }
    driver.flush_tx().unwrap();
    back.extend(received(&mut driver));
    assert_eq!(back, sent);
    assert_eq!(driver.counters().tx_dropped, 0);
}

#[test]
fn what_a_plain_device_cannot_do_is_done_before_it() {
    let mut driver = Dpdk::open(&config("net_ring2")).unwrap();
    assert!(!driver.caps().tx_checksum);
    let payload: Vec<u8> = (0..40_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    let headers = tcp_headers(payload.len());
    let (one, other) = payload.split_at(12_345);
    let large = TxFrame {
        headers: &headers,
        payload: TxFrame::spans([SharedSlice::from(one), SharedSlice::from(other)]),
        checksum: Some(TCP_SUM),
        segment_size: Some(1460),
    };
    let short_headers = tcp_headers(100);
    let short = TxFrame {
        headers: &short_headers,
        payload: TxFrame::spans([SharedSlice::from(&payload[..100])]),
        segment_size: None,
        ..large
    };
    let mut expected = Vec::new();
    for frame in [&large, &short] {
        let mut finisher = Finisher::new();
        let collect = &mut |bytes: &[u8]| expected.push(bytes.to_vec());
        finisher.finish(frame, collect).unwrap();
    }
    assert_eq!(driver.tx_burst(&[large, short]).unwrap(), 2);
    driver.flush_tx().unwrap();
    assert_eq!(received(&mut driver), expected);
    assert_eq!(expected.len(), 40_000_usize.div_ceil(1460) + 1);
    assert_eq!(
        driver.counters().tx_frames,
        2,
        "a large segment counts once"
    );
}

#[test]
fn frames_that_contradict_themselves_or_the_link_are_dropped_and_counted() {
    let mut driver = Dpdk::open(&config("net_ring3")).unwrap();
    let long = vec![0; 14 + 1501];
    let outside = TxFrame {
        checksum: Some(PartialChecksum {
            start: 60,
            offset: 16,
        }),
        ..TxFrame::plain(&long[..60])
    };
    let no_tcp = TxFrame {
        payload: TxFrame::spans([SharedSlice::from(&long[..])]),
        segment_size: Some(500),
        ..TxFrame::plain(&long[..54])
    };
    let frames = [TxFrame::plain(&long), outside, no_tcp];
    assert_eq!(driver.tx_burst(&frames).unwrap(), 3);
    driver.flush_tx().unwrap();
    assert_eq!(received(&mut driver), Vec::<Vec<u8>>::new());
    let counters = driver.counters();
    assert_eq!((counters.tx_frames, counters.tx_dropped), (0, 3));
}

#[test]
fn a_frame_in_several_mbufs_is_received_whole_and_one_that_is_too_long_is_dropped() {
    let mut driver = Dpdk::open(&config("net_ring4")).unwrap();
    let pool = driver.attached.as_ref().unwrap().port.sending().unwrap();
    assert_eq!(pool.room(), 2048);
    let sent: Vec<u8> = (0..65_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    let mut chained = pool.make(sent.len()).unwrap();
    let mut parts = 0;
    chained.fill(|at, target| {
        target.copy_from_slice(&sent[at..at + target.len()]);
        parts += 1;
    });
    assert_eq!(parts, 65_000_usize.div_ceil(2048));
    let too_long = pool.make(MAX_FRAME_BYTES + 1).unwrap();
    assert!(pool.make(64 * 2048 + 1).is_none(), "more than 64 parts");
    driver.pending.extend([too_long, chained]);
    driver.flush();
    assert_eq!(received(&mut driver), [sent]);
    assert_eq!(driver.counters().rx_dropped, 1);
}

#[test]
fn every_mbuf_comes_back_to_its_pool() {
    let mut driver = Dpdk::open(&config("net_ring5")).unwrap();
    let headers = tcp_headers(60_000);
    let payload = vec![7; 60_000];
    let large = TxFrame {
        headers: &headers,
        payload: TxFrame::spans([SharedSlice::from(&payload[..])]),
        checksum: Some(TCP_SUM),
        segment_size: Some(1460),
    };
    // Many times what the pool holds.
    for _ in 0..1000 {
        assert_eq!(driver.tx_burst(&[large]).unwrap(), 1);
        driver.flush_tx().unwrap();
        let got = driver.rx_burst(100, &mut |_| {}).unwrap();
        assert_eq!(got, 60_000_usize.div_ceil(1460));
    }
    assert_eq!(driver.counters().tx_busy, 0);
}

#[test]
fn a_frame_for_another_core_is_handed_to_it_and_wakes_it() {
    let core_of_frame: CoreOfFrame = Arc::new(|frame| u16::from(frame[0]));
    let mut cores = Dpdk::open_queues(&config("net_ring6"), 2, &core_of_frame).unwrap();
    let mut second = cores.pop().unwrap();
    let mut first = cores.pop().unwrap();
    assert_eq!(first.caps().queues, 2);
    let readable = |driver: &Dpdk| {
        let fd = driver.wait_fd().unwrap();
        let mut polled = [rustix::event::PollFd::new(
            &fd,
            rustix::event::PollFlags::IN,
        )];
        let now = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut polled, Some(&now)).unwrap() == 1
    };
    assert!(second.prepare_wait().unwrap());
    assert!(!readable(&second));
    let [own, others] = [0_u8, 1].map(|core| [core; 60]);
    let frames = [own, others, own].map(|bytes| bytes.to_vec());
    let sent = frames.each_ref().map(|bytes| TxFrame::plain(bytes));
    first.tx_burst(&sent).unwrap();
    first.flush_tx().unwrap();
    assert_eq!(received(&mut first), [own, own]);
    assert!(readable(&second), "it sleeps and is woken");
    assert_eq!(received(&mut second), [others]);
    assert!(!readable(&second), "the bell rang once");

    // Awake it is not rung, and finds the frame before it sleeps.
    first.tx_burst(&sent[1..2]).unwrap();
    first.flush_tx().unwrap();
    assert_eq!(received(&mut first), Vec::<Vec<u8>>::new());
    assert!(!readable(&second));
    assert!(!second.prepare_wait().unwrap());
    assert_eq!(received(&mut second), [others]);
}

#[test]
fn a_core_that_takes_nothing_costs_the_others_no_more_than_its_own_frames() {
    let core_of_frame: CoreOfFrame = Arc::new(|frame| u16::from(frame[0]));
    let mut cores = Dpdk::open_queues(&config("net_ring7"), 2, &core_of_frame).unwrap();
    let bytes = [1_u8; 60];
    for _ in 0..2000 {
        cores[0].tx_burst(&[TxFrame::plain(&bytes)]).unwrap();
        cores[0].flush_tx().unwrap();
        assert_eq!(received(&mut cores[0]), Vec::<Vec<u8>>::new());
    }
    let dropped = cores[0].counters().rx_dropped;
    let kept = received(&mut cores[1]).len();
    assert_eq!(u64::try_from(kept).unwrap() + dropped, 2000);
    assert!(dropped > 0 && kept >= 1000, "{kept}");
}

#[test]
fn without_an_interrupt_a_sleeper_looks_again_by_itself() {
    let mut driver = Dpdk::open(&config("net_ring8")).unwrap();
    assert!(driver.wait_fd().is_none());
    assert!(driver.prepare_wait().unwrap());
    assert_eq!(driver.wait_deadline_us(), Some(NAP_US));
    driver.tx_burst(&[TxFrame::plain(&[5; 60])]).unwrap();
    assert!(!driver.prepare_wait().unwrap(), "its frame came back");
    assert_eq!(received(&mut driver), [[5; 60]]);
}

#[test]
fn the_devices_word_on_checksums_is_kept() {
    let mut driver = Dpdk::open(&config("net_ring9")).unwrap();
    driver.tx_burst(&[TxFrame::plain(&[5; 60])]).unwrap();
    driver.flush_tx().unwrap();
    let mut seen = Vec::new();
    driver
        .rx_burst(8, &mut |frame| {
            seen.push((frame.checksum, frame.segment_size))
        })
        .unwrap();
    assert_eq!(seen, [(RxChecksum::Unknown, None)]);
}

#[test]
fn what_cannot_be_opened_is_named_with_the_next_step() {
    let error = |config: &Config| match Dpdk::open(config) {
        Ok(_) => panic!("{config:?} opened"),
        Err(error) => error.to_string(),
    };
    let text = error(&config("eth0"));
    assert!(text.contains("eth0") && text.contains("net_tap0"), "{text}");
    let text = error(&config("net_nothing0"));
    assert!(text.contains("librte-net-nothing"), "{text}");

    let _first = Dpdk::open(&config("net_ring10")).unwrap();
    let other = Config::new("net_ring11");
    assert!(matches!(Dpdk::open(&other), Err(OpenError::OtherOptions)));

    let core_of_frame: CoreOfFrame = Arc::new(|_| 0);
    let many = Dpdk::open_queues(&config("net_ring12"), 64, &core_of_frame);
    let Err(OpenError::TooFewQueues { receiving, .. }) = many else {
        panic!("64 queues");
    };
    assert_eq!(receiving, 16);
    // A device that was refused is closed again.
    Dpdk::open(&config("net_ring12")).unwrap();
}

/// A thread in a network namespace of its own; `None`, and said so, where that is not permitted.
fn in_a_namespace<T: Send>(test: &str, work: impl FnOnce() -> T + Send) -> Option<T> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    use std::io::Write as _;

    let name = format!("shunt-dpdk-{}-{test}", std::process::id());
    let ip = |arguments: [&str; 3]| {
        let output = std::process::Command::new("ip").args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !ip(["netns", "add", &name]) {
        let _ = writeln!(
            io::stderr(),
            "skipped: {test}: `ip netns add` is not permitted"
        );
        return None;
    }
    let enter = || {
        let file = std::fs::File::open(format!("/var/run/netns/{name}")).unwrap();
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        work()
    };
    let done = std::thread::scope(|scope| scope.spawn(enter).join());
    ip(["netns", "del", &name]);
    Some(done.unwrap())
}

/// What the kernel's end of a cable gets of a host's IPv4, as many frames as are expected.
fn heard(kernel: &mut crate::af_packet::AfPacket, count: usize) -> Vec<Vec<u8>> {
    let mut frames: Vec<Vec<u8>> = Vec::new();
    let begun = Instant::now();
    while frames.len() < count && begun.elapsed().as_secs() < 10 {
        kernel
            .rx_burst(64, &mut |frame| {
                if frame.bytes.get(26..30) == Some(&[10, 0, 0, 1]) {
                    frames.push(frame.bytes.to_vec());
                }
            })
            .unwrap();
    }
    frames
}

#[test]
fn a_device_that_cuts_and_sums_makes_the_frames_that_software_would() {
    let work = || {
        let mut driver = Dpdk::open(&config("net_tap0,iface=dtap0")).unwrap();
        let mut kernel =
            crate::af_packet::AfPacket::open(&crate::af_packet::Config::new("dtap0")).unwrap();
        assert!(driver.caps().tx_checksum && driver.device_cuts);
        let payload: Vec<u8> = (0..30_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let (one, other) = payload.split_at(9_999);
        let headers = tcp_headers(payload.len());
        let large = |size| TxFrame {
            headers: &headers,
            payload: TxFrame::spans([SharedSlice::from(one), SharedSlice::from(other)]),
            checksum: Some(TCP_SUM),
            segment_size: Some(size),
        };
        let short_headers = tcp_headers(501);
        let short = TxFrame {
            headers: &short_headers,
            payload: TxFrame::spans([SharedSlice::from(&payload[..501])]),
            segment_size: None,
            ..large(0)
        };
        // By the device; too long for it; one that needs its sum alone.
        for (frame, is_whole) in [(large(1000), true), (large(1460), false), (short, true)] {
            let mut finisher = Finisher::new();
            let mut expected = Vec::new();
            let collect = &mut |bytes: &[u8]| expected.push(bytes.to_vec());
            finisher.finish(&frame, collect).unwrap();
            assert_eq!(driver.tx_burst(&[frame]).unwrap(), 1);
            let whole = driver.pending[0].look().len == frame.frame_len();
            assert_eq!(whole, is_whole);
            driver.flush_tx().unwrap();
            let is_same = heard(&mut kernel, expected.len()) == expected;
            assert!(is_same, "segments of {:?}", frame.segment_size);
        }
        assert_eq!(driver.counters().tx_dropped, 0);
        // The device would keep a segment of more than 64 frames for ever.
        let tiny = large(300);
        assert_eq!(driver.tx_burst(&[tiny]).unwrap(), 1);
        driver.flush_tx().unwrap();
        assert_eq!(heard(&mut kernel, 100).len(), 100);
        assert!(driver.device_cuts && driver.pending.is_empty());
    };
    in_a_namespace("dpdk-cuts", work);
}
