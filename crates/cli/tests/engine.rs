//! `shunt engine`, `status`, `ss` and the engines that `shunt run` starts, as their users meet them: what
//! cannot be is refused with the flag and the next step, and nothing is left behind.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::{path::Path, process::Command, time::Duration};

use serde_json::Value;
use testkit::{Finished, Lab, PATIENCE, Program, host, two_hosts, wait_for};

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");

fn command(lab: &Lab, arguments: &[&str]) -> Command {
    let mut command = testkit::command(host(lab, "a"), SHUNT, arguments);
    command.env_remove("LD_PRELOAD").env_remove("SHUNT_ENGINE");
    command
}

fn start(lab: &Lab, arguments: &[&str]) -> Program {
    Program::start("shunt", command(lab, arguments)).unwrap()
}

fn finished(command: Command) -> Finished {
    let program = Program::start("shunt", command).unwrap();
    program.finish(PATIENCE, || false).unwrap()
}

fn ok(lab: &Lab, arguments: &[&str]) -> String {
    finished(command(lab, arguments)).success().unwrap().stdout
}

/// The one line of a command that must fail with status 2.
fn refusal(command: Command) -> String {
    let finished = finished(command);
    assert_eq!(finished.status.code(), Some(2), "{}", finished.stderr);
    finished.stderr
}

fn refused(lab: &Lab, arguments: &[&str]) -> String {
    refusal(command(lab, arguments))
}

/// An engine in the foreground that serves, with the lab's interface and address.
fn engine(lab: &Lab, arguments: &[&str]) -> Program {
    testkit::once_serving(start(lab, &[&["engine"], arguments].concat()))
}

fn status(lab: &Lab, name: &str) -> Value {
    serde_json::from_str(&ok(lab, &["status", "--json", "--engine", name])).unwrap()
}

fn lives(pid: &Value) -> bool {
    Path::new(&format!("/proc/{pid}/ns/net")).exists()
}

#[test]
fn what_an_engine_cannot_be_is_refused_naming_the_flag_and_the_next_step() {
    let lab = two_hosts("refusals");
    for (arguments, expected) in [
        (&["--nic", "nope"][..], &["--nic nope", "ip link"][..]),
        (&["--address", "10.77.0.11"], &["--address", "10.0.0.5/24"]),
        (
            &["--address", "10.77.0.1/24"],
            &["--address 10.77.0.1", "kernel", "eth0"],
        ),
        (&["--address", "10.77.0.0/24"], &["--address 10.77.0.0/24"]),
        (&["--address", "127.0.0.2/8"], &["--address", "unicast"]),
        (
            &["--gateway", "192.0.2.1"],
            &["--gateway 192.0.2.1", "--address"],
        ),
        (&["--gateway", "10.77.0.11"], &["--gateway 10.77.0.11"]),
        (&["--gateway", "nowhere"], &["--gateway"]),
        (&["--name", "@"], &["--name", "@NAME"]),
        (
            &["--control-mode", "0660"],
            &["--control-mode", "--name /run"],
        ),
        (&["--control-mode", "9"], &["--control-mode", "0660"]),
        (
            &["--name", "/tmp/none", "--control-group", "nobody-knows-it"],
            &["--control-group nobody-knows-it"],
        ),
        (
            &["--name", "/no/such/folder/control"],
            &["--name /no/such/folder/control"],
        ),
        (&["--capture", "/no/such/folder/x"], &["--capture"]),
        (&["--cpu", "1023"], &["--cpu 1023", "processors"]),
        (&["--until-idle", "0"], &["--until-idle"]),
        (&["--log", "/tmp/x"], &["--background"]),
        (
            &["--background", "--log", "/no/such/folder/x"],
            &["--log /no/such/folder/x"],
        ),
        (&["--background", "--nic", "nope"], &["--nic nope"]),
    ] {
        let error = refused(&lab, &[&["engine"], arguments].concat());
        for part in expected {
            assert!(
                error.contains(part),
                "{arguments:?}: no {part:?} in {error}"
            );
        }
    }
}

