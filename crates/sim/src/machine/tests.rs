//! The machine against the vectors of the specification and against itself.

mod extensions;

use super::{bounds::Bounds, *};
use crate::{
    scenario::{Kind, Phase},
    time::as_us,
};

/// A deterministic case of the specification: no jitter, clients evenly spread.
fn vector(case: &serde_json::Value) -> Scenario {
    let number = |key: &str| case[key].as_u64().map(|n| usize::try_from(n).unwrap());
    let mut scenario = Scenario::default();
    scenario.stack.kind = match case["stack"].as_str().unwrap() {
        "kernel" => Kind::Kernel,
        "user" => Kind::User,
        _ => Kind::Nic,
    };
    scenario.network.jitter = 0.0;
    scenario.workload.phase = Phase::Spread;
    scenario.workload.clients = number("clients").unwrap();
    scenario.workload.requests_per_client = number("per_client").unwrap();
    scenario.host.background = number("bg").unwrap_or(1);
    scenario
}

fn near(name: &str, ours: f64, published: &serde_json::Value) {
    let published = published.as_f64().unwrap();
    assert!(
        (ours - published).abs() <= 1.0,
        "{name}: {ours} for {published}"
    );
}

#[test]
fn every_vector_is_matched_within_a_microsecond() {
    let text = include_str!("../../tests/vectors.json");
    let cases: Vec<serde_json::Value> = serde_json::from_str(text).unwrap();
    assert_eq!(cases.len(), 21);
    for case in &cases {
        let scenario = vector(case);
        let outcome = Machine::run(&scenario, 1, 0);
        let name = format!("{} {} clients", case["stack"], case["clients"]);
        let count = |key: &str| usize::try_from(case[key].as_u64().unwrap()).unwrap();
        assert_eq!(outcome.requests(), count("requests"), "{name}");
        assert_eq!(outcome.answered, count("answered"), "{name}");
        let during = outcome.responses_during_load().count();
        assert_eq!(during, count("answered_during_load"), "{name}");
        near(&name, outcome.mean_us().unwrap(), &case["mean_all_us"]);
        match outcome.mean_during_load_us() {
            Some(mean) => near(&name, mean, &case["mean_during_load_us"]),
            None => assert!(case["mean_during_load_us"].is_null(), "{name}"),
        }
        let busy = &case["busy_us"];
        near(&name, as_us(outcome.busy.interrupt), &busy["isr"]);
        near(&name, as_us(outcome.busy.bottom_half), &busy["bh"]);
        near(&name, as_us(outcome.busy.server), &busy["srv"]);
        near(&name, as_us(outcome.busy.background), &busy["bg"]);
        near(&name, as_us(outcome.busy.nic), &case["nic_busy_us"]);
    }
}

#[test]
fn one_seed_gives_one_run_and_another_seed_another() {
    let mut scenario = Scenario::default();
    scenario.workload.clients = 5;
    let times = |seed| {
        let outcome = Machine::run(&scenario, seed, 7);
        outcome.times().collect::<Vec<_>>()
    };
    assert_eq!(times(1), times(1));
    assert_ne!(times(1), times(2));
}

#[test]
fn a_run_that_would_never_end_is_cut_and_says_so() {
    let mut scenario = Scenario::default();
    scenario.workload.compute_us = 1e6;
    scenario.workload.requests_per_client = 600;
    scenario.workload.horizon_s = 2.0;
    let outcome = Machine::run(&scenario, 1, 0);
    assert!(outcome.cut);
    assert!(outcome.answered < outcome.requests());
    assert_eq!(outcome.ended, 2_000_000_000);
}

#[test]
fn slices_too_short_to_get_anywhere_are_cut_by_their_number() {
    let mut scenario = Scenario::default();
    scenario.host.quantum_ms = 1e-9;
    let bounds = Bounds {
        events: 10_000,
        ..Bounds::default()
    };
    let outcome = Machine::run_within(&scenario, 1, 0, bounds);
    assert!(outcome.cut && outcome.events == 10_000);
}

#[test]
fn littles_law_holds_at_every_resource() {
    for kind in [Kind::Kernel, Kind::User, Kind::Nic] {
        let mut scenario = Scenario::default();
        scenario.stack.kind = kind;
        scenario.workload.clients = 6;
        let outcome = Machine::run(&scenario, 3, 0);
        for (name, report) in &outcome.resources {
            // What has just begun when the last answer leaves is still inside.
            let ratio = report.little_ratio.unwrap_or(1.0);
            assert!((ratio - 1.0).abs() < 0.01, "{kind:?} {name}: {ratio}");
        }
    }
}

#[test]
fn a_timeline_tells_who_ran_and_adds_up_to_the_busy_time() {
    let mut scenario = Scenario::default();
    scenario.workload.clients = 2;
    let outcome = Machine::run_with_timeline(&scenario, 1, 0, 100_000);
    let interrupts = outcome.spans.iter().filter(|s| s.level == Level::Interrupt);
    let sum: Ns = interrupts.map(|s| s.to - s.from).sum();
    assert_eq!(sum, outcome.busy.interrupt);
    let short = Machine::run_with_timeline(&scenario, 1, 0, 10);
    assert_eq!(short.spans.len(), 10);
}
