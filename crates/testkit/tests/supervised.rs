//! What is special about programs into which no library can be preloaded: that they are followed through exec and
//! spawn, that calls past libc are served, what Go sees of deadlines and half-closed connections. That the engine
//! served them, and not the kernel, is known by the address: only the engine has it, or `--policy engine-only` refuses
//! the kernel. Whole programs are rows in `programs/`.
//!
//! What is missing here (Go, a C compiler, busybox) skips its tests, and that is said past libtest's capture.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use testkit::PATIENCE;
use testkit::world::{self, Mode, World, finish, seen};

const FILE_BYTES: usize = 16 << 20;

/// Builds what a test needs once; `None`: it cannot be built here.
fn built(
    place: &'static OnceLock<Option<PathBuf>>,
    build: impl FnOnce(&Path) -> Result<PathBuf, String>,
) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    place
        .get_or_init(|| {
            build(folder)
                .inspect_err(|why| world::skip("supervised programs", why))
                .ok()
        })
        .clone()
}

fn compile(command: &mut Command, output: PathBuf) -> Result<PathBuf, String> {
    let done = command
        .output()
        .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if done.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    Err(said.lines().last().unwrap_or_default().to_owned())
}

/// The Go program of `peers/http`, static.
fn go() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    built(&BUILT, |folder| {
        let output = folder.join("go-http");
        let mut command = Command::new("go");
        command
            .args(["build", "-o"])
            .arg(&output)
            .arg(".")
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/peers/http"))
            .env("CGO_ENABLED", "0");
        compile(&mut command, output)
    })
}

/// The C program of `peers/own_calls.c`, by one of the ways to link it.
fn own_calls(
    name: &'static str,
    compiler: &[&str],
    place: &'static OnceLock<Option<PathBuf>>,
) -> Option<PathBuf> {
    built(place, |folder| {
        let output = folder.join(name);
        let mut command = Command::new(compiler[0]);
        command
            .args(&compiler[1..])
            .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&output)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/peers/own_calls.c"));
        compile(&mut command, output)
    })
}

/// Two hosts with an engine on `a`, and a folder; `None`: it cannot be had here, and that was said.
fn world(test: &str, programs: &[&str]) -> Option<World> {
    world::can_run(test, programs).then(|| World::new(test, Mode::Engine))
}

#[test]
fn deadlines_and_half_close_of_go_are_the_kernels() {
    let Some(go) = go() else { return };
    let Some(world) = world("go-half", &["socat"]) else {
        return;
    };
    let go = go.to_str().unwrap();
    let (address, any) = (world.peer_address(), "TCP-LISTEN:7000,reuseaddr,fork");
    let mut echo = world.start_peer(&["socat", any, "PIPE"]);
    let target = format!("{address}:7000");
    world.wait_ready(&mut echo, "a", &target);
    for role in ["deadline", "half"] {
        let on_shunt = world.run_tested(&[go, role, &target]);
        let on_kernel = world.run_peer(&[go, role, &target]);
        assert_eq!(seen(&on_shunt), seen(&on_kernel));
        assert_eq!(on_shunt.status.code(), Some(0));
        assert!(on_shunt.stdout.contains("true"), "{}", on_shunt.stdout);
    }
}

#[test]
fn the_resolver_of_a_static_go_program_asks_over_the_engine() {
    let Some(go) = go() else { return };
    let Some(world) = world("go-resolve", &["dnsmasq"]) else {
        return;
    };
    let peer = world.peer_address();
    let mut server = world.start_peer(&[
        "dnsmasq",
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--log-facility=-",
        "--log-queries",
        "--no-resolv",
        "--no-hosts",
        "--user=root",
        "--pid-file",
        "--port=5300",
        "--address=/example.test/192.0.2.7",
    ]);
    let serves = |server: &testkit::Program| server.stderr().contains("started, version");
    server.wait_until("dnsmasq", PATIENCE, serves).unwrap();
    let target = format!("{peer}:5300");
    let program = go.to_str().unwrap();
    let found = world.run_tested(&[program, "resolve", &target, "example.test"]);
    assert_eq!(seen(&found), (Some(0), "[192.0.2.7]\n", ""));
    // The kernel's socket would have asked from the kernel's address.
    let asked = format!("query[A] example.test from {}", world.tested_address());
    let has_logged = |server: &testkit::Program| server.stderr().contains(&asked);
    server.wait_until(&asked, PATIENCE, has_logged).unwrap();
}

