//! How many copies a byte costs, between programs on two engines and on one.

use crate::copies::Copies;
use crate::harness::{Program, Socket, Wired, small_limits};

const BYTES: usize = 300_000;

fn carry(wired: &mut Wired, [active, passive]: [&mut Program; 2], [near, far]: [&Socket; 2]) {
    let bytes = vec![7; BYTES];
    let (mut sent, mut received) = (0, 0);
    let mut buffer = vec![0; 20_000];
    while received < BYTES {
        sent += active.send(near, &bytes[sent..]);
        wired.settle();
        let len = passive.receive(far, &mut buffer);
        assert!(len > 0, "stuck after {received} bytes");
        received += len;
    }
    wired.settle();
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
    assert_eq!(wired.cores[0].copies(), sender);
    assert_eq!(wired.cores[1].copies(), receiver);
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
    let copies = wired.cores[0].copies();
    assert_eq!((copies.sent, copies.received), (bytes, bytes));
    assert_eq!(
        (copies.for_sending, copies.for_receiving),
        (2 * bytes, 2 * bytes)
    );
}
