//! A card spreads frames as the engine does: which table and key it needs for that, and whether what it then has says so.
//!
//! The key repeats after 16 bits. That makes the card's hash one that both directions of a connection share, and one that the
//! programs of packet sockets and of XDP compute in some forty instructions (docs/decisions/0091-the-hash-of-a-card.md).

use core::net::{IpAddr, SocketAddr};
use hostif::Steering;
use hostif::steering::{CARD_ENTRIES, CardKey};
use netlink::receive_hash::ReceiveHash;

/// Connections of either family with which a card is tried.
const TRIED: u16 = 256;

/// What a card that has `found` now and `queues` queues has to be told; `None`: its hash cannot be the engine's, and why.
///
/// # Errors
/// See above.
pub fn plan(
    steering: Steering,
    found: &ReceiveHash,
    queues: u32,
) -> Result<ReceiveHash, &'static str> {
    let key = steering
        .card_key()
        .ok_or("the engine goes on with a hash of its own")?;
    if !found.is_toeplitz() {
        return Err("it spreads frames by another hash than Toeplitz's");
    }
    if found.key.is_empty() {
        return Err("its driver takes no key");
    }
    let entries = found.table.len();
    if entries == 0 || !entries.is_multiple_of(usize::from(CARD_ENTRIES)) {
        return Err("its table has not 128 entries, or a multiple of that");
    }
    let table = table(steering, entries, queues);
    let table = table.ok_or("it has fewer queues than the engine has cores")?;
    Ok(ReceiveHash {
        table,
        key: key.bytes(found.key.len()),
        ..*found
    })
}

/// The table: core k has the queues whose number is k modulo the number of cores, by turns; `None`: there are too few.
#[must_use]
pub fn table(steering: Steering, entries: usize, queues: u32) -> Option<Vec<u32>> {
    let cores = u32::from(steering.cores);
    let rounds = queues.checked_div(cores).filter(|rounds| *rounds > 0)?;
    let queue_of = |entry| {
        let value = u32::from(CardKey::value_of_entry(entry));
        value % cores + cores * (value / cores % rounds)
    };
    Some((0..entries).map(queue_of).collect())
}

/// Whether connections arrive, with what the card says that it has, in queues of their cores.
#[must_use]
pub fn agrees(steering: Steering, card: &ReceiveHash) -> bool {
    let is_right = |source: SocketAddr, destination: SocketAddr| {
        let core = steering.core_of(source, destination);
        let queue = card.queue_of(source, destination);
        queue.is_some_and(|queue| queue % u32::from(steering.cores) == u32::from(core))
    };
    (0..TRIED).all(|number| {
        let ports = [number.wrapping_mul(40_503), 80 + number % 7];
        let [low, high] = number.to_be_bytes();
        let of = |address: [IpAddr; 2]| {
            is_right(
                SocketAddr::new(address[0], ports[0]),
                SocketAddr::new(address[1], ports[1]),
            )
        };
        let v4 = [[10, high, low, 7], [192, 168, low, 1]].map(IpAddr::from);
        let v6 = [
            [0x2001, 0xdb8, number, 1, 2, 3, 4, 5],
            [0xfd00, 0, 0, ports[0], 0, 0, 0, 1],
        ]
        .map(IpAddr::from);
        of(v4) && of(v6)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(entries: u32, queues: u32) -> ReceiveHash {
        ReceiveHash {
            table: (0..entries).map(|entry| entry % queues).collect(),
            key: (0..40_u8).map(|n| n.wrapping_mul(97) ^ 0x5a).collect(),
            function: 1,
            transformation: 0,
        }
    }

    #[test]
    fn a_card_that_is_told_so_leads_connections_to_queues_of_their_cores() {
        for (cores, queues, entries) in [
            (2, 2, 128),
            (2, 8, 128),
            (3, 8, 512),
            (4, 4, 128),
            (5, 63, 2048),
        ] {
            for random in [0, 1, 0x8000_0000, 0x1234_5678, u32::MAX] {
                let steering = Steering::of_card(cores, random);
                let found = card(entries, queues);
                assert!(!agrees(steering, &found), "by accident");
                let told = plan(steering, &found, queues).unwrap();
                assert!(
                    agrees(steering, &told),
                    "{cores} cores, {queues} queues, {random}"
                );
                let used = queues / u32::from(cores) * u32::from(cores);
                assert!(
                    (0..used).all(|queue| told.table.contains(&queue)),
                    "a queue without frames"
                );
                assert!(told.table.iter().all(|queue| *queue < used));
                assert_eq!(told.key.len(), found.key.len());
            }
        }
    }

    #[test]
    fn cards_that_cannot_say_why() {
        let steering = Steering::of_card(2, 7);
        let refused = |found: ReceiveHash, queues, words: &str| {
            let why = plan(steering, &found, queues).unwrap_err();
            assert!(why.contains(words), "{why}");
        };
        refused(
            ReceiveHash {
                key: Vec::new(),
                ..card(128, 2)
            },
            2,
            "no key",
        );
        refused(
            ReceiveHash {
                function: 2,
                ..card(128, 2)
            },
            2,
            "another hash",
        );
        refused(
            ReceiveHash {
                transformation: 1,
                ..card(128, 2)
            },
            2,
            "another hash",
        );
        refused(card(64, 2), 2, "128 entries");
        refused(card(0, 2), 2, "128 entries");
        refused(card(128, 1), 1, "fewer queues");
        assert!(plan(Steering::random(2, 7), &card(128, 2), 2).is_err());
    }
}
