//! The process of an engine is killed, or another build takes its place, in the middle of everything: its programs' connections
//! go on, and neither they nor their peers notice (docs/reliability.md).

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

#[path = "engine_restart/groups.rs"]
mod groups;
#[path = "engine_restart/several_cores.rs"]
mod several_cores;
#[path = "engine_restart/tap.rs"]
mod tap;

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::{
    Finished, PATIENCE, Program, wait_for,
    world::{self, Mode, World, finish},
};

/// Kills during one transfer.
const KILLS: u64 = 6;

/// One end of a transfer: listens or connects, sends or receives 200 MB at a pace that leaves time for six kills, tells how far
/// it is, and at last the hash of all.
const TRANSFER: &str = "import hashlib, os, socket, sys, time
role, work, address = sys.argv[1:4]
if role == 'listen':
    listener = socket.create_server((address, 9000)); print('ready', flush=True); s, _ = listener.accept()
else:
    s = socket.create_connection((address, 9000))
h = hashlib.sha256(); done = 0
if work == 'send':
    block = os.urandom(1 << 20)
    for n in range(200):
        part = bytes([n]) + block[1:]
        s.sendall(part); h.update(part); time.sleep(0.04)
        if n % 4 == 3: print('at', n, flush=True)
    s.shutdown(socket.SHUT_WR); assert s.recv(10) == b'thanks'
else:
    while part := s.recv(1 << 18):
        h.update(part); done += len(part)
    assert done == 200 << 20, done
    s.sendall(b'thanks')
s.close(); print('hash', h.hexdigest(), flush=True)";

fn status(world: &World) -> Value {
    let shunt = testkit::shunt().display().to_string();
    let told = finish(world.start("a", &[&shunt, "status", "--json"]));
    serde_json::from_str(&told.stdout).unwrap_or_default()
}

/// Kills the process that serves, and waits until another one does.
fn kill_engine(world: &World) {
    let restarts = || status(world)["kept"]["restarts"].as_u64();
    let before = world.report("status")["kept"]["restarts"].as_u64();
    world.wait_engine_goes_on();
    let pid = i32::try_from(world.engine_pid()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    wait_for("the next engine", PATIENCE, || {
        restarts().is_some_and(|now| Some(now) > before)
    });
}

fn hash(finished: &Finished) -> &str {
    let line = finished
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("hash "));
    line.unwrap_or_else(|| panic!("{finished:?}"))
}

/// Runs a transfer, and `disturb` again and again in the middle of it.
fn disturbed(world: &World, tested_sends: bool, disturb: impl FnMut(u64)) {
    let address = world.peer_address();
    let (ours, theirs) = if tested_sends {
        ("send", "receive")
    } else {
        ("receive", "send")
    };
    let mut peer = world.start_peer(&["python3", "-c", TRANSFER, "listen", theirs, &address]);
    let ready = |peer: &Program| peer.stdout().contains("ready");
    peer.wait_until("the peer", PATIENCE, ready).unwrap();
    let tested = world.start_tested(&["python3", "-c", TRANSFER, "connect", ours, &address]);
    disturbed_between([tested, peer], tested_sends, disturb);
}

/// As `disturbed`, with the two ends that have been started: the tested one, and its peer.
fn disturbed_between(
    [mut tested, mut peer]: [Program; 2],
    tested_sends: bool,
    mut disturb: impl FnMut(u64),
) {
    for round in 0..KILLS {
        let sender = if tested_sends { &mut tested } else { &mut peer };
        let far = format!("at {}", 7 + round * 32);
        sender
            .wait_until("progress", PATIENCE, |sender| {
                sender.stdout().contains(&far)
            })
            .unwrap();
        disturb(round);
    }
    let (tested, peer) = (finish(tested), finish(peer));
    assert!(
        tested.status.success() && peer.status.success(),
        "{tested:?} {peer:?}"
    );
    assert_eq!(hash(&tested), hash(&peer));
}

