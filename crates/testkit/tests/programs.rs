//! Unmodified programs of the distribution on Shunt, each beside the same run on the kernel: what they
//! print, what they receive and how they end must be equal.
//!
//! The program under test runs on host `a`, its peer on the kernel of host `b`. A program or privilege
//! that is missing skips the test, and says so past libtest's capture of output.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::{
    fmt::Display,
    fs,
    io::Write as _,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rustix::process::Signal;
use testkit::{Finished, Host, Lab, LabSpec, PATIENCE, Program, host, wait_for};

const FILE_BYTES: usize = 32 << 20;

/// Slow enough that what is killed is killed in the middle of a transfer.
const SLOWLY: &str = "8M";

/// curl: the connection ended before the announced length (CURLE_PARTIAL_FILE).
const CURL_PARTIAL_FILE: i32 = 18;
/// curl: receiving failed (CURLE_RECV_ERROR).
const CURL_RECEIVE_ERROR: i32 = 56;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Kernel,
    /// An engine of one core, and of several.
    Shunt,
    Cores,
    /// One core over AF_XDP.
    Xdp,
}

/// Two hosts, a folder with a file to serve and, on Shunt's side, an engine on host `a`.
struct World {
    side: Side,
    engine: Option<Program>,
    lab: Lab,
    folder: PathBuf,
}

impl World {
    fn new(test: &str, side: Side) -> Self {
        let name = format!("{test}-{side:?}");
        let lab = Lab::temporary(&format!("t-{name}"), &LabSpec::default()).unwrap();
        let folder = std::env::temp_dir().join(format!("shunt-{name}-{}", std::process::id()));
        // Servers read it after a change of user.
        fs::DirBuilder::new().mode(0o755).create(&folder).unwrap();
        let mut world = Self {
            side,
            engine: None,
            lab,
            folder,
        };
        if side != Side::Kernel {
            let cores = if side == Side::Cores { "2" } else { "1" };
            let driver = if side == Side::Xdp {
                "af_xdp"
            } else {
                "af_packet"
            };
            let arguments = ["engine", "--cores", cores, "--driver", driver];
            let mut engine = world.start("a", &testkit::shunt().display(), &arguments);
            engine
                .wait_until("engine", PATIENCE, |engine| {
                    engine.stderr().contains("serving")
                })
                .unwrap();
            world.engine = Some(engine);
        }
        world
    }

    /// The address under which a server under test is reached.
    fn tested_address(&self) -> String {
        let spec = host(&self.lab, "a").spec();
        let address = match self.side {
            Side::Kernel => spec.address,
            Side::Shunt | Side::Cores | Side::Xdp => spec.engine_address,
        };
        address.address.to_string()
    }

    fn peer_address(&self) -> String {
        host(&self.lab, "b").spec().address.address.to_string()
    }

    fn command(&self, on: &str, program: &dyn Display, arguments: &[&str]) -> Command {
        let host = host(&self.lab, on);
        let program = program.to_string();
        // nginx refuses a mapped root.
        let as_user =
            self.lab.rootless() && arguments.iter().any(|one| one.ends_with("nginx.conf"));
        let mut command = command_on(host, &program, as_user);
        command.args(arguments).env("HOME", &self.folder);
        command
    }

    fn start(&self, on: &str, program: &dyn Display, arguments: &[&str]) -> Program {
        let command = self.command(on, program, arguments);
        Program::start(&program.to_string(), command).unwrap()
    }

    /// Starts a program on the side under test.
    fn start_tested(&self, program: &str, arguments: &[&str]) -> Program {
        if self.side == Side::Kernel {
            return self.start("a", &program, arguments);
        }
        let prefix = ["run", "--policy", "engine-only", "--", program];
        let line = [&prefix[..], arguments].concat();
        self.start("a", &testkit::shunt().display(), &line)
    }

    fn run_tested(&self, program: &str, arguments: &[&str]) -> Finished {
        finish(self.start_tested(program, arguments))
    }

    fn run_peer(&self, program: &str, arguments: &[&str]) -> Finished {
        finish(self.start("b", &program, arguments))
    }

