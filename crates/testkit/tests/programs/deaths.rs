//! What the other end and the other processes see when a part of a program, or the engine, is killed.

use std::{fs, path::Path};

use rustix::process::Signal;
use testkit::{
    Finished, PATIENCE, Program, wait_for,
    world::{self, Mode, World, finish, seen, sha256},
};

const FILE_BYTES: usize = 32 << 20;

/// Slow enough that what is killed is killed in the middle of a transfer.
const SLOWLY: &str = "8M";

/// curl: the connection ended before the announced length (CURLE_PARTIAL_FILE).
const CURL_PARTIAL_FILE: i32 = 18;
/// curl: receiving failed (CURLE_RECV_ERROR).
const CURL_RECEIVE_ERROR: i32 = 56;

/// A master and one worker that serve the folder at `address`, in the foreground.
fn nginx(world: &World, on: &str, address: &str) -> Program {
    let folder = world.folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {folder}/{kind};\n"))
        .collect();
    let text = format!(
        "worker_processes 1;\npid {folder}/nginx.pid;\nevents {{}}\nhttp {{\naccess_log off;\nsendfile on;\n\
         {temporary}server {{ listen {address}:80; root {folder}; }}\n}}\n"
    );
    let conf = world.path("nginx.conf");
    fs::write(&conf, text).unwrap();
    let errors = world.path("nginx-errors");
    let plain = ["nginx", "-e", &errors, "-g", "daemon off;", "-c", &conf];
    let (words, asked_from) = if on == "a" {
        (world.tested_words(&plain), "b")
    } else {
        (plain.to_vec(), "a")
    };
    let mut server = world::launch("nginx", world.command_unmapped(on, &words));
    world.wait_ready(&mut server, asked_from, &format!("{address}:80"));
    server
}

/// Waits until a download is on its way.
fn wait_begun(world: &World, name: &str) {
    let path = world.folder.join(name);
    wait_for("first bytes of the download", PATIENCE, || {
        fs::metadata(&path).is_ok_and(|file| file.len() > 1 << 20)
    });
}

fn owned(finished: &Finished) -> (Option<i32>, String, String) {
    let (status, stdout, stderr) = seen(finished);
    (status, stdout.to_owned(), stderr.to_owned())
}

/// Runs the scenario on the kernel and on engines of one core, of two, and of one over AF_XDP; what it returns must be
/// equal.
fn on_both<T: PartialEq + std::fmt::Debug>(
    test: &str,
    programs: &[&str],
    scenario: impl Fn(&World) -> T,
) {
    if !world::can_run(test, programs) {
        return;
    }
    let kernel = scenario(&World::new(test, Mode::Kernel));
    for way in [Mode::Engine, Mode::Cores, Mode::Xdp] {
        let shunt = scenario(&World::new(test, way));
        assert_eq!(shunt, kernel, "left: on {way:?}, right: on the kernel");
    }
}

#[test]
fn a_killed_nginx_worker_ends_its_transfer_and_is_replaced() {
    on_both("worker", &["nginx", "curl"], |world| {
        let sum = world.content(FILE_BYTES);
        let address = world.tested_address();
        let server = nginx(world, "a", &address);
        let target = world.folder.join("fetched").display().to_string();
        let url = format!("http://{address}/content");
        let transfer =
            world.start_peer(&["curl", "-s", "--limit-rate", SLOWLY, "-o", &target, &url]);
        wait_begun(world, "fetched");
        let children = format!("/proc/{0}/task/{0}/children", server.pid());
        let workers = fs::read_to_string(&children).unwrap();
        let worker: i32 = workers.trim().parse().expect("one worker");
        let worker = rustix::process::Pid::from_raw(worker).unwrap();
        rustix::process::kill_process(worker, Signal::KILL).unwrap();
        let cut = finish(transfer);
        assert_eq!(cut.status.code(), Some(CURL_PARTIAL_FILE), "{}", cut.stderr);
        let again = world.run_peer(&["curl", "-sS", "-o", &target, &url]);
        assert_eq!(sha256(Path::new(&target)), sum);
        [owned(&cut), owned(&again)]
    });
}

#[test]
fn a_killed_engine_resets_its_programs_and_the_next_program_starts_another() {
    let test = "engine";
    if !world::can_run(test, &["nginx", "curl"]) {
        return;
    }
    let world = World::new(test, Mode::Cores);
    let sum = world.content(FILE_BYTES);
    let address = world.peer_address();
    let _server = nginx(&world, "b", &address);
    let target = world.folder.join("fetched").display().to_string();
    let url = format!("http://{address}/content");
    let transfer =
        world.start_tested(&["curl", "-sS", "--limit-rate", SLOWLY, "-o", &target, &url]);
    wait_begun(&world, "fetched");
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
        &shunt,
        "run",
        "--engine",
        "@shunt/engine",
        "--",
        "curl",
        "-sS",
        &url,
    ];
    let refused = finish(world.start("a", &named));
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        refused.stderr.contains("`shunt engine`"),
        "{}",
        refused.stderr
    );
    // Without a name it helps itself, and what it started ends with it.
    let own_engine = [&shunt, "run", "--engine-mode", "process", "--"];
    let line = [&own_engine[..], &["curl", "-sS", "-o", &target, &url]].concat();
    let again = finish(world.start("a", &line));
    assert_eq!(seen(&again), (Some(0), "", ""));
    assert_eq!(sha256(Path::new(&target)), sum);
    let own = format!("@shunt/run/{}", world.tested_address());
    let report = finish(world.start("a", &[&shunt, "status", "--json", "--engine", &own]));
    let report: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
    let process = format!("/proc/{}/ns/net", report["pid"]);
    wait_for("end of the engine", PATIENCE, || {
        !Path::new(&process).exists()
    });
}
