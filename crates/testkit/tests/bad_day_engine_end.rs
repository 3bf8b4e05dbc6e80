//! An engine ends, and another is started under its name: servers serve again without being started again, and are quiet
//! in between (docs/decisions/0051-listeners-outlive-engines.md).

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::{fs, time::Duration};

use rustix::process::Signal;
use testkit::{
    PATIENCE, Program, wait_for,
    world::{self, Mode, World, finish},
};

/// How long there is no engine: what a server says and does meanwhile is what is tested.
const WITHOUT: Duration = Duration::from_secs(3);
/// What a server may write into its log for an engine that ended, with all that a quiet one writes anyway.
const LOG_BYTES: u64 = 20_000;

/// Of the servers of our own.
const OWN_PORT: u16 = 8000;

/// A server, and how it is asked.
struct Case<'c> {
    name: &'static str,
    needs: &'c [&'static str],
    port: u16,
    /// Its words, where FOLDER and ADDRESS are replaced.
    server: &'c [&'c str],
    /// Files of its folder that it writes about its work.
    logs: &'c [&'c str],
    /// Shell text that succeeds where the server answers.
    ask: &'c str,
}

const ENDS: [Signal; 2] = [Signal::KILL, Signal::TERM];

fn check(case: &Case<'_>, ways: &[Mode]) {
    let needs = [case.needs, &["bash"]].concat();
    if !world::can_run(&format!("end-{}", case.name), &needs) {
        return;
    }
    for way in ways {
        let mut world = World::new(&format!("end-{}", case.name), *way);
        let mut server = start(&world, case);
        for end in ENDS {
            assert_answers(&world, case);
            let mut engine = world.engine.take().unwrap();
            engine.signal(end).unwrap();
            wait_for("end of the engine", PATIENCE, || {
                engine.try_wait().unwrap().is_some()
            });
            std::thread::sleep(WITHOUT);
            for log in case.logs {
                let bytes = fs::metadata(world.folder.join(log)).map_or(0, |log| log.len());
                assert!(bytes < LOG_BYTES, "{way:?}: {log} has {bytes} bytes");
            }
            let said = server.stderr().len() + server.stdout().len();
            assert!(said < 20_000, "{way:?}: {}", server.stderr());
            world.engine = Some(engine_of(&world));
            let address = format!("{}:{}", world.tested_address(), case.port);
            world.wait_ready(&mut server, "b", &address);
            assert_answers(&world, case);
        }
        if case.port == OWN_PORT {
            judge(&mut server, *way);
        }
    }
}

/// The servers of our own count what they were told.
fn judge(server: &mut Program, way: Mode) {
    server.signal(Signal::USR1).unwrap();
    let said = |server: &Program| server.stdout().contains("seen");
    server.wait_until("seen", PATIENCE, said).unwrap();
    let text = server.stdout();
    assert!(!text.contains("EINVAL"), "{way:?}: {text}");
    let number = |name: &str| -> u32 {
        let (_, rest) = text.split_once(&format!("'{name}': ")).unwrap_or_default();
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    };
    // Each connection is reported to both threads, and by a pair, of a supervised program, once more.
    let (reports, accepted) = (number("reports"), number("accepted"));
    assert!(reports <= 4 * accepted + 16, "{way:?}: {text}");
    // Once for each engine that ends.
    assert!(number("datagrams ECONNRESET") <= 2, "{way:?}: {text}");
}

fn start(world: &World, case: &Case<'_>) -> Program {
    let folder = world.folder.display().to_string();
    let conf = format!(
        "worker_processes 2;\npid {folder}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n\
         client_body_temp_path {folder}/1;\nproxy_temp_path {folder}/2;\nfastcgi_temp_path {folder}/3;\n\
         uwsgi_temp_path {folder}/4;\nscgi_temp_path {folder}/5;\n\
         server {{ listen {}:{}; return 200 well; }}\n}}\n",
        world.tested_address(),
        case.port
    );
    fs::write(world.folder.join("nginx.conf"), conf).unwrap();
    let fill = |word: &&str| {
        let word = word.replace("FOLDER", &folder);
        word.replace("ADDRESS", &world.tested_address())
    };
    let words: Vec<String> = case.server.iter().map(fill).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let command = world.command_unmapped("a", &world.tested_words(&words));
    let mut server = world::launch(case.name, command);
    let address = format!("{}:{}", world.tested_address(), case.port);
    world.wait_ready(&mut server, "b", &address);
    server
}

fn assert_answers(world: &World, case: &Case<'_>) {
    let text = case.ask.replace("ADDRESS", &world.tested_address());
    let done = finish(world.start_peer(&["bash", "-c", &text]));
    assert!(done.status.success(), "{:?}: {done:?}", world.way);
}

