//! Engines that nobody named: those that `shunt run` started are found by `status`, `ss` and `explain`, what an engine
//! in the background complains of is said where it was started, and one on `lo` serves programs of one host.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::process::Command;

use serde_json::Value;
use testkit::{Finished, Lab, PATIENCE, Program, host, wait_for, world};

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");

/// Listens, and writes over its environment, as programs do that show a title of their own in ps(1).
const SERVER: &str = "
import ctypes, signal, socket
listener = socket.create_server(('10.77.0.11', 7000))
environment = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), 'environ')
at = 0
while environment[at]:
    ctypes.memset(environment[at], 0, len(ctypes.string_at(environment[at])))
    at += 1
print('ready', flush=True)
signal.pause()
";

fn command(lab: &Lab, arguments: &[&str]) -> Command {
    let mut command = testkit::command(host(lab, "a"), SHUNT, arguments);
    command.env_remove("LD_PRELOAD").env_remove("SHUNT_ENGINE");
    command
}

fn shunt_here(arguments: &[&str]) -> Command {
    let mut command = Command::new(SHUNT);
    command.args(arguments).env_remove("LD_PRELOAD");
    command
}

fn start(lab: &Lab, arguments: &[&str]) -> Program {
    Program::start("shunt", command(lab, arguments)).unwrap()
}

fn finished(command: Command) -> Finished {
    let program = Program::start("shunt", command).unwrap();
    program.finish(PATIENCE, || false).unwrap()
}

fn json(lab: &Lab, arguments: &[&str]) -> Value {
    let said = finished(command(lab, arguments)).success().unwrap();
    serde_json::from_str(&said.stdout).unwrap()
}

fn says(program: &mut Program, word: &str) {
    let has_said =
        |program: &Program| program.stdout().contains(word) || program.stderr().contains(word);
    program.wait_until(word, PATIENCE, has_said).unwrap();
}

#[test]
fn an_engine_that_run_started_is_found_without_its_name() {
    if !world::can_run("find-run", &["python3"]) {
        return;
    }
    let lab = testkit::two_hosts("find-run");
    let mut server = start(&lab, &["run", "--", "python3", "-c", SERVER]);
    says(&mut server, "ready");

    let name = "@shunt/run/10.77.0.11";
    assert_eq!(json(&lab, &["status", "--json"])["name"], name);
    let sockets = json(&lab, &["ss", "--json"]);
    assert_eq!(sockets[0]["state"], "LISTEN", "{sockets}");
    let pid = server.pid().to_string();
    let explained = json(&lab, &["explain", &pid, "--json"]);
    assert_eq!(explained[0]["stack"], name, "{explained}");
    // It names no engine any more: that there is none of the usual name is no news.
    let said = finished(command(&lab, &["explain", &pid])).stderr;
    assert_eq!(said, "");

    // Those of other names are listed beside it, the usual one first.
    let other = [
        "engine",
        "--name",
        "@shunt/other",
        "--address",
        "10.77.0.77/24",
    ];
    let mut other = start(&lab, &other);
    says(&mut other, "serving");
    let mut usual = start(&lab, &["engine", "--address", "10.77.0.78/24"]);
    says(&mut usual, "serving");
    let both = json(&lab, &["status", "--json"]);
    let names = |list: &Value| -> Vec<Value> {
        let list = list.as_array().unwrap().iter();
        list.map(|engine| engine["name"].clone()).collect()
    };
    assert_eq!(both["name"], "@shunt/engine");
    let all = ["@shunt/engine", "@shunt/other", name];
    assert_eq!(names(&both["engines"]), all, "{both}");
    let rows = json(&lab, &["ss", "--json"]);
    assert_eq!(rows[0]["engine"], name, "{rows}");

    // From outside every namespace is looked at; a test beside this one may have engines too.
    let outside = Program::start("shunt", shunt_here(&["status", "--all", "--json"])).unwrap();
    let outside = outside.finish(PATIENCE, || false).unwrap();
    if rustix::process::geteuid().is_root() {
        let outside: Value = serde_json::from_str(&outside.success().unwrap().stdout).unwrap();
        let pid = other.pid();
        let engines = outside["engines"].as_array().unwrap();
        let found = engines.iter().find(|one| one["pid"] == pid).unwrap();
        assert!(found["namespace"].is_u64(), "{found}");
    } else {
        world::skip("find-run", "--all needs root");
    }

    // One that is stopped keeps nobody waiting.
    let stopped =
        rustix::process::Pid::from_raw(i32::try_from(other.serving_pid()).unwrap()).unwrap();
    rustix::process::kill_process(stopped, rustix::process::Signal::STOP).unwrap();
    let status = json(&lab, &["status", "--json"]);
    let silent = &status["engines"][1];
    assert_eq!(silent["answers"], false, "{silent}");
    assert_eq!(silent["reason"], "does not answer (stopped)");
    let words = finished(command(&lab, &["ss"])).success().unwrap();
    assert!(words.stderr.contains("(stopped)"), "{}", words.stderr);
    rustix::process::kill_process(stopped, rustix::process::Signal::CONT).unwrap();
}

