//! What circulates: who waits, who sleeps, who shares processors.

use super::*;

fn party(pool: usize, receive_ns: f64) -> Station {
    Station {
        pool,
        receive_ns,
        ..Station::default()
    }
}

/// Clients are party 0, the server is party 1.
fn of(parties: &[Station], clients: usize) -> Circulation {
    circulate(parties, &[1, 1], &vec![vec![1, 0]; clients])
}

#[test]
fn a_lone_request_takes_all_work_and_every_wait() {
    let client = Station {
        turn_ns: 100.0,
        sleep_ns: 200.0,
        rouse_ns: 300.0,
        latency_ns: 400.0,
        ..party(0, 1000.0)
    };
    let server = Station {
        send_ns: 500.0,
        ..party(1, 2000.0)
    };
    let one = of(&[client, server], 1);
    let whole_ns = 1000.0 + 100.0 + 200.0 + 300.0 + 400.0 + 2000.0 + 500.0;
    assert!((one.per_s / (1e9 / whole_ns) - 1.0).abs() < 0.01, "{one:?}");
    let each = one.each[0];
    assert!((each.turns - 1.0).abs() < 1e-3 && (each.sleeps - 1.0).abs() < 1e-3);
    // To wake the client is the server's work.
    assert!((one.each[1].work_ns - 2800.0).abs() < 20.0, "{one:?}");
}

#[test]
fn what_a_wake_up_costs_is_shared_under_load() {
    let server = Station {
        turn_ns: 3000.0,
        ..party(1, 2000.0)
    };
    let parties = [party(0, 100.0), server];
    let few = of(&parties, 1);
    let many = of(&parties, 64);
    assert!((few.per_s / (1e9 / 5100.0) - 1.0).abs() < 0.01, "{few:?}");
    // A turn takes what came during the last one: nearly all of them.
    assert!(many.each[1].turns < 0.02, "{many:?}");
    assert!(many.per_s > 0.96 * 1e9 / 2050.0, "{many:?}");
}

#[test]
fn two_that_share_a_processor_take_the_sum_of_their_work() {
    for clients in [1, 7, 40] {
        let shared = of(&[party(0, 3000.0), party(0, 2000.0)], clients);
        assert!((shared.per_s / 200_000.0 - 1.0).abs() < 0.01, "{shared:?}");
    }
    let apart = of(&[party(0, 3000.0), party(1, 2000.0)], 40);
    assert!(
        (apart.per_s / (1e9 / 3000.0) - 1.0).abs() < 0.02,
        "{apart:?}"
    );
}

#[test]
fn answers_written_together_come_later_and_wake_less_often() {
    let client = Station {
        rouse_ns: 1000.0,
        ..party(0, 500.0)
    };
    let server = |together| Station {
        send_ns: 500.0,
        together,
        ..party(1, 4000.0)
    };
    let apart = of(&[client, server(false)], 16);
    let together = of(&[client, server(true)], 16);
    assert!((apart.each[0].sleeps - 1.0).abs() < 0.05, "{apart:?}");
    assert!(together.each[0].sleeps < 0.6, "{together:?}");
    assert!(
        together.each[1].work_ns < apart.each[1].work_ns - 400.0,
        "{together:?} {apart:?}"
    );
}

#[test]
fn an_engine_in_between_is_passed_twice() {
    let parties = [party(0, 1000.0), party(0, 1000.0), party(1, 3000.0)];
    let routes = vec![vec![2, 1, 2, 0]; 32];
    let whole = circulate(&parties, &[1, 1], &routes);
    assert!(
        (whole.per_s / (1e9 / 6000.0) - 1.0).abs() < 0.02,
        "{whole:?}"
    );
}

#[test]
fn the_same_question_has_the_same_answer() {
    let parties = [party(0, 1000.0), party(1, 1700.0)];
    assert_eq!(of(&parties, 9), of(&parties, 9));
    assert_eq!(circulate(&[], &[], &[]).each, []);
}

#[test]
fn clients_that_pause_ask_less_and_wait_shorter() {
    let pausing = Station {
        pause_ns: 100_000.0,
        ..party(0, 1000.0)
    };
    let of = |pausing| of(&[pausing, party(1, 4000.0)], 8);
    let (rests, asks) = (of(pausing), of(party(0, 1000.0)));
    assert!(
        rests.per_s < 8e9 / 105_000.0 && rests.per_s > 8e9 / 110_000.0,
        "{rests:?}"
    );
    // Mostly alone with the server, and not with seven others in front.
    assert!((5000.0..7000.0).contains(&rests.time.mean_ns), "{rests:?}");
    assert!(
        (asks.time.mean_ns / 32_000.0 - 1.0).abs() < 0.02,
        "{asks:?}"
    );
    assert!(rests.time.p99_ns > rests.time.p50_ns);
    assert!(
        (asks.time.p50_ns as f64 / 32_000.0 - 1.0).abs() < 0.03,
        "{asks:?}"
    );
}

#[test]
fn parties_use_whichever_processor_of_their_pool_is_free() {
    let parties = [party(0, 6000.0), party(0, 2000.0), party(0, 2000.0)];
    let routes: Vec<Vec<usize>> = (0..30).map(|n| vec![1 + n % 2, 0]).collect();
    let per_s = |processors| circulate(&parties, &[processors], &routes).per_s;
    assert!((per_s(1) / (1e9 / 8000.0) - 1.0).abs() < 0.02);
    // Two processors have 8 µs of work, of which one party can take six; a third has nothing to do.
    assert!(per_s(2) > 0.95 * 1e9 / 6000.0, "{}", per_s(2));
    assert!((per_s(3) / (1e9 / 6000.0) - 1.0).abs() < 0.02);
}
