//! The four cases in which offload does not pay, one in which it does, and the closed form by hand.

use super::closed::MODEL_BAND;
use super::*;

fn planned(text: &str) -> Plan {
    plan(&Workload::parse(text).unwrap(), &Preset::of_tests()).unwrap()
}

fn row<'a>(plan: &'a Plan, stack: &str) -> &'a Row {
    plan.rows.iter().find(|row| row.stack == stack).unwrap()
}

#[test]
fn small_requests_with_little_work_gain_from_every_other_stack() {
    let plan = planned(include_str!("../../../../workloads/rpc.toml"));
    let kernel = row(&plan, "kernel");
    // 3700 + 3770 + 0.06 × 1152 + 0.2 × 8000 and 2000 of application, on two cores.
    assert!(
        (kernel.closed.stack_ns - 9139.12).abs() < 0.01,
        "{kernel:?}"
    );
    assert!((kernel.closed.host_load - 1.114).abs() < 0.001);
    assert_eq!(kernel.closed.mean_us, None, "overload has no mean");
    assert_eq!(row(&plan, "af_xdp").buys, Buys::Yes);
    // Of these little was measured: nothing is promised, and what it would be is told.
    for stack in ["inline", "engine", "dpdk", "nic"] {
        let row = row(&plan, stack);
        assert_eq!(row.buys, Buys::NotKnown, "{stack}");
        assert!(row.measured_share < 0.5 && row.gain > 0.1, "{stack}");
        assert!(
            row.sentence.starts_with("Not known for"),
            "{}",
            row.sentence
        );
    }
    assert!(row(&plan, "dpdk").gain > 2.0);
    assert!(row(&plan, "dpdk").simulated.p99_us.unwrap().value > 0.0);
}

#[test]
fn a_large_application_leaves_nothing_to_buy() {
    let plan = planned(include_str!(
        "../../../../workloads/no-large-application.toml"
    ));
    for row in plan.rows.iter().skip(1).filter(|row| row.stack != "engine") {
        assert_eq!(row.buys, Buys::Nothing, "{}", row.sentence);
        assert!(
            row.sentence.contains("% of the host's work"),
            "{}",
            row.sentence
        );
    }
    // Mogul's warning as a number.
    let kernel = row(&plan, "kernel").closed;
    assert!(
        plan.rows
            .iter()
            .all(|row| row.gain <= kernel.stack_ns / 100_000.0)
    );
    // An engine that takes one of two cores from a program that computes does harm.
    assert_eq!(row(&plan, "engine").buys, Buys::Hurts);
}

#[test]
fn short_connections_hurt() {
    let plan = planned(include_str!(
        "../../../../workloads/no-short-connections.toml"
    ));
    for stack in ["inline", "engine", "af_xdp", "dpdk", "nic"] {
        let row = row(&plan, stack);
        assert_eq!(row.buys, Buys::Hurts, "{}", row.sentence);
        assert!(row.sentence.contains("set-up"), "{}", row.sentence);
    }
    let turns = plan.break_even.requests_per_connection.unwrap();
    assert!((1.0..10.0).contains(&turns), "{turns}");
}

#[test]
fn a_wimpy_nic_hurts_and_its_clock_is_named() {
    let plan = planned(include_str!("../../../../workloads/no-wimpy-nic.toml"));
    let nic = row(&plan, "nic");
    assert_eq!(nic.buys, Buys::Hurts);
    assert_eq!(nic.closed.bottleneck, Bottleneck::Device);
    let clock = plan.break_even.nic_clock_mhz.unwrap();
    assert!(clock > 200.0, "{clock}");
    let mut faster =
        Workload::parse(include_str!("../../../../workloads/no-wimpy-nic.toml")).unwrap();
    faster.nic.clock_mhz = clock * 1.2;
    let plan = plan_of(&faster);
    assert!(row(&plan, "nic").gain > 0.1);
    assert_eq!(row(&plan, "nic").buys, Buys::NotKnown);
    // With its costs measured the same is an answer.
    let mut preset = Preset::of_tests();
    let nic = preset.stacks.get_mut("nic").unwrap();
    let names: Vec<&str> = nic.values().iter().map(|(name, _)| *name).collect();
    for name in names {
        nic.value_mut(name).unwrap().source = Source::Measured;
    }
    let plan = super::plan(&faster, &preset).unwrap();
    assert_eq!(row(&plan, "nic").buys, Buys::Yes);
}

