//! Instructions per packet of the pure stack, counted by callgrind and compared with what is recorded:
//! more than a tenth above it fails. `SHUNT_GOLDEN=write cargo test -p testkit --test instructions`
//! records anew. Skipped, and said so, where valgrind is missing.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::workspace;

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
/// What may be added before it counts as a change, in percent.
const TOLERANCE_PERCENT: u64 = 10;

fn skip(reason: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: instructions: {reason}");
}

/// The optimised binary: what a debug build does is nobody's concern.
fn build() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    // TARGET/PROFILE/deps/TEST
    // A folder of its own: whoever builds with optimisation beside the tests holds the lock of the usual one.
    let target = test.ancestors().nth(3).unwrap().join("instructions");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(workspace::root())
        .args(["build", "--package", "packetbench", "--release", "--quiet"])
        .arg("--target-dir")
        .arg(&target)
        .status()
        .unwrap();
    assert!(status.success(), "packetbench does not build");
    target.join("release/packetbench")
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

#[test]
fn a_packet_costs_no_more_instructions_than_recorded() {
    if cfg!(not(target_arch = "x86_64")) {
        return skip("recorded for x86_64 only");
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skip("valgrind is not installed");
    }
    let binary = build();
    let [short, long] = TIMES;
    let mut now = String::new();
    for operation in OPERATIONS {
        let counts = TIMES.map(|times| instructions(&binary, operation, times));
        let each = (counts[1] - counts[0]) / (long - short);
        writeln!(now, "{operation} {each}").unwrap();
    }
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/instructions.txt");
    if std::env::var("SHUNT_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(&file, now).unwrap();
        return;
    }
    let before = std::fs::read_to_string(&file).unwrap();
    for operation in OPERATIONS {
        let (before, now) = (
            recorded(&before, operation).unwrap(),
            recorded(&now, operation).unwrap(),
        );
        println!("{operation}: {now} instructions, {before} recorded");
        assert!(
            now * 100 <= before * (100 + TOLERANCE_PERCENT),
            "{operation}: {now} instructions instead of {before}; if that is meant: \
             SHUNT_GOLDEN=write cargo test -p testkit --test instructions"
        );
    }
}
