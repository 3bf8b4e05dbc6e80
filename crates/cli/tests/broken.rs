//! Set-ups that were broken on purpose: `shunt doctor` and `shunt explain` name what is wrong with them.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use serde_json::Value;
use testkit::{Finished, Lab, PATIENCE, Program, host, run, start, two_hosts, world};

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");

fn finished(lab: &Lab, program: &str, words: &[&str]) -> Finished {
    let started = start(host(lab, "a"), program, words);
    started.finish(PATIENCE, || false).unwrap()
}

#[test]
fn an_interface_that_is_not_there_or_down_is_named() {
    if !world::can_run("broken-interface", &["ip"]) {
        return;
    }
    let lab = two_hosts("broken-interface");
    let absent = finished(&lab, SHUNT, &["doctor", "eth7"]);
    assert_eq!(absent.status.code(), Some(2), "{}", absent.stdout);
    assert!(absent.stderr.contains("eth7"), "{}", absent.stderr);
    let words = [
        "link", "add", "eth7", "type", "veth", "peer", "name", "eth8",
    ];
    run(host(&lab, "a"), "ip", &words);
    let down = finished(&lab, SHUNT, &["doctor", "eth7", "--json"]);
    let report: Value = serde_json::from_str(&down.stdout).unwrap();
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("ip link set eth7 up"), "{report}");
}

#[test]
fn a_privilege_that_is_missing_is_named_with_what_it_prevents() {
    if !world::can_run("broken-privilege", &["setpriv"]) {
        return;
    }
    let lab = two_hosts("broken-privilege");
    let fewer = ["--bounding-set=-net_raw", "--inh-caps=-net_raw", SHUNT];
    let report = finished(
        &lab,
        "setpriv",
        &[&fewer[..], &["doctor", "--json"]].concat(),
    );
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let missing: Vec<&Value> = findings
        .iter()
        .filter(|one| one["state"] == "missing")
        .collect();
    let raw = missing.iter().find(|one| one["name"] == "CAP_NET_RAW");
    let raw = raw.unwrap_or_else(|| panic!("{missing:?}"));
    assert!(
        raw["prevents"].as_str().unwrap().contains("AF_PACKET"),
        "{raw}"
    );
    // And whoever goes on all the same is told the same.
    let refused = finished(&lab, "setpriv", &[&fewer[..], &["engine"]].concat());
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stderr.contains("CAP_NET_RAW"), "{}", refused.stderr);
}

const LISTENS: &str = "
import signal, socket, sys
listener = socket.create_server((sys.argv[1], 7000))
print('ready', flush=True)
signal.pause()
";

#[test]
fn a_foreign_process_on_the_port_is_named() {
    if !world::can_run("broken-port", &["python3"]) {
        return;
    }
    let lab = two_hosts("broken-port");
    let is_ready = |one: &Program| one.stdout().contains("ready");
    let mut foreign = start(host(&lab, "a"), "python3", &["-c", LISTENS, "0.0.0.0"]);
    foreign
        .wait_until("foreign process", PATIENCE, is_ready)
        .unwrap();
    let words = [
        "run",
        "--engine-mode=process",
        "--",
        "python3",
        "-c",
        LISTENS,
        "10.77.0.11",
    ];
    let refused = finished(&lab, SHUNT, &words);
    assert!(refused.stderr.contains("in use"), "{}", refused.stderr);
    let holders = || -> Value {
        let said = run(
            host(&lab, "a"),
            SHUNT,
            &["explain", "--port", "7000", "--json"],
        );
        serde_json::from_str(&said.stdout).unwrap()
    };
    let found = holders();
    assert_eq!(found[0]["stack"], "kernel", "{found}");
    assert_eq!(found[0]["pid"], foreign.pid(), "{found}");
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
    drop(foreign);
    // Then it is the engine's, once.
    let mut served = start(host(&lab, "a"), SHUNT, &words);
    served
        .wait_until("served process", PATIENCE, is_ready)
        .unwrap();
    let found = holders();
    assert_eq!(found[0]["stack"], "@shunt/run/10.77.0.11", "{found}");
    assert_eq!(found[0]["pid"], served.pid(), "{found}");
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
}

#[test]
fn checksums_that_are_left_to_a_card_that_is_none_are_named() {
    if !world::can_run("broken-checksums", &["ethtool"]) {
        return;
    }
    let lab = two_hosts("broken-checksums");
    let warnings = || {
        let report = finished(&lab, SHUNT, &["doctor", "eth0", "--json"]);
        let report: Value = serde_json::from_str(&report.stdout).unwrap();
        report["warnings"].to_string()
    };
    let left_on = warnings();
    assert!(left_on.contains("ethtool -K eth0 tx off"), "{left_on}");
    // What it says to do is what mends it.
    run(host(&lab, "a"), "ethtool", &["-K", "eth0", "tx", "off"]);
    let mended = warnings();
    assert!(!mended.contains("checksum"), "{mended}");
}

const SPINS: &str = "
print('ready', flush=True)
while True:
    pass
";

#[test]
fn a_busy_machine_is_named_with_who_keeps_it_busy() {
    if !world::can_run("broken-busy", &["python3"]) {
        return;
    }
    let lab = two_hosts("broken-busy");
    let mut spins = start(host(&lab, "a"), "python3", &["-c", SPINS]);
    spins
        .wait_until("spinning process", PATIENCE, |one| {
            one.stdout().contains("ready")
        })
        .unwrap();
    let report = finished(&lab, SHUNT, &["doctor", "--json"]);
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let quiet = findings.iter().find(|one| one["name"] == "quiet").unwrap();
    assert_eq!(quiet["state"], "limited", "{quiet}");
    // On a machine that others use as well they may be the ones that are named.
    let found = quiet["found"].as_str().unwrap();
    assert!(found.contains(" processors in use: "), "{quiet}");
    assert!(
        quiet["set"].as_str().unwrap().contains("taskset"),
        "{quiet}"
    );
    // A machine in use still runs Shunt.
    assert_ne!(report["recommended"], "none");
    drop(spins);
}