#[test]
fn without_the_privilege_the_error_names_it_and_the_lab() {
    let lab = two_hosts("privilege");
    // An ordinary user there has no privilege over the host's network.
    let as_user = |arguments: &[&str]| {
        let mut command = host(&lab, "a").command_as_user(SHUNT).unwrap();
        command.args(arguments).env_remove("SHUNT_ENGINE");
        // Where the log goes: a folder of this test's root is not writable for others.
        command.env("SHUNT_STATE_DIR", std::env::temp_dir().join("shunt-none"));
        command
    };
    let inside = refusal(as_user(&["engine"]));
    assert!(
        inside.contains("CAP_NET_RAW") && inside.contains("shunt lab exec"),
        "{inside}"
    );
    let mut outside = as_user(&["engine", "--nic", "eth0", "--address", "10.77.0.11/24"]);
    outside.env_remove("SHUNT_NIC");
    let outside = refusal(outside);
    assert!(
        outside.contains("CAP_NET_RAW") && outside.contains("shunt lab up"),
        "{outside}"
    );
}

#[test]
fn where_no_engine_runs_every_command_says_how_to_start_one() {
    let lab = two_hosts("none");
    for arguments in [&["status"][..], &["ss"], &["status", "--json"]] {
        let error = refused(&lab, arguments);
        assert!(
            error.contains("@shunt/engine") && error.contains("shunt engine"),
            "{error}"
        );
    }
    let mut bare = command(&lab, &["run", "--", "true"]);
    bare.env_remove("SHUNT_NIC").env_remove("SHUNT_ADDRESS");
    let error = refusal(bare);
    for part in ["--nic IFACE", "--address", "shunt lab up"] {
        assert!(error.contains(part), "no {part:?} in {error}");
    }
    let arguments = ["run", "--address", "10.77.0.1/24", "--", "true"];
    let error = refused(&lab, &arguments);
    assert!(
        error.contains("--address 10.77.0.1") && error.lines().count() == 1,
        "{error}"
    );
}

#[test]
fn name_and_address_belong_to_one_engine() {
    let lab = two_hosts("second");
    let mut first = engine(&lab, &[]);
    let same_name = refused(&lab, &["engine", "--address", "10.77.0.21/24"]);
    assert!(
        same_name.contains("@shunt/engine") && same_name.contains("--name"),
        "{same_name}"
    );
    let same_address = refused(&lab, &["engine", "--name", "@shunt/other"]);
    assert!(
        same_address.contains("--address 10.77.0.11")
            && same_address.contains(&format!("process {}", first.pid())),
        "{same_address}"
    );
    let other = engine(
        &lab,
        &["--name", "@shunt/other", "--address", "10.77.0.21/24"],
    );
    assert_eq!(status(&lab, "@shunt/other")["pid"], other.pid());
    // The kernel gives both back however an engine ends.
    first.stop();
    let again = engine(&lab, &[]);
    let report = status(&lab, "@shunt/engine");
    assert_eq!(report["pid"], again.pid());
    assert_eq!(report["programs"], 0, "who asks is no program");
    assert_eq!(report["congestion_control"], "cubic");
    assert_eq!(ok(&lab, &["ss", "--json"]).trim(), "[]");
}

#[test]
fn a_control_socket_with_a_path_is_removed_at_the_end_and_replaced_after_a_crash() {
    let lab = two_hosts("path");
    let path = std::env::temp_dir().join(format!("shunt-control-{}", std::process::id()));
    let name = path.to_str().unwrap();
    let crashed = engine(&lab, &["--name", name]);
    crashed.signal(rustix::process::Signal::KILL).unwrap();
    drop(crashed);
    assert!(path.exists());
    let engine = engine(&lab, &["--name", name]);
    assert_eq!(status(&lab, name)["pid"], engine.pid());
    engine.signal(rustix::process::Signal::TERM).unwrap();
    let end = engine.finish(PATIENCE, || false).unwrap();
    assert_eq!(end.status.code(), Some(0), "{}", end.stderr);
    assert!(!path.exists());
}

