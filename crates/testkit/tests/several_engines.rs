//! One unmodified program on the kernel and on two engines at the same time (docs/decisions/0032-several-engines.md):
//! what it listens on and connects to lands where its address says, `shunt explain` shows it, and an engine that
//! is gone takes its own connections along and no others.
//!
//! Both engines are on host `a`, on one interface; the peers are on the kernel of host `b`. A program or privilege
//! that is missing skips the test, and says so past libtest's capture of output.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

#[path = "several_engines/datagrams.rs"]
mod datagrams;

use std::collections::BTreeMap;

use serde_json::Value;
use testkit::{Host, Lab, LabSpec, PATIENCE, Program, host, python, wait_for, world};

const FIRST: &str = "@shunt/engine";
const SECOND: &str = "@shunt/second";
/// Of the second engine: one in a network of its own, one in that of the first.
const SECOND_OWN: &str = "10.78.0.11";
const SECOND_BESIDE: &str = "10.77.0.13";
/// Of host `b` in the second engine's network.
const SECOND_PEER: &str = "10.78.0.2";

/// Echoes what comes from whoever connects to it on ANY, or whom it has connected to, in one epoll set. Says so
/// when those that it connects to have answered; forks first where it is told.
const PROGRAM: &str = "
import os, selectors, socket, sys
ready = selectors.DefaultSelector()
def hold(one):
    one.setblocking(False)
    ready.register(one, selectors.EVENT_READ)
peers = [socket.create_connection((name, 8000)) for name in sys.argv[2:]]
for one in peers:
    one.sendall(b'word')
    assert one.recv(4) == b'word'
    hold(one)
listener = socket.create_server(('0.0.0.0', 7000), backlog=16)
hold(listener)
if sys.argv[1] == 'fork' and os.fork() > 0:
    os.wait()
    sys.exit()
print('holds', len(peers), flush=True)
while True:
    for key, _ in ready.select():
        one = key.fileobj
        if one is listener:
            hold(one.accept()[0])
            continue
        try:
            part = one.recv(65536)
        except ConnectionResetError:
            part = b''
        if part:
            one.setblocking(True)
            one.sendall(part)
            one.setblocking(False)
        else:
            ready.unregister(one)
            one.close()
            print('ended', flush=True)
";

/// The peer that connects: to each of the addresses, all of them held, and what it sends comes back.
const ASK: &str = "
import signal, socket, sys
all = {name: socket.create_connection((name, 7000)) for name in sys.argv[1:]}
def ask(one):
    data = bytes(range(256)) * 400
    one.sendall(data)
    got = b''
    while len(got) < len(data):
        part = one.recv(65536)
        if not part: return 'end'
        got += part
    return 'echo' if got == data else 'other'
for one in all.values(): print(ask(one), flush=True)
print('all asked', flush=True)
signal.pause()
";

struct Testbed {
    lab: Lab,
    engines: Vec<Program>,
    _echo: Program,
}

impl Testbed {
    fn new(test: &str) -> Option<Testbed> {
        let name = format!("engines-{test}");
        if !world::can_run(&name, &["python3", "ip"]) {
            return None;
        }
        let lab = Lab::temporary(&format!("t-{name}"), &LabSpec::default()).unwrap();
        let (a, b) = (host(&lab, "a"), host(&lab, "b"));
        let peer = format!("{SECOND_PEER}/24");
        let added = testkit::start(b, "ip", &["address", "add", &peer, "dev", "eth0"]);
        added.finish(PATIENCE, || false).unwrap().success().unwrap();
        let (own, beside) = (format!("{SECOND_OWN}/24"), format!("{SECOND_BESIDE}/24"));
        let second = [
            "engine",
            "--name",
            SECOND,
            "--nic",
            "eth0",
            "--address",
            &own,
            "--address",
            &beside,
        ];
        let engines = [&["engine"][..], &second]
            .map(|line| testkit::once_serving(testkit::start(a, shunt(), line)));
        let mut echo = testkit::start(b, "python3", &["-c", python::ECHO_AT_8000]);
        echo.wait_listening(8000, PATIENCE).unwrap();
        Some(Testbed {
            engines: engines.into(),
            _echo: echo,
            lab,
        })
    }

