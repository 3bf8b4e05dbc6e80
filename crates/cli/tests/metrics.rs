//! `shunt metrics`: what parsers of others read, and the same figures as `shunt status`; and logs in JSON.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::{
    io::{Read, Write},
    process::{Command, Stdio},
};

use serde_json::Value;
use testkit::{
    Lab, PATIENCE, Program, host, run, serving_engine, start, two_hosts, wait_for, world,
};

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");

fn engine(lab: &Lab, arguments: &[&str]) -> Program {
    serving_engine(lab, SHUNT, arguments)
}

fn printed(lab: &Lab, arguments: &[&str]) -> String {
    run(host(lab, "a"), SHUNT, arguments).stdout
}

/// What a program says of a text.
fn judged(program: &str, arguments: &[&str], text: &str) {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Less than a pipe holds may not fit: whoever judges reads all before it speaks.
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}\n{text}");
}

#[test]
fn promtool_has_nothing_to_say_against_two_engines() {
    if !world::can_run("metrics-promtool", &["promtool"]) {
        return;
    }
    let lab = two_hosts("metrics-promtool");
    let _first = engine(&lab, &[]);
    let second = ["--name", "@shunt/second", "--address", "10.77.0.90/24"];
    let _second = engine(&lab, &second);
    let text = printed(&lab, &["metrics", "--format", "prometheus"]);
    judged("promtool", &["check", "metrics"], &text);
    for name in ["@shunt/engine", "@shunt/second"] {
        let line = format!("shunt_engine_up{{engine=\"{name}\"}} 1");
        assert!(text.contains(&line), "{text}");
    }
}

/// Reads OpenMetrics by Prometheus' own library for Python.
const READS: &str = "
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read
families = list(read(sys.stdin.read()))
assert any(one.name == 'shunt_stack_tcp_in_segs' and one.type == 'counter' for one in families)
assert any(one.name == 'shunt_memory_total_bytes' and one.unit == 'bytes' for one in families)
polls, = [one for one in families if one.name == 'shunt_poll_seconds']
assert polls.type == 'histogram' and polls.unit == 'seconds', polls
";

#[test]
fn the_library_of_prometheus_reads_openmetrics() {
    if !world::can_run("metrics-python", &["python3"]) {
        return;
    }
    let import = Command::new("python3")
        .args(["-c", "import prometheus_client"])
        .stderr(Stdio::null())
        .status();
    if !import.is_ok_and(|status| status.success()) {
        return world::skip("metrics-python", "not installed: python3-prometheus-client");
    }
    let lab = two_hosts("metrics-python");
    let _engine = engine(&lab, &[]);
    judged("python3", &["-c", READS], &printed(&lab, &["metrics"]));
}

/// Asks the server that runs on host `a`, from there.
const ASKS: &str = "
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers={'Accept': sys.argv[2]})
with urllib.request.urlopen(request, timeout=30) as answer:
    print(answer.headers['Content-Type'])
    sys.stdout.write(answer.read().decode())
";

#[test]
fn a_scraper_gets_the_figures_of_status_in_the_form_that_it_asks_for() {
    if !world::can_run("metrics-http", &["python3"]) {
        return;
    }
    let lab = two_hosts("metrics-http");
    // An address that others reach as well, so that the engine counts frames: it hears the ARP of its own link.
    let _engine = engine(&lab, &[]);
    let mut server = start(
        host(&lab, "a"),
        SHUNT,
        &["metrics", "--listen", "127.0.0.1:0"],
    );
    server
        .wait_until("metrics", PATIENCE, |one| {
            one.stderr().contains("/metrics;")
        })
        .unwrap();
    let said = server.stderr();
    let url = said
        .split_whitespace()
        .find(|word| word.starts_with("http"));
    let url = url.unwrap().trim_end_matches(';').to_owned();
    let ask = |accept: &str| run(host(&lab, "a"), "python3", &["-c", ASKS, &url, accept]).stdout;
    let open = ask("application/openmetrics-text; version=1.0.0");
    assert!(open.starts_with("application/openmetrics-text"), "{open}");
    assert!(open.ends_with("# EOF\n"), "{open}");
    let plain = ask("*/*");
    assert!(plain.starts_with("text/plain; version=0.0.4"), "{plain}");

    let status: Value = serde_json::from_str(&printed(&lab, &["status", "--json"])).unwrap();
    for (name, value) in [
        ("shunt_engine_listeners", &status["listeners"]),
        ("shunt_engine_cores", &status["cores"]),
    ] {
        let line = format!("{name}{{engine=\"@shunt/engine\"}} {value}");
        assert!(open.lines().any(|one| one == line), "{line}\n{open}");
    }
}

