//! The README's table of symbols against the dynamic symbol table of the built library (elf(5)).

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

/// Function symbols that an ELF64 little-endian library defines for others.
fn exported(image: &[u8]) -> BTreeSet<String> {
    let word = |at: usize, len: usize| {
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(&image[at..at + len]);
        usize::try_from(u64::from_le_bytes(bytes)).unwrap()
    };
    assert_eq!(
        &image[..6],
        b"\x7fELF\x02\x01",
        "a 64-bit little-endian library"
    );
    let (sections, size, count) = (word(40, 8), word(58, 2), word(60, 2));
    let section = |index: usize| sections + index * size;
    let dynsym = (0..count)
        .map(section)
        .find(|at| word(at + 4, 4) == 11)
        .expect("a .dynsym");
    let (offset, len, strings) = (
        word(dynsym + 24, 8),
        word(dynsym + 32, 8),
        word(dynsym + 40, 4),
    );
    let strings = word(section(strings) + 24, 8);
    (offset..offset + len)
        .step_by(24)
        .filter(|at| word(at + 6, 2) != 0 && image[at + 4] & 0xf == 2)
        .map(|at| {
            let name = &image[strings + word(at, 4)..];
            let end = name.iter().position(|byte| *byte == 0).unwrap();
            String::from_utf8(name[..end].to_vec()).unwrap()
        })
        .collect()
}

/// The folder with both libraries, of the profile that this test was built with; cargo builds no cdylib for a test. They are where
/// `cli/build.rs` has them built, with its settings: a dev build is used as it is.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).expect("target/PROFILE/deps/test");
    let target = folder.join("library");
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--lib",
            "--quiet",
            "--package",
            "preload",
            "--package",
            "preload_inline",
            "--profile",
            profile,
        ])
        .arg("--target-dir")
        .arg(&target)
        .env("CARGO_PROFILE_DEV_CODEGEN_UNITS", "1")
        .status()
        .unwrap();
    assert!(status.success());
    target.join(folder.file_name().expect("target/PROFILE"))
}

#[test]
fn the_readme_lists_exactly_the_exported_symbols() {
    let readme = include_str!("../README.md");
    let listed: BTreeSet<String> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
        .map(|(name, _)| name.to_owned())
        .filter(|name| !name.starts_with("SHUNT_"))
        .collect();
    for name in ["libshunt.so", "libshunt_inline.so"] {
        let file = libraries().join(name);
        assert_eq!(exported(&std::fs::read(file).unwrap()), listed, "{name}");
    }
}
