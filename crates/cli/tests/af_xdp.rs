//! An engine over AF_XDP beside the kernel on one interface: what arrives, what is said when the device changes
//! under it, what is left when it ends. The driver by itself is in `nic/tests/af_xdp/`, unmodified programs in
//! `testkit/tests/{programs,parity}.rs`.
//!
//! Where AF_XDP is not permitted (a lab without root) the tests are skipped, and say so past libtest's capture.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::io::Write as _;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use testkit::{Lab, LabSpec, PATIENCE, Program, host, wait_for};

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");
const NIC: &str = "eth0";

/// Sends what it is asked for and says what it got, as SHA-256, to everybody who connects.
const SERVER: &str = r#"
import hashlib, random, socket, sys, threading
data = random.Random(7).randbytes(24_000_000)
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[1], 9000))
s.listen(8)
print("ready", flush=True)
def serve(c):
    if c.recv(1) == b"D":
        c.sendall(data)
    else:
        sum = hashlib.sha256()
        while part := c.recv(1 << 20):
            sum.update(part)
        c.sendall(sum.hexdigest().encode())
    c.close()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"#;

/// Moves the same bytes both ways with each address, all at once, and says what is not as it should be.
const CLIENT: &str = r#"
import hashlib, random, socket, sys, threading
data = random.Random(7).randbytes(24_000_000)
wanted = hashlib.sha256(data).hexdigest()
wrong = []
def move(address, way):
    try:
        s = socket.create_connection((address, 9000), 15)
        s.sendall(way)
        sum = hashlib.sha256()
        if way == b"U":
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            got = s.makefile().read()
        else:
            while part := s.recv(1 << 20):
                sum.update(part)
            got = sum.hexdigest()
        if got != wanted:
            wrong.append((address, way, got))
    except OSError as error:
        wrong.append((address, way, error))
threads = [threading.Thread(target=move, args=(a, w)) for a in sys.argv[1:] for w in (b"U", b"D")]
for t in threads: t.start()
for t in threads: t.join()
print(wrong or "all as sent")
sys.exit(bool(wrong))
"#;

fn skip(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {reason}");
}

struct World {
    engine: Program,
    lab: Lab,
}

impl World {
    /// Two hosts with an engine over AF_XDP on host `a`; `prepare` is done to that host first.
    fn new(test: &str, prepare: &[&[&str]], flags: &[&str]) -> Option<Self> {
        let lab = match Lab::temporary(&format!("t-{test}"), &LabSpec::default()) {
            Ok(lab) => lab,
            Err(error) => {
                skip(test, &error.to_string());
                return None;
            }
        };
        for line in prepare {
            if !has(test, line[0]) {
                return None;
            }
            let done = run(&lab, "a", line);
            if !done.status.success() {
                skip(test, &format!("{line:?}: {}", done.stderr));
                return None;
            }
        }
        let line = [&["engine", "--driver", "af_xdp"], flags].concat();
        let engine = testkit::once_serving(testkit::start(host(&lab, "a"), SHUNT, &line));
        if let Some(why) = engine
            .stderr()
            .lines()
            .find(|line| line.contains("CAP_BPF"))
        {
            skip(test, why);
            return None;
        }
        Some(Self { engine, lab })
    }

    fn engine_address(&self) -> String {
        let spec = host(&self.lab, "a").spec();
        spec.engine_address.address.to_string()
    }

    fn kernel_address(&self) -> String {
        host(&self.lab, "a").spec().address.address.to_string()
    }

    fn status(&self) -> Value {
        let told = run(&self.lab, "a", &[SHUNT, "status", "--json"]);
        serde_json::from_str(&told.success().unwrap().stdout).unwrap()
    }

    fn is_attached(&self) -> bool {
        let link = run(&self.lab, "a", &["ip", "link", "show", NIC]);
        link.stdout.contains("xdp")
    }

    /// A server on the engine and one on the kernel, on the same interface.
    fn servers(&self) -> [Program; 2] {
        let on_shunt = [SHUNT, "run", "--policy", "engine-only", "--"];
        [
            (&on_shunt[..], self.engine_address()),
            (&[], self.kernel_address()),
        ]
        .map(|(prefix, address)| {
            let line = [prefix, &["python3", "-c", SERVER, &address]].concat();
            let mut server = testkit::start(host(&self.lab, "a"), line[0], &line[1..]);
            server
                .wait_until("server", PATIENCE, |one| one.stdout().contains("ready"))
                .unwrap();
            server
        })
    }
}

fn run(lab: &Lab, on: &str, line: &[&str]) -> testkit::Finished {
    testkit::start(host(lab, on), line[0], &line[1..])
        .finish(PATIENCE, || false)
        .unwrap()
}