#[test]
fn a_transfer_goes_on_while_the_engine_is_killed_again_and_again() {
    if !world::can_run("restart", &["python3"]) {
        return;
    }
    let world = World::new("restart", Mode::Engine);
    for tested_sends in [true, false] {
        disturbed(&world, tested_sends, |_| kill_engine(&world));
    }
    let shunt = testkit::shunt().display().to_string();
    let told = finish(world.start("a", &[&shunt, "status"])).stdout;
    assert!(told.contains("restarts after a crash 12"), "{told}");
    let log = world.engine.as_ref().unwrap().stderr();
    assert!(
        log.contains("was ended by signal 9; another one goes on (restart 12)"),
        "{log}"
    );
}

#[test]
fn a_transfer_over_an_address_that_the_kernel_has_too_goes_on_while_the_engine_is_killed() {
    if !world::can_run("restart-shared", &["python3"]) {
        return;
    }
    let world = World::with_engine("restart-shared", Mode::Engine, &["--share"]);
    for tested_sends in [true, false] {
        disturbed(&world, tested_sends, |_| kill_engine(&world));
    }
}

/// An executable that does not do as a build of Shunt.
fn script(world: &World, name: &str, text: &str) -> String {
    let path: PathBuf = world.folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn another_build_takes_over_in_the_middle_of_a_transfer_and_a_broken_one_does_not() {
    if !world::can_run("upgrade", &["python3"]) {
        return;
    }
    upgrades_and_refusals(&World::new("upgrade", Mode::Engine));
}

/// Builds that can take over do, others do not, and a transfer goes on.
fn upgrades_and_refusals(world: &World) {
    let shunt = testkit::shunt().display().to_string();
    let upgrade = |with: &str| {
        let words = [&shunt, "upgrade", "--with", with, "--json"];
        let done = world
            .start("a", &words.map(|word: &str| word))
            .finish(PATIENCE, || false);
        let done = done.unwrap();
        let report: Value = serde_json::from_str(&done.stdout).unwrap_or_default();
        let log = || world.engine.as_ref().map(Program::stderr);
        assert!(
            !report.is_null(),
            "no report of {with}: {done:?}; the engine: {:?}",
            log()
        );
        (done.status.code(), report)
    };
    let other_limits = script(
        world,
        "other-limits",
        &format!("exec {shunt} \"$@\" --max-connections 1000"),
    );
    // It says that it can go on, and its engine does not live: after a while, as on a busy machine.
    let text = format!(
        "case \"$*\" in *--check-state*) exec {shunt} \"$@\";; esac; sleep 0.4; exec {shunt} \"$@\" --max-connections 1000"
    );
    let dies = script(world, "dies", &text);
    let builds = [
        &shunt,
        "/bin/false",
        "/bin/true",
        &other_limits,
        &dies,
        &shunt,
    ];
    let goes_on = [true, false, false, false, false, true];
    for tested_sends in [true, false] {
        disturbed(world, tested_sends, |round| {
            let round = usize::try_from(round).unwrap();
            let (code, report) = upgrade(builds[round]);
            assert_eq!(
                report["upgraded"], goes_on[round],
                "{} {report}",
                builds[round]
            );
            assert_eq!(code, Some(if goes_on[round] { 0 } else { 1 }), "{report}");
            assert!(
                report["why"].is_string() || report["pause_us"].is_u64(),
                "{report}"
            );
        });
    }
    let kept = &status(world)["kept"];
    assert_eq!(
        (&kept["upgrades"], &kept["restarts"]),
        (&4.into(), &0.into()),
        "{kept}"
    );
}

#[test]
fn clients_and_server_of_redis_do_not_notice_that_the_engine_is_killed() {
    if !world::can_run("restart-redis", &["redis-server", "redis-benchmark"]) {
        return;
    }
    let world = World::new("restart-redis", Mode::Engine);
    let address = world.tested_address();
    let words = [
        "redis-server",
        "--port",
        "6379",
        "--bind",
        &address,
        "--save",
        "",
        "--protected-mode",
        "no",
    ];
    let mut server = world.start_tested(&words);
    world.wait_ready(&mut server, "b", &format!("{address}:6379"));
    let words = [
        "redis-benchmark",
        "-h",
        &address,
        "-p",
        "6379",
        "-n",
        "300000",
        "-c",
        "50",
        "-t",
        "set",
        "-P",
        "4",
    ];
    let mut clients = world.start_peer(&words);
    for _ in 0..KILLS {
        kill_engine(&world);
        if clients.try_wait().unwrap().is_some() {
            break;
        }
    }
    let done = finish(clients);
    let text = format!("{}{}", done.stdout, done.stderr);
    assert!(done.status.success() && !text.contains("rror"), "{text}");
    assert!(text.contains("300000 requests completed"), "{text}");
    let log = server.stdout();
    assert!(!log.contains("rror"), "{log}");
}

/// Connections at the same time, each with bytes on their way.
const CONNECTIONS: usize = 1_000;

#[test]
fn a_thousand_connections_go_on_over_a_kill_and_an_upgrade() {
    if world::can_run("restart-many", &["python3"]) {
        let world = World::new("restart-many", Mode::Engine);
        thousand_go_on(&world);
    }
}

/// They go on over a kill and an upgrade, and are there at the end. Their server, which serves on.
fn thousand_go_on(world: &World) -> [Program; 2] {
    let script = testkit::workspace::root().join("scripts/soak.d/many.py");
    let (script, address) = (script.display().to_string(), world.tested_address());
    let words = ["python3", &script, "serve", &address, "9000"];
    let mut server = world.start_tested(&words);
    let is_ready = |server: &Program| server.stdout().contains("ready");
    server.wait_until("server", PATIENCE, is_ready).unwrap();
    let count = CONNECTIONS.to_string();
    let words = ["python3", &script, "busy", &address, "9000", &count];
    let mut clients = world.start_peer(&words);
    let shunt = testkit::shunt().display().to_string();
    let upgrade = || {
        let words = [&shunt, "upgrade", "--with", &shunt, "--json"];
        let done = finish(world.start("a", &words));
        assert!(done.status.success(), "{done:?}");
    };
    let disturbances: [&dyn Fn(); 3] = [&|| {}, &|| kill_engine(world), &upgrade];
    for disturb in disturbances {
        disturb();
        let rounds = |clients: &Program| clients.stdout().lines().count();
        // The second round from now on has begun after the disturbance.
        let until = rounds(&clients) + 3;
        let is_on = |clients: &Program| rounds(clients) >= until;
        clients.wait_until("rounds", PATIENCE, is_on).unwrap();
    }
    let said = clients.stdout();
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("held"), "{said}");
    assert!(lines.all(|line| line == count), "{said}");
    let connections = &status(world)["connections"];
    assert_eq!(connections, CONNECTIONS, "{connections}");
    [server, clients]
}