fn engine_of(world: &World) -> Program {
    let shunt = testkit::shunt().display().to_string();
    let cores = if world.way == Mode::Cores { "2" } else { "1" };
    testkit::once_serving(world.start("a", &[&shunt, "engine", "--cores", cores]))
}

#[test]
fn nginx_serves_again_on_the_next_engine() {
    let case = Case {
        name: "nginx",
        needs: &["nginx", "curl"],
        port: 80,
        server: &[
            "nginx",
            "-e",
            "FOLDER/errors",
            "-g",
            "daemon off;",
            "-c",
            "FOLDER/nginx.conf",
        ],
        logs: &["errors"],
        ask: "for i in 1 2 3 4 5 6 7 8; do [ \"$(curl -sS --max-time 50 http://ADDRESS/)\" = well ] || exit 1; done",
    };
    check(&case, &[Mode::Engine, Mode::Cores]);
}

#[test]
fn redis_serves_again_on_the_next_engine() {
    let case = Case {
        name: "redis",
        needs: &["redis-server", "redis-cli"],
        port: 6379,
        server: &[
            "redis-server",
            "--bind",
            "ADDRESS",
            "--save",
            "",
            "--protected-mode",
            "no",
            "--logfile",
            "FOLDER/log",
        ],
        logs: &["log"],
        ask: "redis-cli -h ADDRESS PING | grep -q PONG",
    };
    check(&case, &[Mode::Engine, Mode::Supervised]);
}

#[test]
fn threads_that_wait_with_epoll_serve_again_on_the_next_engine() {
    let server = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/epoll_server.py");
    let case = Case {
        name: "epoll",
        needs: &["python3"],
        port: OWN_PORT,
        server: &["python3", server, "ADDRESS", "8000"],
        logs: &[],
        ask: "exec 3<>/dev/tcp/ADDRESS/8000 && echo word >&3 && read -t 50 back <&3 && [ \"$back\" = word ]",
    };
    check(&case, &[Mode::Engine, Mode::Cores, Mode::Supervised]);
}

#[test]
fn threads_that_wait_in_accept_and_recvfrom_serve_again_on_the_next_engine() {
    let server = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/waiting_server.py");
    let case = Case {
        name: "waiting",
        needs: &["python3"],
        port: OWN_PORT,
        server: &["python3", server, "ADDRESS", "8000"],
        logs: &[],
        ask: "exec python3 -c \"
import socket
with socket.create_connection(('ADDRESS', 8000), 50) as one:
    one.sendall(b'word')
    assert one.recv(4) == b'word'
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    one.settimeout(1)
    for attempt in range(50):
        one.sendto(b'word', ('ADDRESS', 8000))
        try:
            if one.recv(4) == b'word': break
        except OSError: pass
    else: raise SystemExit('no datagram')
\"",
    };
    check(&case, &[Mode::Engine, Mode::Cores]);
}

/// Waits on a connection until its other end is heard of.
const LISTENS_TO_END: &str = "
import socket, sys
with socket.create_connection((sys.argv[1], 8000), 50) as one:
    one.settimeout(50)
    one.sendall(b'word')
    assert one.recv(4) == b'word'
    print('stands', flush=True)
    try:
        one.recv(1)
        print('ended')
    except ConnectionResetError:
        print('reset')
";

#[test]
fn peers_hear_of_an_engine_that_is_told_to_end() {
    if !world::can_run("engine-told", &["python3"]) {
        return;
    }
    let server = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/epoll_server.py");
    for (way, flags) in [
        (Mode::Engine, &[][..]),
        (Mode::Cores, &[]),
        (Mode::Engine, &["--share"]),
    ] {
        let mut world = World::with_engine("engine-told", way, flags);
        let address = world.tested_address();
        let mut server = world.start_tested(&["python3", server, &address, "8000"]);
        world.wait_ready(&mut server, "b", &format!("{address}:8000"));
        let mut peers: Vec<_> = (0..8)
            .map(|_| world.start_peer(&["python3", "-c", LISTENS_TO_END, &address]))
            .collect();
        for peer in &mut peers {
            let stands = |peer: &Program| peer.stdout().contains("stands");
            peer.wait_until("connection", PATIENCE, stands).unwrap();
        }
        let engine = world.engine.take().unwrap();
        engine.signal(Signal::TERM).unwrap();
        assert!(finish(engine).status.success());
        for peer in peers {
            assert_eq!(finish(peer).stdout, "stands\nreset\n", "{way:?} {flags:?}");
        }
    }
}
