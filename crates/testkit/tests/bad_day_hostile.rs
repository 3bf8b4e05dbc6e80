//! A hostile program of an ordinary user on an engine that others use: what it does with its descriptors, its threads and
//! memory whose pages never come keeps nobody else waiting. `hostile/hostile.c` says how each part goes about it.

use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use lab::Program;
use rustix::process::Signal;
use testkit::{
    EngineState, PATIENCE, Witness, port_of, python, shunt,
    world::{self, Mode, World},
};

/// Answers of the witness that come while the hostile program does its worst.
const MEANWHILE: usize = 200;
/// Bytes and words that are written into shared memory while the witness looks on.
const ATTEMPTS: u64 = 1_000_000;
/// Who asks a new program, which must be served.
const ASK: &str = "
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=50) as one:
    one.sendall(b'is anybody there')
    assert one.recv(64) == b'is anybody there'
print('served')
";

struct Scene {
    world: World,
    echo: Program,
    port: String,
}

impl Scene {
    /// `None`: it cannot be here, which was said.
    fn new(test: &str, way: Mode, flags: &[&str]) -> Option<Self> {
        if !world::can_run(test, &["cc", "python3"]) {
            return None;
        }
        let world = World::with_engine(test, way, flags);
        if world.lab.rootless() {
            world::skip(test, "userfaultfd(2) and other users need root");
            return None;
        }
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile/hostile.c");
        let made = Command::new("cc")
            .args(["-O1", "-pthread", "-o", &world.path("hostile"), source])
            .status();
        assert!(made.is_ok_and(|status| status.success()), "cc");
        let mut echo = world.start_peer(&["python3", "-c", python::ECHO]);
        let port = port_of(&mut echo);
        Some(Self { world, echo, port })
    }

    fn start(&self, part: &str) -> Program {
        self.start_against(part, &self.world.peer_address())
    }

    fn start_against(&self, part: &str, address: &str) -> Program {
        let words = [&*self.world.path("hostile"), part, address, &self.port];
        let mut hostile = self.world.start_tested(&words);
        let is_ready = |hostile: &Program| hostile.stdout().lines().any(|line| line == "ready");
        hostile
            .wait_until("hostile calls", PATIENCE, is_ready)
            .unwrap_or_else(|error| panic!("{part}: {error}"));
        hostile
    }

    /// A program that starts now is served as if nothing were.
    fn assert_serves(&self) {
        let mut server = self.world.start_tested(&["python3", "-c", python::ECHO]);
        let port = port_of(&mut server);
        let address = self.world.tested_address();
        let seen = self
            .world
            .run_peer(&["python3", "-c", ASK, &address, &port]);
        assert_eq!(seen.stdout, "served\n", "{seen:?}");
        server.stop();
    }
}

/// On an engine of one core and of two, and at the kernel's addresses.
fn run(test: &str, part: &str) {
    for (way, flags) in [
        (Mode::Engine, &[][..]),
        (Mode::Cores, &[]),
        (Mode::Cores, &["--share"]),
    ] {
        let Some(scene) = Scene::new(&format!("{test}-{part}"), way, flags) else {
            return;
        };
        let mut witness = Witness::start(&scene.world);
        let before = EngineState::of_world(&scene.world).with_tables();
        let hostile = scene.start(part);
        witness.goes_on(MEANWHILE);
        scene.assert_serves();
        hostile
            .signal(Signal::KILL)
            .unwrap_or_else(|error| panic!("{error}"));
        world::finish(hostile);
        // What it left behind is the engine's to close.
        witness.goes_on(MEANWHILE);
        scene.assert_serves();
        std::fs::write(scene.world.path("hostile-stop"), "").expect("a file");
        before.assert_back_in(&scene.world);
        let testimony = witness.finish(2 * MEANWHILE);
        assert!(testimony.slowest < Duration::from_secs(10), "{testimony:?}");
        drop(scene.echo);
    }
}