#[test]
fn a_static_go_program_serves_datagrams_and_hears_who_sent_them() {
    let Some(go) = go() else { return };
    let Some(world) = world("go-packets", &["python3"]) else {
        return;
    };
    let address = world.tested_address();
    let target = format!("{address}:7000");
    let mut server = world.start_tested(&[go.to_str().unwrap(), "packets", &target, "3"]);
    let serves = |server: &testkit::Program| server.stderr().contains("listening on");
    server.wait_until("packets", PATIENCE, serves).unwrap();
    let client = format!(
        "import socket\n\
         for text in (b'one', b'', b'3' * 30000):\n \
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n \
         s.settimeout(20)\n \
         s.connect(('{address}', 7000))\n \
         s.send(text)\n \
         got = s.recv(65536)\n \
         print(got[:40].decode(), len(got))\n"
    );
    let asked = world.run_peer(&["python3", "-c", &client]);
    let peer = world.peer_address();
    let said = |text: &str| format!("{peer} said {text}");
    let long = said(&"3".repeat(30_000));
    let expected = format!(
        "{} {}\n{} {}\n{} {}\n",
        said("one"),
        said("one").len(),
        said(""),
        said("").len(),
        &long[..40],
        long.len()
    );
    assert_eq!(seen(&asked), (Some(0), &*expected, ""));
    assert_eq!(finish(server).status.code(), Some(0));
}

#[test]
fn static_programs_find_an_engines_own_address_among_those_of_the_host() {
    let Some(go) = go() else { return };
    let Some(world) = world("static-addresses", &["busybox"]) else {
        return;
    };
    let (own, go) = (world.tested_address(), go.to_str().unwrap());
    let told = world.run_tested(&[go, "addresses", "eth0"]);
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    let lines = [told.stdout.lines().next(), told.stdout.lines().nth(1)];
    for line in lines.into_iter().flatten() {
        let prefixed = format!("{own}/24");
        let words = line.trim_matches(['[', ']']).split(' ');
        assert_eq!(
            words.filter(|word| *word == prefixed).count(),
            1,
            "{told:?}"
        );
    }
    assert_eq!(told.stdout.lines().count(), 2, "{told:?}");
    let shown = world.run_tested(&["busybox", "ip", "-o", "-4", "addr", "show", "dev", "eth0"]);
    let line = format!("inet {own}/24 brd ");
    assert_eq!(shown.stdout.matches(&line).count(), 1, "{shown:?}");
    // The kernel's address stands first there, and has the interface's name for itself.
    let shown = world.run_tested(&["busybox", "ifconfig", "eth0"]);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
}

#[test]
fn a_static_server_is_followed_through_the_programs_it_starts() {
    let Some(world) = world("chain", &["busybox", "curl", "python3"]) else {
        return;
    };
    let address = world.tested_address();
    fs::write(world.folder.join("page"), "served\n").unwrap();
    // Static, which starts a dynamic one, which is preloaded and serves.
    let folder = world.path("");
    let line = format!("exec python3 -m http.server --bind {address} --directory {folder} 8000");
    let mut server = world.start_tested(&["busybox", "sh", "-c", &line]);
    world.wait_ready(&mut server, "b", &format!("{address}:8000"));
    let url = format!("http://{address}:8000/page");
    let got = world.run_peer(&["curl", "-sS", "--max-time", "20", &url]);
    assert_eq!(seen(&got), (Some(0), "served\n", ""));
    drop(server);
    // Dynamic, which starts a static one: a script of bash.
    let script = world.folder.join("script");
    let httpd = format!("#!/bin/bash\nbusybox httpd -f -p {address}:8001 -h {folder}\n");
    fs::write(&script, httpd).unwrap();
    let mut server = world.start_tested(&["bash", script.to_str().unwrap()]);
    world.wait_ready(&mut server, "b", &format!("{address}:8001"));
    let url = format!("http://{address}:8001/page");
    let got = world.run_peer(&["curl", "-sS", "--max-time", "20", &url]);
    assert_eq!(seen(&got), (Some(0), "served\n", ""));
}