    fn a(&self) -> &Host {
        host(&self.lab, "a")
    }

    fn first_own(&self) -> String {
        self.a().spec().engine_address.address.to_string()
    }

    fn kernels(&self) -> String {
        self.a().spec().address.address.to_string()
    }

    fn peer(&self) -> String {
        host(&self.lab, "b").spec().address.address.to_string()
    }

    /// The program on both engines; it holds its connections to the peers.
    fn start(&self, flags: &[&str], mode: &str, peers: &[&str]) -> Program {
        let line = ["run", "--engine", FIRST, "--engine", SECOND];
        let line = [
            &line[..],
            flags,
            &["--", "python3", "-c", PROGRAM, mode],
            peers,
        ]
        .concat();
        let mut program = testkit::start(self.a(), shunt(), &line);
        let holds = |program: &Program| program.stdout().contains("holds");
        program.wait_until("connect", PATIENCE, holds).unwrap();
        program
    }

    /// A program on host `b` that has asked at all addresses and holds the connections.
    fn ask(&self, addresses: &[&str]) -> Program {
        let line = [&["-c", ASK][..], addresses].concat();
        let mut asker = testkit::start(host(&self.lab, "b"), "python3", &line);
        let asked = |asker: &Program| asker.stdout().contains("all asked");
        asker.wait_until("ask", PATIENCE, asked).unwrap();
        assert_eq!(asker.stdout().matches("echo").count(), addresses.len());
        asker
    }

    /// Which stack each socket of a process is on: by its peer, else by its own address.
    fn explain(&self, pid: u32) -> BTreeMap<String, Vec<String>> {
        let told = testkit::run(self.a(), shunt(), &["explain", &pid.to_string(), "--json"]);
        let rows: Value = serde_json::from_str(&told.stdout).unwrap();
        let mut stacks: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in rows.as_array().unwrap() {
            let (local, remote) = (row["local"].as_str(), row["remote"].as_str());
            let is_accepted = local.is_some_and(|local| local.ends_with(":7000"));
            let Some(name) = remote.filter(|_| !is_accepted).or(local) else {
                continue;
            };
            let stack = row["stack"].as_str().unwrap().to_owned();
            stacks.entry(name.to_owned()).or_default().push(stack);
        }
        stacks.values_mut().for_each(|list| list.sort());
        stacks
    }
}

fn shunt() -> &'static str {
    testkit::shunt().to_str().unwrap()
}

fn ended(program: &Program) -> usize {
    program.stdout().matches("ended").count()
}

#[test]
fn a_program_holds_connections_over_the_kernel_and_two_engines_and_explain_shows_it() {
    let Some(testbed) = Testbed::new("explain") else {
        return;
    };
    let (first, kernels, peer) = (testbed.first_own(), testbed.kernels(), testbed.peer());
    let program = testbed.start(&[], "stay", &[&peer, SECOND_PEER]);
    let _asker = testbed.ask(&[&kernels, &first, SECOND_OWN, SECOND_BESIDE]);
    let all = format!("kernel + {FIRST} + {SECOND}");
    let expected: BTreeMap<String, Vec<String>> = [
        ("0.0.0.0:7000".to_owned(), &all[..]),
        (format!("{peer}:8000"), FIRST),
        (format!("{SECOND_PEER}:8000"), SECOND),
        (format!("{kernels}:7000"), "kernel"),
        (format!("{first}:7000"), FIRST),
        (format!("{SECOND_OWN}:7000"), SECOND),
        (format!("{SECOND_BESIDE}:7000"), SECOND),
    ]
    .into_iter()
    .map(|(name, stack)| (name, vec![stack.to_owned()]))
    .collect();
    assert_eq!(testbed.explain(program.pid()), expected);
}

