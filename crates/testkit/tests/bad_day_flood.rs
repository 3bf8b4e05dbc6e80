//! A flood of SYNs from senders that do not exist: unchanged clients connect while it lasts, established connections go on, and the
//! engine holds afterwards what it held before. The kernel's server goes through the same.

use rustix::process::Signal;
use serde_json::Value;
use testkit::{
    EngineState, PATIENCE, Witness, python,
    world::{self, Mode, World, finish},
};

/// SYNs a second: a queue of sixteen is full within a millisecond. Many more, and a busy machine loses what it has no time for.
const RATE: u64 = 20_000;
/// Connections that clients make meanwhile, one after the other.
const CLIENTS: u32 = 20;
const PORT: &str = "8080";

/// The shortest queue of connections that a user would choose.
const BACKLOG: &str = "16";

fn compile(world: &World) -> String {
    let binary = world.path("syn_flood");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/syn_flood.c");
    let done = finish(world.start("b", &["cc", "-O2", "-o", &binary, source]));
    assert!(done.status.success(), "{}", done.stderr);
    binary
}

/// Clients fetch a file during a flood.
fn flooded(world: &World) {
    let (flood, address) = (compile(world), world.tested_address());
    let sum = world.content(100_000);
    let words = [&address, PORT, &world.path(""), BACKLOG];
    let mut server = world.start_tested(&[&["python3", "-c", python::FILES][..], &words].concat());
    world.wait_ready(&mut server, "b", &format!("{address}:{PORT}"));
    let rate = RATE.to_string();
    let mut flood = world.start_peer(&[&flood, "eth0", &address, PORT, &rate]);
    let out = world.path("fetched");
    let url = format!("http://{address}:{PORT}/content");
    for _ in 0..CLIENTS {
        let done = world.run_peer(&["curl", "-sS", "-m", "50", "-o", &out, &url]);
        assert!(done.status.success(), "{:?}: {done:?}", world.way);
        assert_eq!(world::sha256(out.as_ref()), sum, "{:?}", world.way);
    }
    let ended = flood.try_wait().unwrap_or_else(|error| panic!("{error}"));
    assert!(
        ended.is_none(),
        "the flood ended before its time: {ended:?}"
    );
    let signalled = flood.signal(Signal::TERM);
    signalled.unwrap_or_else(|error| panic!("{error}"));
    let said = finish(flood);
    let numbers: Vec<u64> = said
        .stdout
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    let [sent, took_ms] = numbers[..] else {
        panic!("{said:?}");
    };
    assert!(
        2 * sent > RATE * took_ms / 1000,
        "{sent} SYNs in {took_ms} ms are no flood"
    );
    server.stop();
}

#[test]
fn clients_connect_and_connections_go_on_during_a_flood_of_syns() {
    if !world::can_run("bad-day-flood", &["cc", "python3", "curl"]) {
        return;
    }
    for way in [Mode::Cores, Mode::Xdp] {
        let world = World::new("bad-day-flood", way);
        let mut witness = Witness::start(&world);
        let before = EngineState::of_world(&world).with_tables();
        flooded(&world);
        witness.goes_on(10);
        before.assert_back_in(&world);
        witness.finish(20);
    }
}

#[test]
fn clients_connect_during_a_flood_of_syns_to_the_kernel_and_to_an_engine_inside() {
    if !world::can_run("bad-day-flood-in", &["cc", "python3", "curl"]) {
        return;
    }
    for way in [Mode::Kernel, Mode::Inline] {
        flooded(&World::new("bad-day-flood-in", way));
    }
}

/// Listens on three ports with the longest queues that there are, and answers on one of them.
const LISTENS: &str = "
import socket, sys
ports = [socket.create_server((sys.argv[1], int(port)), backlog=4096) for port in sys.argv[2:]]
print('ready', flush=True)
while True:
    one = ports[0].accept()[0]
    one.sendall(b'served')
    one.close()
";
const ASK: &str = "
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=50) as one:
    print(one.recv(16).decode())
";
const PORTS: [&str; 3] = ["8081", "8082", "8083"];
/// What a handshake may cost at most, of whatever memory: 6,238 bytes were seen; which tables they are in was not looked at.
const HALF_OPEN_BYTES: u64 = 8192;

/// Handshakes in progress of all listeners in a report of `shunt ss`.
fn half_open(report: &Value) -> u64 {
    match report {
        Value::Array(rows) => rows.iter().map(half_open).sum(),
        Value::Object(fields) => match fields.get("half_open") {
            Some(count) => count.as_u64().unwrap_or_default(),
            None => fields.values().map(half_open).sum(),
        },
        _ => 0,
    }
}

#[test]
fn ten_thousand_half_open_connections_hold_little_and_clients_are_served() {
    if !world::can_run("half-open", &["cc", "python3"]) {
        return;
    }
    let world = World::new("half-open", Mode::Engine);
    let mut witness = Witness::start(&world);
    let before = EngineState::of_world(&world).with_tables();
    let (flood, address) = (compile(&world), world.tested_address());
    let words = [&["python3", "-c", LISTENS, &*address][..], &PORTS].concat();
    let mut server = world.start_tested(&words);
    server
        .wait_until("listeners", PATIENCE, |server| {
            server.stdout().contains("ready")
        })
        .unwrap_or_else(|error| panic!("{error}"));
    // Three of them, beside other tests: what keeps a processor busy by itself starves who asks.
    let rate = (RATE / 4).to_string();
    let floods = PORTS.map(|port| world.start_peer(&[&flood, "eth0", &address, port, &rate]));
    let count = || half_open(&world.report("ss"));
    testkit::wait_for("10,000 handshakes", PATIENCE, || count() >= 10_000);
    for _ in 0..5 {
        let seen = world.run_peer(&["python3", "-c", ASK, &address, PORTS[0]]);
        assert_eq!(seen.stdout, "served\n", "{seen:?}");
    }
    witness.goes_on(10);
    let (count, now) = (count(), EngineState::of_world(&world));
    assert!(count >= 10_000, "{count}");
    let grown = now.resident_kib.saturating_sub(before.resident_kib) * 1024;
    assert!(
        grown < count * HALF_OPEN_BYTES,
        "{grown} bytes for {count} handshakes"
    );
    for flood in floods {
        let signalled = flood.signal(Signal::TERM);
        signalled.unwrap_or_else(|error| panic!("{error}"));
        finish(flood);
    }
    server.stop();
    witness.goes_on(10);
    before.assert_back_in(&world);
    witness.finish(20);
}
