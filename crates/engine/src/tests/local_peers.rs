//! Engines of one host that reach each other without their device (the crate `local_peers`), with devices on which nobody answers.

use crate::harness::{ADDRESSES, Program, Wired, core_on, small_limits};
use hostif::Flags;
use local_peers::LocalPeerDriver;
use netem::Nowhere;

/// Names that no other test uses.
fn prefix(test: &str) -> String {
    format!("@shunt/test/engines/{}/{test}", std::process::id())
}

fn beside(prefix: &str, own: [u8; 4]) -> LocalPeerDriver<Nowhere> {
    LocalPeerDriver::new(Nowhere::new().unwrap(), prefix, vec![own.into()]).unwrap()
}

/// Two engines that can only meet on this host.
pub(crate) fn wired(test: &str) -> Wired {
    let prefix = prefix(test);
    let ends = ADDRESSES.map(|own| beside(&prefix, own.octets()));
    Wired::over(ends, small_limits())
}

#[test]
fn two_engines_talk_and_nothing_leaves_by_the_device() {
    let mut wired = wired("talk");
    let (mut active, mut passive) = (wired.attach(0), wired.attach(1));
    let listener = passive.listen(&mut wired, 8).unwrap();
    let frames = wired.cores[0].layer.link.driver.counters().tx_frames;
    let (near, far) = Program::connected(&mut wired, [&mut active, &mut passive], &listener);
    let sent: Vec<u8> = (0..300_000_u32)
        .map(|at| (at * 7 / 3).to_le_bytes()[0])
        .collect();
    let (mut done, mut bytes) = (0, Vec::new());
    while bytes.len() < sent.len() {
        done += active.send(&near, &sent[done..]);
        wired.run_until_idle();
        let mut part = [0; 20_000];
        let len = passive.receive(&far, &mut part);
        assert!(len > 0, "stuck after {} bytes", bytes.len());
        bytes.extend_from_slice(&part[..len]);
    }
    assert_eq!(bytes, sent);
    let used = wired.cores[0].layer.link.driver.counters().tx_frames - frames;
    assert!(used < 300, "{used} frames: segments are not cut on the way");
}

#[test]
fn who_ends_takes_its_connections_along_and_can_come_again() {
    let mut wired = wired("end");
    let (mut active, mut passive) = (wired.attach(0), wired.attach(1));
    let listener = passive.listen(&mut wired, 8).unwrap();
    let (near, _far) = Program::connected(&mut wired, [&mut active, &mut passive], &listener);
    // The engine of the second ends without a word.
    let device = Nowhere::new().unwrap();
    let nobody = core_on(device, ADDRESSES[1], small_limits(), wired.now);
    drop(std::mem::replace(&mut wired.cores[1], nobody));
    wired.run_until_idle();
    assert_eq!(near.header().error(), 104, "ECONNRESET");
    assert!(near.flags().contains(Flags::HUP));
    // One that starts with its address is found again.
    let device = beside(&prefix("end"), ADDRESSES[1].octets());
    wired.cores[1] = core_on(device, ADDRESSES[1], small_limits(), wired.now);
    let mut again = wired.attach(1);
    let listener = again.listen(&mut wired, 8).unwrap();
    Program::connected(&mut wired, [&mut active, &mut again], &listener);
}