#[test]
fn an_engine_that_hangs_is_an_error_and_not_a_wait() {
    let lab = two_hosts("hangs");
    let engine = engine(&lab, &[]);
    let serving = i32::try_from(engine.serving_pid()).unwrap();
    let serving = rustix::process::Pid::from_raw(serving).unwrap();
    let signal = |signal| rustix::process::kill_process(serving, signal).unwrap();
    signal(rustix::process::Signal::STOP);
    let error = refused(&lab, &["status"]);
    assert!(error.contains("does not answer"), "{error}");
    signal(rustix::process::Signal::CONT);
    ok(&lab, &["status"]);
}

/// A frame that says that the sender's hardware address has 10.77.0.11.
const CLAIM: &str = "import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('eth0', 0))
own = s.getsockname()[4]; ip = bytes([10, 77, 0, 11])
s.send(b'\\xff' * 6 + own + b'\\x08\\x06\\0\\1\\x08\\0\\6\\4\\0\\1' + own + ip + bytes(6) + ip)";

#[test]
fn another_machine_that_claims_the_address_shows_in_the_status() {
    let lab = two_hosts("claim");
    let _engine = engine(&lab, &[]);
    assert!(!ok(&lab, &["status"]).contains("warning"));
    testkit::run(host(&lab, "b"), "python3", &["-c", CLAIM]);
    wait_for("warning", PATIENCE, || {
        ok(&lab, &["status"]).contains("warning: another machine")
    });
}

#[test]
fn programs_with_one_address_share_an_engine_that_ends_after_the_last() {
    let lab = two_hosts("shared");
    let run = ["run", "--engine-mode=process", "--", "sleep", "60"];
    let mut both = [start(&lab, &run), start(&lab, &run)];
    for program in &mut both {
        program
            .wait_until("program", PATIENCE, |program| {
                std::fs::read_to_string(format!("/proc/{}/comm", program.pid()))
                    .is_ok_and(|name| name.trim() == "sleep")
            })
            .unwrap();
    }
    let pid = status(&lab, "@shunt/run/10.77.0.11")["pid"].clone();
    let [mut first, mut second] = both;
    first.stop();
    // Longer than it stays without programs.
    std::thread::sleep(Duration::from_secs(7));
    assert!(lives(&pid), "one program is left");
    let stopped = std::time::Instant::now();
    second.stop();
    wait_for("end of the engine", PATIENCE, || !lives(&pid));
    assert!(stopped.elapsed() < Duration::from_secs(10));
}

#[test]
fn an_engine_that_nobody_comes_to_ends_by_itself() {
    let lab = two_hosts("nobody");
    let engine = engine(&lab, &["--until-idle", "1"]);
    let end = engine.finish(PATIENCE, || false).unwrap();
    assert_eq!(end.status.code(), Some(0), "{}", end.stderr);
}

#[test]
fn the_engine_is_no_child_of_its_program_and_holds_none_of_its_pipes() {
    let lab = two_hosts("child");
    let script = "cat /proc/$$/task/$$/children; cat /proc/self/comm";
    // Reads both pipes to their ends: an engine that held one would be waited for.
    let output = command(&lab, &["run", "--", "sh", "-c", script])
        .output()
        .unwrap();
    let pid = status(&lab, "@shunt/run/10.77.0.11")["pid"].clone();
    assert!(lives(&pid), "nobody waited for its end");
    // The only child is the cat itself, which shows in its own list.
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        shown.ends_with("cat\n") && shown.split_whitespace().count() <= 2,
        "{shown}"
    );
    assert_eq!(output.stderr, b"");
}
