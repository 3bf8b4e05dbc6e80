//! Floods by somebody who knows the ends of a connection but not its numbers (RFC 5961): ten challenges in five seconds
//! and no more, and the peer's transfer is as fast as without the flood.

use crate::tests::pair::*;
use crate::tests::peer::{header, segment};
use ::tcp::State;
use wire::tcp::Flags;

const TO_WRITE: usize = 2_000_000;

/// A transfer of two megabytes from the first host, with `flood` as many forged segments a millisecond to each end.
/// Returns how long it took, in milliseconds, and how many frames went over the cable.
fn transfer(flood: u64, flags: Flags, payload: &[u8]) -> (u64, u64) {
    let mut memory = memory(16, 16);
    let mut pair = Pair::new(&mut memory, 3);
    let (client, server) = pair.connected();
    let (from, _) = pair.nodes[0]
        .stack
        .addresses(pair.nodes[0].id(client))
        .unwrap();
    let data = pattern(1, TO_WRITE);
    let mut random = Random(77);
    let (start, delivered) = (pair.now, pair.delivered);
    for _ in 0..60_000 {
        pair.nodes[0].write(pair.now, client, &data);
        for _ in 0..flood {
            let [seq, ack] =
                [random.next(), random.next()].map(|n| u32::try_from(n & 0xffff_ffff).unwrap());
            let to_server = header(from.port(), 80, seq, ack, flags);
            let forged = segment(ip(1), ip(2), &to_server, payload);
            pair.nodes[1].deliver(pair.now, &forged_for(2, forged));
            let to_client = header(80, from.port(), ack, seq, flags);
            let forged = segment(ip(2), ip(1), &to_client, payload);
            pair.nodes[0].deliver(pair.now, &forged_for(1, forged));
        }
        pair.run(ms(1));
        pair.nodes[1].read(pair.now, server);
        if pair.nodes[1].received(server).len() == TO_WRITE {
            break;
        }
    }
    assert_eq!(pair.nodes[0].view(client).state, State::Established);
    assert_eq!(pair.nodes[1].view(server).state, State::Established);
    assert!(
        pair.nodes[1].received(server) == data,
        "every byte is the peer's"
    );
    (
        pair.now.since(start).as_us() / 1_000,
        pair.delivered - delivered,
    )
}

/// The same frame to the hardware address of host `n`.
fn forged_for(n: u8, mut frame: Flying) -> Flying {
    frame.bytes[..6].copy_from_slice(&hardware(n).0);
    frame
}

#[test]
fn a_flood_of_guesses_costs_a_transfer_nothing() {
    let (quiet_ms, quiet_frames) = transfer(0, Flags::ACK, &[]);
    // Random numbers: a guess in 2^32 / 65,535 falls into the window, and even that one is challenged or dropped.
    for (name, flags) in [
        ("reset", Flags::RST),
        ("reset with ACK", Flags::RST | Flags::ACK),
        ("SYN", Flags::SYN),
        ("SYN with ACK", Flags::SYN | Flags::ACK),
        ("ACK", Flags::ACK),
    ] {
        let (took_ms, frames) = transfer(20, flags, &[]);
        assert!(
            took_ms <= quiet_ms + quiet_ms / 10 + 2,
            "{name}: {took_ms} ms, {quiet_ms} without"
        );
        // Ten from each end for each five seconds that were begun, and what they change in the peer's ACKs.
        let most = quiet_frames + quiet_frames / 10 + 20 * (took_ms / 5_000 + 1);
        assert!(
            frames <= most,
            "{name}: {frames} frames, {quiet_frames} without"
        );
    }
}

#[test]
fn a_flood_of_guessed_data_gets_one_answer_each_and_costs_a_transfer_nothing() {
    // Half of all numbers are those of data that came long ago: RFC 9293 §3.10.7.4 has each acknowledged, because the
    // acknowledgement of a real retransmission must not wait.
    let (quiet_ms, quiet_frames) = transfer(0, Flags::ACK, &[]);
    let (took_ms, frames) = transfer(20, Flags::ACK | Flags::PSH, b"evil");
    assert!(
        took_ms <= quiet_ms + quiet_ms / 10 + 2,
        "{took_ms} ms, {quiet_ms} without"
    );
    let forged = 2 * 20 * took_ms;
    assert!(
        frames <= quiet_frames + quiet_frames / 10 + forged,
        "{frames}"
    );
}
