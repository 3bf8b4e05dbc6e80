//! An engine with two cores is killed, or another build takes its place: the connections of each core go on.

use std::fs;

use serde_json::Value;
use testkit::world::{self, Mode, World};

use super::{
    CONNECTIONS, datagrams_go_on, disturbed, given_up_is_heard, kill_engine, status,
    thousand_go_on, upgrades_and_refusals,
};

fn can_run(test: &str) -> bool {
    world::can_run(test, &["python3"])
}

#[test]
fn a_thousand_connections_on_two_cores_go_on_over_a_kill_and_an_upgrade() {
    if !can_run("restart-cores") {
        return;
    }
    let world = World::new("restart-cores", Mode::Cores);
    let before = packet_sockets(&world);
    assert_eq!(before.len(), 2, "{before:?}");
    kill_engine(&world);
    // The queues of the device went on, too: their rings were not full, as they may be with so many connections.
    assert_eq!(packet_sockets(&world), before);
    let _programs = thousand_go_on(&world);
    let cores = &status(&world)["by_core"];
    let of_each: Vec<u64> = cores
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|core| core["connections"].as_u64())
        .collect();
    assert_eq!(of_each.len(), 2, "{cores}");
    assert_eq!(of_each.iter().sum::<u64>(), CONNECTIONS as u64, "{cores}");
    assert!(of_each.iter().all(|count| *count > 0), "{cores}");
}

/// The inodes of the packet sockets in the engine's network namespace (packet(7)).
fn packet_sockets(world: &World) -> Vec<String> {
    let path = format!("/proc/{}/net/packet", world.engine_pid());
    let text = fs::read_to_string(path).unwrap();
    let inodes = text.lines().skip(1);
    let mut inodes: Vec<String> = inodes
        .filter_map(|line| line.split_whitespace().last())
        .map(str::to_owned)
        .collect();
    inodes.sort();
    inodes
}

#[test]
fn a_transfer_over_two_cores_goes_on_while_the_engine_is_killed_again_and_again() {
    if !can_run("restart-cores-kill") {
        return;
    }
    for flags in [&[][..], &["--share"]] {
        let world = World::with_engine("restart-cores-kill", Mode::Cores, flags);
        for tested_sends in [true, false] {
            disturbed(&world, tested_sends, |_| kill_engine(&world));
        }
        let kept: &Value = &status(&world)["kept"];
        assert_eq!(kept["restarts"], 12, "{kept}");
    }
}

#[test]
fn another_build_takes_over_two_cores_and_a_broken_one_does_not() {
    if can_run("upgrade-cores") {
        upgrades_and_refusals(&World::new("upgrade-cores", Mode::Cores));
    }
}

#[test]
fn datagrams_of_an_engine_with_two_cores_go_on_while_it_is_killed() {
    datagrams_go_on("restart-udp-cores", Mode::Cores);
}

#[test]
fn a_service_of_two_cores_that_is_given_up_is_heard_of() {
    if can_run("restart-cores-reset") {
        given_up_is_heard(&World::new("restart-cores-reset", Mode::Cores));
    }
}