/// One end of questions and answers by UDP: it answers, or asks for ever, again where nothing comes, and says how often it was
/// answered.
const DATAGRAMS: &str = "import itertools, socket, sys
role, address = sys.argv[1:3]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if role == 'answer':
    s.bind((address, 9000)); print('ready', flush=True)
    while True:
        data, peer = s.recvfrom(2048); s.sendto(b'answer ' + data, peer)
s.connect((address, 9000)); s.settimeout(0.2)
for n in itertools.count():
    question = b'%d ' % n * 50; got = None
    while got != b'answer ' + question:
        s.send(question)
        try: got = s.recv(2048)
        except TimeoutError: pass
    print(n, flush=True)";

/// Datagrams go both ways, with the tested program at either end, while the engine is killed.
fn datagrams_go_on(test: &str, way: Mode) {
    if !world::can_run(test, &["python3"]) {
        return;
    }
    let world = World::new(test, way);
    let start = |is_tested: bool, words: &[&str]| match is_tested {
        true => world.start_tested(words),
        false => world.start_peer(words),
    };
    for tested_answers in [true, false] {
        let address = match tested_answers {
            true => world.tested_address(),
            false => world.peer_address(),
        };
        let words = ["python3", "-c", DATAGRAMS, "answer", &address];
        let mut answers = start(tested_answers, &words);
        let is_ready = |one: &Program| one.stdout().contains("ready");
        answers.wait_until("server", PATIENCE, is_ready).unwrap();
        let words = ["python3", "-c", DATAGRAMS, "ask", &address];
        let mut asks = start(!tested_answers, &words);
        for _ in 0..3 {
            let until = asks.stdout().lines().count() + 20;
            let is_on = |asks: &Program| asks.stdout().lines().count() >= until;
            asks.wait_until("answers", PATIENCE, is_on).unwrap();
            kill_engine(&world);
        }
        let until = asks.stdout().lines().count() + 20;
        let is_on = |asks: &Program| asks.stdout().lines().count() >= until;
        asks.wait_until("answers", PATIENCE, is_on).unwrap();
        assert!(
            answers.try_wait().unwrap().is_none(),
            "{}",
            answers.stderr()
        );
    }
}

