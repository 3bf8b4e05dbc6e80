//! The fuzz targets' bodies on many damaged seeds without feedback: no coverage is counted and no sanitizer looks on, so
//! an execution costs what the body costs. `fuzz/README.md` says what for, `make fuzz-long` runs it.
//!
//!     unguided MINUTES [WORKERS [SEQUENCE]]      all bodies in turn; a table of executions, seconds and faults
//!     unguided BODY SEQUENCE MILLISECONDS [NUMBER]   one of them, on the inputs of a sequence, or on one input
//!
//! Each body runs in processes of its own, which the first form starts: what ends a process, or keeps it, is a fault of that
//! body, and its input is found again by sequence and number. (Whole engines go from one input to the next: a fault of
//! `engine_program` may need the inputs before it, which the same sequence gives.)

mod damage;
mod rounds;
mod watch;

use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, fs};

use rustix::time::ClockId;

/// An execution that takes more of a processor is a finding: a peer or a program must not keep an engine for so long.
const SLOW: Duration = Duration::from_secs(2);

struct Body {
    name: &'static str,
    run: fn(&[u8]),
    /// Of 100 parts of the time.
    share: u32,
}

const BODIES: [Body; 8] = [
    body("wire_parse", wire::fuzzing::parse_any, 62),
    body("hostif_program", hostif::fuzzing::hostile_program, 5),
    body("tcp_peer", tcp::fuzzing::hostile_peer, 9),
    body("tcp_acks", tcp::fuzzing::hostile_acks, 6),
    body("stack_link", stack::fuzzing::groups::hostile_link, 4),
    body("stack_peer", stack::fuzzing::hostile_peer, 5),
    body("stack_fragments", stack::fuzzing::fragments, 4),
    body("engine_program", engine::fuzzing::hostile_program, 5),
];

const fn body(name: &'static str, run: fn(&[u8]), share: u32) -> Body {
    Body { name, run, share }
}

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let body = arguments
        .first()
        .and_then(|name| BODIES.iter().find(|body| body.name == name));
    match (body, number(0), number(1), number(2)) {
        (Some(body), _, Some(sequence), Some(time_ms)) => {
            run(body, sequence, Duration::from_millis(time_ms), number(3))
        }
        (None, Some(minutes), workers, sequence) => {
            rounds::run(minutes, workers.unwrap_or(1), sequence.unwrap_or(1))
        }
        _ => {
            eprintln!(
                "usage: unguided MINUTES [WORKERS [SEQUENCE]] | unguided BODY SEQUENCE MILLISECONDS [NUMBER]"
            );
            ExitCode::from(2)
        }
    }
}

/// The seeds that are committed, and those that libFuzzer has found here.
fn seeds(body: &Body) -> io::Result<Vec<Vec<u8>>> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut paths = Vec::new();
    for folder in ["seeds", "corpus"] {
        let folder = fuzz.join(folder).join(body.name);
        if folder.exists() {
            for entry in fs::read_dir(folder)? {
                paths.push(entry?.path());
            }
        }
    }
    paths.sort();
    paths.iter().map(fs::read).collect()
}

/// One body for a time. Prints how many inputs were executed; the exit status is that of a fault if one was.
fn run(body: &Body, sequence: u64, time: Duration, only: Option<u64>) -> ExitCode {
    let seeds = match seeds(body) {
        Ok(seeds) if !seeds.is_empty() => seeds,
        found => {
            eprintln!("{}: no seeds: {:?}", body.name, found.err());
            return ExitCode::from(2);
        }
    };
    watch::begin(body.name, sequence);
    let begin = Instant::now();
    let mut input = Vec::new();
    let mut number = only.unwrap_or(0);
    loop {
        damage::input(&seeds, sequence, number, &mut input);
        watch::note(number);
        let before = Instant::now();
        let execute = || catch_unwind(AssertUnwindSafe(|| (body.run)(&input))).is_ok();
        let is_whole = execute();
        number += 1;
        // Others may have had the processor meanwhile: its own clock, which costs a system call, tells.
        let is_slow = before.elapsed() > SLOW && {
            let before = watch::processor_time(ClockId::ThreadCPUTime);
            let took = || watch::processor_time(ClockId::ThreadCPUTime).saturating_sub(before);
            is_whole && execute() && took() > SLOW
        };
        if !is_whole || is_slow {
            eprintln!(
                "{}: input {} of sequence {sequence} {}: {input:?}",
                body.name,
                number - 1,
                if is_slow { "is slow" } else { "fails" },
            );
            println!("{number}");
            return ExitCode::FAILURE;
        }
        if only.is_some() || begin.elapsed() >= time {
            break;
        }
    }
    println!("{number}");
    let _ = io::stdout().flush();
    ExitCode::SUCCESS
}
