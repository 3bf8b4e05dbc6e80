//! `shunt ping --stages`: what becomes of a message on two hosts of this machine, over Shunt's stack and the kernel's.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");

fn shunt(words: &[&str]) -> Output {
    Command::new(SHUNT).args(words).output().unwrap()
}

fn json(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn number(value: &Value, name: &str) -> f64 {
    value[name]
        .as_f64()
        .unwrap_or_else(|| panic!("{name} in {value}"))
}

#[test]
fn stages_of_every_stack_add_up_to_the_round_trip_and_path_diff_takes_them() {
    let found = shunt(&[
        "ping",
        "--stages",
        "--compare",
        "inline,engine,kernel",
        "--count",
        "300",
        "--rounds",
        "1",
        "--json",
    ]);
    let report = json(&found);
    assert_eq!(found.status.code(), Some(0), "{report}");
    let modes = report["modes"].as_array().unwrap();
    assert_eq!(modes.len(), 3);
    for mode in modes {
        let (total, sum) = (number(mode, "round_trip_ns"), number(mode, "sum_ns"));
        assert!((total - sum).abs() <= 0.05 * total, "{mode}");
        let stretches = mode["stretches"].as_array().unwrap();
        let means: f64 = stretches.iter().map(|one| number(one, "mean_ns")).sum();
        assert!((means - sum).abs() < 1.0, "{mode}");
        let groups = mode["groups_ns"].as_object().unwrap();
        let groups: f64 = groups.values().filter_map(Value::as_f64).sum();
        assert!((groups - sum).abs() < 1.0, "{mode}");
        assert_eq!(mode["round_trips"], 300);
    }
    // Shunt's stack is told apart as far as its own marks go, the kernel's by its stamps.
    for name in [
        "call",
        "ring",
        "pick-up",
        "TCP/IP, sending",
        "TCP/IP, receiving",
        "placement",
        "wake-up",
        "return",
    ] {
        for mode in &modes[..2] {
            assert!(mode["stages_ns"][name].is_number(), "{name}: {mode}");
        }
    }
    for name in ["driver transmit", "wire", "application"] {
        assert!(
            modes[2]["stages_ns"][name].is_number(),
            "{name}: {}",
            modes[2]
        );
    }

    let file = std::env::temp_dir().join(format!("shunt-stages-test-{}.json", std::process::id()));
    let file = Removed(file);
    std::fs::write(&file.0, &found.stdout).unwrap();
    let path = file.0.to_str().unwrap();
    let diff = json(&shunt(&[
        "path", "diff", "stages", "--with", path, "--json",
    ]));
    let names: Vec<&str> = diff
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert!(
        names.contains(&"ring") && names.contains(&"driver transmit"),
        "{diff}"
    );
}

#[test]
fn of_a_host_that_is_not_looked_into_this_end_is_told() {
    let mut echo = Ended(
        Command::new(SHUNT)
            .args(["echo", "--listen", "127.0.0.1:17007"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap(),
    );
    // Its first line says that it serves.
    let mut line = String::new();
    let mut said = std::io::BufReader::new(echo.0.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    let found = shunt(&[
        "ping",
        "127.0.0.1",
        "--stages",
        "--port",
        "17007",
        "--count",
        "200",
        "--rounds",
        "1",
        "--json",
    ]);
    let report = json(&found);
    assert_eq!(found.status.code(), Some(0), "{report}");
    let kernel = &report["modes"][0];
    let (total, sum) = (number(kernel, "round_trip_ns"), number(kernel, "sum_ns"));
    assert!((total - sum).abs() <= 0.05 * total, "{kernel}");
    assert!(
        kernel["stages_ns"]["driver transmit"].is_number(),
        "{kernel}"
    );
}

#[test]
fn over_af_xdp_the_arrival_is_told_apart_from_the_wire() {
    let lab = testkit::two_hosts("ping-xdp");
    let [a, b] = ["a", "b"].map(|name| testkit::host(&lab, name));
    let _server = testkit::once_serving(testkit::start(
        a,
        SHUNT,
        &["echo", "--listen", "10.77.0.1:7007"],
    ));
    let line = "ping 10.77.0.1 --stages --count 200 --rounds 1 --json --compare inline --run";
    let flags = "--driver af_xdp --nic eth0 --address 10.77.0.60/24";
    let line: Vec<&str> = line.split(' ').chain([flags]).collect();
    let found: Value = serde_json::from_str(&testkit::run(b, SHUNT, &line).stdout).unwrap();
    let inline = &found["modes"][0];
    assert!(
        inline["stages_ns"]["driver receive"].is_number(),
        "{inline}"
    );
}

#[test]
fn each_round_has_an_engine_that_notes_and_one_that_does_not_is_named() {
    let lab = testkit::two_hosts("ping-stages-rounds");
    let [a, b] = ["a", "b"].map(|name| testkit::host(&lab, name));
    let echo = ["echo", "--listen", "10.77.0.1:7007"];
    let _server = testkit::once_serving(testkit::start(a, SHUNT, &echo));
    let line = "ping 10.77.0.1 --stages --count 50 --json --compare engine --rounds 2 --run";
    let flags = "--nic eth0 --address 10.77.0.60/24";
    let line: Vec<&str> = line.split(' ').chain([flags]).collect();
    let found: Value = serde_json::from_str(&testkit::run(b, SHUNT, &line).stdout).unwrap();
    let engine = &found["modes"][0];
    let stages = &engine["stages_ns"];
    assert!(stages["TCP/IP, sending"].is_number(), "{engine}");
    // Some program's, at the same address.
    let other = ["run", "--engine-mode=process", "--nic=eth0", "--address"];
    let program = ["10.77.0.60/24", "--", SHUNT, "echo", "--listen"];
    let other = [&other[..], &program, &["10.77.0.60:7008"]].concat();
    let _other = testkit::once_serving(testkit::start(b, SHUNT, &other));
    let found = b.command(SHUNT).unwrap().args(&line).output().unwrap();
    let text = String::from_utf8(found.stderr).unwrap();
    assert!(text.contains("was not started to note stages"), "{text}");
}

#[test]
fn what_has_no_stages_is_refused() {
    for words in [
        &["ping", "--stages", "--udp"][..],
        &["ping", "--stages", "--size", "9000"],
        &["ping", "--stages", "--count", "1000000"],
        &["ping", "--stages", "--rate", "10"],
    ] {
        let found = shunt(words);
        assert_eq!(found.status.code(), Some(2), "{words:?}");
        assert!(found.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn what_nobody_answers_is_told_with_the_reason() {
    let lab = testkit::two_hosts("ping-stages-nobody");
    let a = testkit::host(&lab, "a");
    let said = |line: &str, more: &[&str]| {
        let words: Vec<&str> = line.split(' ').chain(more.iter().copied()).collect();
        let found = a.command(SHUNT).unwrap().args(words).output().unwrap();
        assert_eq!(found.status.code(), Some(2));
        String::from_utf8(found.stderr).unwrap()
    };
    let text = said("ping 10.77.0.2 --stages --rounds 1 --port 9", &[]);
    assert!(text.contains("Connection refused"), "{text}");
    // A flag that does not fit is told in the words of `shunt run`, and nothing beside them.
    let flags = "--driver tap --nic tap7 --address 10.9.0.2/24";
    let line = "ping 10.77.0.2 --compare inline,kernel --connect --rounds 1 --run";
    let text = said(line, &[flags]);
    let last = text.trim().lines().last().unwrap();
    assert!(last.contains("needs --driver"), "{text}");
    assert!(!text.contains("EOF while parsing"), "{text}");
}

struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
