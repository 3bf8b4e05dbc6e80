//! Two unmodified programs on one engine: the bytes of their connections pass through memory that both map, as no segments.
//! Either may be killed, and so may the engine.
//!
//! How: docs/decisions/0085-programs-of-one-engine.md.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::{
    PATIENCE, Program, wait_for,
    world::{self, Mode, World, finish},
};

/// Sends back what it receives, to one after the other; says how each ended.
const ECHO: &str = r#"
import socket, sys
s = socket.create_server((sys.argv[1], 9000))
print("ready", flush=True)
while True:
    c = s.accept()[0]
    count = 0
    try:
        while part := c.recv(65536):
            c.sendall(part)
            count += len(part)
        print("end", count, flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
    c.close()
"#;

/// Sends that many megabytes while it receives them, and compares; says when it is at each.
const ASK: &str = r#"
import random, socket, sys, threading
sent = random.Random(5).randbytes(1 << 20)
count = int(sys.argv[2])
s = socket.create_connection((sys.argv[1], 9000))
def send():
    for _ in range(count):
        s.sendall(sent)
    s.shutdown(socket.SHUT_WR)
thread = threading.Thread(target=send)
thread.start()
right = 0
for n in range(count):
    received = bytearray()
    while len(received) < len(sent) and (part := s.recv(len(sent) - len(received))):
        received += part
    right += received == sent
    print("at", n, flush=True)
thread.join()
print("right", right, s.recv(1), flush=True)
"#;

/// Waits for what never comes, after one byte and its echo.
const HANG: &str = r#"
import socket, sys
s = socket.create_connection((sys.argv[1], 9000))
s.sendall(b"x")
s.recv(1)
print("waiting", flush=True)
try:
    s.recv(1)
    print("end", flush=True)
except OSError as error:
    print(type(error).__name__, flush=True)
"#;

fn world(test: &str, mode: Mode, programs: &[&str]) -> Option<World> {
    let name = format!("one-engine-{test}");
    world::can_run(&name, programs).then(|| World::new(&name, mode))
}

fn status(world: &World) -> Value {
    world.report("status")
}

fn wait(program: &mut Program, word: &str) {
    program
        .wait_until(word, PATIENCE, |one| one.stdout().contains(word))
        .unwrap();
}

fn echo(world: &World) -> Program {
    let mut server = world.start_tested(&["python3", "-c", ECHO, &world.tested_address()]);
    wait(&mut server, "ready");
    server
}

/// Starts a program in Python that talks to the server.
fn start(world: &World, script: &str, argument: &str) -> Program {
    world.start_tested(&["python3", "-c", script, &world.tested_address(), argument])
}

#[test]
fn megabytes_go_there_and_back_in_a_few_segments() {
    talk("talk", Mode::Engine);
}

#[test]
fn megabytes_of_supervised_programs_go_there_and_back_in_a_few_segments() {
    talk("supervised", Mode::Supervised);
}

fn talk(test: &str, mode: Mode) {
    let Some(world) = world(test, mode, &["python3"]) else {
        return;
    };
    let segments = || {
        status(&world)["stack_counters"]["TcpInSegs"]
            .as_u64()
            .unwrap()
    };
    let mut server = echo(&world);
    let before = segments();
    let asked = finish(start(&world, ASK, "64"));
    assert!(asked.stdout.ends_with("right 64 b''\n"), "{asked:?}");
    wait(&mut server, "end 67108864");
    // What came before both had mapped the memory went by segments.
    let taken = segments() - before;
    assert!(taken < 100, "{taken} segments");
    let passed = status(&world)["copies"]["passed_bytes"].as_u64().unwrap();
    assert!((120 << 20..=128 << 20).contains(&passed), "{passed} bytes");
}

#[test]
fn a_connection_goes_on_while_the_engine_is_killed() {
    let Some(world) = world("kill", Mode::Engine, &["python3"]) else {
        return;
    };
    // Nobody answers while the next engine begins.
    let restarts = || {
        let status: Value = serde_json::from_str(&world.status()).ok()?;
        status["kept"]["restarts"].as_u64()
    };
    let _server = echo(&world);
    let mut client = start(&world, ASK, "600");
    for round in 0..3_u64 {
        wait(&mut client, &format!("at {}\n", 50 + round * 150));
        // It would be over by then.
        client.signal(Signal::STOP).unwrap();
        world.wait_engine_goes_on();
        let before = client.lines().len();
        client.signal(Signal::CONT).unwrap();
        client
            .wait_until("more", PATIENCE, |client| client.lines().len() > before)
            .unwrap();
        let pid = i32::try_from(world.engine_pid()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        wait_for("the next engine", PATIENCE, || restarts() > Some(round));
    }
    let asked = finish(client);
    assert!(asked.stdout.ends_with("right 600 b''\n"), "{asked:?}");
}

#[test]
fn who_talks_to_a_program_that_is_killed_hears_a_reset() {
    let Some(world) = world("end", Mode::Engine, &["python3"]) else {
        return;
    };
    let mut server = echo(&world);
    let mut client = start(&world, HANG, "");
    wait(&mut client, "waiting");
    client.signal(Signal::KILL).unwrap();
    // All that it was sent is read: its end is one of the stream, as Linux has it.
    wait(&mut server, "end 1");
    let mut client = start(&world, HANG, "");
    wait(&mut client, "waiting");
    server.signal(Signal::KILL).unwrap();
    let done = finish(client);
    assert_eq!(done.stdout, "waiting\nend\n", "{}", done.stderr);
    drop(server);
    let _server = echo(&world);
    let asked = finish(start(&world, ASK, "1"));
    assert!(asked.stdout.ends_with("right 1 b''\n"), "{asked:?}");
}

#[test]
fn redis_serves_its_clients_while_others_and_the_engine_are_killed() {
    let tools = ["redis-server", "redis-benchmark", "redis-cli"];
    let Some(world) = world("redis", Mode::Engine, &tools) else {
        return;
    };
    let address = world.tested_address();
    let folder = world.folder.display().to_string();
    let mut server = world.start_tested(&[
        "redis-server",
        "--bind",
        &address,
        "--protected-mode",
        "no",
        "--save",
        "",
        "--dir",
        &folder,
    ]);
    wait(&mut server, "Ready to accept connections");
    let load = |requests: &str| {
        let words = [
            "redis-benchmark",
            "-h",
            &address,
            "-t",
            "set,get",
            "-c",
            "80",
            "-q",
            "-n",
            requests,
        ];
        world.start_tested(&words)
    };
    let clients = || {
        let told = finish(world.start_tested(&["redis-cli", "-h", &address, "info", "clients"]));
        let line = told.stdout.lines().find_map(|line| {
            let count = line.trim().strip_prefix("connected_clients:")?;
            count.parse::<u32>().ok()
        });
        line.unwrap_or(0)
    };
    let killed = load("100000000");
    wait_for("its connections", PATIENCE, || clients() > 80);
    killed.signal(Signal::KILL).unwrap();
    drop(killed);
    wait_for("the end of its connections", PATIENCE, || clients() == 1);
    // Nobody answers while the next engine begins.
    let restarts = || {
        let status: Value = serde_json::from_str(&world.status()).ok()?;
        status["kept"]["restarts"].as_u64()
    };
    let going_on = load("100000000");
    wait_for("its connections", PATIENCE, || clients() > 80);
    let pid = i32::try_from(world.engine_pid()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    wait_for("the next engine", PATIENCE, || restarts() == Some(1));
    // More clients than there are slots, before and after.
    assert!(clients() > 80, "{}", going_on.stderr());
    drop(going_on);
    let done = finish(load("50000"));
    assert!(done.status.success(), "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.contains("GET:"), "{}", done.stdout);
}