#[test]
fn datagrams_go_on_while_the_engine_is_killed() {
    datagrams_go_on("restart-udp", Mode::Engine);
}

#[test]
fn datagrams_of_a_supervised_program_go_on_while_the_engine_is_killed() {
    datagrams_go_on("restart-udp-supervised", Mode::Supervised);
}

/// Says when its connection is reset.
const WAITER: &str = "import socket, sys
role, address = sys.argv[1:3]
if role == 'listen':
    listener = socket.create_server((address, 9000)); print('ready', flush=True); s, _ = listener.accept()
else:
    s = socket.create_connection((address, 9000))
print('up', flush=True)
try: print('received', s.recv(1))
except ConnectionResetError: print('reset')";

#[test]
fn programs_and_peers_of_a_service_that_is_given_up_hear_a_reset() {
    if world::can_run("restart-reset", &["python3"]) {
        given_up_is_heard(&World::new("restart-reset", Mode::Engine));
    }
}

fn given_up_is_heard(world: &World) {
    let address = world.tested_address();
    let mut server = world.start_tested(&["python3", "-c", WAITER, "listen", &address]);
    let is_ready = |server: &Program| server.stdout().contains("ready");
    server.wait_until("server", PATIENCE, is_ready).unwrap();
    let mut peer = world.start_peer(&["python3", "-c", WAITER, "connect", &address]);
    for end in [&mut server, &mut peer] {
        end.wait_until("connection", PATIENCE, |end| end.stdout().contains("up"))
            .unwrap();
    }
    kill_until_given_up(world);
    let log = world.engine.as_ref().unwrap().stderr();
    assert!(log.contains("1 connections that no engine serves"), "{log}");
    for end in [server, peer] {
        let done = finish(end);
        assert!(done.stdout.contains("reset"), "{done:?} {log}");
    }
}

#[test]
fn an_engine_that_does_not_live_is_given_up() {
    let world = World::new("restart-again", Mode::Engine);
    kill_until_given_up(&world);
    let log = world.engine.as_ref().unwrap().stderr();
    assert!(log.contains("giving up"), "{log}");
}

/// Kills each engine as soon as it goes on, until there is no next one: on a busy machine one or the other lives too long to count.
fn kill_until_given_up(world: &World) {
    const MOST: usize = 40;
    let engine = world.engine.as_ref().unwrap();
    let keeper = engine.pid();
    for restart in 0..MOST {
        let next = format!("another one goes on (restart {restart})");
        wait_for("the next engine, or none", PATIENCE, || {
            restart == 0 || engine.stderr().contains(&next) || !lives(keeper)
        });
        if !lives(keeper) {
            return;
        }
        // One that has said so is the keeper's only child.
        let serving = i32::try_from(testkit::serving(keeper)).unwrap();
        kill_process(Pid::from_raw(serving).unwrap(), Signal::KILL).unwrap();
    }
    panic!("{}", engine.stderr());
}

/// Whether a process is there, and no zombie.
fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
    state.is_some_and(|rest| !rest.starts_with('Z'))
}
