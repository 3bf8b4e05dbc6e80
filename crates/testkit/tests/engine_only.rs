//! `--policy engine-only`: what would stay with the kernel is an error, in every way of running; and what cannot be on
//! Shunt is said.
//!
//! The engine is on host `a`, which has an address of the kernel's too. A program or privilege that is missing skips the
//! test, and says so past libtest's capture of output.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::os::unix::fs::PermissionsExt as _;

use testkit::{Host, Lab, LabSpec, Program, host, world};

/// Makes sockets of all kinds that are the kernel's, and some that are not; prints what came of each.
const SOCKETS: &str = "
import ctypes, errno, socket, struct, sys
kernels, own, peer = sys.argv[1:4]
V4, TCP, UDP = socket.AF_INET, socket.SOCK_STREAM, socket.SOCK_DGRAM
def attempt(name, act):
    try:
        act()
        print(name, 'ok', flush=True)
    except OSError as error:
        print(name, errno.errorcode[error.errno], flush=True)
def bound(kind, address, device=None):
    with socket.socket(V4, kind) as one:
        if device: one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
        one.bind((address, 0))
        if kind == TCP: one.listen()
def from_kernels():
    with socket.socket(V4, UDP) as one:
        source = struct.pack('=I4s4s', 0, socket.inet_aton(kernels), bytes(4))
        one.sendmsg([b'x'], [(socket.IPPROTO_IP, 8, source)], 0, (peer, 9))
def by_number():
    with socket.socket(fileno=ctypes.CDLL(None).syscall(41, V4, TCP, 0)) as one:
        one.bind((kernels, 0))
        one.listen()
attempt('raw', lambda: socket.socket(V4, socket.SOCK_RAW, socket.IPPROTO_ICMP).close())
attempt('raw v6', lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6).close())
attempt('lite', lambda: socket.socket(V4, UDP, socket.IPPROTO_UDPLITE).close())
attempt('kernels tcp', lambda: bound(TCP, kernels))
attempt('kernels udp', lambda: bound(UDP, kernels))
attempt('kernels device', lambda: bound(TCP, '0.0.0.0', b'lo'))
attempt('kernels source', from_kernels)
attempt('by number', by_number)
attempt('own tcp', lambda: bound(TCP, own))
attempt('own udp', lambda: bound(UDP, own))
attempt('any tcp', lambda: bound(TCP, '0.0.0.0'))
attempt('any udp', lambda: bound(UDP, '0.0.0.0'))
attempt('loopback tcp', lambda: bound(TCP, '127.0.0.1'))
attempt('loopback udp', lambda: bound(UDP, '127.0.0.1'))
attempt('unix', lambda: socket.socket(socket.AF_UNIX).close())
";

/// The kernel's, with the errno of each under `engine-only`.
const KERNELS: &[(&str, &str)] = &[
    ("raw", "EPROTONOSUPPORT"),
    ("raw v6", "EPROTONOSUPPORT"),
    ("lite", "EPROTONOSUPPORT"),
    ("kernels tcp", "EADDRNOTAVAIL"),
    ("kernels udp", "EADDRNOTAVAIL"),
    ("kernels device", "EADDRNOTAVAIL"),
    ("kernels source", "ENETUNREACH"),
    ("by number", "EADDRNOTAVAIL"),
];
const SERVED: &[&str] = &[
    "own tcp",
    "own udp",
    "any tcp",
    "any udp",
    "loopback tcp",
    "loopback udp",
    "unix",
];

struct Testbed {
    lab: Lab,
    _engine: Program,
}

impl Testbed {
    fn new(test: &str) -> Option<Testbed> {
        if !world::can_run(test, &["python3"]) {
            return None;
        }
        let lab = Lab::temporary(&format!("t-{test}"), &LabSpec::default()).unwrap();
        let engine = testkit::once_serving(testkit::start(host(&lab, "a"), shunt(), &["engine"]));
        let _engine = engine;
        Some(Testbed { lab, _engine })
    }

    fn a(&self) -> &Host {
        host(&self.lab, "a")
    }

    /// Each attempt's name and what came of it.
    fn sockets(&self, flags: &[&str], own: &str) -> Vec<(String, String)> {
        let kernels = self.a().spec().address.address.to_string();
        let peer = host(&self.lab, "b").spec().address.address;
        let program = [
            "--",
            "python3",
            "-c",
            SOCKETS,
            &kernels,
            own,
            &peer.to_string(),
        ];
        let line = [&["run"][..], flags, &program].concat();
        let printed = testkit::run(self.a(), shunt(), &line);
        let split = |line: &str| {
            let (name, result) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), result.to_owned())
        };
        printed.stdout.lines().map(split).collect()
    }
}

fn shunt() -> &'static str {
    testkit::shunt().to_str().unwrap()
}

