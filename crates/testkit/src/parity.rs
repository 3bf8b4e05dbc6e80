//! The parity programs: small C programs that print what socket calls return (`crates/shim/tests/programs`). Which there
//! are, and where it says what they print otherwise where a supervisor serves them.

use std::path::PathBuf;

use crate::workspace;

/// What a supervised program can tell from the kernel, line by line and with the reason: a folder with a file for each
/// program, see `run.py --help`. docs/decisions/0026-supervised-programs.md says more.
#[must_use]
pub fn differing_supervised() -> PathBuf {
    workspace::root().join("crates/shim/tests/programs/supervised")
}

/// What compiles them, runs them and compares what they print.
#[must_use]
pub fn runner() -> PathBuf {
    workspace::root().join("crates/shim/tests/programs/run.py")
}

/// The names of all of them but those that are left out, in order.
///
/// # Panics
/// Where their folder cannot be read.
pub fn names(is_left_out: impl Fn(&str) -> bool) -> Vec<String> {
    let runner = runner();
    let folder = runner.parent().unwrap_or(&runner);
    let files = folder
        .read_dir()
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut names: Vec<String> = files
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .filter(|name| !is_left_out(name))
        .collect();
    names.sort();
    names
}