#[test]
fn an_engine_inside_a_program_that_computes_answers_and_a_stopped_one_is_named() {
    if !world::can_run("find-inline", &["python3"]) {
        return;
    }
    let lab = testkit::two_hosts("find-inline");
    let script = SERVER.replace("while environment[at]:", "while False:");
    let computes = script.replace("signal.pause()", "\nwhile True: pass");
    let words = [
        "run",
        "--engine-mode=inline",
        "--",
        "python3",
        "-c",
        &computes,
    ];
    let mut server = start(&lab, &words);
    says(&mut server, "ready");
    let status = json(&lab, &["status", "--json"]);
    assert_eq!(status["mode"], "inline", "{status}");
    let pid = server.pid().to_string();
    let explained = json(&lab, &["explain", &pid, "--json"]);
    let listener = &explained[0];
    assert_eq!(listener["engine"], status["name"], "{explained}");
    assert_eq!(listener["connection"]["state"], "LISTEN", "{explained}");

    let stopped = rustix::process::Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap();
    rustix::process::kill_process(stopped, rustix::process::Signal::STOP).unwrap();
    let silent = finished(command(&lab, &["status"]));
    assert_eq!(silent.status.code(), Some(2), "{}", silent.stdout);
    assert!(
        silent.stderr.contains("does not answer (stopped)"),
        "{}",
        silent.stderr
    );
    let explained = json(&lab, &["explain", &pid, "--json"]);
    assert_eq!(explained[0]["stack"], "not known", "{explained}");
    rustix::process::kill_process(stopped, rustix::process::Signal::CONT).unwrap();
}

#[test]
fn a_supervised_program_is_told_from_one_that_is_the_kernels() {
    if !world::can_run("find-supervised", &["python3"]) {
        return;
    }
    let lab = testkit::two_hosts("find-supervised");
    let script = SERVER.replace("while environment[at]:", "while False:");
    let words = ["run", "--supervise", "only", "--", "python3", "-c", &script];
    let mut server = start(&lab, &words);
    says(&mut server, "ready");
    let explained = json(&lab, &["explain", &server.pid().to_string(), "--json"]);
    let text = explained.to_string();
    assert!(!text.contains("not started by `shunt run`"), "{text}");
    // What it has is one end of a pair; the engine's listener behind it is named.
    assert_eq!(explained[0]["stack"], "@shunt/run/10.77.0.11", "{text}");
    assert_eq!(explained[0]["connection"]["state"], "LISTEN", "{text}");
}

#[test]
fn a_program_that_lost_the_library_is_told_of() {
    if !world::can_run("find-outside", &["python3"]) {
        return;
    }
    let lab = testkit::two_hosts("find-outside");
    let waits = "import time; print('ready', flush=True); time.sleep(600)";
    let words = [
        "run",
        "--engine-mode=process",
        "--",
        "env",
        "-u",
        "LD_PRELOAD",
        // Otherwise it is put back (docs/decisions/0110).
        "SHUNT_LIBRARY=",
        "python3",
        "-c",
        waits,
    ];
    let mut program = start(&lab, &words);
    says(&mut program, "ready");
    let status = json(&lab, &["status", "--json"]);
    let outside = status["outside"].as_array().unwrap();
    assert_eq!(outside.len(), 1, "{status}");
    assert_eq!(outside[0]["pid"], program.pid(), "{status}");
    let words = finished(command(&lab, &["status"])).success().unwrap();
    assert!(words.stdout.contains("not on Shunt"), "{}", words.stdout);
}

/// A ring, made without Shunt in the way; `none` where the system has none.
const RING: &str = "
import ctypes, time
parameters = ctypes.create_string_buffer(120)
ring = ctypes.CDLL(None).syscall(425, 4, parameters)
print('ring' if ring >= 0 else 'none', flush=True)
time.sleep(600)";