fn has(test: &str, program: &str) -> bool {
    let tried = Command::new(program).arg("--version").output();
    let has = tried.is_ok_and(|tried| tried.status.success());
    if !has {
        skip(test, &format!("{program} is not installed"));
    }
    has
}

/// Moves bytes both ways over engine and kernel at the same time.
fn all_arrives(world: &World) {
    let _servers = world.servers();
    let (engine, kernel) = (world.engine_address(), world.kernel_address());
    let client = run(
        &world.lab,
        "b",
        &["python3", "-c", CLIENT, &engine, &kernel],
    );
    assert!(
        client.status.success(),
        "{}{}",
        client.stdout,
        client.stderr
    );
}

#[test]
fn engine_and_kernel_move_bytes_over_one_interface_at_the_same_time() {
    let test = "xdp-bulk";
    if !has(test, "python3") {
        return;
    }
    for mode in ["generic", "native"] {
        let Some(world) = World::new(test, &[], &["--xdp-mode", mode]) else {
            return;
        };
        all_arrives(&world);
        let status = world.status();
        assert_eq!(status["driver"], "af_xdp");
        assert_eq!(status["driver_mode"], mode);
        assert_eq!(status["complaints"], Value::Array(Vec::new()));
        assert_eq!(status["driver_counters"]["rx_dropped"], 0);
    }
}

#[test]
fn two_cores_over_two_queues_move_bytes() {
    let test = "xdp-cores";
    if !has(test, "python3") {
        return;
    }
    let queues = ["ethtool", "-L", NIC, "rx", "2", "tx", "2"];
    let Some(world) = World::new(test, &[&queues], &["--cores", "2"]) else {
        return;
    };
    for _ in 0..3 {
        all_arrives(&world);
    }
    assert_eq!(world.status()["driver"], "af_xdp");
}

#[test]
fn more_cores_than_queues_fall_back_to_packet_sockets_and_say_so() {
    let Some(world) = World::new("xdp-fallback", &[], &["--cores", "2"]) else {
        return;
    };
    let status = world.status();
    assert_eq!(status["driver"], "af_packet");
    let complaint = status["complaints"][0].as_str().unwrap();
    assert!(
        complaint.contains("fewer queues (1) than the engine has cores (2)"),
        "{complaint}"
    );
    assert!(world.engine.stderr().contains(complaint));
    let text = run(&world.lab, "a", &[SHUNT, "status"]).stdout;
    assert!(text.contains(complaint), "{text}");
}

#[test]
fn the_interface_is_free_after_a_kill() {
    let Some(world) = World::new("xdp-changes", &[], &[]) else {
        return;
    };
    assert!(world.is_attached());
    world.engine.signal(Signal::KILL).unwrap();
    wait_for("detached XDP program", PATIENCE, || !world.is_attached());
}

#[test]
fn an_interface_that_goes_down_is_told_and_ends_nothing() {
    let test = "xdp-down";
    if !has(test, "python3") {
        return;
    }
    let Some(mut world) = World::new(test, &[], &[]) else {
        return;
    };
    let peer = host(&world.lab, "b").spec().address.address.to_string();
    let mut server = testkit::start(host(&world.lab, "b"), "python3", &["-c", SERVER, &peer]);
    server
        .wait_until("server", PATIENCE, |one| one.stdout().contains("ready"))
        .unwrap();
    // Its bytes are on their way, or in the window, while the interface is down.
    let waits = format!(
        "import socket; s = socket.create_connection(('{peer}', 9000)); s.send(b'U'); s.sendall(b'x' * 4_000_000); print('waits', flush=True); s.sendall(b'x' * 40_000_000); s.shutdown(socket.SHUT_WR); print(len(s.recv(100)))"
    );
    let line = [
        "run",
        "--policy",
        "engine-only",
        "--",
        "python3",
        "-c",
        &waits,
    ];
    let mut waiting = testkit::start(host(&world.lab, "a"), SHUNT, &line);
    waiting
        .wait_until("connection", PATIENCE, |one| one.stdout().contains("waits"))
        .unwrap();
    run(&world.lab, "a", &["ip", "link", "set", NIC, "down"]);
    let said = |one: &Program| one.stderr().contains("is down");
    world
        .engine
        .wait_until("word of the engine", PATIENCE, said)
        .unwrap();
    run(&world.lab, "a", &["ip", "link", "set", NIC, "up"]);
    let ended = waiting.finish(PATIENCE, || false).unwrap();
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(ended.stdout.contains("64"), "{}", ended.stdout);
    assert!(
        world.engine.try_wait().unwrap().is_none(),
        "the engine lives"
    );
}