    /// Waits until a server answers, asked from the other host.
    fn wait_ready(&self, server: &mut Program, asked_from: &str, address: &str, port: u16) {
        let address = format!("{address}:{port}").parse().unwrap();
        let asking = host(&self.lab, asked_from);
        server
            .wait_until("answer", PATIENCE, |_| {
                asking.wait_connect(address, Duration::ZERO).is_ok()
            })
            .unwrap();
    }

    /// Writes the file to serve, without repetition, and returns its SHA-256.
    fn content(&self) -> String {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let words = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        let bytes: Vec<u8> = words.take(FILE_BYTES / 8).flatten().collect();
        let path = self.folder.join("content");
        fs::write(&path, bytes).unwrap();
        sha256(&path)
    }

    /// A master and one worker that serve the folder at `address`, in the foreground.
    fn nginx(&self, on: &str, address: &str) -> Program {
        let folder = self.folder.display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {folder}/{kind};\n"))
            .collect();
        let text = format!(
            "worker_processes 1;\npid {folder}/nginx.pid;\nevents {{}}\nhttp {{\naccess_log off;\nsendfile on;\n\
             {temporary}server {{ listen {address}:80; root {folder}; }}\n}}\n"
        );
        let path = self.folder.join("nginx.conf");
        fs::write(&path, text).unwrap();
        let errors = format!("{folder}/nginx-errors");
        let conf = path.display().to_string();
        // The last argument tells which user it needs, see `command`.
        let arguments = ["-e", &errors, "-g", "daemon off;", "-c", &conf];
        let is_tested = on == "a";
        let mut server = if is_tested {
            self.start_tested("nginx", &arguments)
        } else {
            self.start(on, &"nginx", &arguments)
        };
        let asked_from = if is_tested { "b" } else { "a" };
        self.wait_ready(&mut server, asked_from, address, 80);
        server
    }