fn plan_of(workload: &Workload) -> Plan {
    plan(workload, &Preset::of_tests()).unwrap()
}

#[test]
fn a_disk_does_not_get_faster() {
    let plan = planned(include_str!("../../../../workloads/no-disk-bound.toml"));
    for row in &plan.rows {
        assert_eq!(row.closed.bottleneck, Bottleneck::Disk, "{}", row.stack);
    }
    for row in plan.rows.iter().skip(1) {
        assert_eq!(row.buys, Buys::Nothing, "{}", row.sentence);
        assert!(
            row.sentence.contains("the disk ends first"),
            "{}",
            row.sentence
        );
    }
}

#[test]
fn the_simulation_keeps_what_the_closed_form_promises() {
    let plan = planned(include_str!("../../../../workloads/rpc.toml"));
    for row in &plan.rows {
        let kept = row.simulated.kept_of_capacity;
        assert!((0.9..=1.0).contains(&kept), "{}: {kept}", row.stack);
    }
    assert!(plan.disagreements.is_empty());
}

#[test]
fn the_mean_of_the_simulation_is_near_that_of_the_closed_form() {
    let plan = planned(
        "requests_per_s = 60000\napplication_ns = 2000\nhost_cores = 2\nstacks = [\"kernel\", \"dpdk\"]",
    );
    for row in &plan.rows {
        let (ours, theory) = (
            row.simulated.mean_us.unwrap().value,
            row.closed.mean_us.unwrap(),
        );
        assert!(
            (ours / theory - 1.0).abs() < 0.15,
            "{}: {ours} {theory}",
            row.stack
        );
    }
}

#[test]
fn every_value_says_where_it_is_from_and_what_is_assumed_is_listed() {
    let plan = planned("");
    assert!(plan.assumed.contains(&"kernel.wake_ns".to_owned()));
    assert!(!plan.assumed.contains(&"kernel.send_ns".to_owned()));
    assert_eq!(plan.effects.len(), 3);
}

#[test]
fn what_cannot_be_planned_is_said() {
    let wrong = |text: &str| Workload::parse(text).unwrap_err().to_string();
    assert!(wrong("requests = 3").contains("line 1"));
    assert!(wrong("requests_per_s = 0").starts_with("line 1: requests_per_s: cannot be 0"));
    for (key, absurd) in [
        ("requests_per_s", "1e300"),
        ("requests_per_s", "0.001"),
        ("requests_per_s", "nan"),
        ("response_bytes", "1e18"),
        ("application_ns", "1e30"),
        ("link_gbps", "1e-300"),
        ("bus_gbps", "inf"),
        ("mss_bytes", "1e-300"),
        ("engine_cores", "0"),
        ("engine_cores", "1000000000"),
        ("threads", "1000000000000"),
        ("target_p99_us", "-1"),
    ] {
        let said = wrong(&format!("{key} = {absurd}"));
        assert!(
            said.starts_with(&format!("line 1: {key}: ")),
            "{key} {absurd}: {said}"
        );
    }
    assert!(wrong("other_load = 2").contains("between 0 and 1"));
    assert!(wrong("stacks = [\"kernel\"]").contains("two or more"));
    let moon = Workload::parse("stacks = [\"kernel\", \"moon\"]").unwrap();
    let error = plan(&moon, &Preset::of_tests()).unwrap_err().to_string();
    assert!(error.contains("\"moon\"") && error.contains("af_xdp"));
    let negative = include_str!("tests/costs.toml").replacen("value = 3700", "value = -1", 1);
    let error = Preset::parse(&negative).unwrap_err().to_string();
    assert!(error.starts_with("line 10: kernel.receive_ns"), "{error}");
    let missing = "machine = \"x\"\n[kernel]\nwhere = \"host\"\n";
    let error = Preset::parse(missing).unwrap_err().to_string();
    assert!(error.contains("receive_ns"), "{error}");
}

#[test]
fn answers_that_are_written_together_cost_what_they_save_less() {
    let costs = Preset::of_tests().stacks["inline"].clone();
    let mut batched = costs.clone();
    let saves = Value {
        value: 300.0,
        ..costs.send_ns.clone()
    };
    batched.set("together_saves_ns", saves);
    let one_by_one = Workload::default();
    let together = Workload {
        together: true,
        ..Workload::default()
    };
    let stack_ns = |w: &Workload, costs: &Costs| closed(w, costs).stack_ns;
    let whole = stack_ns(&one_by_one, &batched);
    assert!((stack_ns(&together, &batched) - whole + 300.0).abs() < 1e-9);
    assert!((stack_ns(&together, &costs) - whole).abs() < 1e-9);
}

