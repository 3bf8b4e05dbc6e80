//! What the preloaded library costs every program that it is loaded into: its code, and the processor time of a start.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::path::PathBuf;
use std::process::Command;

use testkit::{shunt, world};

/// Code and constants of the ordinary library. Tests usually run in the dev profile, where it is not optimised for the whole
/// and has checks of arithmetic; what users get is the release one's, with the second bound.
const DEV_TEXT_MAX: u64 = 1_620_000;
const RELEASE_TEXT_MAX: u64 = 1_500_000;

/// Processor time of a program's start over that without the library.
const START_US_MAX: f64 = 500.0;
/// Starts of each kind.
const STARTS: &str = "200";

/// What `shunt run` preloads with these options.
fn library(options: &[&str]) -> PathBuf {
    let words = ["run", "--policy", "kernel-only"];
    let done = Command::new(shunt())
        .args(words)
        .args(options)
        .args(["--", "printenv", "LD_PRELOAD"])
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{error}");
    String::from_utf8(done.stdout).unwrap().trim().into()
}

/// Bytes of the sections that are mapped and never written, as size(1) counts text: code, constants, unwind tables, relocations
/// (elf(5), 64-bit little-endian).
fn text(image: &[u8]) -> u64 {
    let word = |at: usize, len: usize| {
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(&image[at..at + len]);
        u64::from_le_bytes(bytes)
    };
    assert_eq!(&image[..6], b"\x7fELF\x02\x01");
    let (sections, size, count) = (word(40, 8), word(58, 2), word(60, 2));
    let (write, allocate) = (1, 2);
    (0..count)
        .map(|number| usize::try_from(sections + number * size).unwrap())
        .filter(|at| word(at + 8, 8) & (write | allocate) == allocate)
        .map(|at| word(at + 32, 8))
        .sum()
}

/// Where a program has threads, to enlarge the table later would wait for a grace period of RCU.
#[test]
fn a_program_has_room_for_private_descriptors_before_it_has_threads() {
    let size_with = |library: &str| {
        let line = ["FDSize", "/proc/self/status"];
        let mut grep = Command::new("grep");
        let done = grep.args(line).env("LD_PRELOAD", library).output().unwrap();
        let said = String::from_utf8(done.stdout).unwrap();
        let size = said.split_whitespace().last().unwrap();
        size.parse::<i32>().unwrap()
    };
    let library = library(&[]);
    let (plain, preloaded) = (size_with(""), size_with(library.to_str().unwrap()));
    assert!(
        plain <= client::first_private() && preloaded > client::first_private(),
        "{plain} numbers, and {preloaded} with the library"
    );
}

#[test]
fn the_preloaded_library_is_small() {
    let is_release = shunt().parent().unwrap().ends_with("release");
    let most = if is_release {
        RELEASE_TEXT_MAX
    } else {
        DEV_TEXT_MAX
    };
    let bytes = text(&std::fs::read(library(&[])).unwrap());
    println!("{bytes} bytes of code and constants");
    assert!(bytes <= most, "{bytes} bytes, more than {most}");
}

/// Starts `true` with and without the library by turns, and prints by how much the least processor times of a start
/// differ, in microseconds. The least, since what else runs on the machine only adds.
const DIFFERENCE: &str = "
import os, sys
program, library, starts = sys.argv[1], sys.argv[2], int(sys.argv[3])
def start(environment):
    pid = os.posix_spawn(program, ['true'], environment)
    _, status, usage = os.wait4(pid, 0)
    assert status == 0
    return usage.ru_utime + usage.ru_stime
kinds = [{'PATH': '/bin'}, {'PATH': '/bin', 'LD_PRELOAD': library}]
times = [[], []]
for _ in range(starts):
    for kind, environment in enumerate(kinds):
        times[kind].append(start(environment))
print((min(times[1]) - min(times[0])) * 1e6)
";

#[test]
fn the_preloaded_library_adds_little_to_the_start_of_a_program() {
    if !world::missing(&["python3"]).is_empty() {
        return world::skip("preload-start", "not installed: python3");
    }
    let library = library(&[]);
    let done = Command::new("python3")
        .args(["-c", DIFFERENCE, "/bin/true"])
        .arg(&library)
        .arg(STARTS)
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{error}");
    let us: f64 = String::from_utf8(done.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    println!("{us:.0} us of processor time more for a start");
    assert!(us <= START_US_MAX, "{us:.0} us");
}
