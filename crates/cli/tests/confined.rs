//! An engine's process gives up what it does not need, in each of its threads, and serves all the same, also a device that goes
//! and comes back.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use rustix::process::Signal;
use serde_json::Value;
use testkit::{
    PATIENCE, Witness, wait_for,
    world::{self, Mode, World},
};

/// CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK and CAP_BPF (linux/capability.h): what an engine may keep at most.
const KEPT: u64 = 1 << 12 | 1 << 13 | 1 << 14 | 1 << 39;

/// What each thread of a process has of a line of its status, by the thread's name.
fn of_threads(pid: u32, field: &str) -> BTreeMap<String, u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_thread = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("status")).unwrap();
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().to_owned()
        };
        let number = u64::from_str_radix(&value(field), 16).unwrap();
        (value("Name:"), number)
    };
    threads.map(|thread| of_thread(thread.unwrap())).collect()
}

fn status(world: &World) -> Value {
    let shunt = testkit::shunt().display().to_string();
    let words = [shunt.as_str(), "status", "--json"];
    let told = world.start("a", &words).finish(PATIENCE, || false);
    serde_json::from_str(&told.unwrap().success().unwrap().stdout).unwrap()
}

#[test]
fn each_thread_of_an_engine_has_given_up_what_it_does_not_need() {
    const TEST: &str = "confined";
    if !world::can_run(TEST, &["python3"]) {
        return;
    }
    for way in [Mode::Cores, Mode::Xdp] {
        let world = World::new(TEST, way);
        // Starts the threads that an engine starts late.
        Witness::start(&world).finish(1);
        let pid = world.engine_pid();
        let seccomp = of_threads(pid, "Seccomp:");
        assert!(seccomp.contains_key("log"), "{seccomp:?}");
        assert!(seccomp.len() >= 3, "{seccomp:?}");
        assert!(seccomp.values().all(|mode| *mode == 2), "{seccomp:?}");
        let no_new_privileges = of_threads(pid, "NoNewPrivs:");
        assert!(
            no_new_privileges.values().all(|set| *set == 1),
            "{no_new_privileges:?}"
        );
        for field in ["CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            let capabilities = of_threads(pid, field);
            let beyond = capabilities.values().any(|set| set & !KEPT != 0);
            // Without CAP_SETPCAP the bounding set stays, and no_new_privs makes it worth nothing.
            let may_stay = field == "CapBnd:" && world.lab.rootless();
            assert!(!beyond || may_stay, "{field} {capabilities:?}");
        }
        assert_eq!(of_threads(pid, "CapPrm:")["log"], 0);
        let protections = &status(&world)["protections"];
        assert_eq!(protections["refused_calls"], 0, "{protections}");
        assert_eq!(protections["undumpable"], true, "{protections}");
        for missing in protections["missing"].as_array().unwrap() {
            // A kernel may be without it; nothing else may be missing.
            assert!(
                missing.as_str().unwrap().contains("Landlock"),
                "{protections}"
            );
        }
    }
}

/// The program is gone, and its connection is not.
#[test]
fn the_port_of_a_connection_whose_program_has_ended_is_given_to_nobody() {
    const TEST: &str = "confined-port";
    const SERVE: &str = "
import socket, time
server = socket.create_server(('', 9000))
print('ready', flush=True)
while True:
    server.accept()[0].detach()
";
    const LEAVE: &str = "
import os, socket, sys
one = socket.socket()
one.bind(('', 0))
one.connect((sys.argv[1], 9000))
print(one.getsockname()[1], flush=True)
os._exit(0)
";
    const TAKE: &str = "
import errno, os, socket, sys
try:
    socket.socket().bind(('', int(sys.argv[1])))
    print('bound')
except OSError as error:
    print(errno.errorcode[error.errno])
";
    if !world::can_run(TEST, &["python3"]) {
        return;
    }
    for way in [Mode::Engine, Mode::Cores] {
        let world = World::new(TEST, way);
        let mut server = world.start_peer(&["python3", "-c", SERVE]);
        let ready = |server: &testkit::Program| server.stdout().contains("ready");
        server.wait_until("listener", PATIENCE, ready).unwrap();
        let left = world.run_tested(&["python3", "-c", LEAVE, &world.peer_address()]);
        let left = left.success().unwrap();
        let port = left.stdout.trim();
        let shunt = testkit::shunt().display().to_string();
        wait_for("the connection's own end", PATIENCE, || {
            let told = world::finish(world.start("a", &[&shunt, "ss", "--json"]));
            told.stdout.contains("\"FIN-WAIT-2\"")
        });
        let take = ["python3", "-c", TAKE, port];
        let taken = world.start("a", &take).finish(PATIENCE, || false).unwrap();
        assert_eq!(taken.stdout.trim(), "EADDRINUSE", "{}", taken.stderr);
    }
}

