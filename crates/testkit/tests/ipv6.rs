//! IPv6 between Shunt on host `a` and the kernel of host `b`: unmodified programs in both directions, one
//! listener for both families, link-local addresses, echo.
//!
//! A program or privilege that is missing skips the test, and says so past libtest's capture of output.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use testkit::{Finished, Lab, PATIENCE, Program, host};

const FILE_BYTES: usize = 8 << 20;

/// Accepts on `::` what comes, and says of who asks something who it was and where it arrived, as Python
/// shows it.
const DUAL_STACK_SERVER: &str = r#"
import socket, sys
listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(sys.argv[1]))
listener.bind(("::", 7000))
listener.listen()
print("listening", flush=True)
questions = 0
while questions < int(sys.argv[2]):
    connection, peer = listener.accept()
    local = connection.getsockname()
    assert connection.getpeername() == peer and connection.family == socket.AF_INET6
    if question := connection.recv(100).decode():
        questions += 1
        print(peer[0], local[0], peer[3] != 0, question, flush=True)
        connection.sendall(b"answer")
    connection.close()
"#;

/// Connects to an address, perhaps with a scope, and says what the names are.
const CLIENT: &str = r#"
import socket, sys
family, kind, protocol, _, address = socket.getaddrinfo(sys.argv[1], int(sys.argv[2]), type=socket.SOCK_STREAM)[0]
connection = socket.socket(int(sys.argv[3]) if len(sys.argv) > 3 else family, kind)
connection.settimeout(50)
connection.connect(address)
connection.sendall(b"question")
print(connection.recv(100).decode(), connection.getpeername()[0], flush=True)
"#;

/// Connects to a link-local address until its own one is a source too, which it is not before the test for
/// duplicates is over (RFC 4862 §5.4); says what the names are.
const LINK_LOCAL_CLIENT: &str = r#"
import socket, sys, time
family, kind, protocol, _, address = socket.getaddrinfo(sys.argv[1], int(sys.argv[2]), type=socket.SOCK_STREAM)[0]
deadline = time.monotonic() + 20
while True:
    connection = socket.socket(family, kind)
    connection.settimeout(50)
    connection.connect(address)
    if connection.getsockname()[0].startswith("fe80:") or time.monotonic() > deadline:
        break
    connection.close()
    time.sleep(0.05)
connection.sendall(b"question")
answer, peer = connection.recv(100).decode(), connection.getpeername()
print(answer, peer[0], peer[3] == address[3] != 0, flush=True)
"#;

struct World {
    lab: Lab,
    _engine: Program,
    folder: PathBuf,
}

impl World {
    /// `None`: it cannot be tested here, and that was said.
    fn new(test: &str, programs: &[&str]) -> Option<Self> {
        let (lab, engine) = testkit::served_hosts(test, programs)?;
        let folder = std::env::temp_dir().join(format!("shunt-{test}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        Some(Self {
            lab,
            _engine: engine,
            folder,
        })
    }

    /// A program on Shunt, on host `a`.
    fn start_tested(&self, program: &str, arguments: &[&str]) -> Program {
        let prefix = ["run", "--policy", "engine-only", "--", program];
        let line = [&prefix[..], arguments].concat();
        let shunt = testkit::shunt().display().to_string();
        testkit::start(host(&self.lab, "a"), &shunt, &line)
    }

    fn start_peer(&self, program: &str, arguments: &[&str]) -> Program {
        testkit::start(host(&self.lab, "b"), program, arguments)
    }

    fn tested(&self) -> String {
        host(&self.lab, "a").spec().engine_address_v6().to_string()
    }

    fn peer(&self) -> String {
        host(&self.lab, "b").spec().address_v6().to_string()
    }

