//! `shunt run --engine-mode inline`: the engine inside the program, beside a kernel peer on the other host.
//!
//! What the program sees of its sockets is compared in `parity.rs`; here is what only an engine inside a
//! program can get wrong: the end of the program, its children, its descriptors.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

mod executed;
mod killed;
mod succession;

use std::process::Command;

use testkit::{Finished, Lab, LabSpec, PATIENCE, Program, host, world};

const BYTES: usize = 10_000_000;

/// Receives until the end from everybody who connects, one after the other; says how much and how it ended.
const RECEIVER: &str = r#"
import socket
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("10.77.0.2", 9000))
s.listen(8)
print("ready", flush=True)
while True:
    c = s.accept()[0]
    count = 0
    try:
        while part := c.recv(65536):
            count += len(part)
        print(count, "end", flush=True)
    except OSError as error:
        print(count, error, flush=True)
"#;

/// Sends and ends at once, in the way of its argument.
const SENDER: &str = r#"
import os, socket, sys
how, left = sys.argv[1], int(sys.argv[2])
s = socket.create_connection(("10.77.0.2", 9000))
if how == "child":
    # The child writes on the parent's engine, and outlives the parent.
    if os.fork():
        os._exit(7)
while left:
    left -= s.send(bytes(min(left, 65536)))
if how == "exec":
    os.execvp("sh", ["sh", "-c", "exit 7"])
if how == "failed exec":
    try:
        os.execv("/nonexistent", ["x"])
    except OSError:
        s.send(b"!")
if how == "_exit":
    os._exit(7)
sys.exit(7)
"#;

/// Handlers run while the thread spins inside recv, in order, and end it as signal(7) says.
const SIGNALS: &str = r#"
import signal, socket, threading, os, time
s = socket.create_connection(("10.77.0.2", 9000))
seen = []
class Enough(Exception): pass
def on_alarm(number, frame):
    # One more may come before the timer is off.
    if len(seen) == 20:
        return
    seen.append(number)
    s.send(b"x")
    if len(seen) == 20:
        raise Enough
signal.signal(signal.SIGALRM, on_alarm)
print(signal.getsignal(signal.SIGALRM) is on_alarm)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.005)
try:
    s.recv(1)
except Enough:
    print(len(seen))
signal.setitimer(signal.ITIMER_REAL, 0, 0)
signal.signal(signal.SIGALRM, signal.SIG_DFL)
print(signal.getsignal(signal.SIGALRM) == signal.SIG_DFL)
"#;

/// Numbers of a socket and of what is opened after it; the library's own are neither seen nor closed.
const DESCRIPTORS: &str = r#"
import os, socket
lowest = os.open("/dev/null", os.O_RDONLY)
os.close(lowest)
s = socket.create_connection(("10.77.0.2", 9000))
after = os.open("/dev/null", os.O_RDONLY)
print(s.fileno() - lowest, after - lowest, flush=True)
os.close(after)
s.send(b"one")
os.closerange(s.fileno() + 1, 4096)
s.send(b"two")
s.close()
again = socket.create_connection(("10.77.0.2", 9000))
again.send(b"three!")
print(again.fileno() - lowest, flush=True)
"#;

/// Many small sends, one right after the other, and then no call that the library sees.
const TALKER: &str = r#"
import signal, socket
s = socket.create_connection(("10.77.0.2", 9001))
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for n in range(5000):
    s.send(b"%4d" % n)
signal.pause()
"#;

/// Takes what it sends, in order and to the last byte, while it is still there.
const LISTENER: &str = r#"
import socket
s = socket.socket()
s.bind(("10.77.0.2", 9001))
s.listen(1)
print("ready", flush=True)
c = s.accept()[0]
expected = b"".join(b"%4d" % n for n in range(5000))
got = b""
while len(got) < len(expected):
    got += c.recv(65536)
print("whole" if got == expected else "spoilt", flush=True)
c.recv(1)
"#;

/// Sends to everybody who connects, until he has enough.
const SOURCE: &str = r#"
import socket
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("10.77.0.2", 9002))
s.listen(1)
print("ready", flush=True)
block = bytes(1 << 20)
while True:
    c = s.accept()[0]
    try:
        while True:
            c.sendall(block)
    except OSError:
        pass
