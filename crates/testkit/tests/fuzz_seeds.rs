//! The fuzz targets' bodies on the committed seeds, as they are and damaged: what a fuzzer has once reached
//! stays reached, on the stable compiler. `fuzz/README.md` says where the seeds come from.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::fs;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};
use testkit::workspace::root;

/// Longest input that a damaged seed may grow to; the longest that libFuzzer was allowed.
const INPUT_MAX_BYTES: usize = 4_096;

/// Every input that is committed for a target.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = root().join("fuzz/seeds").join(target);
    let mut paths: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// What is done to a seed; positions are shares of its length.
#[derive(Clone, Debug)]
enum Damage {
    Set(Index, u8),
    Remove(Index, u8),
    Repeat(Index, u8),
    /// Goes on as another seed does.
    Splice(Index, Vec<u8>, Index),
}

impl Damage {
    fn strategy(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Self> {
        let index = any::<Index>;
        prop_oneof![
            4 => (index(), any::<u8>()).prop_map(|(at, value)| Self::Set(at, value)),
            1 => (index(), 1..32_u8).prop_map(|(at, len)| Self::Remove(at, len)),
            1 => (index(), 1..32_u8).prop_map(|(at, len)| Self::Repeat(at, len)),
            1 => (index(), select(seeds), index())
                .prop_map(|(at, other, from)| Self::Splice(at, other, from)),
        ]
    }

    fn apply(&self, input: &mut Vec<u8>) {
        if input.is_empty() {
            return;
        }
        let range = |at: &Index, len: u8| {
            let start = at.index(input.len());
            start..input.len().min(start + usize::from(len))
        };
        match self {
            Self::Set(at, value) => {
                let at = at.index(input.len());
                input[at] = *value;
            }
            Self::Remove(at, len) => drop(input.drain(range(at, *len))),
            Self::Repeat(at, len) => input.extend_from_within(range(at, *len)),
            Self::Splice(at, other, from) => {
                input.truncate(at.index(input.len()));
                if !other.is_empty() {
                    input.extend_from_slice(&other[from.index(other.len())..]);
                }
            }
        }
        input.truncate(INPUT_MAX_BYTES);
    }
}

/// Runs a body on the seeds of its target, and on as many damaged ones as `PROPTEST_CASES` says.
fn run(target: &str, body: fn(&[u8])) {
    let seeds = seeds(target);
    for seed in &seeds {
        body(seed);
    }
    let damage = proptest::collection::vec(Damage::strategy(seeds.clone()), 1..8);
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::default()
    });
    let result = runner.run(&(select(seeds), damage), |(mut input, damage)| {
        for one in damage {
            one.apply(&mut input);
        }
        body(&input);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{target}: {error}"));
}

#[test]
fn wire_parse() {
    run("wire_parse", wire::fuzzing::parse_any);
}

#[test]
fn tcp_peer() {
    run("tcp_peer", tcp::fuzzing::hostile_peer);
}

#[test]
fn tcp_acks() {
    run("tcp_acks", tcp::fuzzing::hostile_acks);
}

#[test]
fn stack_peer() {
    run("stack_peer", stack::fuzzing::hostile_peer);
}

#[test]
fn stack_link() {
    run("stack_link", stack::fuzzing::groups::hostile_link);
}

#[test]
fn stack_fragments() {
    run("stack_fragments", stack::fuzzing::fragments);
}

#[test]
fn hostif_program() {
    run("hostif_program", hostif::fuzzing::hostile_program);
}

#[test]
fn engine_program() {
    run("engine_program", engine::fuzzing::hostile_program);
}

#[test]
fn every_target_is_here() {
    let mut targets: Vec<_> = fs::read_dir(root().join("fuzz/fuzz_targets"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    targets.sort();
    let mut folders: Vec<_> = fs::read_dir(root().join("fuzz/seeds"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    folders.sort();
    assert_eq!(targets, folders);
    let here = include_str!("fuzz_seeds.rs");
    for target in targets {
        assert!(here.contains(&format!("run(\"{target}\"")), "{target}");
    }
}