    fn content(&self) -> Vec<u8> {
        let words = (0_u64..).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        let bytes: Vec<u8> = words.take(FILE_BYTES / 8).flatten().collect();
        fs::write(self.folder.join("content"), &bytes).unwrap();
        bytes
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn finish(program: Program) -> Finished {
    program.finish(PATIENCE, || false).unwrap()
}

/// Runs it to its successful end and returns what it printed.
fn output(program: Program) -> String {
    let done = finish(program);
    assert!(done.status.success(), "{}{}", done.stdout, done.stderr);
    done.stdout
}

fn wait_listening(server: &mut Program) {
    let is_there = |server: &Program| server.stdout().contains("listening");
    server.wait_until("listener", PATIENCE, is_there).unwrap();
}

#[test]
fn files_come_over_ipv6_in_both_directions() {
    let Some(world) = World::new("ipv6-files", &["python3", "curl"]) else {
        return;
    };
    let content = world.content();
    let folder = world.folder.display().to_string();
    let fetched = world.folder.join("fetched");
    let target = fetched.display().to_string();
    let fetch = |address: &str| {
        let url = format!("http://[{address}]:8000/content");
        ["-6", "-sS", "-o", &target, &url].map(str::to_owned)
    };
    let arguments = ["-u", "-m", "http.server", "-b", "::", "-d", &folder, "8000"];
    let serve_from = |server: &mut Program| {
        let is_there = |server: &Program| server.stdout().contains("Serving");
        server.wait_until("server", PATIENCE, is_there).unwrap();
    };
    {
        let mut server = world.start_tested("python3", &arguments);
        serve_from(&mut server);
        let line = fetch(&world.tested());
        output(world.start_peer("curl", &line.each_ref().map(String::as_str)));
        assert!(fs::read(&fetched).unwrap() == content, "kernel from Shunt");
    }
    fs::remove_file(&fetched).unwrap();
    let mut server = world.start_peer("python3", &arguments);
    serve_from(&mut server);
    let line = fetch(&world.peer());
    output(world.start_tested("curl", &line.each_ref().map(String::as_str)));
    assert!(
        fs::read(&fetched).unwrap() == content,
        "Shunt from the kernel"
    );
}

#[test]
fn one_listener_of_both_families_names_its_peers_as_the_kernel_does() {
    let Some(world) = World::new("ipv6-dual", &["python3"]) else {
        return;
    };
    let (a, b) = (host(&world.lab, "a").spec(), host(&world.lab, "b").spec());
    let mut server = world.start_tested("python3", &["-c", DUAL_STACK_SERVER, "0", "2"]);
    wait_listening(&mut server);
    let v4 = a.engine_address.address.to_string();
    for address in [&world.tested(), &v4] {
        let client = world.start_peer("python3", &["-c", CLIENT, address, "7000"]);
        assert_eq!(output(client), format!("answer {address}\n"));
    }
    let (peer4, peer6) = (b.address.address, world.peer());
    let expected = format!(
        "listening\n{peer6} {} False question\n::ffff:{peer4} ::ffff:{v4} False question\n",
        world.tested()
    );
    assert_eq!(output(server), expected);

    let mut server = world.start_tested("python3", &["-c", DUAL_STACK_SERVER, "1", "1"]);
    wait_listening(&mut server);
    let refused = finish(world.start_peer("python3", &["-c", CLIENT, &v4, "7000"]));
    assert!(
        refused.stderr.contains("ConnectionRefused"),
        "{}",
        refused.stderr
    );
    let tested = world.tested();
    output(world.start_peer("python3", &["-c", CLIENT, &tested, "7000"]));
    output(server);
}

#[test]
fn an_ipv6_socket_reaches_ipv4_and_link_local_peers() {
    let Some(world) = World::new("ipv6-mapped", &["python3", "ip"]) else {
        return;
    };
    let mut server = world.start_peer("python3", &["-c", DUAL_STACK_SERVER, "0", "2"]);
    wait_listening(&mut server);
    let (a, b) = (host(&world.lab, "a").spec(), host(&world.lab, "b").spec());
    let mapped = format!("::ffff:{}", b.address.address);
    let client = world.start_tested("python3", &["-c", CLIENT, &mapped, "7000", "10"]);
    assert_eq!(output(client), format!("answer {mapped}\n"));
    let show = [
        "-6", "-o", "address", "show", "dev", "eth0", "scope", "link",
    ];
    let shown = output(world.start_peer("ip", &show));
    let link_local = shown
        .split_whitespace()
        .find_map(|word| word.strip_suffix("/64"))
        .unwrap();
    let scoped = format!("{link_local}%eth0");
    let client = world.start_tested("python3", &["-c", LINK_LOCAL_CLIENT, &scoped, "7000"]);
    assert_eq!(output(client), format!("answer {link_local} True\n"));
    let served = output(server);
    let lines: Vec<&str> = served.lines().collect();
    let from4 = format!(
        "::ffff:{} {mapped} False question",
        a.engine_address.address
    );
    assert_eq!(lines[1], from4);
    assert!(lines[2].starts_with("fe80::"), "{served}");
    assert!(
        lines[2].ends_with(&format!(" {link_local} True question")),
        "{served}"
    );
}

#[test]
fn the_engine_answers_ping() {
    let Some(world) = World::new("ipv6-ping", &["ping"]) else {
        return;
    };
    let address = world.tested();
    let line = [
        "-6", "-c", "2", "-i", "0.2", "-W", "5", "-s", "1400", &address,
    ];
    let pinged = world
        .start_peer("ping", &line)
        .finish(Duration::from_secs(15), || false)
        .unwrap();
    assert!(pinged.stdout.contains(" 2 received"), "{}", pinged.stdout);
}
