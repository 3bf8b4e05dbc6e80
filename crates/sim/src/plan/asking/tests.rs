//! Clients that are seen, and what is made of them: their threads end first, they wait, they pause, they are far away.

use super::*;
use crate::plan::{Bottleneck, Plan, Preset, plan};

/// redis on loopback under fifty connections of one thread, as a recording saw it.
fn redis() -> Workload {
    Workload {
        requests_per_s: 134_000.0,
        request_bytes: 36.0,
        response_bytes: 5.0,
        application_ns: 1800.0,
        observed_stack_ns: 4200.0,
        client_ns: 7300.0,
        client_threads: 1,
        clients: 50,
        threads: 1,
        saturated: true,
        wake_share: 0.05,
        ..Workload::default()
    }
}

fn planned(w: &Workload) -> Plan {
    plan(w, &Preset::of_tests()).unwrap()
}

#[test]
fn a_server_gives_no_more_than_clients_of_one_thread_can_ask() {
    let plan = planned(&redis());
    let kernel = &plan.rows[0];
    assert_eq!(kernel.closed.bottleneck, Bottleneck::Clients);
    assert!(
        (kernel.closed.capacity_per_s / 134_000.0 - 1.0).abs() < 0.02,
        "{kernel:?}"
    );
    let asked = plan.clients.unwrap();
    assert!(
        (asked.model_per_s / 137_000.0 - 1.0).abs() < 0.02,
        "{asked:?}"
    );
    assert!(
        (asked.processor_share / (134.0 / 137.0) - 1.0).abs() < 0.02,
        "{asked:?}"
    );
    let seen = kernel.clients.unwrap();
    assert!((seen.rate_per_s / 134_000.0 - 1.0).abs() < 0.01, "{seen:?}");
    assert!(
        (seen.mean_us / (50e6 / 134_000.0) - 1.0).abs() < 0.03,
        "{seen:?}"
    );
    // Nobody buys what nobody asks.
    let inline = plan.rows.iter().find(|row| row.stack == "inline").unwrap();
    assert!(
        inline.sentence.contains("the clients end first"),
        "{}",
        inline.sentence
    );
    let threads = Workload {
        client_threads: 0,
        ..redis()
    };
    assert_ne!(
        planned(&threads).rows[0].closed.bottleneck,
        Bottleneck::Clients
    );
}

#[test]
fn processors_that_nobody_got_are_missing_on_every_stack() {
    // Two processors have 13.3 µs of work for each, and give 150,000 in a second; fewer were seen.
    let w = Workload {
        client_threads: 2,
        requests_per_s: 115_000.0,
        ..redis()
    };
    let plan = planned(&w);
    let asked = plan.clients.unwrap();
    assert!((0.7..0.85).contains(&asked.processor_share), "{asked:?}");
    let kernel = &plan.rows[0];
    let seen = kernel.clients.unwrap();
    assert!((seen.rate_per_s / 115_000.0 - 1.0).abs() < 0.02, "{seen:?}");
    assert!(
        (kernel.closed.capacity_per_s / 115_000.0 - 1.0).abs() < 0.05,
        "{kernel:?}"
    );
    let whole = Workload {
        requests_per_s: 148_000.0,
        ..w
    };
    let inline = |plan: &Plan| plan.rows[1].clients.unwrap().rate_per_s;
    assert!(inline(&plan) < 0.9 * inline(&planned(&whole)));
}

#[test]
fn what_a_lone_client_waits_for_is_found_and_stays_where_nobody_knows_better() {
    let w = Workload {
        requests_per_s: 1e9 / 40_000.0,
        clients: 1,
        saturated: false,
        ..redis()
    };
    let plan = planned(&w);
    let asked = plan.clients.unwrap();
    // 13.3 of 40 µs are work.
    assert!(
        (asked.latency_ns / 26_700.0 - 1.0).abs() < 0.03,
        "{asked:?}"
    );
    assert!((asked.model_per_s / 75_000.0 - 1.0).abs() < 0.02 && asked.pause_ns == 0.0);
    let dpdk = plan.rows.iter().find(|row| row.stack == "dpdk").unwrap();
    let dpdk = dpdk.clients.unwrap();
    assert!((30.0..40.0).contains(&dpdk.mean_us), "{dpdk:?}");
    assert!((plan.rows[0].clients.unwrap().mean_us / 40.0 - 1.0).abs() < 0.02);
}

#[test]
fn clients_that_ask_now_and_then_pause_and_do_not_wait() {
    let w = Workload {
        requests_per_s: 5000.0,
        saturated: false,
        ..redis()
    };
    let asked = planned(&w).clients.unwrap();
    assert!(
        (asked.pause_ns / 10e6 - 1.0).abs() < 0.03 && asked.latency_ns == 0.0,
        "{asked:?}"
    );
    let mean_us = planned(&w).rows[0].clients.unwrap().mean_us;
    assert!((13.0..16.0).contains(&mean_us), "{mean_us}");
}

#[test]
fn clients_elsewhere_are_a_pause_and_no_work_here() {
    let w = Workload {
        client_ns: 0.0,
        client_threads: 0,
        saturated: false,
        requests_per_s: 100_000.0,
        ..redis()
    };
    let plan = planned(&w);
    let asked = plan.clients.unwrap();
    assert!(!asked.here && asked.pause_ns > 300_000.0, "{asked:?}");
    let rate = plan.rows[0].clients.unwrap().rate_per_s;
    assert!((rate / 1e5 - 1.0).abs() < 0.02, "{rate}");
    assert!((plan.rows[0].closed.capacity_per_s / (1e9 / 6000.0) - 1.0).abs() < 0.01);
}

#[test]
fn turns_and_wakings_that_a_preset_knows_are_part_of_what_was_seen() {
    let mut preset = Preset::of_tests();
    let kernel = preset.stacks.get_mut("kernel").unwrap();
    for (name, ns) in [
        ("turn_ns", 900.0),
        ("sleep_ns", 2000.0),
        ("client_ns", 1500.0),
        ("client_turn_ns", 800.0),
        ("client_rouse_ns", 700.0),
    ] {
        kernel.set(name, seen(ns));
    }
    let inline = preset.stacks.get_mut("inline").unwrap();
    inline.set("client_ns", seen(2500.0));
    let w = redis();
    let plan = plan(&w, &preset).unwrap();
    let work = plan.rows[0].clients.unwrap().work;
    assert!(
        (work.stack_ns / w.observed_stack_ns - 1.0).abs() < 0.02,
        "{work:?}"
    );
    assert!(
        (work.client_ns / w.client_ns - 1.0).abs() < 0.02,
        "{work:?}"
    );
    // A microsecond more beside that stack, for each of its requests.
    let inline = plan.rows.iter().find(|row| row.stack == "inline").unwrap();
    let share = plan.clients.unwrap().processor_share;
    let wanted = share * 1e9 / (w.client_ns + 1000.0);
    assert!(
        (inline.closed.capacity_per_s / wanted - 1.0).abs() < 0.01,
        "{inline:?}"
    );
}
