//! The `shunt` binary for tests of other crates than `cli`, built by cargo if it is not up to date.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// The binary, of the same profile as the test that asks.
///
/// # Panics
/// Where it does not build.
pub fn shunt() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(build)
}

fn build() -> PathBuf {
    let test = std::env::current_exe().expect("invariant: a test has a file");
    // TARGET/PROFILE/deps/TEST
    let profile = test
        .ancestors()
        .nth(2)
        .expect("invariant: cargo puts tests into TARGET/PROFILE/deps");
    let target = profile
        .parent()
        .expect("invariant: profiles lie in a target folder");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(crate::workspace::root())
        .args(["build", "--package", "cli", "--locked", "--quiet"])
        .arg("--target-dir")
        .arg(target);
    if profile.ends_with("release") {
        command.arg("--release");
    }
    let status = command
        .status()
        .unwrap_or_else(|error| panic!("cargo build --package cli: {error}"));
    assert!(status.success(), "the shunt binary does not build");
    profile.join("shunt")
}