#[test]
fn an_engine_that_is_gone_takes_its_connections_along_and_no_others() {
    let Some(mut testbed) = Testbed::new("gone") else {
        return;
    };
    let (first, kernels, peer) = (testbed.first_own(), testbed.kernels(), testbed.peer());
    let program = testbed.start(&[], "stay", &[&peer, SECOND_PEER]);
    let _asker = testbed.ask(&[&kernels, &first, SECOND_OWN]);
    testbed.engines.pop().unwrap().stop();
    // One was connected to, one has come.
    wait_for("both connections", PATIENCE, || ended(&program) == 2);
    let _again = testbed.ask(&[&kernels, &first]);
    let stacks = testbed.explain(program.pid());
    assert_eq!(stacks[&format!("{peer}:8000")], [FIRST]);
    assert_eq!(stacks[&format!("{first}:7000")], [FIRST, FIRST]);
    assert_eq!(stacks[&format!("{kernels}:7000")], ["kernel", "kernel"]);
    assert_eq!(ended(&program), 2);
}

#[test]
fn connections_that_both_engines_could_carry_go_by_turns_and_to_the_one_that_is_left() {
    let Some(mut testbed) = Testbed::new("turns") else {
        return;
    };
    let peer = testbed.peer();
    let name = format!("{peer}:8000");
    let four = [&peer[..]; 4];
    let program = testbed.start(&["--placement", "round-robin"], "stay", &four);
    let spread = testbed.explain(program.pid());
    assert_eq!(spread[&name], [FIRST, FIRST, SECOND, SECOND]);
    drop(program);
    let program = testbed.start(&[], "stay", &four);
    assert_eq!(testbed.explain(program.pid())[&name], [FIRST; 4]);
    drop(program);
    // The second is asked for by name, so it is there; the first ends before anything connects.
    let late = "import os, signal, sys, time, socket
first = socket.socket()
first.close()
os.kill(int(sys.argv[1]), signal.SIGKILL)
while open(f'/proc/{sys.argv[1]}/stat').read().rpartition(')')[2].split()[0] != 'Z': time.sleep(0.01)
for _ in range(2):
    one = socket.create_connection((sys.argv[2], 8000))
    one.sendall(b'word')
    assert one.recv(4) == b'word'
    print(one.getsockname()[0], flush=True)";
    let engine = testbed.engines.remove(0);
    let pid = engine.pid().to_string();
    let line = [
        "run", "--engine", FIRST, "--engine", SECOND, "--", "python3", "-c", late, &pid, &peer,
    ];
    let left = testkit::run(testbed.a(), shunt(), &line);
    assert_eq!(
        left.stdout,
        format!("{SECOND_BESIDE}\n").repeat(2),
        "{}",
        left.stderr
    );
}

#[test]
fn a_supervised_program_is_on_both_engines_too() {
    let Some(testbed) = Testbed::new("supervised") else {
        return;
    };
    let (first, kernels, peer) = (testbed.first_own(), testbed.kernels(), testbed.peer());
    let program = testbed.start(&["--supervise", "only"], "stay", &[&peer, SECOND_PEER]);
    let _asker = testbed.ask(&[&kernels, &first, SECOND_OWN]);
    assert_eq!(ended(&program), 0);
    for (engine, peer) in [(FIRST, &peer[..]), (SECOND, SECOND_PEER)] {
        let told = testkit::run(testbed.a(), shunt(), &["ss", "--engine", engine, "--json"]);
        let rows: Value = serde_json::from_str(&told.stdout).unwrap();
        let to_peer = format!("{peer}:8000");
        let mut rows = rows.as_array().unwrap().iter();
        assert!(rows.any(|row| row["remote"] == to_peer[..]), "{engine}");
    }
}

#[test]
fn a_forked_child_goes_on_with_the_connections_of_every_engine() {
    let Some(testbed) = Testbed::new("fork") else {
        return;
    };
    let (first, kernels, peer) = (testbed.first_own(), testbed.kernels(), testbed.peer());
    let program = testbed.start(&[], "fork", &[&peer, SECOND_PEER]);
    let _asker = testbed.ask(&[&kernels, &first, SECOND_OWN]);
    assert_eq!(ended(&program), 0);
}
