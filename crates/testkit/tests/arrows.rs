//! Holds the direction of dependencies: every arrow between our crates stands in the table here,
//! and in ARCHITECTURE.md. See docs/decisions/0001-crates-and-arrows.md. `arrows/circles.rs` looks inside the crates.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

#[path = "arrows/circles.rs"]
mod circles;

use std::collections::{BTreeMap, BTreeSet};

use testkit::workspace;
use toml::{Table, Value};

/// Crate → crates of ours it may use. A crate that is missing here fails the test.
const ARROWS: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("tcp", &["wire"]),
    ("stack", &["tcp", "wire"]),
    ("netlink", &["wire"]),
    ("bpf", &[]),
    ("nic", &["wire", "netlink", "bpf"]),
    ("netem", &["nic", "wire"]),
    ("hostif", &[]),
    ("local_peers", &["nic", "hostif", "wire"]),
    ("engine_config", &["stack", "tcp", "nic", "hostif"]),
    (
        "shards",
        &["engine_config", "stack", "hostif", "netlink", "wire"],
    ),
    (
        "engine",
        &[
            "engine_config",
            "shards",
            "stack",
            "tcp",
            "wire",
            "nic",
            "netlink",
            "hostif",
        ],
    ),
    ("client", &["hostif", "bpf"]),
    ("switch", &["client", "hostif", "bpf"]),
    ("c_memory", &[]),
    (
        "shim",
        &["switch", "client", "hostif", "bpf", "elf", "c_memory"],
    ),
    ("preload", &["shim"]),
    // For `shunt run --engine-mode inline` the engine lives in the preload library.
    (
        "preload_inline",
        &["shim", "client", "hostif", "engine", "local_peers", "nic"],
    ),
    ("elf", &[]),
    ("native", &["switch", "client", "hostif"]),
    ("capi", &["client", "native"]),
    ("supervise", &["switch", "client", "hostif", "bpf"]),
    ("packetbench", &["stack", "tcp", "wire"]),
    ("lab", &["netlink"]),
    ("scripts", &["lab"]),
    ("sim", &[]),
    ("dash", &["sim"]),
    ("mover", &[]),
    ("output", &[]),
    ("statistics", &[]),
    ("confine", &["bpf"]),
    ("observe", &["sim"]),
    (
        "load",
        &["output", "statistics", "lab", "hostif", "observe"],
    ),
    (
        "bench",
        &[
            "output",
            "statistics",
            "load",
            "observe",
            "lab",
            "netem",
            "hostif",
            "engine",
            "sim",
            "mover",
        ],
    ),
    (
        "predict",
        &["output", "statistics", "load", "observe", "sim"],
    ),
    (
        "inspect",
        &[
            "output", "observe", "stack", "nic", "netlink", "hostif", "switch", "lab", "dash",
        ],
    ),
    (
        "meter",
        &[
            "output",
            "statistics",
            "lab",
            "netlink",
            "hostif",
            "bpf",
            "nic",
        ],
    ),
    (
        "cli",
        &[
            "output",
            "bench",
            "load",
            "observe",
            "predict",
            "inspect",
            "meter",
            "wire",
            "tcp",
            "nic",
            "netem",
            "bpf",
            "confine",
            "netlink",
            "hostif",
            "engine",
            "client",
            "native",
            "lab",
            "dash",
            "mover",
            "elf",
            "supervise",
        ],
    ),
    (
        "testkit",
        &[
            "wire", "tcp", "stack", "nic", "netem", "hostif", "engine", "client", "native", "lab",
            "mover",
        ],
    ),
];

/// Crates of ours that the tests of any may use; what ships uses `netem` only where the table says so.
const FOR_TESTS: &[&str] = &["testkit", "netem", "local_peers"];

/// Crates that make no system call, and what would let them.
const PURE: &[&str] = &["wire", "tcp", "stack", "sim", "statistics"];
const SYSTEM_CRATES: &[&str] = &[
    "libc",
    "rustix",
    "nix",
    "tokio",
    "mio",
    "socket2",
    "getrandom",
    "signal-hook",
];

/// The dependencies of one kind, by package name.
fn dependencies(manifest: &Table, kind: &str) -> BTreeSet<String> {
    let mut tables: Vec<&Value> = manifest.get(kind).into_iter().collect();
    // [target.'cfg(…)'.dependencies]
    if let Some(Value::Table(targets)) = manifest.get("target") {
        tables.extend(targets.values().filter_map(|target| target.get(kind)));
    }
    let entries = tables.into_iter().filter_map(Value::as_table).flatten();
    entries
        .map(|(name, value)| {
            value
                .get("package")
                .and_then(Value::as_str)
                .unwrap_or(name)
                .to_owned()
        })
        .collect()
}

fn parsed() -> BTreeMap<String, Table> {
    let parse = |text: String| text.parse::<Table>().unwrap();
    workspace::manifests()
        .into_iter()
        .map(|(name, text)| (name, parse(text)))
        .collect()
}

#[test]
fn every_dependency_between_our_crates_is_an_allowed_arrow() {
    let manifests = parsed();
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let mut wrong = Vec::new();
    for (name, manifest) in &manifests {
        let Some(arrows) = allowed.get(name.as_str()) else {
            wrong.push(format!("crate {name} is not in the table of arrows"));
            continue;
        };
        for kind in ["dependencies", "build-dependencies", "dev-dependencies"] {
            for dependency in dependencies(manifest, kind)
                .iter()
                .filter(|name| manifests.contains_key(*name))
            {
                let for_tests = kind == "dev-dependencies" && FOR_TESTS.contains(&&**dependency);
                if !for_tests && !arrows.contains(&dependency.as_str()) {
                    wrong.push(format!("{name} → {dependency} ({kind})"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "not allowed:\n  {}", wrong.join("\n  "));
}

#[test]
fn the_table_of_arrows_has_no_circle_and_names_only_crates_that_exist() {
    let manifests = parsed();
    // Each round takes away the crates whose arrows all lead to crates already taken.
    let mut settled: BTreeSet<&str> = BTreeSet::new();
    while settled.len() < ARROWS.len() {
        let next: Vec<&str> = ARROWS
            .iter()
            .filter(|(name, arrows)| {
                !settled.contains(name) && arrows.iter().all(|to| settled.contains(to))
            })
            .map(|(name, _)| *name)
            .collect();
        assert!(
            !next.is_empty(),
            "circle, or an arrow to an unknown crate, beyond {settled:?}"
        );
        settled.extend(next);
    }
    for name in settled {
        assert!(
            manifests.contains_key(name),
            "{name} is in the table but not in crates/"
        );
    }
}

#[test]
fn pure_crates_use_no_crate_that_calls_the_system() {
    let manifests = parsed();
    for name in PURE {
        let used = dependencies(&manifests[*name], "dependencies");
        let system: Vec<&&str> = SYSTEM_CRATES
            .iter()
            .filter(|system| used.contains(**system))
            .collect();
        assert!(system.is_empty(), "{name} uses {system:?}");
    }
}
