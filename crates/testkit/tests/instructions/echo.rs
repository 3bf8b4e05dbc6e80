//! Instructions of program, library and engine for each message of 64 bytes that an echo server with an engine inside answers, over TCP and over UDP, its
//! client on the kernel (`echo.c`). The most frequent count of some hundred is the figure: seldom another thread runs in between, or
//! a poll looks at everything.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{host, world};
use world::World;

use super::{judge, optimised, supported};

const TEST: &str = "echo instructions";
/// Where the server listens, and what its engine owns.
const ADDRESS: &str = "10.77.0.12";
const ECHOES: &str = "3200";
/// How messages come, and which function of the program counts them.
const KINDS: [(&str, &str, &str); 2] = [
    ("echo", "tcp", "counted_echo"),
    ("datagram", "udp", "counted_datagram"),
];

/// Counts of single echoes, and how often each came.
fn counts(folder: &Path) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
        let total = total.and_then(|total| total.trim().parse().ok());
        // What is left at the end was not counted.
        if let Some(total @ 1..) = total {
            *counts.entry(total).or_default() += 1;
        }
    }
    counts
}

/// Runs the echo server under callgrind, preloaded as by `shunt run`, which valgrind would hide: it executes one program after the other.
fn measured(
    world: &World,
    (binary, library): (&str, &Path),
    (name, kind, counted): (&str, &str, &str),
) -> BTreeMap<u64, usize> {
    let folder = PathBuf::from(world.path(name));
    std::fs::create_dir(&folder).unwrap();
    let out = format!("--callgrind-out-file={}/count", folder.display());
    let client = format!("/proc/{}/ns/net", host(&world.lab, "a").holder_pid());
    let (dump, toggle) = (
        format!("--dump-after={counted}"),
        format!("--toggle-collect={counted}"),
    );
    let words = [
        "valgrind",
        "--tool=callgrind",
        &dump,
        &toggle,
        &out,
        binary,
        &client,
        ADDRESS,
        ECHOES,
        kind,
    ];
    let settings = format!("nic=eth0 address={ADDRESS}/24 driver=af_packet");
    let mut server = world.command("b", &words);
    server
        .env("LD_PRELOAD", library)
        .env(hostif::LIBRARY_VARIABLE, library)
        .env(hostif::ENGINE_VARIABLE, "@shunt/test/echo")
        .env(hostif::INLINE_VARIABLE, settings)
        .env(hostif::POLICY_VARIABLE, "engine-only")
        .env(hostif::REQUIRE_VARIABLE, "1");
    let finished = world::finish(world::launch("echo", server));
    let (status, stdout, stderr) = world::seen(&finished);
    assert_eq!((status, stdout.trim()), (Some(0), "done"), "{stderr}");
    counts(&folder)
}

#[test]
fn an_echo_costs_no_more_instructions_than_recorded() {
    if !supported(TEST) || !world::can_run(TEST, &["cc"]) {
        return;
    }
    let world = World::without_engine("echo-instructions", world::Mode::Inline);
    if world.lab.rootless() {
        return world::skip(TEST, "a socket in another host's network needs root");
    }
    let library = optimised("preload_inline").join("libshunt_inline.so");
    let binary = world.path("program");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/instructions/echo.c");
    let made = Command::new("cc")
        .args(["-O1", "-o", &binary, source])
        .status();
    assert!(made.is_ok_and(|status| status.success()), "cc");
    let mut now = String::new();
    for kind in KINDS {
        let counts = measured(&world, (&binary, &library), kind);
        let most = counts.iter().max_by_key(|(_, times)| **times);
        let (count, times) = most.unwrap();
        println!(
            "{}: {count} instructions {times} times, of {counts:?}",
            kind.0
        );
        writeln!(now, "{} {count}", kind.0).unwrap();
    }
    judge("echo.txt", &now, &KINDS.map(|kind| kind.0));
}
