//! What is placed in a lent buffer, what is not, and that the stream stays whole whatever is lent.

use super::UserBuffer;
use crate::harness::{Program, Socket, Wired, small_limits};
use crate::tests::scene::Scene;
use hostif::Consumed;
use netem::{Impaired, Impairment};
use nic::wire::{self, WireEnd};
use proptest::prelude::*;
use std::io::IoSliceMut;
use tcp::Duration;

/// What is sent at a stream offset.
fn byte_at(offset: u64) -> u8 {
    u8::try_from(offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56).unwrap()
}

fn stream(start: u64, len: usize) -> Vec<u8> {
    (start..).take(len).map(byte_at).collect()
}

/// One turn of the receiving core with a buffer in two parts lent; what lay in it afterwards. Notes the position as
/// the client does.
fn lend(wired: &mut Wired, program: &Program, socket: &Socket, len: usize) -> Vec<u8> {
    let header = socket.header();
    let start = header.consumed();
    let (mut first, mut second) = (vec![0; len / 3 + 1], vec![0; len - len / 3]);
    let mut slices = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    let mut user_buffer = UserBuffer::new((program.session, socket.id), start, &mut slices, 1);
    wired.cores[1].poll(wired.now, Some(&mut user_buffer));
    let placed = user_buffer.placed();
    assert_eq!(header.consumed(), start + placed as u64);
    assert!(header.received_end() >= header.consumed());
    if placed > 0 {
        let note = Consumed {
            socket: socket.id,
            end: header.consumed(),
            in_place: false,
        };
        program.consumed.push(&note).unwrap();
    }
    let mut bytes = [first, second].concat();
    bytes.remove(0);
    bytes.truncate(placed);
    bytes
}

#[test]
fn the_next_bytes_are_placed_once_and_what_does_not_fit_is_in_the_window() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let Scene {
        wired,
        active,
        passive,
        ..
    } = &mut scene;
    assert_eq!(active.send(&near, &stream(0, 1000)), 1000);
    wired.cores[0].poll(wired.now, None);
    assert_eq!(lend(wired, passive, &far, 600), stream(0, 600));
    assert_eq!(far.header().received_end(), 1000);
    let mut rest = [0; 500];
    assert_eq!(passive.receive(&far, &mut rest), 400);
    assert_eq!(rest[..400], stream(600, 400));
    wired.run_until_idle();
    let copies = wired.cores[1].layer.copies();
    // Each of the 600 bytes once, each of the 400 twice.
    assert_eq!((copies.received, copies.for_receiving), (1000, 1400));
}

#[test]
fn nothing_is_placed_for_who_is_not_where_the_stream_is_or_does_not_hold_the_socket() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let Scene {
        wired,
        active,
        passive,
        ..
    } = &mut scene;
    active.send(&near, &stream(0, 100));
    wired.cores[0].poll(wired.now, None);
    let mut buffer = [0; 100];
    let strangers = [
        ((passive.session, far.id), 50),
        ((passive.session + 7, far.id), 0),
        ((passive.session, near.id), 0),
    ];
    for (number, (socket, start)) in strangers.into_iter().enumerate() {
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let mut user_buffer = UserBuffer::new(socket, start, &mut slices, 0);
        wired.cores[1].poll(wired.now, Some(&mut user_buffer));
        assert_eq!(user_buffer.placed(), 0, "stranger {number}");
    }
    assert_eq!(far.header().consumed(), 0);
    assert_eq!(passive.receive(&far, &mut buffer), 100);
    assert_eq!(buffer[..], stream(0, 100));
}

#[test]
fn a_segment_with_urgent_data_goes_to_the_window() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    scene.write_urgent(&near, &stream(0, 3));
    let Scene { wired, passive, .. } = &mut scene;
    wired.cores[0].poll(wired.now, None);
    assert_eq!(lend(wired, passive, &far, 100), b"");
    let header = far.header();
    assert_eq!((header.urgent_end(), header.received_end()), (3, 3));
    // The urgent byte can still be received out of band.
    let mut bytes = [0; 3];
    assert_eq!(passive.receive(&far, &mut bytes), 3);
    assert_eq!(bytes[..], stream(0, 3));
}

/// What the receiver does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Lend(usize),
    Read(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..6000_usize).prop_map(Step::Lend),
        1 => (1..3000_usize).prop_map(Step::Read),
        2 => (1..3000_u64).prop_map(Step::Wait),
    ]
}

/// Carries `total` bytes over a cable like this; how many of them were placed directly.
fn carry(impairment: Impairment, seed: u64, total: usize, steps: &[Step]) -> usize {
    let (left, right) = WireEnd::pair(&wire::Config::default()).unwrap();
    let none = Impairment::default();
    let cable = |end, receive| Impaired::new(end, receive, none, seed);
    let ends = [cable(left, none), cable(right, impairment)];
    let mut wired = Wired::over(ends, small_limits());
    let (mut active, mut passive) = (wired.attach(0), wired.attach(1));
    let listener = passive.listen(&mut wired, 8).unwrap();
    let near = active.connect(&mut wired, listener.1).unwrap();
    let far = (0..1000).find_map(|_| {
        wired.advance(Duration::from_ms(10));
        passive.accept(&mut wired, &listener.0).ok()
    });
    let far = far.expect("a connection");
    let sent = stream(0, total);
    let (mut written, mut received, mut direct) = (0, Vec::new(), 0);
    for step in steps.iter().cycle().take(100_000) {
        if received.len() == total {
            break;
        }
        written += active.send(&near, &sent[written..]);
        wired.cores[0].poll(wired.now, None);
        match *step {
            Step::Lend(len) => {
                // As the client: only where nothing waits in the window.
                if far.header().received_end() == far.header().consumed() {
                    let bytes = lend(&mut wired, &passive, &far, len);
                    direct += bytes.len();
                    received.extend(bytes);
                }
            }
            Step::Read(len) => {
                let mut bytes = vec![0; len];
                let len = passive.receive(&far, &mut bytes);
                received.extend(&bytes[..len]);
            }
            Step::Wait(us) => wired.now += Duration::from_us(us),
        }
    }
    assert_eq!(received.len(), total, "not all has arrived");
    assert!(received == sent, "the stream was spoilt");
    wired.run_until_idle();
    let copies = wired.cores[1].layer.copies();
    let (total, direct) = (total as u64, direct as u64);
    assert_eq!(copies.received, total);
    if direct == total {
        assert_eq!(copies.for_receiving, total);
    }
    usize::try_from(direct).unwrap()
}

#[test]
fn over_a_good_cable_a_reader_with_room_has_all_bytes_placed_directly() {
    let direct = carry(Impairment::default(), 1, 200_000, &[Step::Lend(20_000)]);
    assert_eq!(direct, 200_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_stream_is_whole_over_a_bad_cable_whatever_is_lent(
        seed: u64,
        loss in 0.0..0.1,
        reorder in 0.0..0.3,
        duplicate in 0.0..0.1,
        steps in prop::collection::vec(step(), 1..30),
    ) {
        let impairment = Impairment { loss, reorder, duplicate, ..Impairment::default() };
        let mut steps = steps;
        steps.extend([Step::Lend(1000), Step::Read(1000), Step::Wait(1000)]);
        carry(impairment, seed, 40_000, &steps);
    }
}
