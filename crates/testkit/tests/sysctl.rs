//! Settings of the kernel's TCP that administrators know (`net.ipv4.tcp_*`) hold for an engine's connections: as they are
//! when it starts, and as they become while it runs. A flag overrides them.

use serde_json::Value;
use testkit::world::{self, Mode, World};
use testkit::{PATIENCE, port_of, shunt, wait_for};

const SERVER: &str = "
import socket
listener = socket.create_server(('', 0))
print('port', listener.getsockname()[1], flush=True)
held = []
while True:
    held.append(listener.accept())
";
const CLIENT: &str = "
import socket, sys
one = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print('connected', flush=True)
one.recv(1)
";

fn set(world: &World, settings: &[(&str, &str)]) {
    for (name, value) in settings {
        let line = format!("echo {value} >/proc/sys/net/ipv4/{name}");
        let done = world::finish(world.start("a", &["sh", "-c", &line]));
        assert_eq!(world::seen(&done), (Some(0), "", ""), "{line}");
    }
}

/// A connection's port, as its program sees it.
const PORT: &str = "
import socket, sys
print(socket.create_connection((sys.argv[1], int(sys.argv[2]))).getsockname()[1])
";

#[test]
fn ports_are_chosen_from_the_range_of_the_namespace() {
    let test = "port-range";
    if !world::can_run(test, &["python3"]) {
        return;
    }
    for way in [Mode::Engine, Mode::Inline] {
        let mut world = World::without_engine(test, way);
        set(&world, &[("ip_local_port_range", "'40000 40999'")]);
        if way == Mode::Engine {
            world.engine = world.start_engine(&[]);
        }
        let mut server = world.start_peer(&["python3", "-c", SERVER]);
        let (address, port) = (world.peer_address(), port_of(&mut server));
        let chosen = || {
            let done = world::finish(world.start_tested(&["python3", "-c", PORT, &address, &port]));
            done.stdout
                .trim()
                .parse::<u16>()
                .unwrap_or_else(|_| panic!("{way:?}: {}", done.stderr))
        };
        for _ in 0..3 {
            let port = chosen();
            assert!((40_000..=40_999).contains(&port), "{way:?}: {port}");
        }
        set(&world, &[("ip_local_port_range", "'50000 50999'")]);
        wait_for("a port of the new range", PATIENCE, || {
            (50_000..=50_999).contains(&chosen())
        });
        server.stop();
    }
}

/// What `shunt ss` says of a new connection: whether it has timestamps and selective acknowledgments.
fn offered(world: &World, port: &str) -> [Option<bool>; 2] {
    let address = world.peer_address();
    let mut client = world.start_tested(&["python3", "-c", CLIENT, &address, port]);
    client
        .wait_until("connection", PATIENCE, |client| {
            client.stdout().contains("connected")
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let shunt = shunt().display().to_string();
    let told = world::finish(world.start("a", &[&shunt, "ss", "--json"]));
    let list: Value = serde_json::from_str(&told.stdout).expect("JSON");
    let pid = u64::from(client.pid());
    let ours =
        |one: &&Value| one["remote"] == format!("{address}:{port}") && one["state"] == "ESTAB";
    let found: Vec<&Value> = list
        .as_array()
        .expect("a list")
        .iter()
        .filter(ours)
        .collect();
    assert_eq!(found.len(), 1, "of {pid}: {list}");
    let offered = ["timestamps", "sack"].map(|name| found[0][name].as_bool());
    client.stop();
    wait_for("end of the connection", PATIENCE, || {
        let told = world::finish(world.start("a", &[&shunt, "ss", "--json"]));
        !told.stdout.contains("ESTAB")
    });
    offered
}

#[test]
fn an_engine_follows_them_and_a_flag_overrides_them() {
    let test = "sysctl";
    if !world::can_run(test, &["python3"]) {
        return;
    }
    for way in [Mode::Engine, Mode::Cores] {
        let mut world = World::without_engine(test, way);
        set(
            &world,
            &[("tcp_timestamps", "0"), ("tcp_ecn", "1"), ("tcp_sack", "1")],
        );
        world.engine = world.start_engine(&["--ecn", "0"]);
        let mut server = world.start_peer(&["python3", "-c", SERVER]);
        let port = port_of(&mut server);

        let status = world.report("status");
        assert_eq!(status["ecn"], 0, "{way:?}: the flag");
        assert_eq!(offered(&world, &port), [Some(false), Some(true)], "{way:?}");

        set(&world, &[("tcp_timestamps", "1"), ("tcp_sack", "0")]);
        let expected = [Some(true), Some(false)];
        wait_for("the new settings", PATIENCE, || {
            offered(&world, &port) == expected
        });
        server.stop();
    }
}
