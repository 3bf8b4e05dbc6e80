//! Puts the preload library into the binary: builds crate `shim` with a cargo of its own and hands
//! the file's path to `include_bytes!`. See docs/decisions/0002-embedded-preload-library.md.
//!
//! `SHUNT_EMBED_LIBRARY=FILE` embeds a finished library instead; `SHUNT_EMBED_LIBRARY=none` embeds
//! nothing, and `shunt run` then looks for libshunt.so beside the binary.

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What an outer cargo sets for its own compilers and must not reach the inner one.
const OUTER_SETTINGS: &[&str] = &[
    "RUSTC_WORKSPACE_WRAPPER",
    "CLIPPY_ARGS",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET_DIR",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rustc-check-cfg=cfg(embedded_library)");
    println!("cargo::rerun-if-env-changed=SHUNT_EMBED_LIBRARY");
    println!("cargo::rerun-if-changed=build.rs");
    let library = match env::var_os("SHUNT_EMBED_LIBRARY") {
        Some(choice) if choice == "none" => return Ok(()),
        Some(file) => {
            let file = fs::canonicalize(&file).map_err(|error| {
                format!(
                    "SHUNT_EMBED_LIBRARY={}: {error}",
                    Path::new(&file).display()
                )
            })?;
            println!("cargo::rerun-if-changed={}", file.display());
            file
        }
        None => build_library()?,
    };
    println!("cargo::rustc-cfg=embedded_library");
    println!("cargo::rustc-env=SHUNT_LIBRARY_FILE={}", library.display());
    Ok(())
}

fn build_library() -> Result<PathBuf, Box<dyn Error>> {
    // A target directory of its own, as the outer cargo holds the lock of the usual one; beside it, and not in OUT_DIR, of
    // which there is one for each set of features and kind of build.
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let profile_directory = out
        .ancestors()
        .nth(3)
        .ok_or("OUT_DIR is no folder of cargo's")?;
    let target_directory = profile_directory.join("library");
    let release = env::var("PROFILE")? == "release";
    let (target, host) = (env::var("TARGET")?, env::var("HOST")?);
    let workspace = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../..");

    let mut cargo = Command::new(env::var("CARGO")?);
    cargo.current_dir(&workspace).args([
        "build",
        "--package",
        "shim",
        "--lib",
        "--locked",
        "--quiet",
    ]);
    cargo.arg("--target-dir").arg(&target_directory);
    if release {
        cargo.arg("--release");
        // It is hashed and compared at each start of a program; what debuggers want is four fifths of it.
        cargo.env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo");
    }
    let mut output = target_directory;
    if target != host {
        cargo.args(["--target", &target]);
        output.push(&target);
    }
    for name in OUTER_SETTINGS {
        cargo.env_remove(name);
    }
    if !cargo.status()?.success() {
        return Err("the preload library (crate shim) does not build; set SHUNT_EMBED_LIBRARY=none to build shunt without it".into());
    }
    output.push(if release { "release" } else { "debug" });
    rerun_if_sources_change(&output.join("libshunt.d"), &workspace)?;
    Ok(fs::canonicalize(output.join("libshunt.so"))?)
}

/// cargo leaves beside the library a list of the sources that went into it, in make's syntax.
fn rerun_if_sources_change(list: &Path, workspace: &Path) -> Result<(), Box<dyn Error>> {
    for line in fs::read_to_string(list)?.lines() {
        let Some((_, sources)) = line.split_once(": ") else {
            continue;
        };
        // Blanks inside a name are escaped with a backslash.
        for source in sources.replace("\\ ", "\0").split_ascii_whitespace() {
            println!("cargo::rerun-if-changed={}", source.replace('\0', " "));
        }
    }
    for manifest in [
        "Cargo.toml",
        "Cargo.lock",
        "crates/shim/Cargo.toml",
        "crates/client/Cargo.toml",
        "crates/hostif/Cargo.toml",
        "crates/engine/Cargo.toml",
        "crates/nic/Cargo.toml",
        "crates/stack/Cargo.toml",
        "crates/tcp/Cargo.toml",
        "crates/wire/Cargo.toml",
    ] {
        println!(
            "cargo::rerun-if-changed={}",
            workspace.join(manifest).display()
        );
    }
    Ok(())
}
