//! `shunt stacks`: one entry for each independent stack, as it is at the moment of the call.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::time::Duration;

use serde_json::Value;
use testkit::{Lab, Program, host, run, serving_engine, two_hosts, wait_for, world};

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");

fn engine(lab: &Lab, arguments: &[&str]) -> Program {
    serving_engine(lab, SHUNT, arguments)
}

fn stacks(lab: &Lab) -> Value {
    let printed = run(host(lab, "a"), SHUNT, &["stacks", "--json"]);
    serde_json::from_str(&printed.stdout).unwrap()
}

#[test]
fn three_interfaces_of_the_kernel_and_two_engines_are_three_stacks() {
    if !world::can_run("stacks", &["ip"]) {
        return;
    }
    let lab = two_hosts("stacks");
    let ip = |words: &[&str]| drop(run(host(&lab, "a"), "ip", words));
    ip(&[
        "link", "add", "eth1", "type", "veth", "peer", "name", "eth2",
    ]);
    ip(&["link", "set", "eth1", "up"]);
    ip(&["link", "set", "eth2", "up"]);
    let _first = engine(&lab, &[]);
    let second = ["--name", "@shunt/second", "--address", "10.77.0.90/24"];
    let _second = engine(&lab, &[&second[..], &["--gateway", "10.77.0.2"]].concat());

    let all = stacks(&lab);
    let list = all.as_array().unwrap();
    let names: Vec<&str> = list
        .iter()
        .map(|one| one["stack"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["@shunt/engine", "@shunt/second", "kernel"], "{all}");
    let order: Vec<u64> = list
        .iter()
        .map(|one| one["order"].as_u64().unwrap())
        .collect();
    assert_eq!(order, [0, 1, 2]);
    let of_kernel = list[2]["interfaces"].as_array().unwrap();
    for name in ["eth0", "eth1", "eth2"] {
        assert!(of_kernel.iter().any(|one| one["name"] == name), "{all}");
    }
    let second = &list[1];
    assert_eq!(second["interfaces"][0]["addresses"][0], "10.77.0.90/24");
    let has_default =
        |route: &Value| route["destination"] == "0.0.0.0/0" && route["gateway"] == "10.77.0.2";
    assert!(
        second["routes"].as_array().unwrap().iter().any(has_default),
        "{second}"
    );

    ip(&["route", "add", "198.51.100.0/24", "via", "10.77.0.2"]);
    wait_for("route of the kernel", Duration::from_secs(1), || {
        let routes = stacks(&lab)[2]["routes"].clone();
        routes.as_array().unwrap().iter().any(|route| {
            route["destination"] == "198.51.100.0/24"
                && route["gateway"] == "10.77.0.2"
                && route["interface"] == "eth0"
        })
    });
}

#[test]
fn without_an_engine_the_kernels_stack_is_the_only_one() {
    let lab = two_hosts("stacks-none");
    let all = stacks(&lab);
    assert_eq!(all.as_array().unwrap().len(), 1, "{all}");
    assert_eq!(all[0]["stack"], "kernel");
}