#[test]
fn a_control_socket_with_a_path_lets_its_group_in_and_nobody_else() {
    const TEST: &str = "confined-group";
    const ASK: &str = "
import os, socket, sys
os.setgroups([int(group) for group in sys.argv[2:]])
os.setgid(65534)
os.setuid(65534)
one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
try:
    one.connect(sys.argv[1])
    print('connected')
except PermissionError:
    print('refused')
";
    if !world::can_run(TEST, &["python3"]) {
        return;
    }
    let mut world = World::without_engine(TEST, Mode::Engine);
    if world.lab.rootless() {
        return world::skip(TEST, "other users need root");
    }
    let path = world.path("engine");
    let name = ["--name", path.as_str()];
    let asked = |world: &World, groups: &[&str]| {
        let words = [&["python3", "-c", ASK, path.as_str()], groups].concat();
        let told = world.start("b", &words).finish(PATIENCE, || false);
        told.unwrap().success().unwrap().stdout
    };
    let closed = [
        &name[..],
        &["--control-mode", "0660", "--control-group", "4242"],
    ]
    .concat();
    world.engine = world.start_engine(&closed);
    assert_eq!(asked(&world, &["4242"]).trim(), "connected");
    assert_eq!(asked(&world, &["4243"]).trim(), "refused");
    end(&mut world);
    assert!(
        !Path::new(&path).exists(),
        "the socket is removed at the end"
    );
    world.engine = world.start_engine(&name);
    assert_eq!(asked(&world, &["4242"]).trim(), "refused");
    end(&mut world);
}

/// Tells the engine to end, and waits until it has.
fn end(world: &mut World) {
    let engine = world.engine.take().unwrap();
    engine.signal(Signal::TERM).unwrap();
    let ended = engine.finish(PATIENCE, || false).unwrap();
    assert!(ended.status.success(), "{}", ended.stderr);
}

#[test]
fn who_may_not_trace_does_not_look_into_an_engine_of_its_own_user() {
    const TEST: &str = "confined-maps";
    if !world::can_run(TEST, &["python3", "setpriv"]) {
        return;
    }
    let world = World::new(TEST, Mode::Engine);
    if world.lab.rootless() {
        return world::skip(TEST, "to give up one capability takes root");
    }
    let engine = format!("/proc/{}/maps", world.engine_pid());
    // Each of the three lets a process look at the memory of others. What the engine has left, the reader has too.
    let fewer = [
        "--bounding-set=-sys_ptrace,-perfmon,-sys_admin",
        "--inh-caps=-sys_ptrace,-perfmon,-sys_admin",
    ];
    let read = |path: &str| {
        let mut cat = Command::new("setpriv");
        cat.args(fewer).args(["cat", path]).output().unwrap()
    };
    let mut beside = Command::new("setpriv")
        .args(fewer)
        .args(["sleep", "60"])
        .spawn()
        .unwrap();
    // Until then it is a setpriv that may do more.
    let name = format!("/proc/{}/comm", beside.id());
    wait_for("the program", PATIENCE, || {
        fs::read_to_string(&name).is_ok_and(|name| name == "sleep\n")
    });
    let own = read(&format!("/proc/{}/maps", beside.id()));
    beside.kill().unwrap();
    beside.wait().unwrap();
    let engines = read(&engine);
    assert!(own.status.success() && !own.stdout.is_empty());
    assert!(
        engines.stdout.is_empty(),
        "an engine's memory was looked at"
    );
    let said = String::from_utf8_lossy(&engines.stderr).into_owned();
    assert!(said.contains("Permission denied"), "{said}");
}
