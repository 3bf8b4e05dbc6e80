//! Unmodified programs on an engine of several cores: that their connections are spread, that thousands stand,
//! and that nothing is left of a program that was killed. The rest is in `programs/` and `parity.rs`.
//!
//! The engine and the program under test are on host `a`, the peer on the kernel of host `b`. A program or
//! privilege that is missing skips the test, and says so past libtest's capture of output.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use testkit::{Lab, LabSpec, PATIENCE, Program, host, wait_for, world};

/// Connects COUNT times to ADDRESS, asks redis on each connection, says so, and holds all until told.
const CLIENT: &str = "
import resource, socket, sys
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
address, count = (sys.argv[1], 6379), int(sys.argv[2])
sockets = [socket.create_connection(address) for _ in range(count)]
for _ in range(2):
    for one in sockets: one.sendall(b'PING\\r\\n')
    for one in sockets: assert one.recv(7) == b'+PONG\\r\\n'
print('all answered', flush=True)
sys.stdin.read()
ends = set()
for one in sockets:
    try: ends.add(one.recv(1))
    except ConnectionResetError: ends.add('reset')
print('ends', ends, flush=True)
";

/// Slow machines open 10,000 connections for a while.
const LONG: Duration = Duration::from_secs(60);

struct World {
    lab: Lab,
    engine: Program,
}

impl World {
    /// `None`, and a word on the terminal: the test cannot run here.
    fn new(test: &str, cores: &str) -> Option<World> {
        let name = format!("cores-{test}");
        if !world::can_run(&name, &["redis-server", "python3"]) {
            return None;
        }
        let lab = Lab::temporary(&format!("t-{name}"), &LabSpec::default()).unwrap();
        let shunt = testkit::shunt().to_str().unwrap();
        let engine = testkit::once_serving(testkit::start(
            host(&lab, "a"),
            shunt,
            &["engine", "--cores", cores],
        ));
        Some(World { lab, engine })
    }

    fn engine_address(&self) -> String {
        host(&self.lab, "a")
            .spec()
            .engine_address
            .address
            .to_string()
    }

    fn peer_address(&self) -> String {
        host(&self.lab, "b").spec().address.address.to_string()
    }

    fn on_shunt(&self, program: &[&str]) -> Program {
        let shunt = testkit::shunt().to_str().unwrap();
        let line = [&["run", "--policy", "engine-only", "--"], program].concat();
        testkit::start(host(&self.lab, "a"), shunt, &line)
    }

    /// A redis that answers, on Shunt or on the kernel of the other host.
    fn redis(&self, is_on_shunt: bool) -> Program {
        let (address, asker) = if is_on_shunt {
            (self.engine_address(), "b")
        } else {
            (self.peer_address(), "a")
        };
        let line = [
            "redis-server",
            "--bind",
            &address,
            "--save",
            "",
            "--protected-mode",
            "no",
            "--maxclients",
            "10100",
            "--tcp-backlog",
            "511",
        ];
        let mut server = if is_on_shunt {
            self.on_shunt(&line)
        } else {
            testkit::start(host(&self.lab, "b"), line[0], &line[1..])
        };
        let name = format!("{address}:6379").parse().unwrap();
        let asker = host(&self.lab, asker);
        let answers = |_: &Program| asker.wait_connect(name, Duration::ZERO).is_ok();
        server.wait_until("answer", PATIENCE, answers).unwrap();
        server
    }

    /// Established connections by core.
    fn connections(&self) -> BTreeMap<u64, usize> {
        let shunt = testkit::shunt().to_str().unwrap();
        let told = testkit::run(host(&self.lab, "a"), shunt, &["ss", "--json"]);
        let rows: Value = serde_json::from_str(&told.stdout).unwrap();
        let mut counts = BTreeMap::new();
        for row in rows.as_array().unwrap() {
            if row["state"] == "ESTAB" {
                *counts.entry(row["core"].as_u64().unwrap()).or_default() += 1;
            }
        }
        counts
    }

    fn wait_answered(client: &mut Program) {
        let answered = |client: &Program| client.stdout().contains("all answered");
        client.wait_until("answers", LONG, answered).unwrap();
    }
}

fn client<'a>(address: &'a str, count: &'a str) -> [&'a str; 5] {
    ["python3", "-c", CLIENT, address, count]
}

