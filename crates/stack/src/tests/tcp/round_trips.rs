//! Round trips that connections measure are counted, by the short way of a segment and by the long one.

use crate::tests::pair::*;
use crate::tests::peer::*;
use crate::*;
use ::tcp::{Duration, Instant};
use wire::tcp::Flags;

const PORT: u16 = 80;
const PEER_PORT: u16 = 5_000;

/// What the histogram tells, without its empty buckets: bound and how many.
fn counted(stack: &Stack<'_>) -> Vec<(u64, u64)> {
    let counts = Histogram::bounds().zip(stack.round_trips().counts());
    counts.filter(|(_, count)| *count > 0).collect()
}

#[test]
fn every_round_trip_is_counted_once_at_its_length() {
    let mut memory = memory(4, 4);
    let mut now = Instant::from_us(1_000_000_000);
    let mut node = Node::new(memory[0].tables(), ME, now);
    node.knows(now, PEER);
    let listener = node.listen(PORT, 4);
    let next = node.handshake(now, ip(PEER), PEER_PORT, PORT).unwrap();
    let owner = node.accept(listener).unwrap();
    // The SYN-ACK, which was acknowledged at the same moment.
    assert_eq!(counted(&node.stack), [(1, 1)]);
    let (mut sent, mut sum) = (0, 1);
    for round_trip_us in [30_000, 50, 50, 700] {
        sent += 100;
        assert!(node.write(now, owner, &pattern(1, sent)));
        assert_eq!(segments(&node.transmit(now)).len(), 1);
        sum += round_trip_us;
        now += Duration::from_us(round_trip_us);
        let ack = header(
            PEER_PORT,
            PORT,
            101,
            next.wrapping_add(u32::try_from(sent).unwrap()),
            Flags::ACK,
        );
        let ack = segment(ip(PEER), ip(ME), &ack, &[]);
        // What acknowledges nothing more measures nothing.
        node.deliver(now, &ack);
        node.deliver(now, &ack);
    }
    assert_eq!(
        counted(&node.stack),
        [(1, 1), (64, 2), (768, 1), (32_768, 1)]
    );
    assert_eq!(node.stack.round_trips().sum(), sum);
}
