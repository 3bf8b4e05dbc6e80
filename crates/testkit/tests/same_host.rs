//! Two unmodified programs with engines inside on one host: they find each other, and what they say never meets
//! the interface. Either may be killed at any moment.
//!
//! How: docs/decisions/0023-neighbours-on-one-host.md.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::fs;

use rustix::process::Signal;
use testkit::{Finished, Lab, LabSpec, PATIENCE, Program, host, world};

const SERVER: &str = "10.77.0.31";
const CLIENT: &str = "10.77.0.32";

/// Sends back what it receives, to one after the other; says how each ended.
const ECHO: &str = r#"
import socket, sys
s = socket.create_server((sys.argv[1], 9000), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
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

/// Sends so many bytes while it receives them, and compares.
const ASK: &str = r#"
import hashlib, random, socket, sys, threading
sent = random.Random(5).randbytes(int(sys.argv[2]))
s = socket.create_connection((sys.argv[1], 9000))
def send():
    s.sendall(sent)
    s.shutdown(socket.SHUT_WR)
thread = threading.Thread(target=send)
thread.start()
received = bytearray()
while part := s.recv(65536):
    received += part
thread.join()
print(len(received), received == sent)
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

fn laboratory(test: &str, programs: &[&str]) -> Option<Lab> {
    let name = format!("same-{test}");
    world::can_run(&name, programs)
        .then(|| Lab::temporary(&format!("t-{name}"), &LabSpec::default()).unwrap())
}

/// Starts a program with an engine inside, which has an address of its own.
fn start(lab: &Lab, address: &str, command: &[&str]) -> Program {
    let bits = if address.contains(':') { 64 } else { 24 };
    let address = format!("{address}/{bits}");
    let mut line = vec!["run", "--engine-mode=inline", "--policy", "engine-only"];
    line.extend(["--address", &address, "--"]);
    line.extend(command);
    testkit::start(host(lab, "a"), testkit::shunt().to_str().unwrap(), &line)
}

fn run(lab: &Lab, address: &str, command: &[&str]) -> Finished {
    start(lab, address, command)
        .finish(PATIENCE, || false)
        .unwrap()
}

fn echo(lab: &Lab, address: &str) -> Program {
    let mut server = start(lab, address, &["python3", "-c", ECHO, address]);
    wait(&mut server, "ready");
    server
}

fn wait(program: &mut Program, word: &str) {
    program
        .wait_until(word, PATIENCE, |one| one.stdout().contains(word))
        .unwrap();
}

/// Bytes that have left by the interface of host a.
fn sent_bytes(lab: &Lab) -> u64 {
    let path = "/sys/class/net/eth0/statistics/tx_bytes";
    let read = testkit::start(host(lab, "a"), "cat", &[path])
        .finish(PATIENCE, || false)
        .unwrap();
    read.stdout.trim().parse().unwrap()
}

#[test]
fn ten_megabytes_go_there_and_back_and_not_by_the_interface() {
    let Some(lab) = laboratory("talk", &["python3"]) else {
        return;
    };
    let mut server = echo(&lab, SERVER);
    let before = sent_bytes(&lab);
    let asked = run(&lab, CLIENT, &["python3", "-c", ASK, SERVER, "10000000"]);
    assert_eq!(asked.stdout, "10000000 True\n", "{}", asked.stderr);
    wait(&mut server, "end 10000000");
    let left = sent_bytes(&lab) - before;
    assert!(left < 100_000, "{left} bytes left by the interface");
}

#[test]
fn ipv6_finds_the_same_way() {
    let Some(lab) = laboratory("v6", &["python3"]) else {
        return;
    };
    if !host(&lab, "a").has_ipv6() {
        world::skip("same-v6", "this kernel has no IPv6");
        return;
    }
    let _server = echo(&lab, "fd77::31");
    let asked = run(
        &lab,
        "fd77::32",
        &["python3", "-c", ASK, "fd77::31", "1000000"],
    );
    assert_eq!(asked.stdout, "1000000 True\n", "{}", asked.stderr);
}

#[test]
fn a_killed_server_resets_its_clients_and_can_start_again() {
    let Some(lab) = laboratory("server", &["python3"]) else {
        return;
    };
    let server = echo(&lab, SERVER);
    let mut client = start(&lab, CLIENT, &["python3", "-c", HANG, SERVER]);
    wait(&mut client, "waiting");
    server.signal(Signal::KILL).unwrap();
    let done = client.finish(PATIENCE, || false).unwrap();
    assert_eq!(done.stdout, "waiting\nConnectionResetError\n");
    drop(server);
    let _server = echo(&lab, SERVER);
    let asked = run(&lab, CLIENT, &["python3", "-c", ASK, SERVER, "100000"]);
    assert_eq!(asked.stdout, "100000 True\n", "{}", asked.stderr);
}

#[test]
fn a_killed_client_is_heard_of_by_its_server() {
    let Some(lab) = laboratory("client", &["python3"]) else {
        return;
    };
    let mut server = echo(&lab, SERVER);
    let mut client = start(&lab, CLIENT, &["python3", "-c", HANG, SERVER]);
    wait(&mut client, "waiting");
    client.signal(Signal::KILL).unwrap();
    wait(&mut server, "ConnectionResetError");
    drop(client);
    // The same address again, and another one.
    for address in [CLIENT, "10.77.0.33"] {
        let asked = run(&lab, address, &["python3", "-c", ASK, SERVER, "100000"]);
        assert_eq!(asked.stdout, "100000 True\n", "{}", asked.stderr);
    }
}

#[test]
fn redis_is_killed_under_load_and_its_clients_end() {
    let tools = ["redis-server", "redis-benchmark", "python3"];
    let Some(lab) = laboratory("redis", &tools) else {
        return;
    };
    let folder = std::env::temp_dir().join(format!("shunt-same-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let place = folder.to_str().unwrap();
    let serve = [
        "redis-server",
        "--bind",
        SERVER,
        "--protected-mode",
        "no",
        "--save",
        "",
        "--dir",
        place,
    ];
    let mut server = start(&lab, SERVER, &serve);
    wait(&mut server, "Ready to accept connections");
    // Each has an address that nobody had before: what one leaves behind (TIME-WAIT) serves its address on.
    let load = |last: u8, requests| {
        let words = [
            "redis-benchmark",
            "-h",
            SERVER,
            "-t",
            "set,get",
            "-c",
            "20",
            "-q",
            "-n",
            requests,
        ];
        start(&lab, &format!("10.77.0.{last}"), &words)
    };
    let serves = |last| {
        let done = load(last, "20000").finish(PATIENCE, || false).unwrap();
        assert!(done.status.success(), "{}{}", done.stdout, done.stderr);
        assert!(done.stdout.contains("GET:"), "{}", done.stdout);
    };
    serves(40);

    // A client that is killed under load costs the server nothing.
    let killed = load(41, "100000000");
    wait_for_load(&lab, 42);
    killed.signal(Signal::KILL).unwrap();
    drop(killed);
    serves(43);

    let orphan = load(44, "100000000");
    wait_for_load(&lab, 45);
    server.signal(Signal::KILL).unwrap();
    let done = orphan.finish(PATIENCE, || false).unwrap();
    assert!(!done.status.success(), "{}{}", done.stdout, done.stderr);
    fs::remove_dir_all(&folder).unwrap();
}

/// Until redis has more than the one client that asks.
fn wait_for_load(lab: &Lab, last: u8) {
    let ask = r#"
import socket, sys
s = socket.create_connection((sys.argv[1], 6379))
clients = 0
while clients < 21:
    s.sendall(b"INFO clients\r\n")
    answer = b""
    while b"connected_clients:" not in answer or not answer.endswith(b"\r\n"):
        answer += s.recv(4096)
    clients = int(answer.split(b"connected_clients:")[1].split()[0])
print("loaded")
"#;
    let asked = run(
        lab,
        &format!("10.77.0.{last}"),
        &["python3", "-c", ask, SERVER],
    );
    assert_eq!(asked.stdout, "loaded\n", "{}", asked.stderr);
}

/// A connection of two processes, `server` and `client` in Python; what both print.
fn converse(test: &str, server: &str, client: &str) -> Option<[String; 2]> {
    let lab = laboratory(test, &["python3"])?;
    let listen = format!(
        "import errno, os, select, signal, socket, struct, sys, time\n\
         l = socket.create_server(('{SERVER}', 9000))\n\
         print('ready', flush=True)\n\
         s = l.accept()[0]\n{server}"
    );
    let connect = format!(
        "import errno, os, select, signal, socket, struct, sys, time\n\
         s = socket.create_connection(('{SERVER}', 9000))\n{client}"
    );
    let mut serving = start(&lab, SERVER, &["python3", "-c", &listen]);
    wait(&mut serving, "ready");
    let asked = run(&lab, CLIENT, &["python3", "-c", &connect]);
    let served = serving.finish(PATIENCE, || false).unwrap();
    let text = |done: &Finished| format!("{}{}", done.stdout, done.stderr);
    Some([text(&served), text(&asked)])
}

/// Messages there and back, so that what follows goes past the engines.
const WARM_SERVER: &str = "for _ in range(100): s.sendall(s.recv(64))\n";
const WARM_CLIENT: &str = "for _ in range(100): s.sendall(b'warm'); assert s.recv(64) == b'warm'\n";

#[test]
fn ends_resets_and_urgent_bytes_come_in_their_place() {
    // Each: what the server does after the warm-up, what the client does, what they print.
    let cases: [(&str, &str, &str, [&str; 2]); 6] = [
        (
            "half",
            "while part := s.recv(4096): pass\ns.sendall(b'z' * 100000)\ns.close()\n",
            "s.sendall(b'y' * 100000); s.shutdown(socket.SHUT_WR)\n\
             got = b''\nwhile part := s.recv(9999): got += part\nprint(len(got))\n",
            ["ready\n", "100000\n"],
        ),
        (
            "unread",
            "s.recv(1); s.close()\n",
            "s.sendall(b'two')\ntry: print(s.recv(1))\nexcept OSError as e: print(errno.errorcode[e.errno])\n",
            ["ready\n", "ECONNRESET\n"],
        ),
        (
            "late",
            "s.recv(1); s.close(); time.sleep(0.01)\n",
            "s.sendall(b'1'); print(s.recv(1))\n\
             try:\n while True: s.send(b'late')\nexcept OSError as e: print(errno.errorcode[e.errno])\n",
            ["ready\n", "b''\nEPIPE\n"],
        ),
        (
            "linger",
            "try: print(s.recv(1))\nexcept OSError as e: print(errno.errorcode[e.errno])\n",
            "s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); s.close()\n",
            ["ready\nECONNRESET\n", ""],
        ),
        (
            "urgent",
            "time.sleep(0.05)\nselect.select([], [], [s])\n\
             print(s.recv(64, socket.MSG_PEEK), s.recv(64), s.recv(1, socket.MSG_OOB), s.recv(64))\ns.sendall(b'.')\n",
            "s.sendall(b'before'); s.send(b'!', socket.MSG_OOB); s.sendall(b'after'); print(s.recv(1))\n",
            ["ready\nb'before' b'before' b'!' b'after'\n", "b'.'\n"],
        ),
        (
            "exit",
            "time.sleep(0.05); got = b''\nwhile part := s.recv(65536): got += part\nprint(len(got))\n",
            "s.sendall(b'x' * 200000); os._exit(0)\n",
            ["ready\n200000\n", ""],
        ),
    ];
    for (name, server, client, expected) in cases {
        let server = format!("{WARM_SERVER}{server}");
        let client = format!("{WARM_CLIENT}{client}");
        let Some(said) = converse(name, &server, &client) else {
            return;
        };
        assert_eq!(said, expected, "{name}");
    }
}

#[test]
fn who_sleeps_in_poll_or_epoll_is_woken_past_the_engine_too() {
    // The reader sleeps longer than it spins before each message, in each of four ways; the writer fills the lane.
    let server = "\
e = select.epoll(); e.register(s, select.EPOLLIN)
t = select.epoll(); t.register(s, select.EPOLLIN | select.EPOLLET)
p = select.poll(); p.register(s, select.POLLIN)
for wait in (lambda: e.poll(), lambda: t.poll(), lambda: p.poll(), lambda: None) * 5:
    wait()
    assert s.recv(64) == b'ping'
    s.sendall(b'pong')
s.setblocking(False)
sent = 0
p.register(s, select.POLLOUT)
while sent < 3000000:
    p.poll()
    sent += s.send(b'x' * 100000)
print(sent)
s.setblocking(True)
s.sendall(b'end')
print(s.recv(10))
";
    let client = "\
for _ in range(20):
    time.sleep(0.005)
    s.sendall(b'ping')
    assert s.recv(4) == b'pong'
got, last = 0, b''
while last != b'end':
    part = s.recv(50000)
    assert part
    got, last = got + len(part), (last + part)[-3:]
    time.sleep(0.0001)
print(got - 3)
s.sendall(b'over')
";
    let server = format!("{WARM_SERVER}{server}");
    let client = format!("{WARM_CLIENT}{client}");
    let Some([served, asked]) = converse("sleepers", &server, &client) else {
        return;
    };
    let sent = served.lines().nth(1).unwrap_or_default();
    assert_eq!(served, format!("ready\n{sent}\nb'over'\n"));
    assert_eq!(asked, format!("{sent}\n"));
}

#[test]
fn a_forked_child_and_its_parent_go_on_with_the_connection() {
    let server = "\
if os.fork() == 0:
    s.sendall(s.recv(64))
    os._exit(0)
os.wait()
s.sendall(b'parent')
s.sendall(s.recv(64))
";
    // By lengths: what child and parent say may come together.
    let client = "\
s.sendall(b'child'); print(s.recv(5), s.recv(6))
s.sendall(b'again'); print(s.recv(5), s.recv(64))
";
    let server = format!("{WARM_SERVER}{server}");
    let client = format!("{WARM_CLIENT}{client}");
    let Some([served, asked]) = converse("fork", &server, &client) else {
        return;
    };
    assert_eq!(served, "ready\n");
    assert_eq!(asked, "b'child' b'parent'\nb'again' b''\n");
}
