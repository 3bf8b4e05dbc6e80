//! Programs hear of segments, not of packets: the example of the host-independent network system, where
//! 7 segments cross as 26 packets and its processor interrupts the host 7 times.

use crate::harness::{Program, Wired, small_limits};
use hostif::Completion;
use netem::{Impaired, Impairment};
use nic::wire::{Config, WireEnd};

/// Payload of a full packet: 1500 bytes less headers with time stamps.
const PACKET_BYTES: usize = 1_448;
/// Packets of each of the seven segments: 26 in all.
const SEGMENTS: [usize; 7] = [4, 4, 4, 4, 4, 3, 3];

#[test]
fn seven_segments_that_cross_as_twenty_six_packets_are_announced_seven_times() {
    let wire = Config {
        mtu: 1_500,
        ..Config::default()
    };
    let (left, right) = WireEnd::pair(&wire).unwrap();
    // A cable of packets: what one side hands over in one piece arrives in pieces on the other.
    let cable = |end| Impaired::new(end, Impairment::default(), Impairment::default(), 1);
    let mut wired = Wired::over([cable(left), cable(right)], small_limits());
    let (mut active, mut passive) = (wired.attach(0), wired.attach(1));
    let listener = passive.listen(&mut wired, 8).unwrap();
    let programs = [&mut active, &mut passive];
    let (near, far) = Program::connected(&mut wired, programs, &listener);
    wired.run_until_idle();
    passive.reap();
    passive.reaped.clear();

    let packets = |wired: &Wired| wired.cores[1].layer.link.driver.counters().rx_frames;
    let before = packets(&wired);
    for segment in SEGMENTS {
        let bytes = vec![7; segment * PACKET_BYTES];
        assert_eq!(active.send(&near, &bytes), bytes.len());
        wired.run_until_idle();
        let mut received = vec![0; bytes.len() + 1];
        assert_eq!(passive.receive(&far, &mut received), bytes.len());
        wired.run_until_idle();
        passive.reap();
    }
    let is_event = |completion: &&Completion| matches!(completion, Completion::Event { .. });
    let notifications = passive.reaped.iter().filter(is_event).count();
    assert_eq!((packets(&wired) - before, notifications), (26, 7));
}