/// Answers forty messages, and stays.
const ANSWERS: &str = "
import signal, socket
listener = socket.create_server(('10.77.0.11', 7000))
print('ready', flush=True)
one, _ = listener.accept()
for _ in range(40):
    one.send(one.recv(100))
one.close()
print('answered', flush=True)
signal.pause()
";

const ASKS_FORTY: &str = "
import socket
one = socket.create_connection(('10.77.0.11', 7000))
for _ in range(40):
    one.send(b'asked')
    assert one.recv(100) == b'asked'
";

#[test]
fn histograms_count_each_round_trip_and_each_frame_of_forty_answers() {
    if !world::can_run("metrics-histograms", &["python3"]) {
        return;
    }
    for mode in ["process", "inline"] {
        let lab = two_hosts(&format!("metrics-histograms-{mode}"));
        let engine_mode = format!("--engine-mode={mode}");
        let words = ["run", &engine_mode, "--", "python3", "-c", ANSWERS];
        let mut server = start(host(&lab, "a"), SHUNT, &words);
        let said = |word: &'static str| move |one: &Program| one.stdout().contains(word);
        server
            .wait_until("server", PATIENCE, said("ready"))
            .unwrap();
        run(host(&lab, "b"), "python3", &["-c", ASKS_FORTY]);
        server
            .wait_until("answers", PATIENCE, said("answered"))
            .unwrap();
        let status: Value = serde_json::from_str(&printed(&lab, &["status", "--json"])).unwrap();
        let histograms = &status["histograms"];
        // The SYN-ACK and each answer; the FIN may be acknowledged by then.
        let counts = 41..=42;
        let round_trips = &histograms["tcp_round_trip_us"];
        let count = round_trips["count"].as_u64().unwrap();
        assert!(counts.contains(&count), "{mode}: {round_trips}");
        let frames = &histograms["rx_burst_frames"];
        assert_eq!(frames["sum"], status["driver_counters"]["rx_frames"]);
        let polls = histograms["poll_us"]["count"].as_u64().unwrap();
        assert_eq!(polls > 0, mode == "process", "{histograms}");
        let metrics = printed(&lab, &["metrics"]);
        let name = "shunt_tcp_round_trip_seconds_count{";
        let line = metrics.lines().find(|line| line.starts_with(name));
        let told = line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok());
        assert!(told.is_some_and(|told| counts.contains(&told)), "{metrics}");
        let text = printed(&lab, &["status"]);
        assert!(text.contains("round trips (us): 4"), "{text}");
    }
}

#[test]
fn every_line_of_a_log_in_json_is_an_object() {
    let lab = two_hosts("metrics-log");
    let file = std::env::temp_dir().join(format!("shunt-json-log-{}", std::process::id()));
    let path = file.display().to_string();
    let words = [
        "engine",
        "--background",
        "--log-format=json",
        "--log",
        &path,
    ];
    run(host(&lab, "a"), SHUNT, &words);
    let text = || {
        let mut text = String::new();
        std::fs::File::open(&file)
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        text
    };
    wait_for("log", PATIENCE, || text().contains("serving"));
    for line in text().lines() {
        let object: Value = serde_json::from_str(line).unwrap();
        for field in ["timestamp", "level", "fields", "target"] {
            assert!(object.get(field).is_some(), "{field}: {line}");
        }
    }
    // What it could not do is said where it was started, in words.
    let words = [
        "engine",
        "--background",
        "--log-format=json",
        "--log",
        &path,
    ];
    let mut second = start(host(&lab, "a"), SHUNT, &words);
    second
        .wait_until("refusal", PATIENCE, |one| {
            one.stderr().contains("another engine")
        })
        .unwrap();
    assert!(!second.stderr().contains('{'), "{}", second.stderr());
    std::fs::remove_file(&file).unwrap();
}