"#;

/// Receives without end, in blocking calls with a large buffer.
const SINK: &str = r#"
import socket
s = socket.create_connection(("10.77.0.2", 9002))
buffer = bytearray(1 << 20)
while s.recv_into(buffer):
    pass
"#;

/// Sends to itself, and never waits: the median of how many looks it takes until something is there, for each way of looking.
const LOOKER: &str = r#"
import array, fcntl, socket, statistics, sys, termios, time
own = sys.argv[1]

def peeks(end):
    try:
        return bool(end.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False

def asks(end):
    bytes_there = array.array("i", [0])
    fcntl.ioctl(end, termios.FIONREAD, bytes_there)
    return bytes_there[0] > 0

def pair(kind):
    receiver = socket.socket(socket.AF_INET, kind)
    receiver.bind((own, 0))
    if kind == socket.SOCK_STREAM:
        receiver.listen()
    sender = socket.socket(socket.AF_INET, kind)
    sender.connect(receiver.getsockname())
    if kind == socket.SOCK_STREAM:
        receiver = receiver.accept()[0]
    receiver.setblocking(False)
    return sender, receiver

for kind in socket.SOCK_DGRAM, socket.SOCK_STREAM:
    for way in peeks, asks:
        sender, receiver = pair(kind)
        counts = []
        for _ in range(50):
            sender.send(b"x")
            looks, end = 1, time.monotonic() + 5
            while not way(receiver) and time.monotonic() < end:
                looks += 1
            counts.append(looks)
            receiver.recv(1)
        print(kind.name, way.__name__, int(statistics.median(counts)))
"#;

fn laboratory(test: &str) -> Option<Lab> {
    let name = format!("inline-{test}");
    world::can_run(&name, &["python3"])
        .then(|| Lab::temporary(&format!("t-{name}"), &LabSpec::default()).unwrap())
}

fn receiver(lab: &Lab) -> Program {
    let mut receiver = testkit::start(host(lab, "b"), "python3", &["-c", RECEIVER]);
    receiver
        .wait_until("receiver", PATIENCE, |one| one.stdout().contains("ready"))
        .unwrap();
    receiver
}

/// Runs a program with an engine inside, which has an address of its own.
fn run(lab: &Lab, last: u8, command: &[&str]) -> Finished {
    let address = format!("10.77.0.{last}/24");
    let mut line = vec!["run", "--engine-mode=inline", "--policy", "engine-only"];
    line.extend(["--address", &address, "--"]);
    line.extend(command);
    testkit::start(host(lab, "a"), testkit::shunt().to_str().unwrap(), &line)
        .finish(PATIENCE, || false)
        .unwrap()
}

/// What the receiver has said of its connections, once it has said so much.
fn reports(receiver: &mut Program, count: usize) -> Vec<String> {
    // The first says that it is ready.
    let lines =
        |receiver: &Program| -> Vec<String> { receiver.lines().into_iter().skip(1).collect() };
    receiver
        .wait_until("the end of what was sent", PATIENCE, |one| {
            lines(one).len() >= count
        })
        .unwrap();
    lines(receiver)
}

#[test]
fn what_a_program_wrote_arrives_although_it_ends_at_once() {
    let Some(lab) = laboratory("end") else { return };
    let mut receiver = receiver(&lab);
    let text = BYTES.to_string();
    let ways = ["exit", "_exit", "exec", "failed exec", "child"];
    for (count, (last, how)) in (1..).zip((20..).zip(ways)) {
        let done = run(&lab, last, &["python3", "-c", SENDER, how, &text]);
        assert_eq!(done.status.code(), Some(7), "{how}: {}", done.stderr);
        let more = usize::from(how == "failed exec");
        let expected = format!("{} end", BYTES + more);
        let reports = reports(&mut receiver, count);
        assert_eq!(reports.last(), Some(&expected), "{how}");
    }
}

#[test]
fn a_datagram_whose_neighbour_is_asked_for_leaves_although_its_program_has_ended() {
    const HEARS: &str = "import socket
one = socket.socket(type=socket.SOCK_DGRAM)
one.bind(('', 9000))
print('ready', flush=True)
print(one.recv(100).decode(), flush=True)";
    const SENDS: &str = "import socket
socket.socket(type=socket.SOCK_DGRAM).sendto(b'the last words', ('10.77.0.99', 9000))";
    let Some(lab) = laboratory("neighbour") else {
        return;
    };
    let hears = ["-c", HEARS];
    let mut receiver = testkit::start(host(&lab, "b"), "python3", &hears);
    receiver
        .wait_until("receiver", PATIENCE, |one| one.stdout().contains("ready"))
        .unwrap();
    let done = run(&lab, 29, &["python3", "-c", SENDS]);
    assert!(done.status.success(), "{}", done.stderr);
    // Until now nobody has answered the question for it.
    let address = ["address", "add", "10.77.0.99/24", "dev", "eth0"];
    testkit::run(host(&lab, "b"), "ip", &address);
    receiver
        .wait_until("datagram", PATIENCE, |one| {
            one.stdout().contains("the last words")
        })
        .unwrap();
}

#[test]
fn small_sends_in_a_row_leave_although_the_program_never_calls_again() {
    let Some(lab) = laboratory("row") else { return };
    let mut listener = testkit::start(host(&lab, "b"), "python3", &["-c", LISTENER]);
    listener
        .wait_until("listener", PATIENCE, |one| one.stdout().contains("ready"))
        .unwrap();
    let shunt = testkit::shunt().to_str().unwrap();
    let line = [
        "run",
        "--engine-mode=inline",
        "--policy",
        "engine-only",
        "--address",
        "10.77.0.50/24",
        "--",
        "python3",
        "-c",
        TALKER,
    ];
    let _talker = testkit::start(host(&lab, "a"), shunt, &line);
    listener
        .wait_until("all that was sent", PATIENCE, |one| {
            one.stdout().contains("whole")
        })
        .unwrap();
}

/// Bytes that an engine has received for programs, and how many it copied for that.
fn received(lab: &Lab, engine: &str) -> Option<(f64, f64)> {
    let shunt = testkit::shunt().to_str().unwrap();
    let line = ["status", "--engine", engine, "--json"];
    // It answers once the program has opened its socket.
    let done = testkit::start(host(lab, "a"), shunt, &line)
        .finish(PATIENCE, || false)
        .ok()?;
    let status: serde_json::Value = serde_json::from_str(&done.stdout).ok()?;
    let count = |name: &str| status["copies"][name].as_f64();
    Some((count("received_bytes")?, count("copied_to_receive_bytes")?))
}

#[test]
fn a_thread_that_waits_in_recv_has_bytes_copied_once() {
    let Some(lab) = laboratory("once") else {
        return;
    };
    let mut source = testkit::start(host(&lab, "b"), "python3", &["-c", SOURCE]);
    source
        .wait_until("source", PATIENCE, |one| one.stdout().contains("ready"))
        .unwrap();
    let shunt = testkit::shunt().to_str().unwrap();
    let line = [
        "run",
        "--engine-mode=inline",
        "--policy",
        "engine-only",
        "--address",
        "10.77.0.60/24",
        "--",
        "python3",
        "-c",
        SINK,
    ];
    let mut sink = testkit::start(host(&lab, "a"), shunt, &line);
    // While other programs keep the thread from its processor the helper thread receives, into the window, and copies
    // such bytes twice: between some two looks it has not received all of them.
    let mut before = None;
    let mut fewest = f64::INFINITY;
    let all = sink.wait_until("bytes that are copied once", PATIENCE, |_| {
        let now = received(&lab, "@shunt/run/10.77.0.60");
        let (Some((bytes, copied)), Some((bytes_before, copied_before))) = (now, before) else {
            before = now;
            return false;
        };
        before = now;
        let (bytes, copied) = (bytes - bytes_before, copied - copied_before);
        if bytes > 8e6 {
            fewest = fewest.min(copied / bytes);
        }
        (0.9..1.8).contains(&fewest)
    });
    assert!(all.is_ok(), "copies of a byte: {fewest} at best");
}

/// What a program sends to itself is there at the next look, as over the kernel; the helper thread comes by each few milliseconds only.
#[test]
fn a_program_that_looks_and_never_waits_is_served_by_its_looks() {
    const LOOKS: u64 = 2;
    let Some(lab) = laboratory("looks") else {
        return;
    };
    let done = run(&lab, 60, &["python3", "-c", LOOKER, "10.77.0.60"]);
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
    assert_eq!(done.stdout.lines().count(), 4, "{}", done.stdout);
    for line in done.stdout.lines() {
        let looks = line.rsplit(' ').next().and_then(|last| last.parse().ok());
        assert!(looks.is_some_and(|looks: u64| looks <= LOOKS), "{line}");
    }
}

#[test]
fn handlers_run_between_turns_and_interrupt_waits() {
    let Some(lab) = laboratory("signals") else {
        return;
    };
    let mut receiver = receiver(&lab);
    for (count, (last, spin)) in (1..).zip([(41, "auto"), (42, "1000000")]) {
        let address = format!("10.77.0.{last}/24");
        let line = [
            "run",
            "--engine-mode=inline",
            "--spin-us",
            spin,
            "--address",
            &address,
            "--",
            "python3",
            "-c",
            SIGNALS,
        ];
        let shunt = testkit::shunt().to_str().unwrap();
        let done = testkit::start(host(&lab, "a"), shunt, &line)
            .finish(PATIENCE, || false)
            .unwrap();
        assert_eq!(done.stdout, "True\n20\nTrue\n", "{}", done.stderr);
        assert_eq!(reports(&mut receiver, count).pop().unwrap(), "20 end");
    }
}

#[test]
fn the_engine_takes_no_number_of_the_programs_and_the_program_cannot_close_it() {
    let Some(lab) = laboratory("numbers") else {
        return;
    };
    let mut receiver = receiver(&lab);
    let done = run(&lab, 30, &["python3", "-c", DESCRIPTORS]);
    assert_eq!(done.stdout, "0 1\n0\n", "{}", done.stderr);
    assert_eq!(reports(&mut receiver, 2), ["6 end", "6 end"]);
}

/// A thread with a small stack makes the first socket.
const SMALL_STACK: &str = r#"
import socket, threading
threading.stack_size(128 << 10)
def first():
    listener, client = socket.socket(), socket.socket()
    listener.bind(("10.77.0.75", 0))
    listener.listen()
    client.connect(listener.getsockname())
    client.send(b"hello")
    print(listener.accept()[0].recv(8).decode())
thread = threading.Thread(target=first)
thread.start()
thread.join()
"#;

#[test]
fn a_thread_with_a_small_stack_may_make_the_first_socket() {
    let Some(lab) = laboratory("stack") else {
        return;
    };
    let done = run(&lab, 75, &["python3", "-c", SMALL_STACK]);
    assert_eq!(done.stdout, "hello\n", "{}", done.stderr);
}

#[test]
fn an_unmodified_client_and_server_work_with_an_engine_inside_each() {
    let Some(lab) = laboratory("both") else {
        return;
    };
    let folder = std::env::temp_dir().join(format!("shunt-inline-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let content: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(folder.join("content"), &content).unwrap();
    let shunt = testkit::shunt().to_str().unwrap();
    let serve = [
        "run",
        "--engine-mode=inline",
        "--",
        "python3",
        "-u",
        "-m",
        "http.server",
        "--bind",
        "10.77.0.12",
        "-d",
    ];
    let mut line = serve.to_vec();
    line.push(folder.to_str().unwrap());
    let mut server = testkit::start(host(&lab, "b"), shunt, &line);
    server
        .wait_until("server", PATIENCE, |one| one.stdout().contains("Serving"))
        .unwrap();
    let fetch = "import urllib.request, hashlib; print(hashlib.sha256(urllib.request.urlopen(\
                 'http://10.77.0.12:8000/content').read()).hexdigest())";
    let done = run(&lab, 31, &["python3", "-c", fetch]);
    let path = folder.join("content");
    let local =
        "import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest())";
    let expected = Command::new("python3")
        .args(["-c", local, path.to_str().unwrap()])
        .output()
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(done.stdout.as_bytes(), expected.stdout, "{}", done.stderr);
}