    /// Waits until a download is on its way.
    fn wait_begun(&self, name: &str) {
        let path = self.folder.join(name);
        wait_for("first bytes of the download", PATIENCE, || {
            fs::metadata(&path).is_ok_and(|file| file.len() > 1 << 20)
        });
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // What still runs may write there; the lab ends it a moment later.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn command_on(host: &Host, program: &str, as_user: bool) -> Command {
    let command = if as_user {
        host.command_as_user(program)
    } else {
        host.command(program)
    };
    let mut command = command.unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

fn finish(program: Program) -> Finished {
    program.finish(PATIENCE, || false).unwrap()
}

/// What a person in front of the terminal sees.
fn seen(finished: &Finished) -> (Option<i32>, String, String) {
    let Finished {
        status,
        stdout,
        stderr,
        ..
    } = finished;
    (status.code(), stdout.clone(), stderr.clone())
}

fn sha256(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_ascii_whitespace().next().unwrap().to_owned()
}

/// Whether the test can run here; says on the terminal why not.
fn can_run(test: &str, programs: &[&str]) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let is_there = |program: &str| {
        std::env::split_paths(&path).any(|folder| {
            fs::metadata(folder.join(program))
                .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        })
    };
    let missing: Vec<&str> = programs
        .iter()
        .copied()
        .filter(|one| !is_there(one))
        .collect();
    let reason = if missing.is_empty() {
        match Lab::temporary(&format!("t-{test}-probe"), &LabSpec::default()) {
            Ok(_) => return true,
            Err(error) => error.to_string(),
        }
    } else {
        format!("not installed: {}", missing.join(", "))
    };
    // Not by a macro: libtest would keep it to itself.
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {reason}");
    false
}

/// Runs the scenario on the kernel and on engines of one core, of two, and of one over AF_XDP; what it returns must be
/// equal.
fn on_both<T: PartialEq + std::fmt::Debug>(
    test: &str,
    programs: &[&str],
    scenario: impl Fn(&World) -> T,
) {
    if !can_run(test, programs) {
        return;
    }
    let kernel = scenario(&World::new(test, Side::Kernel));
    for side in [Side::Shunt, Side::Cores, Side::Xdp] {
        let shunt = scenario(&World::new(test, side));
        assert_eq!(shunt, kernel, "left: on {side:?}, right: on the kernel");
    }
}

#[test]
fn redis_serves_redis_cli() {
    on_both("redis", &["redis-server", "redis-cli"], |world| {
        let address = world.tested_address();
        let folder = world.folder.display().to_string();
        let arguments = [
            "--bind",
            &address,
            "--save",
            "",
            "--protected-mode",
            "no",
            "--dir",
            &folder,
        ];
        let mut server = world.start_tested("redis-server", &arguments);
        world.wait_ready(&mut server, "b", &address, 6379);
        let value: String = ('a'..='z').cycle().take(100_000).collect();
        let ask = |rest: &[&str]| {
            seen(&world.run_peer("redis-cli", &[&["-h", &address][..], rest].concat()))
        };
        let answers = [
            ask(&["PING"]),
            ask(&["SET", "key", &value]),
            ask(&["GET", "key"]),
            ask(&["NO-SUCH-COMMAND"]),
        ];
        assert_eq!(answers[0].1, "PONG\n");
        assert_eq!(answers[2].1.trim_end(), value);
        let goodbye = ask(&["SHUTDOWN", "NOSAVE"]);
        let end = finish(server).status.code();
        // Nobody listens any more.
        (answers, goodbye, end, ask(&["PING"]).0)
    });
}

#[test]
fn redis_cli_asks_redis() {
    on_both("redis-cli", &["redis-server", "redis-cli"], |world| {
        let address = world.peer_address();
        let arguments = ["--bind", &address, "--save", "", "--protected-mode", "no"];
        let mut server = world.start("b", &"redis-server", &arguments);
        world.wait_ready(&mut server, "a", &address, 6379);
        let ask = |rest: &[&str]| {
            seen(&world.run_tested("redis-cli", &[&["-h", &address][..], rest].concat()))
        };
        let pong = ask(&["PING"]);
        assert_eq!(pong.1, "PONG\n");
        let refused = seen(&world.run_tested("redis-cli", &["-h", &address, "-p", "1", "PING"]));
        (pong, ask(&["SET", "a", "1"]), ask(&["GET", "a"]), refused)
    });
}

#[test]
fn nginx_serves_curl() {
    on_both("nginx", &["nginx", "curl", "sha256sum"], |world| {
        let sum = world.content();
        let address = world.tested_address();
        let _server = world.nginx("a", &address);
        let target = world.folder.join("fetched").display().to_string();
        let url = format!("http://{address}/content");
        let whole = world.run_peer("curl", &["-sS", "-o", &target, &url]);
        assert_eq!(sha256(Path::new(&target)), sum);
        let part = world.run_peer(
            "curl",
            &[
                "-sS",
                "-r",
                "1000-1015",
                "-w",
                "%{http_code}",
                "-o",
                "/dev/null",
                &url,
            ],
        );
        let absent = world.run_peer(
            "curl",
            &["-sSf", "-o", "/dev/null", &format!("{url}-absent")],
        );
        [seen(&whole), seen(&part), seen(&absent)]
    });
}

#[test]
fn curl_fetches_from_nginx() {
    on_both("curl", &["nginx", "curl", "sha256sum"], |world| {
        let sum = world.content();
        let address = world.peer_address();
        let _server = world.nginx("b", &address);
        let target = world.folder.join("fetched").display().to_string();
        let url = format!("http://{address}/content");
        let whole = world.run_tested("curl", &["-sS", "-o", &target, &url]);
        assert_eq!(whole.status.code(), Some(0), "{}", whole.stderr);
        assert_eq!(sha256(Path::new(&target)), sum);
        let absent = world.run_tested(
            "curl",
            &["-sSf", "-o", "/dev/null", &format!("{url}-absent")],
        );
        let refused = world.run_tested("curl", &["-s", &format!("http://{address}:1/")]);
        // By SO_BINDTODEVICE.
        let bound = ["-sSf", "--interface", "eth0", "-I", &url];
        let bound = world.run_tested("curl", &bound);
        assert!(bound.stdout.contains("200 OK"), "{}", bound.stderr);
        [seen(&whole), seen(&absent), seen(&refused)]
    });
}

#[test]
fn python_serves_wget() {
    on_both("python", &["python3", "wget", "sha256sum"], |world| {
        let sum = world.content();
        let address = world.tested_address();
        let folder = world.folder.display().to_string();
        let arguments = [
            "-m",
            "http.server",
            "--bind",
            &address,
            "--directory",
            &folder,
            "8000",
        ];
        let mut server = world.start_tested("python3", &arguments);
        world.wait_ready(&mut server, "b", &address, 8000);
        let target = world.folder.join("fetched").display().to_string();
        let url = format!("http://{address}:8000/content");
        let whole = world.run_peer("wget", &["-q", "--tries=1", "-O", &target, &url]);
        assert_eq!(sha256(Path::new(&target)), sum);
        let absent = world.run_peer(
            "wget",
            &[
                "-q",
                "--tries=1",
                "-O",
                "/dev/null",
                &format!("{url}-absent"),
            ],
        );
        [seen(&whole), seen(&absent)]
    });
}

#[test]
fn a_killed_nginx_worker_ends_its_transfer_and_is_replaced() {
    on_both("worker", &["nginx", "curl", "sha256sum"], |world| {
        let sum = world.content();
        let address = world.tested_address();
        let server = world.nginx("a", &address);
        let target = world.folder.join("fetched").display().to_string();
        let url = format!("http://{address}/content");
        let transfer = world.start(
            "b",
            &"curl",
            &["-s", "--limit-rate", SLOWLY, "-o", &target, &url],
        );
        world.wait_begun("fetched");
        let children = format!("/proc/{0}/task/{0}/children", server.pid());
        let workers = fs::read_to_string(&children).unwrap();
        let worker: i32 = workers.trim().parse().expect("one worker");
        let worker = rustix::process::Pid::from_raw(worker).unwrap();
        rustix::process::kill_process(worker, Signal::KILL).unwrap();
        let cut = finish(transfer);
        assert_eq!(cut.status.code(), Some(CURL_PARTIAL_FILE), "{}", cut.stderr);
        let again = world.run_peer("curl", &["-sS", "-o", &target, &url]);
        assert_eq!(sha256(Path::new(&target)), sum);
        [seen(&cut), seen(&again)]
    });
}

#[test]
fn a_killed_engine_resets_its_programs_and_the_next_program_starts_another() {
    let test = "engine";
    if !can_run(test, &["nginx", "curl", "sha256sum"]) {
        return;
    }
    let world = World::new(test, Side::Cores);
    let sum = world.content();
    let address = world.peer_address();
    let _server = world.nginx("b", &address);
    let target = world.folder.join("fetched").display().to_string();
    let url = format!("http://{address}/content");
    let transfer = world.start_tested(
        "curl",
        &["-sS", "--limit-rate", SLOWLY, "-o", &target, &url],
    );
    world.wait_begun("fetched");
    let engine = world.engine.as_ref().expect("Shunt's side has one");
    engine.signal(Signal::KILL).unwrap();
    let cut = finish(transfer);
    assert_eq!(
        cut.status.code(),
        Some(CURL_RECEIVE_ERROR),
        "{}",
        cut.stderr
    );
    assert!(cut.stderr.contains("engine is gone"), "{}", cut.stderr);

    let shunt = testkit::shunt().display().to_string();
    let named = [
        "run",
        "--engine",
        "@shunt/engine",
        "--",
        "curl",
        "-sS",
        &url,
    ];
    let refused = finish(world.start("a", &shunt, &named));
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        refused.stderr.contains("`shunt engine`"),
        "{}",
        refused.stderr
    );
    // Without a name it helps itself, and what it started ends with it.
    let again = world.run_tested("curl", &["-sS", "-o", &target, &url]);
    assert_eq!(seen(&again), (Some(0), String::new(), String::new()));
    assert_eq!(sha256(Path::new(&target)), sum);
    let own = format!("@shunt/run/{}", world.tested_address());
    let report = finish(world.start("a", &shunt, &["status", "--json", "--engine", &own]));
    let report: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
    let process = format!("/proc/{}/ns/net", report["pid"]);
    wait_for("end of the engine", PATIENCE, || {
        !Path::new(&process).exists()
    });
}
