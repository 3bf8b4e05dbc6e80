//! Instructions per packet of the pure stack, and per message of the whole (`echo`), counted by callgrind and compared with what
//! is recorded: more than a tenth above it fails. `SHUNT_GOLDEN=write cargo test -p testkit --test instructions`
//! records anew. Skipped, and said so, where valgrind is missing.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

#[path = "instructions/echo.rs"]
mod echo;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{workspace, world};

/// Times each operation is done in the shorter and the longer run; their difference leaves out the start.
const TIMES: [u64; 2] = [1_000, 3_000];
const OPERATIONS: [&str; 9] = [
    "receive",
    "send",
    "connect",
    "receive-v6",
    "send-v6",
    "connect-v6",
    // With tables whose changes can be undone.
    "receive-kept",
    "send-kept",
    "connect-kept",
];
/// What some of them take at most, whatever is recorded.
const LIMITS: [(&str, u64); 3] = [("receive", 900), ("send", 2_500), ("connect", 6_500)];
/// What may be added before it counts as a change, in percent.
const TOLERANCE_PERCENT: u64 = 10;

/// Whether instructions can be counted here; says why not.
fn supported(test: &str) -> bool {
    if cfg!(not(target_arch = "x86_64")) {
        world::skip(test, "recorded for x86_64 only");
        return false;
    }
    let is_installed = world::missing(&["valgrind"]).is_empty();
    if !is_installed {
        world::skip(test, "valgrind is not installed");
    }
    is_installed
}

/// Builds a package with optimisation as the preloaded libraries have it (`cli/build.rs`), and the folder where that lies: what a debug build does is
/// nobody's concern.
fn optimised(package: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    // TARGET/PROFILE/deps/TEST
    // A folder of its own: whoever builds with optimisation beside the tests holds the lock of the usual one.
    let target = test.ancestors().nth(3).unwrap().join("instructions");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(workspace::root())
        .args(["build", "--package", package, "--release", "--quiet"])
        .arg("--target-dir")
        .arg(&target)
        // Nobody debugs it, and it changes no instruction.
        .env("CARGO_PROFILE_RELEASE_DEBUG", "none")
        .env("CARGO_PROFILE_RELEASE_LTO", "fat")
        .status()
        .unwrap();
    assert!(status.success(), "{package} does not build");
    target.join("release")
}

/// Instructions of one run.
fn instructions(binary: &Path, operation: &str, times: u64) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(binary)
        .args([operation, &times.to_string()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let collected = text
        .lines()
        .find_map(|line| line.split("Collected :").nth(1));
    let collected = collected.unwrap_or_else(|| panic!("no count in {text}"));
    collected.trim().parse().unwrap()
}

fn recorded(text: &str, operation: &str) -> Option<u64> {
    let line = text
        .lines()
        .find(|line| line.split(' ').next() == Some(operation))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Compares counts, a line for each operation, with what is recorded in a file, or records them.
fn judge(file: &str, now: &str, operations: &[&str]) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let file = folder.join(file);
    if std::env::var("SHUNT_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(&file, now).unwrap();
        return;
    }
    let before = std::fs::read_to_string(&file).unwrap();
    for operation in operations {
        let (before, now) = (
            recorded(&before, operation).unwrap(),
            recorded(now, operation).unwrap(),
        );
        println!("{operation}: {now} instructions, {before} recorded");
        assert!(
            now * 100 <= before * (100 + TOLERANCE_PERCENT),
            "{operation}: {now} instructions instead of {before}; if that is meant: \
             SHUNT_GOLDEN=write cargo test -p testkit --test instructions"
        );
    }
}

#[test]
fn a_packet_costs_no_more_instructions_than_recorded() {
    if !supported("instructions") {
        return;
    }
    let binary = optimised("packetbench").join("packetbench");
    let [short, long] = TIMES;
    let mut now = String::new();
    for operation in OPERATIONS {
        let counts = TIMES.map(|times| instructions(&binary, operation, times));
        let each = (counts[1] - counts[0]) / (long - short);
        writeln!(now, "{operation} {each}").unwrap();
    }
    judge("instructions.txt", &now, &OPERATIONS);
    for (operation, limit) in LIMITS {
        let count = recorded(&now, operation).unwrap();
        assert!(count <= limit, "{operation}: {count} instructions");
    }
}
