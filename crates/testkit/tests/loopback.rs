//! Loopback on an engine (`shunt run --loopback`, docs/decisions/0042-loopback.md): parity programs and whole
//! servers with their clients, while the kernel of their host counts not one TCP segment; and both loopbacks
//! together, where only one end is run so.
//!
//! A program or privilege that is missing skips the test, and says so past libtest's capture of output.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

#[path = "loopback/datagrams.rs"]
mod datagrams;
#[path = "loopback/listeners.rs"]
mod listeners;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use testkit::{Host, Lab, LabSpec, PATIENCE, Program, host, kernel_tcp, parity, world};

/// Before a program whose loopback is the engine's alone.
const STRICT: [&str; 5] = ["run", "--loopback", "--policy", "engine-only", "--"];

/// Programs that are left out: Fast Open is off, as by default; of a socket that both stacks hear for, the kernel says when
/// its turn is that a length of a name is none, and leaves the datagram.
const WITHOUT: &[&str] = &["fast_open", "udp_corners"];

static SHARED: LazyLock<parity::Shared> = LazyLock::new(|| {
    parity::Shared::new(Path::new(env!("CARGO_TARGET_TMPDIR")), "loopback").unwrap()
});

struct Testbed {
    lab: Lab,
    folder: PathBuf,
    _engine: Program,
}

impl Testbed {
    fn new(test: &str, needs: &[&str], flags: &[&str]) -> Option<Testbed> {
        if !world::can_run(test, needs) {
            return None;
        }
        let lab = Lab::temporary(&format!("t-{test}"), &LabSpec::default()).unwrap();
        let engine = testkit::once_serving(testkit::start(
            host(&lab, "a"),
            shunt(),
            &[&["engine"], flags].concat(),
        ));
        let folder = std::env::temp_dir().join(format!("{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Some(Testbed {
            lab,
            folder,
            _engine: engine,
        })
    }

    fn a(&self) -> &Host {
        host(&self.lab, "a")
    }

    /// A server; it listens on the port.
    fn serve(&self, prefix: &[&str], line: &[&str], port: u16) -> Program {
        let mut server = self.start(prefix, line);
        // Not the kernel's part of it, which listens a moment before.
        let listens = |_: &Program| self.has_listener(port);
        server.wait_until("listener", PATIENCE, listens).unwrap();
        server
    }

    fn has_listener(&self, port: u16) -> bool {
        let told = self.ask(&["ss", "--json"], &[]);
        let sockets: Vec<serde_json::Value> = serde_json::from_str(&told).unwrap();
        sockets.iter().any(|socket| {
            let local = socket["local"].as_str().unwrap_or_default();
            socket["state"] == "LISTEN" && local.ends_with(&format!(":{port}"))
        })
    }

    fn start(&self, prefix: &[&str], line: &[&str]) -> Program {
        testkit::start(self.a(), shunt(), &[prefix, line].concat())
    }

    /// What a client prints, which succeeds.
    fn ask(&self, prefix: &[&str], line: &[&str]) -> String {
        testkit::run(self.a(), shunt(), &[prefix, line].concat()).stdout
    }

    /// Connections that the kernel of host `a` has opened.
    fn opens(&self) -> u64 {
        kernel_tcp::counters(self.a())["ActiveOpens"]
    }

