//! How many copies a byte costs, between programs on two engines and on one.

use crate::harness::{Program, Socket, Wired, small_limits};
use crate::sockets::copies::Copies;
use nic::wire::{self, WireEnd};
use nic::{Caps, Counters, Driver, RxFrame, SharedSlice, TxFrame};
use rustix::fd::BorrowedFd;
use std::io;

const BYTES: usize = 300_000;

fn carry(wired: &mut Wired, [active, passive]: [&mut Program; 2], [near, far]: [&Socket; 2]) {
    let bytes = vec![7; BYTES];
    let (mut sent, mut received) = (0, 0);
    let mut buffer = vec![0; 20_000];
    while received < BYTES {
        sent += active.send(near, &bytes[sent..]);
        wired.run_until_idle();
        let len = passive.receive(far, &mut buffer);
        assert!(len > 0, "stuck after {received} bytes");
        received += len;
    }
    wired.run_until_idle();
}

#[test]
fn a_byte_is_copied_once_to_be_sent_and_twice_to_be_received() {
    let mut wired = Wired::new(small_limits());
    let (mut active, mut passive) = (wired.attach(0), wired.attach(1));
    let listener = passive.listen(&mut wired, 8).unwrap();
    let programs = [&mut active, &mut passive];
    let (near, far) = Program::connected(&mut wired, programs, &listener);
    carry(&mut wired, [&mut active, &mut passive], [&near, &far]);
    let bytes = BYTES as u64;
    let sender = Copies {
        sent: bytes,
        for_sending: bytes,
        ..Copies::default()
    };
    let receiver = Copies {
        received: bytes,
        for_receiving: 2 * bytes,
        ..Copies::default()
    };
    assert_eq!(wired.cores[0].layer.copies(), sender);
    assert_eq!(wired.cores[1].layer.copies(), receiver);
}

#[test]
fn between_programs_on_one_engine_there_is_one_copy_more() {
    let mut wired = Wired::new(small_limits());
    let (mut active, mut passive) = (wired.attach(0), wired.attach(0));
    let listener = passive.listen(&mut wired, 8).unwrap();
    let programs = [&mut active, &mut passive];
    let (near, far) = Program::connected(&mut wired, programs, &listener);
    carry(&mut wired, [&mut active, &mut passive], [&near, &far]);
    let bytes = BYTES as u64;
    let copies = wired.cores[0].layer.copies();
    assert_eq!((copies.sent, copies.received), (bytes, bytes));
    assert_eq!(
        (copies.for_sending, copies.for_receiving),
        (2 * bytes, 2 * bytes)
    );
}

/// What the device of [`Particular`] wants.
const ALIGN: u16 = 64;

/// A device that reads payload from multiples of [`ALIGN`] only.
struct Particular {
    inner: WireEnd,
    caps: Caps,
}

impl Driver for Particular {
    fn caps(&self) -> &Caps {
        &self.caps
    }
    fn rx_burst(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        self.inner.rx_burst(budget, sink)
    }
    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        let spans = frames.iter().flat_map(|frame| &frame.payload);
        let mut spans = spans.filter(|span| !span.is_empty());
        assert!(spans.all(|span: &SharedSlice<'_>| span.is_at_multiple_of(ALIGN)));
        self.inner.tx_burst(frames)
    }
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }
    fn prepare_wait(&mut self) -> io::Result<bool> {
        self.inner.prepare_wait()
    }
    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

#[test]
fn for_a_device_that_wants_payload_aligned_only_the_head_of_a_segment_is_copied() {
    let (left, right) = WireEnd::pair(&wire::Config::default()).unwrap();
    let ends = [left, right].map(|inner| Particular {
        caps: Caps {
            align: ALIGN,
            ..inner.caps().clone()
        },
        inner,
    });
    let mut wired = Wired::over(ends, small_limits());
    let (mut active, mut passive) = (wired.attach(0), wired.attach(1));
    let listener = passive.listen(&mut wired, 8).unwrap();
    let programs = [&mut active, &mut passive];
    let (near, far) = Program::connected(&mut wired, programs, &listener);
    // From here on nothing lies at a multiple of anything.
    assert_eq!(active.send(&near, b"odd"), 3);
    wired.run_until_idle();
    let mut odd = [0; 3];
    assert_eq!(passive.receive(&far, &mut odd), 3);
    carry(&mut wired, [&mut active, &mut passive], [&near, &far]);
    let copies = wired.cores[0].layer.copies();
    let heads = copies.for_sending - copies.sent;
    let frames = wired.cores[0].layer.link.driver.counters().tx_frames;
    assert!(
        heads > 0 && heads < frames * u64::from(ALIGN),
        "{heads} of {frames} frames"
    );
}
