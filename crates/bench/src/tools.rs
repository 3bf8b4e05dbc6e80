//! Finding the programs that are measured.

use std::path::{Path, PathBuf};

use anyhow::bail;

/// Where servers live on systems that keep them out of a user's PATH.
const SERVER_DIRECTORIES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The system's own Python comes first: what stands before it in PATH may be a wrapper script of a
/// version manager, and would be measured with it.
const SYSTEM_PYTHON: &str = "/usr/bin/python3";

/// An error that names every program that is missing.
pub fn require(names: &[&str]) -> anyhow::Result<()> {
    let missing = missing(names);
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "not installed: {}. Run scripts/install-packages bench, or leave these programs out with --only",
        missing.join(", ")
    );
}

/// Those of the programs that are not installed.
pub fn missing<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut missing: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| find(name).is_err())
        .collect();
    missing.sort_unstable();
    missing.dedup();
    missing
}

/// The program's file.
pub fn find(name: &str) -> anyhow::Result<PathBuf> {
    if name == "python3" && Path::new(SYSTEM_PYTHON).exists() {
        return Ok(PathBuf::from(SYSTEM_PYTHON));
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&search).chain(SERVER_DIRECTORIES.map(PathBuf::from));
    match directories
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
    {
        Some(path) => Ok(path),
        None => bail!("{name} is not installed: run scripts/install-packages bench"),
    }
}

/// Release of the kernel, as `uname -r` prints it.
pub fn kernel_release() -> String {
    let system = rustix::system::uname();
    system.release().to_string_lossy().into_owned()
}

/// Processors that this program may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