#[test]
fn what_an_interface_is_good_for_is_measured_and_an_engine_chooses_by_it() {
    let test = "what_an_interface_is_good_for_is_measured";
    let lab = match Lab::temporary("t-measure", &LabSpec::default()) {
        Ok(lab) => lab,
        Err(error) => return skip(test, &error.to_string()),
    };
    let [a, b] = ["a", "b"].map(|name| host(&lab, name));
    let peer = b.spec().address.address.to_string();
    let measure = |flags: &[&str]| {
        let line = ["doctor", "--measure", NIC, "--rounds", "1", "--json"];
        let mut command = testkit::command(a, SHUNT, &[&line[..], flags].concat());
        command.output().unwrap()
    };
    let nobody = measure(&[]);
    let said = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(
        said.contains("--peer ADDRESS") && nobody.status.code() == Some(2),
        "{said}"
    );
    let found = measure(&["--peer", &peer]);
    let said = String::from_utf8_lossy(&found.stderr).into_owned();
    if said.contains("CAP_BPF") {
        return skip(test, &said);
    }
    assert!(found.status.success(), "{said}");
    let found: Value = serde_json::from_slice(&found.stdout).unwrap();
    let ways = found["record"]["ways"].as_array().unwrap();
    let named: Vec<_> = ways
        .iter()
        .map(|way| way["way"].as_str().unwrap())
        .collect();
    assert_eq!(
        named,
        ["packet", "xdp-generic", "xdp-native", "xdp-zero-copy"]
    );
    for way in ways {
        let figures = ["p50_us", "p99_us", "gbit_s"].map(|figure| way[figure].as_f64());
        let is_measured = figures
            .iter()
            .all(|figure| figure.is_some_and(|figure| figure > 0.0));
        assert!(is_measured != way["lacks"].is_string(), "{way}");
        // On a veth the other side of one like it is made to send.
        let receives = way["received_gbit_s"]
            .as_f64()
            .is_some_and(|rate| rate > 0.0);
        assert!(
            receives || !is_measured || way["receive_lacks"].is_string(),
            "{way}"
        );
        assert!(receives || way["way"] != "packet", "{way}");
    }
    let engine = testkit::start(a, SHUNT, &["engine", "--share", "--profile", "latency"]);
    let engine = testkit::once_serving(engine);
    let chosen = found["choices"]["latency"].as_str().unwrap();
    let said = engine.stderr();
    assert!(
        said.contains(&format!("{chosen} chosen for latency")),
        "{said}"
    );
    assert!(said.contains(&format!("({chosen})")), "{said}");
    drop(engine);
    testkit::run(a, "ip", &["route", "add", "default", "via", &peer]);
    let in_use = measure(&["--peer", &peer]);
    let said = String::from_utf8_lossy(&in_use.stderr).into_owned();
    assert!(
        said.contains("--in-use") && in_use.status.code() == Some(2),
        "{said}"
    );
}

#[test]
fn doctor_tells_of_an_interface_how_an_engine_reaches_it_and_what_is_wrong_with_it() {
    let test = "doctor_tells_of_an_interface";
    let lab = match Lab::temporary("t-doctor", &LabSpec::default()) {
        Ok(lab) => lab,
        Err(error) => return skip(test, &error.to_string()),
    };
    let a = host(&lab, "a");
    let doctor = |flags: &[&str]| {
        let line = [&["doctor"][..], flags].concat();
        let output = testkit::command(a, SHUNT, &line).output().unwrap();
        assert!(output.status.success(), "{line:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let report = || -> Value { serde_json::from_str(&doctor(&[NIC, "--json"])).unwrap() };
    let found = report();
    assert_eq!(
        (&found["driver"], &found["used"]),
        (&"veth".into(), &"af_packet".into())
    );
    // A cable of the kernel's has that on, unless somebody turns it off.
    let warnings = found["warnings"].as_array().unwrap();
    assert!(
        warnings.len() == 1 && warnings[0].to_string().contains("tx-checksum"),
        "{warnings:?}"
    );
    // Linux says so since 6.3.
    if let Some(xdp) = found["xdp"].as_object() {
        assert_eq!(
            (&xdp["native"], &xdp["zero_copy"]),
            (&true.into(), &false.into())
        );
    }
    let text = doctor(&[NIC]);
    assert!(
        text.contains("commands\n  shunt doctor --measure eth0"),
        "{text}"
    );
    run(&lab, "b", &["ip", "link", "set", NIC, "down"]);
    wait_for("no carrier", PATIENCE, || {
        report()["warnings"].to_string().contains("no carrier")
    });
    assert!(doctor(&["lo"]).contains("shunt run --loopback"));
}
