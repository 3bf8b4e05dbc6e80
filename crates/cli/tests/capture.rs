//! `shunt capture`: what other programs read in its files is what went over the engine.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::{path::PathBuf, process::Command};

use serde_json::Value;
use testkit::{
    Lab, PATIENCE, Program, host, run, serving_engine, start, two_hosts, wait_for, world,
};

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");

/// Sends back what one client after the other sends, on a port for each argument.
const ECHO: &str = "
import select, socket, sys
listeners = [socket.create_server(('10.77.0.11', int(port))) for port in sys.argv[1:]]
print('ready', flush=True)
while True:
    for one in select.select(listeners, [], [])[0]:
        with one.accept()[0] as client:
            while data := client.recv(1000):
                client.sendall(data)
";

/// Sends and receives so many bytes so many times.
const ASK: &str = "
import socket, sys
port, count, size = map(int, sys.argv[1:])
with socket.create_connection(('10.77.0.11', port), 60) as one:
    for _ in range(count):
        one.sendall(b'x' * size)
        left = size
        while left: left -= len(one.recv(left))
";

fn echo(lab: &Lab, mode: &str) -> Program {
    let mode = format!("--engine-mode={mode}");
    let words = ["run", &mode, "--", "python3", "-c", ECHO, "7000", "7001"];
    let mut server = start(host(lab, "a"), SHUNT, &words);
    let is_ready = |one: &Program| one.stdout().contains("ready");
    server.wait_until("echo", PATIENCE, is_ready).unwrap();
    server
}

fn ask(lab: &Lab, port: &str, count: &str, size: &str) {
    run(host(lab, "b"), "python3", &["-c", ASK, port, count, size]);
}

/// A file that goes with its test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("shunt-capture-{name}-{}.pcapng", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It may not have been written.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn capture(lab: &Lab, arguments: &[&str]) -> Program {
    let mut capture = start(host(lab, "a"), SHUNT, &[&["capture"], arguments].concat());
    let is_attached = |one: &Program| one.stderr().contains("Ctrl-C ends it");
    capture
        .wait_until("capture", PATIENCE, is_attached)
        .unwrap();
    capture
}

/// Ends it as Ctrl-C does: what it says at the end.
fn interrupted(capture: Program) -> Value {
    let pid = rustix::process::Pid::from_raw(i32::try_from(capture.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let finished = capture
        .finish(PATIENCE, || false)
        .unwrap()
        .success()
        .unwrap();
    serde_json::from_str(&finished.stdout).unwrap()
}

fn lines(program: &str, arguments: &[&str]) -> Vec<String> {
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text.lines().map(str::to_owned).collect()
}

#[test]
fn what_tcpdump_and_tshark_read_is_what_the_peer_has_seen() {
    if !world::can_run("capture-read", &["python3", "tcpdump", "tshark"]) {
        return;
    }
    for mode in ["process", "inline"] {
        let lab = two_hosts(&format!("capture-{mode}"));
        let _server = echo(&lab, mode);
        let scratch = Scratch::new(mode);
        let file = scratch.path();
        let peers = Scratch::new(&format!("{mode}-peer"));
        let words = [
            "-n",
            "-U",
            "-i",
            "eth0",
            "-w",
            &peers.path(),
            "tcp port 7000",
        ];
        let mut peer = start(host(&lab, "b"), "tcpdump", &words);
        let listens = |one: &Program| one.stderr().contains("listening on");
        peer.wait_until("tcpdump", PATIENCE, listens).unwrap();
        let capture = capture(&lab, &["-w", &file, "--json"]);
        ask(&lab, "7000", "50", "100");
        // Whatever else the link says: what the peer's kernel has seen of the connection is in the file in the end.
        let of_port = |file: &str| lines("tcpdump", &["-n", "-r", file, "tcp port 7000"]).len();
        wait_for("all frames", PATIENCE, || {
            let seen = of_port(&peers.path());
            // A handshake, a message there and back each time, two FINs.
            seen >= 3 + 2 * 50 + 2 && of_port(&file) == seen
        });
        let told = interrupted(capture);
        let frames = lines("tcpdump", &["-n", "-r", &file]);
        assert_eq!(told["dropped_frames"], 0, "{told}");
        assert_eq!(told["frames"].as_u64(), u64::try_from(frames.len()).ok());
        let asked = frames.iter().filter(|line| line.contains("length 100"));
        assert!(asked.count() >= 100, "{frames:?}");

        let words = [
            "-r",
            &file,
            "-Y",
            "tcp.len == 100",
            "-T",
            "fields",
            "-e",
            "tcp.dstport",
        ];
        let ports = lines("tshark", &words);
        assert!(
            ports.iter().filter(|port| *port == "7000").count() >= 50,
            "{ports:?}"
        );
        let names = lines(
            "tshark",
            &["-r", &file, "-T", "fields", "-e", "frame.interface_name"],
        );
        assert!(
            names.iter().all(|name| name.starts_with("@shunt/run/")),
            "{names:?}"
        );
    }
}

#[test]
fn filters_and_bounds_are_kept() {
    if !world::can_run("capture-bounds", &["python3", "tcpdump"]) {
        return;
    }
    let lab = two_hosts("capture-bounds");
    let _server = echo(&lab, "process");
    let scratch = Scratch::new("filter");
    let file = scratch.path();
    let filtered = capture(
        &lab,
        &[
            "-w",
            &file,
            "--port",
            "7001",
            "--proto",
            "tcp",
            "--snap-bytes",
            "96",
            "--json",
        ],
    );
    ask(&lab, "7000", "5", "300");
    ask(&lab, "7001", "5", "200");
    let asked = || lines("tcpdump", &["-n", "-r", &file, "tcp port 7001"]);
    wait_for("frames", PATIENCE, || {
        asked()
            .iter()
            .filter(|line| line.contains("length 200"))
            .count()
            >= 10
    });
    interrupted(filtered);
    let all = lines("tcpdump", &["-n", "-r", &file]);
    assert_eq!(all.len(), asked().len(), "{all:?}");
    let size = std::fs::metadata(&scratch.0).unwrap().len();
    let most = u64::try_from(all.len()).unwrap() * (96 + 48) + 256;
    assert!(size <= most, "{size} bytes for {} frames", all.len());

    let counted = capture(&lab, &["-w", &file, "--count", "7", "--json"]);
    ask(&lab, "7000", "20", "300");
    let told = counted
        .finish(PATIENCE, || false)
        .unwrap()
        .success()
        .unwrap();
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(told["frames"], 7);
    assert_eq!(lines("tcpdump", &["-n", "-r", &file]).len(), 7);

    let small = capture(&lab, &["-w", &file, "--file-bytes", "4K", "--json"]);
    ask(&lab, "7000", "50", "900");
    small.finish(PATIENCE, || false).unwrap().success().unwrap();
    assert!(std::fs::metadata(&scratch.0).unwrap().len() <= 4096);
}

#[test]
fn only_root_and_the_engines_user_see_frames() {
    if !rustix::process::geteuid().is_root() {
        return world::skip(
            "capture-user",
            "another user is needed, whom only root can become",
        );
    }
    let lab = two_hosts("capture-user");
    let _engine = serving_engine(&lab, SHUNT, &[]);
    let words = [
        "--reuid=65534",
        "--clear-groups",
        "--",
        SHUNT,
        "capture",
        "-w",
        "-",
    ];
    let refused = start(host(&lab, "a"), "setpriv", &words);
    let refused = refused.finish(PATIENCE, || false).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("only root"), "{}", refused.stderr);
}