fn expected(of_kernels: impl Fn(&'static str) -> &'static str) -> Vec<(String, String)> {
    let kernels = KERNELS
        .iter()
        .map(|(name, errno)| (*name, of_kernels(errno)));
    let served = SERVED.iter().map(|name| (*name, "ok"));
    let owned = |(name, result): (&str, &str)| (name.to_owned(), result.to_owned());
    kernels.chain(served).map(owned).collect()
}

#[test]
fn what_would_stay_with_the_kernel_is_an_error_where_the_engine_alone_is_wanted() {
    let Some(testbed) = Testbed::new("engine-only") else {
        return;
    };
    let own = testbed.a().spec().engine_address.address.to_string();
    for supervise in ["auto", "always", "only"] {
        let flags = ["--supervise", supervise];
        let sockets = testbed.sockets(&flags, &own);
        assert_eq!(sockets, expected(|_| "ok"), "auto, {supervise}");
        let flags = [&flags[..], &["--policy", "engine-only"]].concat();
        let sockets = testbed.sockets(&flags, &own);
        assert_eq!(sockets, expected(|errno| errno), "engine-only, {supervise}");
    }
    let inside = "10.77.0.90";
    let flags = [
        "--engine-mode=inline",
        "--address",
        "10.77.0.90/24",
        "--policy",
        "engine-only",
    ];
    assert_eq!(testbed.sockets(&flags, inside), expected(|errno| errno));
}

#[test]
fn a_program_without_an_engine_has_no_socket_where_the_engine_alone_is_wanted() {
    let Some(testbed) = Testbed::new("engine-only-none") else {
        return;
    };
    let environment = format!("LD_PRELOAD={}", library(&testbed));
    let words = [
        &environment,
        "SHUNT_POLICY=engine-only",
        "SHUNT_ENGINE=@nobody",
        "python3",
        "-c",
        "import socket\ntry: socket.socket()\nexcept OSError as error: print(error.strerror)",
    ];
    let printed = testkit::run(testbed.a(), "env", &words);
    assert_eq!(printed.stdout, "Network is down\n");
    assert!(printed.stderr.contains("no engine"), "{}", printed.stderr);
}

/// Asks for the first socket when no descriptor is free, and again when there are some.
const FIRST_SOCKET: &str = "
import errno, os, resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
held = []
try:
    while True: held.append(os.open('/dev/null', os.O_RDONLY))
except OSError as error: print(errno.errorcode[error.errno])
try: socket.socket()
except OSError as error: print(errno.errorcode[error.errno])
for one in held: os.close(one)
listener = socket.create_server(('127.0.0.1', 0))
with socket.create_connection(listener.getsockname()) as client:
    accepted = listener.accept()[0]
    client.send(b'x')
    print(accepted.recv(1))
";

#[test]
fn a_program_whose_descriptors_were_used_up_at_its_first_socket_is_served_when_it_has_some() {
    let Some(testbed) = Testbed::new("engine-only-full") else {
        return;
    };
    let inside = ["--engine-mode=inline", "--address", "10.77.0.91/24"];
    for mode in [&["--loopback"][..], &inside] {
        let policy = ["--policy", "engine-only"];
        let line = [
            &["run"],
            mode,
            &policy,
            &["--", "python3", "-c", FIRST_SOCKET],
        ]
        .concat();
        let printed = testkit::run(testbed.a(), shunt(), &line);
        assert_eq!(printed.stdout, "EMFILE\nEMFILE\nb'x'\n", "{mode:?}");
    }
}

/// The library that `shunt run` preloads.
fn library(testbed: &Testbed) -> String {
    let words = ["run", "--", "sh", "-c", "echo $LD_PRELOAD"];
    testkit::run(testbed.a(), shunt(), &words)
        .stdout
        .trim()
        .to_owned()
}

/// Becomes another user, and then a program that would make it root.
const PRIVILEGED: &str = "
import os, sys
os.setuid(65534)
os.execv(sys.argv[1], ['true'])";

#[test]
fn a_set_user_id_program_of_a_preloaded_one_is_told_of_and_refused_where_the_engine_alone_is_wanted()
 {
    if !rustix::process::geteuid().is_root() {
        world::skip("engine-only-privileged", "another user takes root");
        return;
    }
    let Some(testbed) = Testbed::new("engine-only-privileged") else {
        return;
    };
    let file = std::env::temp_dir().join(format!("shunt-privileged-{}", std::process::id()));
    std::fs::copy("/bin/true", &file).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let path = file.to_str().unwrap();
    let ended = ["auto", "engine-only"].map(|policy| {
        let line = [
            "run", "--policy", policy, "--", "python3", "-c", PRIVILEGED, path,
        ];
        world::finish(testkit::start(testbed.a(), shunt(), &line))
    });
    std::fs::remove_file(&file).unwrap();
    for (ended, code) in ended.iter().zip([0, 2]) {
        assert_eq!(ended.status.code(), Some(code), "{}", ended.stderr);
        assert!(ended.stderr.contains("set-user-id"), "{}", ended.stderr);
    }
}
