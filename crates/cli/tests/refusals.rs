//! What cannot be is refused with the flag or the file that is to blame, and nothing that was not done ends with 0.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::{
    fs::{self, File},
    io::Read as _,
    process::{Command, Output, Stdio},
};

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");

fn shunt(arguments: &[&str]) -> Command {
    let mut command = Command::new(SHUNT);
    command.args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn refused(arguments: &[&str]) -> String {
    let Output { status, stderr, .. } = shunt(arguments).output().unwrap();
    let error = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(2), "{arguments:?}: {error}");
    error
}

fn written(name: &str, text: &str) -> String {
    let path = std::env::temp_dir().join(format!("shunt-refusals-{name}-{}", std::process::id()));
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn a_folder_that_is_not_there_is_measured_by_nobody() {
    let error = refused(&["bench", "mover", "--quick", "--dir", "/nonexist"]);
    assert!(error.contains("--dir /nonexist"), "{error}");
    let file = written("file", "");
    let error = refused(&["bench", "mover", "--quick", "--dir", &file]);
    fs::remove_file(&file).unwrap();
    assert!(error.contains("not a folder"), "{error}");
}

#[test]
fn a_file_that_merge_cannot_read_is_named_and_no_flag_that_was_not_given() {
    let file = written("merge", "this is no result\n");
    let folder = std::env::temp_dir().display().to_string();
    for wrong in [file.as_str(), &folder, "/nonexist"] {
        let error = refused(&["sim", "merge", wrong]);
        assert!(
            error.contains(wrong) && !error.contains("--out:"),
            "{error}"
        );
    }
    fs::remove_file(&file).unwrap();
}

#[test]
fn a_workload_that_cannot_be_is_refused_with_its_line() {
    for (line, key) in [
        ("requests_per_s = 1e300", "requests_per_s"),
        ("response_bytes = 1e15", "response_bytes"),
        ("mss_bytes = 1e-9", "mss_bytes"),
        ("engine_cores = 1000000000", "engine_cores"),
    ] {
        let file = written("plan", &format!("title = \"x\"\n{line}\n"));
        let error = refused(&["sim", "plan", &file]);
        fs::remove_file(&file).unwrap();
        assert!(error.contains(&format!("line 2: {key}: ")), "{error}");
    }
}

#[test]
fn whoever_reads_the_first_line_only_disturbs_nobody() {
    for arguments in [
        &["lab", "list"][..],
        &["sim", "paper", "--figure", "table1"],
        &["--help"],
    ] {
        let mut child = shunt(arguments).spawn().unwrap();
        let mut first = [0; 1];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.success() && error.is_empty(),
            "{arguments:?}: {error}"
        );
    }
}

#[test]
fn a_result_that_cannot_be_written_is_an_error_and_a_note_that_cannot_is_none() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let output = shunt(&["lab", "list"]).stdout(full()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("standard output"), "{error}");
    // It has something to say on standard error, and cannot.
    let status = shunt(&["sim", "merge", "/nonexist"])
        .stderr(full())
        .status();
    assert_eq!(status.unwrap().code(), Some(2), "no panic");
}
