//! `shunt bench`: what is printed and written, and with which exit status. How fast anything is here is no matter.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");

/// Seconds of a run whose length says nothing about what is held here.
const BRIEF_S: &str = "0.05";
const BRIEF: [&str; 2] = ["--seconds", BRIEF_S];

fn shunt(words: &[&str]) -> Output {
    Command::new(SHUNT).args(words).output().unwrap()
}

/// A folder that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shunt-bench-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn all_writes_a_page_with_every_part_that_loads_nothing_from_elsewhere() {
    let folder = Folder::new("all");
    let page = folder.0.join("page.html");
    let ended = shunt(&[
        "bench",
        "all",
        "--quick",
        "--runs",
        "1",
        "--seconds",
        BRIEF_S,
        "--only",
        "calls,stages",
        "--json",
        "--report",
        page.to_str().unwrap(),
    ]);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{said}");
    let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let sections = report["sections"].as_array().unwrap();
    assert_eq!(sections.len(), 2, "{report}");
    let send = &sections[0]["rows"][0];
    assert!(
        send["baseline"]["median"].is_number() && send["ours"]["median"].is_number(),
        "{send}"
    );
    assert!(
        send["paper"]["source"].as_str().unwrap().contains("toe"),
        "{send}"
    );
    assert!(send["limit"]["value"].is_number(), "{send}");
    // One run has no interval, and nothing is claimed.
    assert!(
        send["interval"].is_null() && send["ratio"].is_number(),
        "{send}"
    );
    let page = std::fs::read_to_string(page).unwrap();
    for word in [
        "send(2) of 1 KiB",
        "driver receive",
        "toe, 4.2, Fig 10",
        "too few runs",
    ] {
        assert!(page.contains(word), "{word}");
    }
    for word in ["<script", "<link", "http://", "https://", "@import", "url("] {
        assert!(!page.contains(word), "{word}");
    }
}

/// In its quick form, once: a row that was measured on both sides, or that says why it was not.
fn measures(subject: &str, more: &[&str]) {
    let words = ["bench", subject, "--quick", "--runs", "1", "--json"];
    let ended = shunt(&[&words, more].concat());
    let said = String::from_utf8_lossy(&ended.stderr);
    let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let failures = report["failures"].as_array().unwrap();
    let is_busy = |why: &Value| why.as_str().unwrap().contains("the machine is busy");
    // What others disturb is refused and says so.
    if !failures.is_empty() && failures.iter().all(is_busy) {
        return testkit::world::skip(&format!("bench-{subject}"), &format!("{failures:?}"));
    }
    assert_eq!(ended.status.code(), Some(0), "{subject}: {said}");
    let rows = report["rows"].as_array().unwrap();
    let is_measured = |row: &&Value| {
        let sides = ["kernel", "shunt"].map(|side| row[side]["median"].as_f64());
        sides
            .into_iter()
            .all(|side| side.is_some_and(|value| value >= 0.0))
    };
    let measured = rows.iter().filter(is_measured).count();
    let excused = rows
        .iter()
        .filter(|row| row["missing"] != serde_json::json!([]));
    assert!(measured > 0, "{subject}: {report}");
    assert_eq!(measured + excused.count(), rows.len(), "{report}");
}

#[test]
fn frames_by_drivers_are_measured() {
    measures("driver", &BRIEF);
}

#[test]
fn calls_are_measured() {
    measures("calls", &BRIEF);
}

#[test]
fn response_times_are_measured() {
    measures("response", &BRIEF);
}

#[test]
fn what_is_left_is_measured() {
    // Beside so short a load no work is the same twice.
    measures("left", &[]);
}

#[test]
fn notifications_are_measured() {
    measures("notify", &BRIEF);
}

#[test]
fn features_are_measured_off_and_on() {
    measures("matrix", &BRIEF);
}

#[test]
fn trading_is_measured() {
    measures("trading", &BRIEF);
}

#[test]
fn two_engines_have_the_connections_that_each_policy_gives_them() {
    let ended = shunt(&["bench", "placement", "--quick", "--runs", "1", "--json"]);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{said}");
    let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let median = |at: usize| rows[at]["shunt"]["median"].as_f64().unwrap();
    assert!((0..rows.len()).all(|at| median(at) > 0.0), "{report}");
    // The index of a policy's connections is in the row below its rate.
    let jain = |policy: &str| {
        let names = |row: &Value| row["what"].as_str().unwrap().ends_with(policy);
        median(rows.iter().position(names).unwrap() + 1)
    };
    assert!((jain("priority") - 0.5).abs() < 1e-9, "{report}");
    for policy in ["round-robin", "least-load"] {
        assert!(jain(policy) > 0.99, "{policy}: {report}");
    }
    assert!(jain("flow-hash") > 0.5, "{report}");
}

#[test]
fn what_cannot_be_done_is_said_before_anything_is_measured() {
    for words in [
        &["bench", "all", "--report", "/nonexistent/page.html"][..],
        &["bench", "all", "--runs", "0"],
        &["bench", "all", "--only", "everything"],
        &["bench", "mover", "--dir", "/nonexistent", "--quick"],
        &["bench", "mover", "--dir", "/proc/self/exe", "--quick"],
        &["bench", "latency", "--only", "no such row"],
        &["bench", "latency", "--seconds", "0"],
    ] {
        let ended = shunt(words);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{words:?}: {said}");
        assert!(ended.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn a_folder_in_which_nothing_can_be_stored_is_a_failure() {
    let ended = shunt(&[
        "bench", "mover", "--dir", "/proc", "--quick", "--runs", "1", "--json",
    ]);
    assert_eq!(ended.status.code(), Some(1));
    let ended = shunt(&[
        "bench", "all", "--only", "mover", "--dir", "/proc", "--quick", "--runs", "1",
    ]);
    assert_eq!(ended.status.code(), Some(1));
}
