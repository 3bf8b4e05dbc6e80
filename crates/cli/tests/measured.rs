//! What `shunt` measures of the kernel's stack and of overload, end to end: that it measures, and says what it could
//! not. How fast this machine is is no matter here.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Output, Stdio},
};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");

fn shunt(arguments: &[&str]) -> Output {
    Command::new(SHUNT).args(arguments).output().unwrap()
}

fn json(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_layers_of_the_kernels_tcp_add_up_to_what_a_message_takes() {
    let output = shunt(&["measure", "layers", "--runs", "3", "--json"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && (errors.contains("root") || errors.contains("samples in")) {
        let _ = writeln!(std::io::stderr(), "skipped: layers: {}", errors.trim());
        assert!(
            !geteuid().is_root() || errors.contains("samples in"),
            "{errors}"
        );
        return;
    }
    let found = json(&output);
    let layers = found["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 6);
    let median = |value: &Value| value["median"].as_f64().unwrap();
    let of = |key: &str| layers.iter().map(|layer| median(&layer[key])).sum::<f64>();
    let (sent, received) = (of("send_ns"), of("receive_ns"));
    let transport = layers.iter().find(|layer| layer["layer"] == "transport");
    assert!(median(&transport.unwrap()["send_ns"]) > 0.0);
    // Medians of parts are not parts of the median, and a busy machine spreads them.
    let parts = sent + received + median(&found["rest_ns"]);
    assert!(
        (0.5..2.0).contains(&(parts / median(&found["whole_ns"]))),
        "{found}"
    );
}

/// Answers what comes, one byte each time, and asks itself nothing.
const ANSWERS: &str = "
import socket
listener = socket.create_server(('10.77.0.11', 7000))
print('ready', flush=True)
one, _ = listener.accept()
while True:
    one.send(one.recv(100))
";
const ASKS: &str = "
import socket
one = socket.create_connection(('10.77.0.11', 7000))
while True:
    one.send(b'asked')
    assert one.recv(100)
";

#[test]
fn the_layers_of_shunt_are_told_of_a_program_with_an_engine_inside() {
    let lab = testkit::two_hosts("measure-process");
    let [a, b] = ["a", "b"].map(|name| testkit::host(&lab, name));
    let words = [
        "run",
        "--engine-mode=inline",
        "--",
        "python3",
        "-c",
        ANSWERS,
    ];
    let mut server = testkit::start(a, SHUNT, &words);
    let is_ready = |one: &testkit::Program| one.stdout().contains("ready");
    server
        .wait_until("server", testkit::PATIENCE, is_ready)
        .unwrap();
    let _asks = testkit::start(b, "python3", &["-c", ASKS]);
    let pid = server.pid().to_string();
    let words = ["measure", "layers", "--process", &pid, "--json"];
    let found = shunt(&words);
    let errors = String::from_utf8_lossy(&found.stderr);
    if !found.status.success() && errors.contains("root") {
        let _ = writeln!(std::io::stderr(), "skipped: layers: {}", errors.trim());
        return assert!(!geteuid().is_root(), "{errors}");
    }
    let found = json(&found);
    let parts = found["parts"].as_array().unwrap();
    let share = |name: &str| {
        let row = parts.iter().find(|row| row["part"] == name);
        row.and_then(|row| row["share"].as_f64()).unwrap_or(0.0)
    };
    let all: f64 = parts.iter().filter_map(|row| row["share"].as_f64()).sum();
    assert!((all - 1.0).abs() < 1e-6, "{found}");
    assert!(share("library") > 0.0, "{found}");
    assert!(share("kernel, system call") > 0.0, "{found}");
    // Each is a few samples of a hundred.
    let inside = share("engine") + share("TCP/IP") + share("driver");
    assert!(inside > 0.0, "{found}");
}

#[test]
fn parts_of_this_machine_are_measured_or_named_with_the_reason() {
    let memory = json(&shunt(&["measure", "memory", "--runs", "3", "--json"]));
    let ns = memory["memory, 4 KiB pages"].as_f64().unwrap();
    assert!((5.0..5000.0).contains(&ns), "{memory}");

    let clock = json(&shunt(&["measure", "clock", "--seconds", "1", "--json"]));
    let clocks = clock["clocks"].as_array().unwrap();
    assert_eq!(clocks.len(), 4);
    assert!(
        clocks
            .iter()
            .all(|row| row["read_ns"]["median"].as_f64().unwrap() > 0.0)
    );

    // A device is measured, or said why not; a hypervisor's answer has another name than a bus's.
    let pcie = shunt(&["measure", "pcie", "--runs", "3", "--json"]);
    let found: Value = serde_json::from_slice(&pcie.stdout).unwrap();
    let names: Vec<&String> = found.as_object().unwrap().keys().collect();
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let is_virtual = cpuinfo.contains(" hypervisor");
    assert_eq!(pcie.status.code(), Some(i32::from(names.is_empty())));
    assert!(
        names
            .iter()
            .all(|name| name.starts_with("hypervisor") == is_virtual),
        "{names:?}"
    );
    assert!(!names.is_empty() || !pcie.stderr.is_empty());

    let folder = env!("CARGO_TARGET_TMPDIR");
    let disk = json(&shunt(&[
        "measure", "disk", folder, "--size", "8M", "--runs", "1", "--json",
    ]));
    let rows = disk["parts"][0]["rows"].as_array().unwrap();
    let keys: Vec<&Value> = rows.iter().map(|row| &row["key"]).collect();
    // What is read comes from the disk: not from the page cache, as what a transfer sends.
    assert_eq!(keys, ["disk-write", "disk-read"], "{disk}");
    assert_eq!(disk["measured"], "disk");

    for (words, status) in [
        (["measure", "pcie", "ffff:ff:1f.7"], 2),
        (["measure", "pcie", "../../etc"], 2),
        (["measure", "disk", "/nonexistent"], 2),
        (["measure", "disk", "/proc"], 1),
    ] {
        assert_eq!(shunt(&words).status.code(), Some(status), "{words:?}");
    }
}

#[test]
fn a_server_that_is_asked_twice_what_it_can_do_still_answers() {
    let output = shunt(&["bench", "overload", "--x", "2", "--runs", "1", "--json"]);
    let found = json(&output);
    let rows = found["rows"].as_array().unwrap();
    for stack in ["kernel", "inline"] {
        let row = rows.iter().find(|row| row["stack"] == stack).unwrap();
        assert!(
            row["answered_per_s"]["median"].as_f64().unwrap() > 100.0,
            "{row}"
        );
    }
    let named = |stack: &str| {
        let skipped = found["skipped"].as_array().unwrap().iter();
        let skipped = skipped.filter_map(Value::as_str);
        rows.iter().any(|row| row["stack"] == stack)
            || skipped.into_iter().any(|why| why.starts_with(stack))
    };
    assert!(named("engine") && named("af_xdp"), "{found}");
    let wrong = shunt(&["bench", "overload", "--x", "0"]);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn a_calibration_that_is_interrupted_ends_with_130() {
    let mut child = Command::new(SHUNT)
        .args(["sim", "calibrate"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    // It measures in a lab now.
    let begun = lines.find(|line| line.as_ref().unwrap().contains("answers of"));
    assert!(begun.is_some(), "it ended without a lab");
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let last = lines.map_while(Result::ok).last();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{last:?}");
    assert_eq!(last.as_deref(), Some("shunt: interrupted"));
}
