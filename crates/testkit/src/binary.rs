//! The `shunt` binary for tests of other crates than `cli`, and what else of the workspace tests run, built by cargo
//! if it is not up to date. What runs all tests has built `shunt` with them, and says where it is: by itself cargo would build it again,
//! and most of what is in it, since the tests of the workspace want more features of some crates than the binary does.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// Set by `scripts/integration`: the binary that was built with the tests.
const BUILT: &str = "SHUNT_TEST_BINARY";
/// Set by it where it has built them too: the folder with the libraries of the native interface, whose `examples` has its example.
const BUILT_NATIVE: &str = "SHUNT_TEST_NATIVE";

/// The binary, of the same profile as the test that asks.
///
/// # Panics
/// Where it does not build.
pub fn shunt() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os(BUILT) {
        Some(built) => built.into(),
        None => build(&["--package", "cli"]).join("shunt"),
    })
}

/// The folder with `libshunt_native.so` and `libshunt_native.a`.
///
/// # Panics
/// Where they do not build.
pub fn native_library() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| built_native(&["--package", "capi"]))
}

/// The example `echo` of the native interface.
///
/// # Panics
/// Where it does not build.
pub fn native_example() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let words = ["--package", "native", "--example", "echo"];
        built_native(&words).join("examples/echo")
    })
}

/// Whether the native interface was built with the tests, so that nobody need ask cargo for it.
#[must_use]
pub fn is_native_built() -> bool {
    std::env::var_os(BUILT_NATIVE).is_some()
}

fn built_native(what: &[&str]) -> PathBuf {
    std::env::var_os(BUILT_NATIVE).map_or_else(|| build(what), PathBuf::from)
}

/// Builds something of the profile of the test that asks; the profile's folder.
fn build(what: &[&str]) -> PathBuf {
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
        .args(["build", "--locked", "--quiet"])
        .args(what)
        .arg("--target-dir")
        .arg(target);
    // `cargo test` sets them for the test. `ring` is built anew where they differ, and all that needs it.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    if profile.ends_with("release") {
        command.arg("--release");
    }
    let status = command
        .status()
        .unwrap_or_else(|error| panic!("cargo build {}: {error}", what.join(" ")));
    assert!(status.success(), "{} does not build", what.join(" "));
    profile.to_owned()
}