#[test]
fn socket_calls_past_libc_are_served() {
    static DYNAMIC: OnceLock<Option<PathBuf>> = OnceLock::new();
    static STATIC: OnceLock<Option<PathBuf>> = OnceLock::new();
    static MUSL: OnceLock<Option<PathBuf>> = OnceLock::new();
    let programs = [
        own_calls("own-calls", &["cc"], &DYNAMIC),
        own_calls("own-calls-static", &["cc", "-static"], &STATIC),
        own_calls("own-calls-musl", &["musl-gcc"], &MUSL),
    ];
    let Some(world) = world("own-calls", &["socat"]) else {
        return;
    };
    let address = world.peer_address();
    let mut echo = world.start_peer(&["socat", "TCP-LISTEN:7000,reuseaddr,fork", "PIPE"]);
    world.wait_ready(&mut echo, "a", &format!("{address}:7000"));
    for program in programs.iter().flatten() {
        let program = program.to_str().unwrap();
        let talked = world.run_tested(&[program, &address, "7000"]);
        assert_eq!(seen(&talked), (Some(0), "past libc\n", ""));
        let refused = world.run_tested(&[program, &address, "1"]);
        let said = "connect: Connection refused\n";
        assert_eq!(seen(&refused), (Some(1), said, ""));
        // Its calls would pass the filter.
        let ring = world.run_tested(&[program, "ring"]);
        assert_eq!(seen(&ring), (Some(0), "Function not implemented\n", ""));
    }
}

#[test]
fn a_connection_survives_the_exec_of_another_program_without_the_library() {
    const HANDS_ON: &str = "
import os, socket, sys
server = socket.create_server((sys.argv[1], 7100))
connection, _ = server.accept()
for fd in 0, 1:
    os.dup2(connection.fileno(), fd)
os.execvp('cat', ['cat'])";
    let (test, programs) = ("hands-on", ["python3", "socat"]);
    if !world::can_run(test, &programs) {
        return;
    }
    let world = World::new(test, Mode::Supervised);
    let address = world.tested_address();
    let server = world.start_tested(&["python3", "-c", HANDS_ON, &address]);
    // The first connection is the one that counts, so nobody asks whether it listens: socat tries again.
    let target = format!("TCP:{address}:7100,retry=200,interval=0.05");
    let line = format!("echo handed on | socat -t 5 - {target}");
    let talked = world.run_peer(&["sh", "-c", &line]);
    assert_eq!(seen(&talked), (Some(0), "handed on\n", ""));
    assert_eq!(finish(server).status.code(), Some(0));
}

/// Executes a command line by one of the functions whose arguments are a list.
const EXECUTE_A_LIST: &str = "
import ctypes, shutil, sys
libc = ctypes.CDLL(None)
call, words = sys.argv[1], sys.argv[2].split()
file = words[0] if call == 'execlp' else shutil.which(words[0])
strings = [ctypes.c_char_p(word.encode()) for word in [file, *words]] + [ctypes.c_void_p()]
if call == 'execle':
    strings.append(ctypes.c_void_p.in_dll(libc, 'environ'))
getattr(libc, call)(*strings)
";

#[test]
fn a_run_within_a_run_and_spawned_programs_are_served_too() {
    let programs = ["busybox", "python3", "sha256sum"];
    let Some(world) = world("nested", &programs) else {
        return;
    };
    let sum = world.content(FILE_BYTES);
    let address = world.peer_address();
    let folder = world.path("");
    let serve = ["python3", "-m", "http.server", "--bind", &address];
    let serve = [&serve[..], &["--directory", &folder, "8000"]].concat();
    let mut server = world.start_peer(&serve);
    world.wait_ready(&mut server, "a", &format!("{address}:8000"));
    let fetch = format!("busybox wget -q -O - http://{address}:8000/content");
    let shunt = testkit::shunt().display();
    let line = format!("{shunt} run --policy engine-only -- {fetch} | sha256sum");
    // Static in static: Linux has one listener for a chain of processes.
    let nested = world.run_tested(&["busybox", "sh", "-c", &line]);
    assert_eq!(seen(&nested), (Some(0), &*format!("{sum}  -\n"), ""));
    // Dynamic, which starts a static one by fork and exec or by posix_spawn.
    let spawns = format!(
        "import subprocess; print(len(subprocess.run('{fetch}'.split(), capture_output=True).stdout))"
    );
    let spawned = world.run_tested(&["python3", "-c", &spawns]);
    assert_eq!(seen(&spawned), (Some(0), &*format!("{FILE_BYTES}\n"), ""));
    // Or by the functions whose arguments are a list, of which only the first fit into registers.
    for call in ["execl", "execlp", "execle"] {
        let copy = world.path(call);
        let fetch = fetch.replace("-O -", &format!("-O {copy}"));
        let executed = world.run_tested(&["python3", "-c", EXECUTE_A_LIST, call, &fetch]);
        assert_eq!(seen(&executed), (Some(0), "", ""), "{call}");
        assert_eq!(world::sha256(Path::new(&copy)), sum, "{call}");
    }
}
