//! Two users of a host whose address is shared by the kernel and an engine: what one has on the kernel the other does
//! not get through the engine, whatever both allow with SO_REUSEADDR. The kernel, asked for the same, is compared with it.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

#[path = "sharing/world.rs"]
mod world;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use testkit::{Finished, PATIENCE, Program, python};
use world::{World, shunt};

/// Numbers without names: both are ordinary users.
const OWNER: &str = "61001";
const OTHER: &str = "61002";

const TOOL: &str = r#"
import errno, hashlib, os, socket, sys, time
what, arguments = sys.argv[1], sys.argv[2:]
def made(kind, reuse, address, port):
    one = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    if reuse:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind((address, int(port)))
    return one
def tried(act):
    try:
        act()
        return "OK"
    except OSError as error:
        return errno.errorcode[error.errno]
if what == "own":
    # Exchanges blocks until the file is there, then says whether all came back as they went.
    address, port, peer, peer_port, end = arguments
    connection = made(socket.SOCK_STREAM, True, address, port)
    connection.connect((peer, int(peer_port)))
    connection.settimeout(60)
    there, back, rounds = hashlib.sha256(), hashlib.sha256(), 0
    last = False
    while not last:
        last = os.path.exists(end)
        block = os.urandom(5000)
        connection.sendall(block)
        there.update(block)
        left = len(block)
        while left:
            data = connection.recv(left)
            assert data, "the peer closed"
            back.update(data)
            left -= len(data)
        if rounds == 0:
            print("connected", flush=True)
        rounds += 1
    assert there.digest() == back.digest()
    print("whole", flush=True)
elif what == "hold":
    kind, address, port = arguments
    one = made(socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM, False, address, port)
    if kind == "tcp":
        one.listen(8)
    print("ready", flush=True)
    time.sleep(600)
elif what == "take":
    # The same four ends once more, by the address and by ANY.
    address, port, peer, peer_port = arguments
    any = "::" if ":" in address else "0.0.0.0"
    for own in [address, any] * 10:
        one = made(socket.SOCK_STREAM, True, own, port)
        one.settimeout(20)
        print(tried(lambda: one.connect((peer, int(peer_port)))), flush=True)
        one.close()
elif what == "take-port":
    kind, address, port = arguments
    any = "::" if ":" in address else "0.0.0.0"
    def bound(own):
        one = made(socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM, True, own, port)
        if kind == "tcp":
            one.listen(8)
    print(*[tried(lambda: bound(own)) for own in [address, any]], flush=True)
"#;

fn world(test: &str) -> Option<World> {
    let world = World::new(test)?;
    if world.lab.rootless() {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: {test}: a user namespace has one user, root is needed for two"
        );
        return None;
    }
    Some(world)
}

/// The tool as a user, on the kernel or on the engine.
fn start(world: &World, user: &str, on_engine: bool, arguments: &[&str]) -> Program {
    let shunt = shunt();
    let mut line = vec!["-c", python::AS_USER, user];
    if on_engine {
        line.extend([&*shunt, "run", "--policy", "engine-only", "--"]);
    }
    line.extend(["python3", "-c", TOOL]);
    line.extend(arguments);
    testkit::start(world.a(), "python3", &line)
}

fn said(program: Program) -> String {
    let finished = program.finish(PATIENCE, || false);
    let finished = finished.and_then(Finished::success);
    finished.unwrap_or_else(|error| panic!("{error}")).stdout
}

/// A file by which the connection's owner learns that it is over; removed with this value.
struct End(PathBuf);

impl End {
    fn new(name: &str) -> Self {
        let file = format!("shunt-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(file))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_connection_of_the_kernel_is_not_given_to_another_user() {
    let Some(world) = world("users-connect") else {
        return;
    };
    for ((own, peer), port) in world
        .shared()
        .into_iter()
        .zip(world.peer())
        .zip(["7300", "7301"])
    {
        let mut server = world.on_kernel(world.b(), &["echo", &peer, port]);
        server
            .wait_until("server", PATIENCE, |server| {
                server.stdout().contains("ready")
            })
            .unwrap();
        let end = End::new(&format!("users-connect-{port}"));
        let path = end.0.display().to_string();
        let local = "17300";
        let mut owner = start(
            &world,
            OWNER,
            false,
            &["own", &own, local, &peer, port, &path],
        );
        owner
            .wait_until("connection", PATIENCE, |owner| {
                owner.stdout().contains("connected")
            })
            .unwrap();
        let refused = "EADDRNOTAVAIL\n".repeat(20);
        for on_engine in [false, true] {
            let taker = start(
                &world,
                OTHER,
                on_engine,
                &["take", &own, local, &peer, port],
            );
            assert_eq!(
                said(taker),
                refused,
                "on the engine: {on_engine}, from {own}"
            );
        }
        fs::write(&end.0, "").unwrap();
        assert!(said(owner).contains("whole"));
    }
}

#[test]
fn a_port_of_the_kernel_is_not_given_to_another_user() {
    let Some(world) = world("users-port") else {
        return;
    };
    for address in world.shared() {
        for kind in ["tcp", "udp"] {
            let mut owner = start(&world, OWNER, false, &["hold", kind, &address, "17400"]);
            owner
                .wait_until("port", PATIENCE, |owner| owner.stdout().contains("ready"))
                .unwrap();
            for on_engine in [false, true] {
                let taker = start(
                    &world,
                    OTHER,
                    on_engine,
                    &["take-port", kind, &address, "17400"],
                );
                assert_eq!(
                    said(taker),
                    "EADDRINUSE EADDRINUSE\n",
                    "on the engine: {on_engine}, {kind} of {address}"
                );
            }
        }
    }
}
