//! Two programs on one engine, by its own address: no frame leaves.

use crate::harness::{Program, Wired, small_limits};
use hostif::Flags;

#[test]
fn programs_of_one_engine_talk_without_a_frame_on_the_wire() {
    let mut wired = Wired::new(small_limits());
    let (mut active, mut passive) = (wired.attach(0), wired.attach(0));
    let listener = passive.listen(&mut wired, 8).unwrap();
    let frames = wired.cores[0].link.driver.counters().tx_frames;
    let (near, far) = Program::connected(&mut wired, [&mut active, &mut passive], &listener);
    let sent: Vec<u8> = (0..200_000_u32)
        .map(|at| (at * 7 / 3).to_le_bytes()[0])
        .collect();
    let (mut done, mut received) = (0, Vec::new());
    while received.len() < sent.len() {
        done += active.send(&near, &sent[done..]);
        wired.settle();
        let mut bytes = [0; 20_000];
        let len = passive.receive(&far, &mut bytes);
        assert!(len > 0, "stuck after {} bytes", received.len());
        received.extend_from_slice(&bytes[..len]);
    }
    assert_eq!(received, sent);
    active.close(&near);
    wired.settle();
    assert!(far.flags().contains(Flags::FIN));
    assert_eq!(wired.cores[0].link.driver.counters().tx_frames, frames);
}

#[test]
fn a_port_of_ours_without_listener_refuses() {
    let mut wired = Wired::new(small_limits());
    let (mut active, mut passive) = (wired.attach(0), wired.attach(0));
    let (listener, address) = passive.listen(&mut wired, 8).unwrap();
    passive.close(&listener);
    wired.settle();
    let refused = active.connect(&mut wired, address).unwrap();
    wired.settle();
    assert_eq!(refused.header().error(), 111, "ECONNREFUSED");
}
