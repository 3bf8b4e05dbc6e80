//! `shunt sim` and `shunt path` as their users meet them: the paper's checks, sweeps that give the same
//! bytes however they are divided, and bad input that is said.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A folder that is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("shunt-sim-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn written(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).unwrap();
        self.file(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn shunt(arguments: &[&str]) -> Output {
    Command::new(SHUNT)
        .args(arguments)
        .current_dir(ROOT)
        .output()
        .unwrap()
}

fn ok(arguments: &[&str]) -> String {
    let output = shunt(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The message of a command that must fail with status 2.
fn refused(arguments: &[&str]) -> String {
    let output = shunt(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&ok(arguments)).unwrap()
}

#[test]
fn the_paper_is_checked_and_its_misses_are_printed() {
    let text = ok(&["sim", "paper", "--check"]);
    assert_eq!(text.matches("  pass\n").count(), 14, "{text}");
    assert_eq!(text.matches("  not reproduced\n").count(), 2, "{text}");
    assert!(text.contains("Not reproduced"));
    let value = json(&["sim", "paper", "--check", "--json"]);
    assert_eq!(value["checks"].as_array().unwrap().len(), 16);
    assert_eq!(value["misses"].as_array().unwrap().len(), 2);
}

#[test]
fn a_figure_is_shown_with_its_caution() {
    assert!(ok(&["sim", "paper", "--figure", "fig8"]).contains("survivor's mean"));
    assert!(ok(&["sim", "paper", "--report"]).starts_with("# The nic-net paper"));
}

#[test]
fn components_and_paths_are_listed_and_wrong_paths_are_said_with_their_line() {
    let list = json(&["path", "list", "--json"]);
    assert!(list["components"]["pcie-switch"].is_object(), "{list}");
    assert!(list["paths"]["tier3"].is_string(), "{list}");
    let folder = Folder::new();
    let file = folder.written(
        "p.toml",
        "[[component]]\nname = \"a\"\nlatency_ns = [5, 1]\n",
    );
    assert!(refused(&["path", &file]).contains("line 3: component 1 (a): latency_ns"));
    refused(&["path", "pcie-fabric", "--bytes", "1024..64"]);
    let axis = refused(&[
        "sim",
        "sweep",
        "scenarios/fig8.toml",
        "--axis",
        "clients=1..99999999",
    ]);
    assert!(axis.contains("more than 1000000 values"), "{axis}");
    refused(&["sim", "run", "scenarios/fig8.toml", "--until", "0"]);
    refused(&["sim", "run", "scenarios/fig8.toml", "--seed", "-1"]);
}

#[test]
fn the_study_is_one_page_that_needs_no_network() {
    let folder = Folder::new();
    ok(&["sim", "paper", "--plot", &folder.file("out")]);
    let page = fs::read_to_string(folder.0.join("out/paper.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 3);
    assert!(!page.contains("src=") && !page.contains("href="));
    for name in ["fig8.svg", "fig9.svg", "fig10.svg"] {
        assert!(folder.0.join("out").join(name).exists(), "{name}");
    }
}

#[test]
fn every_scenario_that_ships_runs() {
    for entry in fs::read_dir(Path::new(ROOT).join("scenarios")).unwrap() {
        let file = entry.unwrap().path();
        let file = file.to_str().unwrap();
        let value = json(&["sim", "run", file, "--json"]);
        assert!(value["summary"]["answered"].as_u64().unwrap() > 0, "{file}");
        assert!(ok(&["sim", "explain", file]).contains("What the load asks"));
        let value = json(&["sim", "explain", file, "--json"]);
        assert!(value["asked_of"]["host"].as_f64().unwrap() > 0.0, "{file}");
    }
}

#[test]
fn one_seed_gives_the_same_bytes_and_another_others() {
    let run = |seed| {
        ok(&[
            "sim",
            "run",
            "scenarios/fig8.toml",
            "--seed",
            seed,
            "--json",
        ])
    };
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}

#[test]
fn runs_are_added_until_the_mean_is_known() {
    let value = json(&[
        "sim",
        "run",
        "scenarios/fig8.toml",
        "--until",
        "3",
        "--json",
    ]);
    let response = &value["summary"]["response"];
    let (mean, half) = (&response["mean_ms"], &response["mean_plus_minus_ms"]);
    assert!(half.as_f64().unwrap() <= 0.03 * mean.as_f64().unwrap());
    // Where that takes too many runs, it is said.
    let few = ["--until", "0.1", "--set", "runs.most=12"];
    let text = ok(&[&["sim", "run", "scenarios/fig8.toml"], &few[..]].concat());
    assert!(text.contains("Wide: after 12 runs"), "{text}");
}

#[test]
fn a_trace_holds_every_request_and_its_delays_a_distribution() {
    let folder = Folder::new();
    let (trace, delays) = (folder.file("t.jsonl"), folder.file("d.cdf"));
    let set = "runs.replications=1";
    ok(&[
        "sim",
        "run",
        "scenarios/fig8.toml",
        "--set",
        set,
        "--trace",
        &trace,
        "--delays",
        &delays,
    ]);
    let lines = fs::read_to_string(trace).unwrap();
    assert_eq!(lines.lines().count(), 60);
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert!(first["host_delay_ns"].as_u64().unwrap() > 0);
    assert!(fs::read_to_string(delays).unwrap().ends_with(" 1.000000\n"));
}

const AXES: [&str; 4] = ["--axis", "clients=1..5", "--axis", "stack=kernel,user,nic"];

fn sweep(more: &[&str]) -> String {
    let arguments = [&["sim", "sweep", "scenarios/fig8.toml"], &AXES[..], more].concat();
    ok(&arguments)
}

#[test]
fn a_sweep_gives_the_same_bytes_on_any_number_of_threads_and_shards() {
    let folder = Folder::new();
    let whole = sweep(&["--jobs", "1", "--json"]);
    assert_eq!(whole.lines().count(), 15);
    assert_eq!(whole, sweep(&["--jobs", "3", "--json"]));
    let parts: Vec<String> = (0..4).map(|i| folder.file(&format!("{i}.jsonl"))).collect();
    for (index, part) in parts.iter().enumerate() {
        sweep(&["--shard", &format!("{index}/4"), "--out", part]);
    }
    let files: Vec<&str> = parts.iter().map(String::as_str).collect();
    assert_eq!(whole, ok(&[&["sim", "merge"], &files[..]].concat()));
}

#[test]
fn a_sweep_that_was_killed_goes_on_where_it_stopped() {
    let folder = Folder::new();
    let out = folder.file("r.jsonl");
    sweep(&["--out", &out]);
    let whole = fs::read_to_string(&out).unwrap();
    // Six whole lines in another order and half of one: what a killed sweep leaves.
    let mut lines: Vec<&str> = whole.lines().take(6).collect();
    lines.reverse();
    let half = &whole.lines().nth(7).unwrap()[..40];
    fs::write(&out, format!("{}\n{half}", lines.join("\n"))).unwrap();
    let html = folder.file("r.html");
    let table = sweep(&["--out", &out, "--html", &html]);
    assert_eq!(whole, fs::read_to_string(&out).unwrap());
    // What was there already is shown too.
    assert_eq!(table, sweep(&[]));
    assert!(fs::read_to_string(html).unwrap().contains("<polyline"));
}

#[test]
fn an_interrupted_sweep_says_what_it_keeps_and_leaves_nothing_else() {
    let folder = Folder::new();
    let out = folder.file("r.jsonl");
    let mut sweep = Command::new(SHUNT)
        .args(["sim", "sweep", "scenarios/fig8.toml", "--out", &out])
        .args(["--axis", "clients=1..9", "--axis", "runs.seed=1..2000"])
        .current_dir(ROOT)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::read_to_string(&out).map_or(0, |text| text.lines().count()) < 3 {
        assert!(Instant::now() < deadline, "no result");
        std::thread::yield_now();
    }
    let pid = Pid::from_raw(i32::try_from(sweep.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(sweep.wait().unwrap().code(), Some(2));
    let mut said = String::new();
    sweep
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert!(
        said.contains("interrupted: ") && said.contains("r.jsonl"),
        "{said}"
    );
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    // Whole lines, in the order of a finished file.
    let text = fs::read_to_string(&out).unwrap();
    let hashes: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["hash"].to_string())
        .collect();
    assert!(hashes.is_sorted() && text.ends_with('\n'));
    let points: usize = said
        .split_whitespace()
        .find_map(|word| word.parse().ok())
        .unwrap();
    assert_eq!(points, hashes.len());
}

#[test]
fn a_sweep_writes_a_table_and_a_page() {
    let folder = Folder::new();
    let (csv, html) = (folder.file("s.csv"), folder.file("s.html"));
    let text = sweep(&["--csv", &csv, "--html", &html]);
    assert!(text.contains("workload.clients"));
    assert_eq!(fs::read_to_string(csv).unwrap().lines().count(), 16);
    assert!(fs::read_to_string(html).unwrap().contains("<polyline"));
}

#[test]
fn results_that_differ_are_not_merged() {
    let folder = Folder::new();
    let one = folder.written("1.jsonl", "{\"hash\":\"a\",\"x\":1}\n");
    let two = folder.written("2.jsonl", "{\"hash\":\"a\",\"x\":2}\n");
    assert!(refused(&["sim", "merge", &one, &two]).contains("another result"));
}

#[test]
fn bad_input_is_said_with_its_place() {
    let folder = Folder::new();
    let wrong = |text: &str| {
        let file = folder.written("wrong.toml", text);
        refused(&["sim", "run", &file])
    };
    let unknown = wrong("[host]\nclock = 3\n");
    assert!(
        unknown.contains("wrong.toml") && unknown.contains("line 2"),
        "{unknown}"
    );
    assert!(wrong("[host]\n\nclock_mhz = -5\n").contains("line 3: host.clock_mhz"));
    assert!(wrong("[stack]\nkind = \"toe\"\n").contains("unknown variant"));
    assert!(wrong("[workload]\nclients = 1000000\nrequests_per_client = 99\n").contains("line 3"));
    assert!(refused(&["sim", "run", "missing.toml"]).contains("missing.toml"));
    let fig8 = "scenarios/fig8.toml";
    assert!(refused(&["sim", "run", fig8, "--set", "nic.speed=1"]).contains("nic.speed"));
    assert!(refused(&["sim", "sweep", fig8, "--axis", "clients=5..1"]).contains("clients=5..1"));
    assert!(refused(&["sim", "sweep", fig8, "--shard", "4/4"]).contains("counts from 0"));
    let none = folder.written("none.toml", "");
    assert!(refused(&["sim", "sweep", &none]).contains("--axis"));
}

#[test]
fn a_run_without_end_is_cut_and_an_unstable_one_said() {
    let folder = Folder::new();
    let file = folder.written(
        "endless.toml",
        "[workload]\ncompute_us = 1000000\nhorizon_s = 1\nrequests_per_client = 500\n",
    );
    let text = ok(&["sim", "run", &file]);
    assert!(
        text.contains("Unstable: host") && text.contains("Cut: "),
        "{text}"
    );
}

#[test]
fn a_path_is_720_ns_and_a_measurement_stands_beside_it() {
    let value = json(&["path", "pcie-fabric", "--json"]);
    assert_eq!(value[0]["least_ns"], 720.0);
    assert_eq!(value[0]["round_trip_least_ns"], 1440.0);
    let folder = Folder::new();
    let own = folder.written("m.json", "{\"cable\": 40, \"engine\": 8200}");
    let text = ok(&["path", "compare", "--with", &own]);
    for part in ["8200", "InfiniBand", "NetFPGA", "2080", "3568"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let text = ok(&["path", "diff", "pcie-fabric", "--with", &own]);
    assert!(
        text.contains("15 above") && text.contains("not on the path"),
        "{text}"
    );
    let value = json(&["path", "diff", "pcie-fabric", "--with", &own, "--json"]);
    // Both cables of the path are beside the measurement of one.
    let stages = value.as_array().unwrap().iter();
    let cables: Vec<&Value> = stages.filter(|stage| stage["name"] == "cable").collect();
    assert_eq!(cables.len(), 2);
    assert!(cables.iter().all(|stage| stage["measured_ns"] == 40.0));
    assert!(ok(&["path", "list"]).contains("retimer"));
    assert!(refused(&["path", "moon"]).contains("pcie-fabric"));
    assert!(refused(&["path", "tier3", "--load", "1"]).contains("no steady state"));
    assert!(
        ok(&["path", "tier3", "--bytes", "64..1024"])
            .lines()
            .count()
            > 5
    );
}

#[test]
fn a_plan_says_what_it_buys_and_the_four_stock_cases_say_no() {
    let value = json(&["sim", "plan", "workloads/rpc.toml", "--json"]);
    assert_eq!(value["rows"][0]["buys"], "baseline");
    assert_eq!(value["rows"][3]["buys"], "yes");
    assert_eq!(value["rows"][4]["buys"], "not_known");
    for (file, word) in [
        ("no-large-application", "buys nothing"),
        ("no-short-connections", "hurts"),
        ("no-wimpy-nic", "hurts"),
        ("no-disk-bound", "buys nothing"),
    ] {
        let text = ok(&["sim", "plan", &format!("workloads/{file}.toml")]);
        assert!(
            text.contains(word) && text.contains("Assumed, not measured"),
            "{text}"
        );
    }
    let folder = Folder::new();
    let wrong = folder.written("w.toml", "requests_per_s = 5\nmoon = 1\n");
    assert!(refused(&["sim", "plan", &wrong]).contains("line 2"));
    let wrong = folder.written("w.toml", "\nstacks = [\"kernel\", \"moon\"]\n");
    assert!(refused(&["sim", "plan", &wrong]).contains("line 2: stacks"));
    let preset = folder.written("p.toml", "machine = \"m\"\n\n[kernel]\nwhere = \"host\"\n");
    let said = refused(&["sim", "plan", "workloads/rpc.toml", "--preset", &preset]);
    assert!(
        said.contains("line 3") && said.contains("receive_ns"),
        "{said}"
    );
}

#[test]
fn a_calibration_is_a_preset_that_plans() {
    let folder = Folder::new();
    let out = folder.file("mine.toml");
    ok(&[
        "sim",
        "calibrate",
        "--only-calls",
        "--batches",
        "3",
        "--out",
        &out,
    ]);
    let text = fs::read_to_string(&out).unwrap();
    assert_eq!(text.matches("\"measured\"").count(), 5, "{text}");
    ok(&["sim", "plan", "workloads/rpc.toml", "--preset", &out]);
}

/// Asks itself over loopback until it is killed: a hundred bytes there, seven hundred back.
const EXCHANGES: &str = "
import socket, threading
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
def whole(one, count):
    while count: count -= len(one.recv(count))
def serve():
    while True:
        whole(server, 100)
        server.sendall(bytes(700))
threading.Thread(target=serve, daemon=True).start()
print('asks', flush=True)
while True:
    client.sendall(bytes(100))
    whole(client, 700)
";

/// Killed at the end of a test, however it ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_running_program_is_recorded_and_planned_for() {
    let started = Command::new("python3")
        .args(["-c", EXCHANGES])
        .stdout(Stdio::piped())
        .spawn();
    let mut program = match started {
        Ok(child) => Killed(child),
        Err(error) => return testkit::world::skip("sim-record", &format!("python3: {error}")),
    };
    let mut said = [0; 4];
    let out = program.0.stdout.as_mut().unwrap();
    out.read_exact(&mut said).unwrap();
    let folder = Folder::new();
    let out = folder.file("seen.toml");
    // Both ends are one process: each exchange counts at both, with both sizes in each direction.
    let pid = program.0.id().to_string();
    let plan = ok(&["sim", "plan", "--record", &pid, "500ms", "--out", &out]);
    assert!(plan.contains("was seen while it ran"), "{plan}");
    assert!(
        plan.contains("these get/s") && plan.contains("They ask"),
        "{plan}"
    );
    let text = fs::read_to_string(&out).unwrap();
    assert!(text.contains("# Not seen:"), "{text}");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("request_bytes = "));
    let bytes: f64 = line.unwrap().parse().unwrap();
    // The recording begins and ends within an exchange.
    assert!((bytes / 400.0 - 1.0).abs() < 0.1, "{text}");
    ok(&["sim", "plan", &out]);
    assert!(refused(&["sim", "plan", "--record", "4294967295"]).contains("no process"));
    assert!(refused(&["sim", "plan", "--record", &pid, "soon"]).contains("no time"));
}