#[test]
fn one_thread_uses_one_processor_and_clients_of_the_same_host_the_others() {
    let kernel = Preset::of_tests().stacks["kernel"].clone();
    let w = Workload {
        threads: 1,
        host_cores: 2,
        ..Workload::default()
    };
    let alone = closed(&w, &kernel);
    let host_ns = w.application_ns + alone.stack_ns;
    assert!((alone.capacity_per_s - 1e9 / host_ns).abs() < 1e-6);
    let crowded = Workload {
        client_ns: 3.0 * host_ns,
        ..w
    };
    let capacity = closed(&crowded, &kernel).capacity_per_s;
    assert!((capacity - 2e9 / (4.0 * host_ns)).abs() < 1e-6);
}

#[test]
fn a_gain_that_the_bands_do_not_hold_apart_from_none_is_said_to_be_perhaps_none() {
    let plan = planned(include_str!("../../../../workloads/rpc.toml"));
    let base = row(&plan, "kernel").error_band;
    let gains = plan.rows.iter().skip(1);
    let gains: Vec<_> = gains
        .filter(|row| row.buys == Buys::Yes && row.gain >= 0.1)
        .collect();
    assert!(!gains.is_empty());
    for row in gains {
        let least = (1.0 + row.gain) * (1.0 - row.error_band) / (1.0 + base) - 1.0;
        let said = format!("With the bands of both it is {:+.0} to", 100.0 * least);
        assert!(row.sentence.contains(&said), "{}", row.sentence);
        let is_unsure = row.sentence.contains("it may be no gain");
        assert_eq!(is_unsure, least < 0.1, "{}", row.sentence);
    }
}

#[test]
fn what_was_seen_of_a_program_counts_for_today_and_nothing_else() {
    let mut w = Workload::parse(include_str!("../../../../workloads/rpc.toml")).unwrap();
    w.observed_stack_ns = 5000.0;
    let (seen, shipped) = (
        plan_of(&w),
        planned(include_str!("../../../../workloads/rpc.toml")),
    );
    assert!((row(&seen, "kernel").closed.stack_ns - 5000.0).abs() < 1e-6);
    assert!((seen.preset_stack_ns - 9139.12).abs() < 0.01);
    let same = |stack| {
        let (a, b) = (row(&seen, stack).closed, row(&shipped, stack).closed);
        (a.capacity_per_s - b.capacity_per_s).abs() < 1e-6
    };
    assert!(same("dpdk") && same("inline"));
}

#[test]
fn the_error_band_is_that_of_the_model_where_costs_are_exact_and_grows_with_what_is_not() {
    let mut preset = Preset::of_tests();
    let w = Workload::parse(include_str!("../../../../workloads/rpc.toml")).unwrap();
    let band = |preset: &Preset| row(&plan(&w, preset).unwrap(), "kernel").error_band;
    let kernel = preset.stacks.get_mut("kernel").unwrap();
    let names: Vec<&str> = kernel.values().iter().map(|(name, _)| *name).collect();
    for name in &names {
        kernel.value_mut(name).unwrap().source = Source::Measured;
    }
    assert!((band(&preset) - MODEL_BAND).abs() < 1e-9);
    // 3,700 of 11,139 ns of a request, half of a spread of 40 %.
    let kernel = preset.stacks.get_mut("kernel").unwrap();
    kernel.receive_ns.spread = Some(0.4);
    let receive = kernel.receive_ns.value;
    let all = row(&plan(&w, &preset).unwrap(), "kernel").closed.stack_ns + 2_000.0;
    assert!((band(&preset) - MODEL_BAND - 0.2 * receive / all).abs() < 1e-9);
    let kernel = preset.stacks.get_mut("kernel").unwrap();
    kernel.receive_ns.source = Source::Assumed;
    assert!((band(&preset) - MODEL_BAND - 0.5 * receive / all).abs() < 1e-9);
}

#[test]
fn what_the_stacks_of_this_project_cost_was_measured() {
    let w = Workload::parse(include_str!("../../../../workloads/rpc.toml")).unwrap();
    let plan = plan(&w, &Preset::shipped()).unwrap();
    for stack in ["kernel", "inline", "engine", "af_xdp"] {
        let share = row(&plan, stack).measured_share;
        assert!(share > 0.9, "{stack}: {share}");
    }
}
