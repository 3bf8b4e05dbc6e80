//! `shunt run` up to the program's start: library, environment, refusals.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::{
    fs,
    process::{Command, Output, Stdio},
};

fn shunt(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("LD_PRELOAD")
        .env_remove("SHUNT_ENGINE");
    command
}

fn refused(arguments: &[&str]) -> String {
    let Output { status, stderr, .. } = shunt(arguments).output().unwrap();
    let error = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(2), "{arguments:?}: {error}");
    error
}

/// Runs a shell script on the kernel's path with this library, and returns its output.
fn script(library: &str, text: &str) -> Output {
    shunt(&[
        "run",
        "--policy",
        "kernel-only",
        "--library",
        library,
        "--",
        "sh",
        "-c",
        text,
    ])
    .output()
    .unwrap()
}

/// Any shared object serves where only the start of the program matters.
fn some_library() -> String {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps
        .split_ascii_whitespace()
        .find(|word| word.contains("/libc.so"));
    libc.expect("tests are linked with glibc").to_owned()
}

#[test]
fn pid_and_exit_status_are_the_programs_own() {
    let library = some_library();
    let child = shunt(&[
        "run",
        "--policy",
        "kernel-only",
        "--library",
        &library,
        "--",
        "sh",
        "-c",
        "echo $$; exit 9",
    ])
    .stdout(Stdio::piped())
    .spawn()
    .unwrap();
    let pid = child.id().to_string();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), pid);
    assert_eq!(output.status.code(), Some(9));
}

#[test]
fn the_library_stands_first_and_once_in_ld_preload() {
    let library = some_library();
    let output = shunt(&[
        "run",
        "--policy",
        "kernel-only",
        "--library",
        &library,
        "--",
        "sh",
        "-c",
        "echo $LD_PRELOAD $SHUNT_POLICY",
    ])
    .env("LD_PRELOAD", format!("libm.so.6 {library}"))
    .output()
    .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    let mut words = shown.split_ascii_whitespace();
    let canonical = fs::canonicalize(&library).unwrap();
    assert_eq!(words.next().unwrap().split(':').next(), canonical.to_str());
    assert!(shown.contains("libm.so.6"));
    assert_eq!(words.next(), Some("kernel-only"));
}

#[test]
fn signals_that_shunt_ignores_are_not_ignored_by_the_program() {
    // Rust ignores SIGPIPE; `yes` would run for ever if it inherited that.
    let output = script(&some_library(), "yes | head -n 1");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "y\n");
}

#[test]
fn a_missing_engine_is_an_error_that_names_the_next_step() {
    let library = some_library();
    let error = refused(&[
        "run",
        "--library",
        &library,
        "--engine",
        "@shunt/test/none",
        "--",
        "true",
    ]);
    assert!(
        error.contains("--engine") && error.contains("shunt engine"),
        "{error}"
    );
}

#[test]
fn every_command_shows_examples_in_its_help() {
    for command in [
        &["run"][..],
        &["lab"],
        &["lab", "up"],
        &["lab", "exec"],
        &["lab", "down"],
        &["lab", "list"],
        &["doctor"],
        &["engine"],
        &["status"],
        &["ss"],
        &["bench"],
        &["bench", "apps"],
    ] {
        let output = shunt(command).arg("--help").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && text.contains("Examples:"),
            "{command:?}"
        );
    }
}

#[test]
fn doctor_reports_every_lack_with_what_it_prevents_and_what_to_set() {
    let output = shunt(&["doctor", "--json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for finding in report["findings"].as_array().unwrap() {
        if finding["state"] != "ok" {
            assert!(
                finding["prevents"].is_string() && finding["set"].is_string(),
                "{finding}"
            );
        }
    }
    assert!(
        report["interfaces"]
            .as_array()
            .unwrap()
            .iter()
            .any(|interface| interface["loopback"] == true)
    );
    assert!(report["recommended"].is_string());
}

#[test]
fn engines_that_cannot_be_used_are_named_with_the_way_out() {
    let both = ["run", "--engine", "@shunt/a,@shunt/b", "--", "true"];
    assert!(refused(&both).contains("comma"));
    let names: Vec<String> = (0..9).map(|number| format!("@shunt/{number}")).collect();
    let flags: Vec<&str> = names.iter().flat_map(|name| ["--engine", name]).collect();
    let many = [&["run"][..], &flags, &["--", "true"]].concat();
    assert!(refused(&many).contains("8 engines at most"));
    let how = [
        "run",
        "--engine",
        "@shunt/a",
        "--placement",
        "best",
        "--",
        "true",
    ];
    assert!(refused(&how).contains("flow-hash"));
}
