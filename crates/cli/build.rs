//! Puts the preload libraries into the binary: builds the crates `preload` and `preload_inline` with a cargo of its own and
//! hands the files' paths to `include_bytes!`, with a hash of each by which its copies are told from those of other versions. See docs/decisions/0002-embedded-preload-library.md.
//!
//! `SHUNT_EMBED_LIBRARY=FILE` embeds a finished library instead, and libshunt_inline.so in the same folder;
//! `SHUNT_EMBED_LIBRARY=none` embeds nothing, and `shunt run` then looks for both beside the binary.

use std::{
    env,
    error::Error,
    fs,
    hash::{DefaultHasher, Hasher as _},
    path::{Path, PathBuf},
    process::Command,
};

/// The two libraries: file name, and the beginning of the variables by which the code finds the file and its hash.
const ORDINARY: (&str, &str) = ("libshunt.so", "SHUNT_LIBRARY");
const INLINE: (&str, &str) = ("libshunt_inline.so", "SHUNT_INLINE_LIBRARY");

/// Of releases, by which who builds can set another.
const OPTIMISATION_ACROSS_CRATES: &str = "CARGO_PROFILE_RELEASE_LTO";

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
    println!("cargo::rerun-if-env-changed={OPTIMISATION_ACROSS_CRATES}");
    println!("cargo::rerun-if-changed=build.rs");
    let (ordinary, inline) = match env::var_os("SHUNT_EMBED_LIBRARY") {
        Some(choice) if choice == "none" => return Ok(()),
        Some(file) => {
            let file = finished(Path::new(&file))?;
            let inline = finished(&file.with_file_name(INLINE.0))?;
            (file, inline)
        }
        None => {
            let folder = build_libraries()?;
            (folder.join(ORDINARY.0), folder.join(INLINE.0))
        }
    };
    println!("cargo::rustc-cfg=embedded_library");
    for (file, variable) in [(ordinary, ORDINARY.1), (inline, INLINE.1)] {
        let mut hasher = DefaultHasher::new();
        hasher.write(&fs::read(&file)?);
        println!("cargo::rustc-env={variable}_FILE={}", file.display());
        println!("cargo::rustc-env={variable}_HASH={:016x}", hasher.finish());
    }
    Ok(())
}

/// A library that somebody else has built.
fn finished(file: &Path) -> Result<PathBuf, String> {
    let file = fs::canonicalize(file)
        .map_err(|error| format!("SHUNT_EMBED_LIBRARY: {}: {error}", file.display()))?;
    println!("cargo::rerun-if-changed={}", file.display());
    Ok(file)
}

/// Builds both; the folder with them.
fn build_libraries() -> Result<PathBuf, Box<dyn Error>> {
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
        "preload",
        "--package",
        "preload_inline",
        "--lib",
        "--locked",
        "--quiet",
    ]);
    cargo.arg("--target-dir").arg(&target_directory);
    // Every process maps one: a tenth less code than with the usual sixteen, in about the same processor time.
    for profile in ["DEV", "RELEASE"] {
        cargo.env(format!("CARGO_PROFILE_{profile}_CODEGEN_UNITS"), "1");
    }
    if release {
        cargo.arg("--release");
        // They are compared at each start of a program; what debuggers want is four fifths of them.
        cargo.env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo");
        cargo.env("CARGO_PROFILE_RELEASE_DEBUG", "none");
        // A packet takes a tenth fewer instructions than with the thin one: functions that one place calls become part of it.
        if env::var_os(OPTIMISATION_ACROSS_CRATES).is_none() {
            cargo.env(OPTIMISATION_ACROSS_CRATES, "fat");
        }
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
        return Err("the preload libraries (crates preload, preload_inline) do not build; set SHUNT_EMBED_LIBRARY=none to build shunt without it".into());
    }
    output.push(if release { "release" } else { "debug" });
    for (name, _) in [ORDINARY, INLINE] {
        rerun_if_sources_change(&output.join(name).with_extension("d"), &workspace)?;
    }
    Ok(fs::canonicalize(output)?)
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
    for file in [
        "Cargo.toml",
        "Cargo.lock",
        "crates/preload/Cargo.toml",
        "crates/preload/build.rs",
        "crates/preload_inline/Cargo.toml",
        "crates/preload_inline/build.rs",
        "crates/shim/Cargo.toml",
        "crates/bpf/Cargo.toml",
        "crates/c_memory/Cargo.toml",
        "crates/elf/Cargo.toml",
        "crates/client/Cargo.toml",
        "crates/hostif/Cargo.toml",
        "crates/engine/Cargo.toml",
        "crates/netlink/Cargo.toml",
        "crates/nic/Cargo.toml",
        "crates/stack/Cargo.toml",
        "crates/tcp/Cargo.toml",
        "crates/wire/Cargo.toml",
    ] {
        println!("cargo::rerun-if-changed={}", workspace.join(file).display());
    }
    Ok(())
}