#[test]
fn connections_from_outside_and_of_a_program_are_spread_over_the_cores() {
    let Some(world) = World::new("spread", "2") else {
        return;
    };
    let _server = world.redis(true);
    let address = world.engine_address();
    let line = client(&address, "50");
    let mut outside = testkit::start(host(&world.lab, "b"), line[0], &line[1..]);
    World::wait_answered(&mut outside);
    let incoming = world.connections();
    let counts: Vec<usize> = incoming.values().copied().collect();
    assert_eq!(counts.iter().sum::<usize>(), 50);
    assert!(
        counts.len() == 2 && counts.iter().all(|one| *one >= 10),
        "{incoming:?}"
    );

    let _other = world.redis(false);
    let address = world.peer_address();
    let mut inside = world.on_shunt(&client(&address, "20"));
    World::wait_answered(&mut inside);
    let both = world.connections();
    for core in [0, 1] {
        assert_eq!(both[&core], incoming[&core] + 10, "by turns");
    }
}

#[test]
fn nothing_is_left_of_a_killed_program_on_any_core() {
    let Some(world) = World::new("killed", "3") else {
        return;
    };
    let processors = std::thread::available_parallelism().unwrap().get();
    let warns = world.engine.stderr().contains("wait for each other");
    assert_eq!(warns, processors < 3, "{}", world.engine.stderr());
    let server = world.redis(true);
    let address = world.engine_address();
    let line = client(&address, "60");
    let mut outside = testkit::start(host(&world.lab, "b"), line[0], &line[1..]);
    World::wait_answered(&mut outside);
    assert_eq!(world.connections().len(), 3);
    server.signal(Signal::KILL).unwrap();
    wait_for("no connection", PATIENCE, || world.connections().is_empty());
    let shunt = testkit::shunt().to_str().unwrap();
    let a = host(&world.lab, "a");
    let listening = testkit::run(a, shunt, &["ss", "--listening", "--json"]);
    assert_eq!(listening.stdout.trim(), "[]");
    let status = testkit::run(a, shunt, &["status", "--json"]);
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(
        (&status["programs"], &status["sockets"]),
        (&0.into(), &0.into())
    );
    assert_eq!(
        (&status["cores"], &status["regions"]),
        (&3.into(), &0.into())
    );
}

#[test]
fn ten_thousand_connections_are_served() {
    let Some(world) = World::new("many", "2") else {
        return;
    };
    let _server = world.redis(true);
    let address = world.engine_address();
    let line = client(&address, "10000");
    let mut outside = testkit::start(host(&world.lab, "b"), line[0], &line[1..]);
    World::wait_answered(&mut outside);
    let counts = world.connections();
    assert_eq!(counts.values().sum::<usize>(), 10_000);
    assert!(
        counts.values().all(|count| count.abs_diff(5_000) < 500),
        "{counts:?}"
    );
}

/// Listens on ADDRESS, waits for SIGUSR1, and says the ports of those who have connected, as it accepts them.
const LATE_SERVER: &str = "
import signal, socket, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
listener = socket.create_server((sys.argv[1], 7000), backlog=64)
print('listening', flush=True)
signal.sigwait([signal.SIGUSR1])
print('accepted', *[listener.accept()[1][1] for _ in range(32)], flush=True)
";

/// Connects to ADDRESS, one after the other as soon as a byte of the one before is acknowledged, and says its ports.
const LATE_CLIENT: &str = "
import array, fcntl, socket, sys, termios
sockets = []
for _ in range(32):
    one = socket.create_connection((sys.argv[1], 7000))
    sockets.append(one)
    one.send(b'x')
    left = array.array('i', [1])
    while left[0]: fcntl.ioctl(one, termios.TIOCOUTQ, left)
print('accepted', *[one.getsockname()[1] for one in sockets], flush=True)
";

#[test]
fn a_program_accepts_connections_in_the_order_in_which_they_came() {
    let Some(world) = World::new("order", "2") else {
        return;
    };
    let address = world.engine_address();
    let mut server = world.on_shunt(&["python3", "-c", LATE_SERVER, &address]);
    let listens = |server: &Program| server.stdout().contains("listening");
    server.wait_until("listen", PATIENCE, listens).unwrap();
    let line = ["python3", "-c", LATE_CLIENT, &address];
    let came = testkit::run(host(&world.lab, "b"), line[0], &line[1..]).stdout;
    server.signal(Signal::USR1).unwrap();
    let has_accepted = |server: &Program| server.stdout().matches('\n').count() == 2;
    server.wait_until("accept", PATIENCE, has_accepted).unwrap();
    assert_eq!(server.stdout().replace("listening\n", ""), came);
}
