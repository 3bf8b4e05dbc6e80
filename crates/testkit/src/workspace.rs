//! The files of this workspace, for tests that hold its rules.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The workspace's top folder.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .nth(2)
        .expect("invariant: this crate lies in crates/ of the workspace")
        .to_owned()
}

/// Every crate as its folder's name and its manifest's text, sorted.
///
/// # Panics
/// Where a crate has no readable manifest.
pub fn manifests() -> Vec<(String, String)> {
    let crates = root().join("crates");
    let mut manifests: Vec<(String, String)> = entries(&crates)
        .into_iter()
        .filter(|path| path.is_dir())
        .map(|path| {
            let manifest = path.join("Cargo.toml");
            let text = fs::read_to_string(&manifest)
                .unwrap_or_else(|error| panic!("{}: {error}", manifest.display()));
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            (name, text)
        })
        .collect();
    manifests.sort();
    manifests
}

/// Every Rust file below `crates/` and `fuzz/`, as its path from the top and its text, sorted.
///
/// # Panics
/// Where a file cannot be read.
pub fn rust_files() -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.join("crates"), root.join("fuzz")];
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path)
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                let name = path
                    .strip_prefix(&root)
                    .unwrap_or(&path)
                    .to_string_lossy()
                    .into_owned();
                found.push((name, text));
            }
        }
    }
    found.sort();
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}