    /// The kernel had nothing to do with any of it.
    fn assert_silent_kernel(&self) {
        kernel_tcp::assert_silent(self.a());
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn shunt() -> &'static str {
    testkit::shunt().to_str().unwrap()
}

/// The programs on host `a` with loopback on the engine, compared with those on the kernel of host `b`.
fn programs_are_as_on_the_kernel(test: &str, flags: &[&str], linking: &[&str], without: &[&str]) {
    let Some(testbed) = Testbed::new(test, &["cc", "python3"], flags) else {
        return;
    };
    let runner = parity::runner();
    let programs = parity::names(|name| WITHOUT.contains(&name) || without.contains(&name));
    let runner = runner.to_str().unwrap();
    let run = |on: &str, arguments: &[&str]| {
        let mut line = vec![runner];
        line.extend(SHARED.flags());
        line.extend(linking);
        line.extend(arguments);
        line.extend(programs.iter().map(String::as_str));
        let run = testkit::start(host(&testbed.lab, on), "python3", &line);
        let done = parity::finish(run);
        parity::judged(&done).unwrap_or_else(|differences| panic!("{differences}"))
    };
    // An engine speaks to everybody on its link without one.
    let route = ["route", "add", "255.255.255.255/32", "dev", "eth0"];
    testkit::run(host(&testbed.lab, "b"), "ip", &route);
    run("b", &["--kernel"]);
    let command = [&[shunt()][..], &STRICT].concat().join(" ");
    let addresses = ["--address", "127.0.0.1", "--address-v6", "::1"];
    let same = run("a", &[&["--command", &command], &addresses[..]].concat());
    assert!(same >= programs.len(), "the same: {same}");
    testbed.assert_silent_kernel();
}

#[test]
fn programs_print_over_loopback_on_an_engine_what_they_print_over_the_kernel() {
    programs_are_as_on_the_kernel("loopback-parity", &[], &[], &[]);
}

#[test]
fn static_programs_print_over_loopback_on_an_engine_what_they_print_over_the_kernel() {
    // How often a send has to sleep, and is left, depends on how fast its pair is emptied meanwhile.
    // Times of sending are not told, in two families otherwise.
    // An edge of room may come once more than there was one: of a hundred runs in about two.
    // What is for everybody is refused under this policy where no route leads there, as on the kernel of host `a`.
    let without = [
        "epoll_edge",
        "epoll_room",
        "handler_jumps",
        // How much of what waits it sees at once depends on how fast the supervisor has moved it.
        "table_tcp",
        // That a datagram was too long is told by one of the next calls, whichever it is.
        "udp_basic",
        "udp_errors",
        "tx_stamps",
        "udp_tx_stamps",
    ];
    let folder = parity::differing_supervised();
    let arguments = ["--static", "--differences", folder.to_str().unwrap()];
    programs_are_as_on_the_kernel("loopback-static", &[], &arguments, &without);
}

#[test]
fn programs_print_over_loopback_on_two_cores_what_they_print_over_the_kernel() {
    // Each core admits the whole backlog (docs/decisions/0013-engine-cores.md); connections that wait are not accepted
    // in the order in which they came, nor are events of two cores reported so (as of a kernel with two receive queues).
    let without = &["backlog", "epoll_order", "linger"];
    programs_are_as_on_the_kernel("loopback-cores", &["--cores", "2"], &[], without);
}

#[test]
fn redis_and_its_clients_say_nothing_to_the_kernel() {
    let needs = ["redis-server", "redis-cli", "redis-benchmark"];
    let Some(testbed) = Testbed::new("loopback-redis", &needs, &[]) else {
        return;
    };
    let line = ["redis-server", "--save", "", "--bind", "127.0.0.1", "::1"];
    let _server = testbed.serve(&STRICT, &line, 6379);
    assert_eq!(testbed.ask(&STRICT, &["redis-cli", "PING"]), "PONG\n");
    let six = testbed.ask(&STRICT, &["redis-cli", "-h", "::1", "PING"]);
    assert_eq!(six, "PONG\n");
    let line = ["redis-benchmark", "-c", "50", "-n", "5000"];
    let line = [&line[..], &["-t", "set,get,lpush", "--csv"]].concat();
    let told = testbed.ask(&STRICT, &line);
    for test in ["SET", "GET", "LPUSH"] {
        assert!(told.contains(&format!("\"{test}\"")), "{told}");
    }
    let count = testbed.ask(&STRICT, &["redis-cli", "LLEN", "mylist"]);
    assert_eq!(count, "5000\n");
    testbed.assert_silent_kernel();
}

#[test]
fn nginx_and_curl_say_nothing_to_the_kernel() {
    let Some(testbed) = Testbed::new("loopback-nginx", &["nginx", "curl", "sha256sum"], &[]) else {
        return;
    };
    let folder = testbed.folder.to_str().unwrap().to_owned();
    let content = vec![b'x'; 4 << 20];
    std::fs::write(testbed.folder.join("file"), &content).unwrap();
    let configuration = format!(
        "daemon off; worker_processes 2; user root; pid {folder}/pid; error_log stderr;
        events {{ worker_connections 64; }}
        http {{ access_log off; sendfile on; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
        fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
        server {{ listen 127.0.0.1:8080; listen [::1]:8080; root {folder}; }} }}"
    );
    let file = testbed.folder.join("nginx.conf");
    std::fs::write(&file, configuration).unwrap();
    let line = ["nginx", "-c", file.to_str().unwrap(), "-p", &folder];
    let _server = testbed.serve(&STRICT, &line, 8080);
    for name in ["127.0.0.1", "[::1]"] {
        let url = format!("http://{name}:8080/file");
        let out = testbed.folder.join("got");
        let out = out.to_str().unwrap();
        let line = ["curl", "-sS", "--noproxy", "*", "-o", out, "-w"];
        let line = [&line[..], &["%{http_code} %{local_ip} %{remote_ip}", &url]].concat();
        let told = testbed.ask(&STRICT, &line);
        let ip = name.trim_matches(['[', ']']);
        assert_eq!(told, format!("200 {ip} {ip}"));
        assert!(std::fs::read(out).unwrap() == content);
    }
    testbed.assert_silent_kernel();
}

/// Asks the server of the text protocol for what it has just been given, and how it and we are called.
const MEMCACHED: &str = "
import socket
for family, name in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::ffff:127.0.0.1')):
    with socket.socket(family) as one:
        one.connect((name, 11211))
        value = b'v' * 100000
        one.sendall(b'set key 0 0 100000\\r\\n' + value + b'\\r\\nget key\\r\\n')
        got = b''
        while not got.endswith(b'END\\r\\n'): got += one.recv(65536)
        assert got == b'STORED\\r\\nVALUE key 0 100000\\r\\n' + value + b'\\r\\nEND\\r\\n'
        print(one.getsockname()[0], *one.getpeername()[:2])
";

#[test]
fn memcached_and_pythons_server_say_nothing_to_the_kernel() {
    let needs = ["memcached", "python3", "curl"];
    let Some(testbed) = Testbed::new("loopback-others", &needs, &[]) else {
        return;
    };
    let user = ["memcached", "-u", "root", "-U", "0", "-l", "0.0.0.0"];
    let _server = testbed.serve(&STRICT, &user, 11211);
    assert_eq!(
        testbed.ask(&STRICT, &["python3", "-c", MEMCACHED]),
        "127.0.0.1 127.0.0.1 11211\n::ffff:127.0.0.1 ::ffff:127.0.0.1 11211\n"
    );
    let folder = testbed.folder.to_str().unwrap();
    std::fs::write(testbed.folder.join("word"), "served").unwrap();
    let line = ["python3", "-m", "http.server", "-b", "127.0.0.1", "-d"];
    let line = [&line[..], &[folder, "8000"]].concat();
    let _web = testbed.serve(&STRICT, &line, 8000);
    // Of a whole network of addresses the listener has one, and one that is not named is it too.
    for name in ["127.0.0.1", "localhost", "0.0.0.0"] {
        let url = format!("http://{name}:8000/word");
        let line = ["curl", "-sS", "-4", "--noproxy", "*", &url];
        assert_eq!(testbed.ask(&STRICT, &line), "served", "{name}");
    }
    testbed.assert_silent_kernel();
}

/// Echoes on a port of loopback, each address twice told: whom it serves.
const ECHO: &str = "
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print('listens', flush=True)
while True:
    one, _ = listener.accept()
    with one:
        while part := one.recv(4096): one.sendall(part)
";

/// Connects in turn without blocking and blocking; prints what came of it.
const CALL: &str = "
import errno, select, socket, sys
for blocking in (False, True):
    with socket.socket() as one:
        try:
            if blocking:
                one.connect((sys.argv[1], int(sys.argv[2])))
            else:
                one.setblocking(False)
                code = one.connect_ex((sys.argv[1], int(sys.argv[2])))
                assert code == errno.EINPROGRESS, code
                select.select([], [one], [])
                code = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code: raise OSError(code, 'connect')
                one.setblocking(True)
            one.sendall(b'word')
            print(one.recv(4).decode(), one.getsockname()[0], one.getpeername()[0])
        except OSError as error:
            print(errno.errorcode[error.errno])
";

#[test]
fn where_one_end_is_not_run_so_the_kernels_loopback_joins_them() {
    kernels_loopback_joins("loopback-both", &[]);
}

#[test]
fn where_one_end_is_not_run_so_the_kernels_loopback_joins_supervised_ones() {
    kernels_loopback_joins("loopback-both-supervised", &["--supervise", "only"]);
}

/// Where each program that is run so is run with these flags.
fn kernels_loopback_joins(test: &str, flags: &[&str]) {
    let Some(testbed) = Testbed::new(test, &["python3"], &[]) else {
        return;
    };
    let both = [&["run", "--loopback"], flags, &["--"]].concat();
    let strict = ["run", "--loopback", "--policy", "engine-only"];
    let strict = [&strict, flags, &["--"]].concat();
    let plain = ["run", "--policy", "kernel-only", "--"];
    let echoed = "word 127.0.0.1 127.0.0.1\n".repeat(2);
    let call =
        |prefix: &[&str], port| testbed.ask(prefix, &["python3", "-c", CALL, "127.0.0.1", port]);
    let _first = testbed.serve(&both, &["python3", "-c", ECHO, "127.0.0.1", "7001"], 7001);
    let mut second = testbed.start(&plain, &["python3", "-c", ECHO, "0.0.0.0", "7002"]);
    second.wait_listening(7002, PATIENCE).unwrap();
    assert_eq!(call(&both, "7001"), echoed);
    testbed.assert_silent_kernel();
    assert_eq!(call(&plain, "7001"), echoed);
    assert_eq!(call(&both, "7002"), echoed);
    assert_eq!(testbed.opens(), 4);
    assert_eq!(call(&strict, "7002"), "ECONNREFUSED\n".repeat(2));
    assert_eq!(testbed.opens(), 4);
    assert_eq!(call(&both, "7003"), "ECONNREFUSED\n".repeat(2));
    assert_eq!(testbed.opens(), 6);
    // What is bound there reaches nothing else.
    let bound = "import socket
one = socket.socket()
one.bind(('127.0.0.1', 0))
print(one.connect_ex(('10.77.0.2', 7001)))";
    let on_kernel = testbed.ask(&plain, &["python3", "-c", bound]);
    assert_eq!(testbed.ask(&both, &["python3", "-c", bound]), on_kernel);
}
