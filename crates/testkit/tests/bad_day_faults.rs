//! The short form of `make soak`: files are carried by unchanged programs while one fault follows the other, and every byte is compared.

use std::process::Command;
use testkit::{shunt, workspace, world};

#[test]
fn no_byte_is_wrong_and_no_transfer_fails_without_cause_while_faults_happen() {
    let test = "bad-day-faults";
    let needed = [
        "nginx",
        "curl",
        "redis-server",
        "redis-cli",
        "busybox",
        "python3",
    ];
    if !world::can_run(test, &needed) {
        return;
    }
    let soak = workspace::root().join("scripts/soak");
    let done = Command::new(soak)
        .args(["--minutes", "0.5", "--pause", "1", "--shunt"])
        .arg(shunt())
        .env("PATH", world::path())
        .output();
    let done = done.unwrap_or_else(|error| panic!("{error}"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {said}", done.status);
    let report = String::from_utf8_lossy(&done.stdout);
    assert!(report.contains("| wrong bytes | 0 |"), "{report}");
}
