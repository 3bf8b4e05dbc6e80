//! What a short connection costs beside its frames: system calls about descriptors, names and options, of both ends together.
//!
//! Calls that send, that wait or that look at the device are not counted: how many there are depends on who is faster.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::{Lab, LabSpec, PATIENCE, host, world};

const TEST: &str = "connection_calls";
/// Where the server listens, and the client's own address.
const SERVER: (&str, &str) = ("10.77.0.12", "10.77.0.12/24");
const CLIENT: &str = "10.77.0.11/24";
const PORT: u16 = 9100;
/// Everything that makes, names, asks or closes a socket, or asks what a process is.
const COUNTED: &str = "trace=socket,socketpair,bind,listen,connect,accept,accept4,getsockname,getpeername,getsockopt,setsockopt,\
                       shutdown,close,fcntl,dup,dup2,dup3,fstat,ioctl,getpid,gettid,sendmsg,recvmsg,getrandom";
/// What a start takes, and what the helper threads do now and then.
const START: u64 = 900;

/// Calls by name and, where that tells more, by what is asked.
fn counts(trace: &Path) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in std::fs::read_to_string(trace).unwrap().lines() {
        // `1234  close(5)                        = 0`; the second half of a call that was interrupted begins with `<`.
        let Some((call, rest)) = line.split_once('(') else {
            continue;
        };
        let Some(name) = call.split_ascii_whitespace().last() else {
            continue;
        };
        let kind = rest
            .split(", ")
            .find(|word| word.starts_with("F_") || word.starts_with("SO_"));
        let kind =
            kind.map(|word| word.trim_end_matches(|last: char| !last.is_ascii_alphanumeric()));
        let kind = kind.map(|word| word.split([')', ' ']).next().unwrap_or(word));
        // A frame, or a look for one, before the packet socket has a ring.
        if name == "recvmsg" && rest.contains("MSG_TRUNC") {
            continue;
        }
        match (name, kind) {
            // Debug builds look whether a descriptor is open before they close it; who waits asks the device for its errors.
            (_, Some("F_GETFD" | "SO_ERROR")) => continue,
            (name, Some(kind)) => *counts.entry(format!("{name} {kind}")).or_default() += 1,
            (name, None) => *counts.entry(name.to_owned()).or_default() += 1,
        }
    }
    counts
}

fn traced(trace: &Path, address: &str, program: &[&str]) -> Vec<String> {
    let shunt = testkit::shunt().to_str().unwrap();
    let trace = trace.to_str().unwrap();
    // Calls that are not counted do not stop.
    let strace = [
        "-f",
        "--seccomp-bpf",
        "-qq",
        "-e",
        COUNTED,
        "-o",
        trace,
        shunt,
        "run",
    ];
    let run = [
        "--engine-mode=inline",
        "--policy",
        "engine-only",
        "--address",
        address,
        "--",
        shunt,
    ];
    [&strace[..], &run, program]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect()
}

/// Both ends' calls while short connections are made, and how many were.
fn measured(lab: &Lab, folder: &Path) -> (u64, BTreeMap<String, u64>) {
    let [of_server, of_client] = ["server", "client"].map(|end| folder.join(end));
    let listen = format!("{}:{PORT}", SERVER.0);
    let line = traced(
        &of_server,
        SERVER.1,
        &["load", "accept", "--listen", &listen],
    );
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    let mut server = testkit::start(host(lab, "b"), "strace", &line);
    let listens = |one: &testkit::Program| one.stdout().contains("listening");
    server.wait_until("server", PATIENCE, listens).unwrap();
    let line = traced(
        &of_client,
        CLIENT,
        &["load", "connect", "--connect", &listen, "--seconds", "2"],
    );
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    let mut client = testkit::start(host(lab, "a"), "strace", &line);
    // What it leaves behind goes on for a minute, traced.
    let says = |one: &testkit::Program| one.stdout().contains("create_and_close_us");
    client.wait_until("client", PATIENCE, says).unwrap();
    let outcome = client.stdout();
    drop((client, server));
    let outcome: Value = serde_json::from_str(&outcome).unwrap();
    let mut all = counts(&of_server);
    for (name, count) in counts(&of_client) {
        *all.entry(name).or_default() += count;
    }
    (outcome["connections"].as_u64().unwrap(), all)
}

fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("shunt-{TEST}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn a_short_connection_costs_nine_calls_of_both_ends_beside_its_frames() {
    let missing = world::missing(&["strace"]);
    if !missing.is_empty() {
        return world::skip(TEST, "strace is not installed");
    }
    let lab = match Lab::temporary("t-connection-calls", &LabSpec::default()) {
        Ok(lab) => lab,
        Err(reason) => return world::skip(TEST, &reason.to_string()),
    };
    let folder = folder();
    let (connections, calls) = measured(&lab, &folder);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(connections > 100, "{connections} connections say nothing");
    let all: u64 = calls.values().sum();
    assert!(
        all < START + 9 * connections,
        "{all} calls for {connections} connections: {calls:?}"
    );
    // Each end makes, closes and lets its engine have a descriptor, and asks nothing.
    for name in [
        "bind",
        "getsockname",
        "getpid",
        "getsockopt SO_TYPE",
        "setsockopt SO_REUSEADDR",
    ] {
        let count = calls.get(name).copied().unwrap_or(0);
        assert!(
            count < connections / 4,
            "{name}: {count} for {connections} connections"
        );
    }
}
