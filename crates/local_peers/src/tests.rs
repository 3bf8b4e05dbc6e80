//! Engines that find each other on one host, with devices on which nobody answers.

use super::*;
use netem::Nowhere;
use rustix::event::{PollFd, PollFlags};

/// Names that no other test uses.
fn prefix(test: &str) -> String {
    format!("@shunt/test/{}/{test}", std::process::id())
}

fn beside(prefix: &str, own: [u8; 4]) -> LocalPeerDriver<Nowhere> {
    LocalPeerDriver::new(Nowhere::new().unwrap(), prefix, vec![own.into()]).unwrap()
}

fn request(from: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let mut frame = [[0xff; 6], [2; 6]].concat();
    frame.extend([8, 6]);
    let at = frame.len();
    frame.resize(at + 28, 0);
    wire::arp::Packet {
        operation: wire::arp::Operation::REQUEST,
        sender_hardware: wire::ethernet::Address([2; 6]),
        sender_protocol: from.into(),
        target_hardware: wire::ethernet::Address([0; 6]),
        target_protocol: target.into(),
    }
    .emit(&mut frame[at..]);
    frame
}

fn packet(to: [u8; 4], len: usize) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([8, 0]);
    frame.resize(len.max(34), 0);
    frame[30..34].copy_from_slice(&to);
    frame
}

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];

fn received(end: &mut LocalPeerDriver<Nowhere>) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    end.rx_burst(64, &mut |frame| frames.push(frame.bytes.to_vec()))
        .unwrap();
    frames
}

/// A wakes as somebody who slept does.
fn woken(end: &mut LocalPeerDriver<Nowhere>) -> Vec<Vec<u8>> {
    end.slept = true;
    let mut frames = received(end);
    frames.extend(received(end));
    frames
}

fn news(end: &mut LocalPeerDriver<Nowhere>) -> Vec<LocalPeerChange> {
    std::iter::from_fn(|| end.poll_local_peer()).collect()
}

/// Two that have met.
fn met(test: &str) -> [LocalPeerDriver<Nowhere>; 2] {
    let prefix = prefix(test);
    let [mut a, mut b] = [A, B].map(|own| beside(&prefix, own));
    a.tx_burst(&[TxFrame::plain(&request(A, B))]).unwrap();
    woken(&mut b);
    assert_eq!(news(&mut a), [LocalPeerChange::Here(B.into())]);
    assert_eq!(news(&mut b), [LocalPeerChange::Here(A.into())]);
    [a, b]
}

#[test]
fn a_device_that_nobody_sleeps_on_tells_again_from_the_next_sleep_on() {
    let mut end = beside(&prefix("watch"), A);
    rustix::io::write(end.device.bell(), &1_u64.to_ne_bytes()).unwrap();
    let is_readable = |end: &LocalPeerDriver<Nowhere>| {
        let fd = end.wait_fd().unwrap();
        let at_once = rustix::fs::Timespec::default();
        rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&at_once)) == Ok(1)
    };
    assert!(is_readable(&end));
    for _ in 0..2 {
        end.stop_watch().unwrap();
        assert!(!is_readable(&end));
    }
    for _ in 0..2 {
        assert!(end.prepare_wait().unwrap());
        assert!(is_readable(&end));
    }
}

#[test]
fn a_question_that_nobody_here_answers_goes_to_the_link() {
    let mut a = beside(&prefix("nobody"), A);
    a.tx_burst(&[TxFrame::plain(&request(A, B))]).unwrap();
    // About oneself as well: whether somebody else has the address.
    a.tx_burst(&[TxFrame::plain(&request(A, A))]).unwrap();
    a.tx_burst(&[TxFrame::plain(&packet(B, 60))]).unwrap();
    assert_eq!((a.neighbours(), a.device.counters().tx_frames), (0, 3));
}

#[test]
fn frames_for_others_go_to_the_device() {
    let [mut a, mut b] = met("others");
    a.tx_burst(&[
        TxFrame::plain(&packet(B, 60)),
        TxFrame::plain(&packet([10, 0, 0, 3], 60)),
    ])
    .unwrap();
    assert_eq!(a.device.counters().tx_frames, 1);
    assert_eq!(received(&mut b), [packet(B, 60)]);
}