#[test]
fn a_ring_that_passes_shunt_by_is_explained() {
    if !world::can_run("find-ring", &["python3"]) {
        return;
    }
    let lab = testkit::two_hosts("find-ring");
    let mut program = testkit::start(host(&lab, "a"), "python3", &["-c", RING]);
    says(&mut program, "\n");
    if program.stdout().contains("none") {
        world::skip("find-ring", "this system has no io_uring");
        return;
    }
    let explained = json(&lab, &["explain", &program.pid().to_string(), "--json"]);
    assert_eq!(explained[0]["protocol"], "io_uring", "{explained}");
    assert_eq!(explained[0]["stack"], "kernel");
}

#[test]
fn an_engine_in_the_background_logs_where_it_was_told_to() {
    if !world::can_run("find-log", &[]) {
        return;
    }
    let lab = testkit::two_hosts("find-log");
    let folder = std::env::temp_dir().join(format!("shunt-find-log-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    for (number, form) in ["--log=", "--log"].into_iter().enumerate() {
        let log = folder.join(number.to_string());
        let file = log.display().to_string();
        let joined = format!("{form}{file}");
        let flag = if form.ends_with('=') {
            vec![joined.as_str()]
        } else {
            vec![form, &file]
        };
        let (name, address) = (
            format!("@shunt/log{number}"),
            format!("10.77.0.{}/24", 80 + number),
        );
        let words = [
            "engine",
            "--background",
            "--name",
            &name,
            "--address",
            &address,
        ];
        let said = finished(command(&lab, &[&words[..], &flag].concat()))
            .success()
            .unwrap();
        assert!(said.stdout.contains(&file), "{}", said.stdout);
        let logged = || std::fs::read_to_string(&log).unwrap().contains("serving");
        wait_for("log", PATIENCE, logged);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_an_engine_in_the_background_could_not_have_is_said_at_its_start() {
    if !world::can_run("find-driver", &[]) {
        return;
    }
    let lab = testkit::two_hosts("find-driver");
    let words = [
        "engine",
        "--driver",
        "af_xdp",
        "--cores",
        "2",
        "--background",
    ];
    let said = finished(command(&lab, &words)).success().unwrap();
    let status = json(&lab, &["status", "--json"]);
    let interfaces = json(&lab, &["status", "--json"])["interfaces"].clone();
    let complaints = status["complaints"].as_array().unwrap();
    if interfaces[0]["driver"] == "af_xdp" && complaints.is_empty() {
        return world::skip("find-driver", "AF_XDP serves two cores here");
    }
    assert!(!complaints.is_empty(), "{status}");
    for complaint in complaints {
        let complaint = complaint.as_str().unwrap();
        assert!(
            said.stderr.contains(complaint),
            "{complaint}: {}",
            said.stderr
        );
    }
}

/// Echoes one word to each client.
const ECHO: &str = "
import socket
listener = socket.create_server(('127.0.0.1', 7000))
print('ready', flush=True)
while True:
    one, _ = listener.accept()
    with one: one.sendall(one.recv(100))
";

const ASK: &str = "
import socket
with socket.create_connection(('127.0.0.1', 7000), 60) as one:
    one.sendall(b'word')
    print(one.recv(100).decode(), flush=True)
";

#[test]
fn programs_of_one_host_need_no_interface_but_lo() {
    if !world::can_run("find-lo", &["python3"]) {
        return;
    }
    let lab = testkit::two_hosts("find-lo");
    let on_lo = |program: &str| {
        let words = [
            "run",
            "--nic",
            "lo",
            "--loopback",
            "--",
            "python3",
            "-c",
            program,
        ];
        let mut command = command(&lab, &words);
        command
            .env_remove(lab::NIC_VARIABLE)
            .env_remove(lab::ADDRESS_VARIABLE);
        Program::start("shunt", command).unwrap()
    };
    let mut echo = on_lo(ECHO);
    says(&mut echo, "ready");
    let asked = on_lo(ASK)
        .finish(PATIENCE, || false)
        .unwrap()
        .success()
        .unwrap();
    assert_eq!(asked.stdout, "word\n");
    let status = json(&lab, &["status", "--json"]);
    assert_eq!(status["name"], "@shunt/run/lo", "{status}");
    let opened = &status["stack_counters"]["TcpActiveOpens"];
    assert_eq!(
        opened, 1,
        "it was on the engine: {}",
        status["stack_counters"]
    );
}