#[test]
fn sockets_that_linger_keep_nobody_waiting() {
    run("hostile", "linger");
}

#[test]
fn calls_without_end_on_every_descriptor_keep_nobody_waiting() {
    run("hostile", "descriptors");
}

#[test]
fn a_lock_that_is_kept_on_a_backing_socket_keeps_nobody_waiting() {
    run("hostile", "names");
}

/// Programs that write any bytes into the memory that they share with the engine, ring its doorbells and cut their files short lose
/// their own connections, and the log names them.
#[test]
fn any_bytes_in_shared_memory_spoil_nobody_elses_connections() {
    for way in [Mode::Engine, Mode::Cores] {
        let Some(scene) = Scene::new("hostile-scribble", way, &[]) else {
            return;
        };
        let mut witness = Witness::start(&scene.world);
        let before = EngineState::of_world(&scene.world).with_tables();
        let mut hostile = scene.start("scribble");
        let attempts = |hostile: &Program| {
            let said = hostile.stdout();
            let last = said.lines().rfind(|line| line.starts_with("attempts "));
            let count = last.and_then(|line| line.split(' ').nth(1)?.parse::<u64>().ok());
            count.unwrap_or_default()
        };
        hostile
            .wait_until("attempts", PATIENCE, |hostile| {
                attempts(hostile) >= ATTEMPTS
            })
            .unwrap_or_else(|error| panic!("{error}"));
        witness.goes_on(MEANWHILE);
        scene.assert_serves();
        let named = || {
            let log = scene.world.engine.as_ref().map(Program::stderr);
            let log = log.unwrap_or_default();
            log.matches("dropping a program").count()
        };
        testkit::wait_for("a name in the log", PATIENCE, || named() > 0);
        hostile
            .signal(Signal::KILL)
            .unwrap_or_else(|error| panic!("{error}"));
        let (made, named) = (attempts(&hostile), named());
        world::finish(hostile);
        witness.goes_on(MEANWHILE);
        before.assert_back_in(&scene.world);
        let _ = writeln!(
            std::io::stderr(),
            "hostile: {made} attempts, {named} programs were dropped"
        );
        witness.finish(2 * MEANWHILE);
    }
}

/// With six hundred descriptors of an engine one user gets half, is refused the rest, and others are served.
#[test]
fn a_user_that_takes_what_it_can_leaves_others_theirs() {
    let Some(mut scene) = Scene::new("hostile-flood", Mode::Engine, &[]) else {
        return;
    };
    drop(scene.world.engine.take());
    let start = format!("ulimit -n 600; exec {} engine --cores 1", shunt().display());
    let engine = testkit::once_serving(scene.world.start("a", &["bash", "-c", &start]));
    scene.world.engine = Some(engine);
    let mut witness = Witness::start(&scene.world);
    let before = EngineState::of_world(&scene.world).with_tables();
    let hostile = scene.start_against("flood", &scene.world.tested_address());
    let said = hostile.stdout();
    let refused = said.split(' ').nth(3).and_then(|word| word.lines().next());
    assert!(refused.is_some_and(|count| count != "0"), "{said}");
    let open = EngineState::of(scene.world.engine_pid()).descriptor_count();
    assert!(
        open < 450,
        "{open} of 600 descriptors, half of them for one user"
    );
    scene.assert_serves();
    witness.goes_on(MEANWHILE);
    let log = scene
        .world
        .engine
        .as_ref()
        .map(Program::stderr)
        .unwrap_or_default();
    let named = log
        .matches("user 65534 has 300 of the engine's descriptors")
        .count();
    assert_eq!(named, 1, "{log}");
    hostile
        .signal(Signal::KILL)
        .unwrap_or_else(|error| panic!("{error}"));
    world::finish(hostile);
    before.assert_back_in(&scene.world);
    witness.finish(MEANWHILE);
}