#[test]
fn who_sleeps_is_woken_by_a_frame_and_by_the_end_of_the_other() {
    let [mut a, mut b] = met("sleep");
    let is_rung = |end: &LocalPeerDriver<Nowhere>| {
        let fd = end.wait_fd().unwrap();
        let at_once = rustix::fs::Timespec::default();
        rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&at_once)).unwrap() == 1
    };
    assert!(b.prepare_wait().unwrap());
    assert!(!is_rung(&b));
    a.tx_burst(&[TxFrame::plain(&packet(B, 60))]).unwrap();
    assert!(is_rung(&b));
    assert_eq!(received(&mut b), [packet(B, 60)]);
    assert!(b.prepare_wait().unwrap());
    assert!(!is_rung(&b), "what rang is taken back");
    a.tx_burst(&[TxFrame::plain(&packet(B, 60))]).unwrap();
    drop(a);
    assert!(is_rung(&b));
    assert_eq!(woken(&mut b), [packet(B, 60)], "what was sent before");
    assert_eq!(news(&mut b), [LocalPeerChange::Gone(A.into())]);
    assert!(b.prepare_wait().unwrap());
    assert!(!is_rung(&b));
    assert_eq!(b.neighbours(), 0);
}

#[test]
fn two_that_look_for_each_other_at_once_stay_neighbours() {
    let prefix = prefix("both");
    let [mut a, mut b] = [A, B].map(|own| beside(&prefix, own));
    a.tx_burst(&[TxFrame::plain(&request(A, B))]).unwrap();
    b.tx_burst(&[TxFrame::plain(&request(B, A))]).unwrap();
    a.tx_burst(&[TxFrame::plain(&packet(B, 60))]).unwrap();
    assert_eq!(woken(&mut b), [packet(B, 60)]);
    woken(&mut a);
    assert_eq!((a.neighbours(), b.neighbours()), (2, 2));
    b.tx_burst(&[TxFrame::plain(&packet(A, 61))]).unwrap();
    assert_eq!(received(&mut a), [packet(A, 61)]);
    news(&mut b);
    drop(a);
    woken(&mut b);
    assert_eq!(news(&mut b), [LocalPeerChange::Gone(A.into())]);
}

#[test]
fn a_neighbour_that_reads_nothing_holds_nobody_up_for_long() {
    let [mut a, _b] = met("full");
    let large = packet(B, 60_000);
    let begun = Instant::now();
    let mut refused = 0;
    while a.past.tx_dropped == 0 {
        refused += usize::from(a.tx_burst(&[TxFrame::plain(&large)]).unwrap() == 0);
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
    assert!(refused > 0, "first it is waited for");
    // From now on its frames are lost, and nobody waits.
    let taken = a.tx_burst(&[
        TxFrame::plain(&large),
        TxFrame::plain(&packet([10, 0, 0, 3], 60)),
    ]);
    assert_eq!(taken.unwrap(), 2);
    assert_eq!(a.wait_deadline_us(), None);
}

#[test]
fn strangers_are_bounded_and_heard_only_with_a_greeting() {
    let prefix = prefix("strangers");
    let mut a = beside(&prefix, A);
    let name = format!("{prefix}/{}", IpAddr::from(A));
    let strangers: Vec<OwnedFd> = (0..20)
        .map(|_| hostif::control::channel::try_connect(&name).unwrap())
        .collect();
    for _ in 0..4 {
        woken(&mut a);
    }
    assert!(a.strangers.len() <= STRANGERS_MAX, "{}", a.strangers.len());
    for stranger in &strangers {
        let _ = hostif::control::channel::send(stranger.as_fd(), b"shuntnb1 nonsense", &[]);
    }
    woken(&mut a);
    assert_eq!((a.strangers.len(), a.neighbours()), (0, 0));
    drop(strangers);
    woken(&mut a);
    assert!(a.prepare_wait().unwrap());
}

#[test]
fn one_that_claims_our_own_address_is_no_neighbour() {
    let prefix = prefix("claims");
    let mut a = beside(&prefix, A);
    let claims: [IpAddr; 2] = [B.into(), A.into()];
    let wire = handshake::seek(&prefix, A.into(), &claims, &Config::default());
    assert!(wire.is_some());
    woken(&mut a);
    assert_eq!(a.neighbours(), 0);
}
