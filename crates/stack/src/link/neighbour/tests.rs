//! The cache alone: what is trusted, for how long, and who makes room.

use super::*;
use proptest::prelude::*;

const NIC: InterfaceId = InterfaceId(0);
const NOW: Instant = Instant::from_us(1_000_000_000);
const HARDWARE: ethernet::Address = ethernet::Address([2, 0, 0, 0, 0, 1]);

fn address(n: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, n])
}

fn state(cache: &Neighbours, n: u32) -> NeighbourState {
    cache.entry(n).state
}

#[test]
fn an_answer_is_trusted_for_thirty_seconds_and_then_checked_while_used() {
    let mut cache = Neighbours::new(8, &[1; 16]);
    let n = cache.want(NOW, NIC, address(1)).unwrap();
    let asked = Probe {
        interface: NIC,
        address: address(1),
        hardware: None,
    };
    assert_eq!(cache.ready(NOW, n), Readiness::Waiting(Some(asked)));
    cache.heard(NOW, n, HARDWARE, true);
    assert_eq!(state(&cache, n), NeighbourState::Reachable);
    let later = NOW + Duration::from_secs(31);
    assert_eq!(cache.ready(later, n), Readiness::Ready(HARDWARE));
    assert_eq!(
        (state(&cache, n), cache.deadline(n)),
        (NeighbourState::Delay, Some(later + DELAY))
    );
    cache.confirm(later, n);
    assert_eq!(
        (state(&cache, n), cache.deadline(n)),
        (NeighbourState::Reachable, None)
    );
}

#[test]
fn a_host_that_only_asked_makes_room_for_anyone() {
    let mut cache = Neighbours::new(4, &[1; 16]);
    let learned = cache.learn(NOW, NIC, address(1)).unwrap();
    for n in 2..=4 {
        cache.want(NOW, NIC, address(n)).unwrap();
    }
    assert_eq!(cache.want(NOW, NIC, address(5)), Some(learned));
    assert_eq!(cache.find(NIC, address(1)), None);
}

#[test]
fn confirmed_entries_make_room_only_after_a_minute_of_silence() {
    let mut cache = Neighbours::new(2, &[1; 16]);
    for n in 1..=2 {
        let n = cache.want(NOW, NIC, address(n)).unwrap();
        cache.ready(NOW, n);
        cache.heard(NOW, n, HARDWARE, true);
    }
    assert_eq!(
        cache.want(NOW + Duration::from_secs(59), NIC, address(3)),
        None
    );
    assert_eq!(
        cache.learn(NOW + Duration::from_secs(99), NIC, address(3)),
        None,
        "never by learning"
    );
    assert!(
        cache
            .want(NOW + Duration::from_secs(61), NIC, address(3))
            .is_some()
    );
}

proptest! {
    #[test]
    fn every_row_stays_findable_and_within_its_bounds(
        operations in proptest::collection::vec((0_u8..7, 0_u8..24, 0_u64..40), 0..200)
    ) {
        let mut cache = Neighbours::new(8, &[1; 16]);
        let mut now = NOW;
        for (operation, host, seconds) in operations {
            let found = cache.find(NIC, address(host));
            match (operation, found) {
                (0, _) => now += Duration::from_secs(seconds),
                (1, _) => {
                    if let Some(n) = cache.want(now, NIC, address(host)) {
                        cache.ready(now, n);
                    }
                    if let Some(oldest) = cache.excess_incomplete() {
                        cache.set_failed(oldest);
                    }
                }
                (2, None) => { cache.learn(now, NIC, address(host)); }
                (3, Some(n)) => cache.heard(now, n, HARDWARE, seconds % 2 == 0),
                (4, Some(n)) => { cache.handle_timeout(now, n); }
                (5, Some(n)) => drop(cache.confirm(now, n)),
                (6, Some(n)) => cache.set_failed(n),
                _ => {}
            }
            let rows: Vec<Neighbour> = cache.iter(now).collect();
            prop_assert!(rows.len() <= 8);
            for row in &rows {
                let n = cache.find(NIC, row.address).expect("a used row is in the index");
                prop_assert_eq!(cache.entry(n).address, row.address);
            }
            let incomplete = rows.iter().filter(|row| row.state == NeighbourState::Incomplete).count();
            prop_assert_eq!(incomplete, at(cache.incomplete.len()));
            prop_assert!(incomplete <= 3 && cache.learned.len() <= 2);
        }
    }
}
