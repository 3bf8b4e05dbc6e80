//! What a program's calls cost, with an engine beside it: system calls, copies, and what crosses the wire with
//! offloads on and off. The peer is the kernel of the other host.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::io::Write as _;
use std::path::Path;

use serde_json::Value;
use testkit::{Lab, LabSpec, PATIENCE, Program, host};

const PEER: &str = "10.77.0.2:9100";
const MESSAGE_BYTES: &str = "64";
/// Payload of a full packet over Ethernet, with time stamps or without.
const MSS: std::ops::RangeInclusive<u64> = 1448..=1460;

fn shunt() -> String {
    testkit::shunt().to_str().unwrap().to_owned()
}

/// Said past libtest's capture.
fn skip(reason: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: fast_path: {reason}");
}

/// A lab with an engine of these flags on host a.
fn laboratory(test: &str, flags: &[&str]) -> Option<(Lab, Program)> {
    let name = format!("t-fast-{test}");
    let lab = match Lab::temporary(&name, &LabSpec::default()) {
        Ok(lab) => lab,
        Err(reason) => {
            skip(&reason.to_string());
            return None;
        }
    };
    let line = [&["engine"][..], flags].concat();
    let engine = testkit::once_serving(testkit::start(host(&lab, "a"), &shunt(), &line));
    Some((lab, engine))
}

/// A peer that takes what a program of these calls sends, or sends what it takes.
fn peer(lab: &Lab, call: &str) -> Program {
    let line = ["load", "stream", "--listen", PEER, "--peer", call];
    let mut peer = testkit::start(host(lab, "b"), &shunt(), &line);
    let listens = |peer: &Program| peer.stdout().contains("listening");
    peer.wait_until("peer", PATIENCE, listens).unwrap();
    peer
}

/// Calls of one kind on the engine, for half a second; what the program says of them.
fn call(lab: &Lab, before: &[&str], call: &str) -> Value {
    let _peer = peer(lab, call);
    let shunt = shunt();
    let run = [
        &shunt,
        "run",
        "--policy",
        "engine-only",
        "--",
        &shunt,
        "load",
        "calls",
    ];
    let given = [
        "--connect",
        PEER,
        "--call",
        call,
        "--size",
        MESSAGE_BYTES,
        "--seconds",
        "0.5",
    ];
    let line = [before, &run, &given].concat();
    let (program, arguments) = line.split_first().unwrap();
    let finished = testkit::run(host(lab, "a"), program, arguments);
    serde_json::from_str(&finished.stdout).unwrap()
}

fn status(lab: &Lab) -> Value {
    let finished = testkit::run(host(lab, "a"), &shunt(), &["status", "--json"]);
    serde_json::from_str(&finished.stdout).unwrap()
}

/// All system calls that `strace -c` counted: the fourth column of its last line.
fn counted(summary: &Path) -> u64 {
    let text = std::fs::read_to_string(summary).unwrap();
    let total = text.lines().find(|line| line.ends_with("total")).unwrap();
    let calls = total.split_ascii_whitespace().nth(3).unwrap();
    calls.parse().unwrap()
}

#[test]
fn under_load_system_calls_are_few_beside_messages() {
    let Some((lab, _engine)) = laboratory("calls", &[]) else {
        return;
    };
    if std::process::Command::new("strace")
        .arg("-V")
        .output()
        .is_err()
    {
        skip("strace is not installed");
        return;
    }
    let summary = std::env::temp_dir().join(format!("shunt-strace-{}", std::process::id()));
    for way in ["send", "recv"] {
        let strace = ["strace", "-f", "-c", "-o", summary.to_str().unwrap()];
        let outcome = call(&lab, &strace, way);
        let (messages, calls) = (outcome["calls"].as_u64().unwrap(), counted(&summary));
        std::fs::remove_file(&summary).unwrap();
        // Starting the program takes some hundreds.
        assert!(
            calls < 2_000 + messages / 20,
            "{way}: {calls} for {messages} messages"
        );
        assert!(messages > 10_000, "{way}: {messages} messages are no load");
    }
}

#[test]
fn status_tells_one_copy_of_what_is_sent_and_two_of_what_is_received() {
    let Some((lab, _engine)) = laboratory("copies", &[]) else {
        return;
    };
    let sent = call(&lab, &[], "send")["bytes"].as_u64().unwrap();
    let received = call(&lab, &[], "recv")["bytes"].as_u64().unwrap();
    let copies = &status(&lab)["copies"];
    assert!(copies["sent_bytes"].as_u64().unwrap() >= sent);
    assert!(copies["received_bytes"].as_u64().unwrap() >= received);
    assert_eq!(copies["per_sent_byte"], 1.0);
    // What the program did not take before it ended was placed all the same.
    let each = copies["per_received_byte"].as_f64().unwrap();
    assert!((2.0..2.5).contains(&each), "{each}");
}

#[test]
fn without_offloads_every_frame_is_a_packet_of_its_own() {
    let flags = ["--no-tso", "--no-gro"];
    let Some((lab, _engine)) = laboratory("plain", &flags) else {
        return;
    };
    let sent = call(&lab, &[], "send")["bytes"].as_u64().unwrap();
    let received = call(&lab, &[], "recv")["bytes"].as_u64().unwrap();
    let status = status(&lab);
    assert_eq!(status["caps"]["tso_max_bytes"], 0);
    assert_eq!(status["caps"]["gro"], false);
    let frames = status["driver_counters"]["tx_frames"].as_u64().unwrap();
    assert!(
        frames >= sent / MSS.end(),
        "{frames} frames for {sent} bytes"
    );
    let segments = status["stack_counters"]["TcpInSegs"].as_u64().unwrap();
    let least = received / MSS.end();
    assert!(
        segments >= least,
        "{segments} segments for {received} bytes"
    );
}

#[test]
fn without_checksum_offload_bytes_arrive_both_ways() {
    let flags = ["--no-checksum-offload"];
    let Some((lab, _engine)) = laboratory("sums", &flags) else {
        return;
    };
    for way in ["send", "recv"] {
        assert!(call(&lab, &[], way)["bytes"].as_u64().unwrap() > 0);
    }
    let status = status(&lab);
    assert_eq!(status["caps"]["tx_checksum"], false);
    assert_eq!(status["caps"]["rx_checksum"], false);
    assert_eq!(status["driver_counters"]["tx_dropped"], 0);
    assert_eq!(status["stack_counters"]["TcpInCsumErrors"], 0);
}
