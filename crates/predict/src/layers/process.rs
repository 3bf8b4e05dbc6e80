//! `shunt measure layers --process PID`: how a running program, or an engine, divides its threads' time between Shunt's layers and the
//! kernel's. The kernel samples where its threads are; functions tell the layer, by the crate that they are of.

use std::{
    collections::BTreeMap,
    fs,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use load::interrupt::Interrupt;
use serde::Serialize;
use sim::report::document::Document;

use super::{
    PERIOD_NS,
    functions::Functions,
    names::{Layer, Names},
    sys::Sampler,
};

/// Threads that are looked at: those that have run most.
const THREADS_MAX: usize = 16;
/// How often a wait looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// Samples of less time than this say nothing.
const LEAST: u64 = 50;
/// Addresses of the kernel.
const KERNEL: u64 = 1 << 63;

/// Parts of Shunt with their crates.
const CRATES: [(&str, &str); 5] = [
    (
        "library",
        "shim client switch native capi c_memory preload preload_inline supervise",
    ),
    ("rings and windows", "hostif"),
    ("engine", "engine engine_config shards"),
    ("TCP/IP", "stack tcp wire"),
    ("driver", "nic local_peers netem bpf netlink"),
];
const PROGRAM: &str = "program";
const OF_SHUNT: &str = "Shunt, elsewhere";
const OTHER_LIBRARIES: &str = "libc and other libraries";
const KERNEL_ELSEWHERE: &str = "kernel, elsewhere";
/// All parts in the order in which they are told.
const PARTS: [&str; 15] = [
    PROGRAM,
    "library",
    "rings and windows",
    "engine",
    "TCP/IP",
    "driver",
    OF_SHUNT,
    OTHER_LIBRARIES,
    "kernel, system call",
    "kernel, socket",
    "kernel, transport",
    "kernel, network",
    "kernel, link",
    "kernel, driver",
    KERNEL_ELSEWHERE,
];

fn of_kernel(layer: Layer) -> &'static str {
    match layer {
        Layer::Call => "kernel, system call",
        Layer::Socket => "kernel, socket",
        Layer::Transport => "kernel, transport",
        Layer::Network => "kernel, network",
        Layer::Link => "kernel, link",
        Layer::Driver => "kernel, driver",
    }
}

/// A part of the threads' time.
#[derive(Debug, Serialize)]
struct Row {
    part: &'static str,
    time_ms: f64,
    share: f64,
}

#[derive(Debug, Serialize)]
struct Results {
    pid: u32,
    seconds: f64,
    threads: usize,
    /// Threads beyond the first ones, which were not looked at.
    threads_left_out: usize,
    /// What the threads that were looked at ran.
    thread_time_ms: f64,
    samples: u64,
    lost: u64,
    /// Files of Shunt that name no functions.
    stripped: Vec<String>,
    parts: Vec<Row>,
}

/// Looks at a process for so long.
pub fn execute(pid: u32, time: Duration, json: bool) -> anyhow::Result<ExitCode> {
    let interrupt = Interrupt::catch()?;
    let pid = kept_engine(pid).unwrap_or(pid);
    let mut names = Names::of_this_kernel()?;
    let mut threads = threads(pid)?;
    let left_out = threads.len().saturating_sub(THREADS_MAX);
    threads.truncate(THREADS_MAX);
    let open = |(thread, _): &(i32, u64)| Sampler::open(PERIOD_NS, *thread);
    let samplers: Result<Vec<Sampler>, _> = threads.iter().map(open).collect();
    let mut samplers = samplers.context(
        "sampling the process (perf_event_open): run as root, or let kernel.perf_event_paranoid be 1",
    )?;
    let ran = |(thread, _): &(i32, u64)| run_ns(pid, *thread).unwrap_or(0);
    let before: u64 = threads.iter().map(ran).sum();
    let begin = Instant::now();
    samplers.iter().try_for_each(Sampler::start)?;
    while begin.elapsed() < time {
        interrupt.check()?;
        thread::sleep(LOOK.min(time.saturating_sub(begin.elapsed())));
    }
    samplers.iter().try_for_each(Sampler::stop)?;
    let seconds = begin.elapsed().as_secs_f64();
    let ran_ns = threads.iter().map(ran).sum::<u64>().saturating_sub(before);
    let mut files = Files::of(pid)?;
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut lost = 0;
    for sampler in &mut samplers {
        lost += sampler.take(|address, callers| {
            let part = if address >= KERNEL {
                let layer = names.place(callers).map(|(layer, _)| layer);
                layer.map_or(KERNEL_ELSEWHERE, of_kernel)
            } else {
                files.part(address)
            };
            *counts.entry(part).or_default() += 1;
        });
    }
    let samples: u64 = counts.values().sum();
    ensure!(
        samples >= LEAST,
        "process {pid} ran {:.1} ms in {seconds:.1} s, too little to say for what: look while it is busy, or for longer (--seconds)",
        ran_ns as f64 / 1e6
    );
    let thread_time_ms = ran_ns as f64 / 1e6;
    let row = |part: &'static str| {
        let share = *counts.get(part)? as f64 / samples as f64;
        Some(Row {
            part,
            time_ms: share * thread_time_ms,
            share,
        })
    };
    let results = Results {
        pid,
        seconds,
        threads: threads.len(),
        threads_left_out: left_out,
        thread_time_ms,
        samples,
        lost,
        stripped: files.stripped,
        parts: PARTS.into_iter().filter_map(row).collect(),
    };
    output::print_result(json, &results, || report(&results).to_text())?;
    Ok(ExitCode::SUCCESS)
}

/// The engine that a keeper has started, which `shunt status` calls by its keeper's number: a keeper itself only waits.
fn kept_engine(keeper: u32) -> Option<u32> {
    let program = |pid| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = program(keeper).filter(|_| is_engine(keeper))?;
    let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).ok()?;
    let mut children = children
        .split_whitespace()
        .filter_map(|one| one.parse().ok());
    children.find(|pid| is_engine(*pid) && program(*pid).as_ref() == Some(&own))
}

/// Whether the process was started as `shunt engine`.
fn is_engine(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0).skip(1);
    words.next() == Some(b"engine")
}

/// The process's threads with what they have run, those that ran most first.
fn threads(pid: u32) -> anyhow::Result<Vec<(i32, u64)>> {
    let folder = fs::read_dir(format!("/proc/{pid}/task"));
    let folder = folder.with_context(|| format!("--process: there is no process {pid}"))?;
    let thread = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let all = folder.filter_map(Result::ok).filter_map(thread);
    let mut all: Vec<(i32, u64)> = all
        .map(|thread| (thread, run_ns(pid, thread).unwrap_or(0)))
        .collect();
    all.sort_by_key(|(_, ran)| std::cmp::Reverse(*ran));
    Ok(all)
}

/// How long a thread has run, in nanoseconds.
fn run_ns(pid: u32, thread: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// A file that a process has mapped to run it.
struct Mapped {
    begin: u64,
    end: u64,
    place: u64,
    path: String,
}

/// The code of a process.
struct Files {
    pid: u32,
    program: String,
    mapped: Vec<Mapped>,
    /// Those of Shunt that were read.
    functions: BTreeMap<String, Functions>,
    known: BTreeMap<u64, &'static str>,
    stripped: Vec<String>,
}

impl Files {
    /// See proc_pid_maps(5).
    fn of(pid: u32) -> anyhow::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/maps"));
        let text = text.context("reading what the process has mapped: it may have ended")?;
        let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        Ok(Self {
            pid,
            program: program.display().to_string(),
            mapped: text.lines().filter_map(mapped).collect(),
            functions: BTreeMap::new(),
            known: BTreeMap::new(),
            stripped: Vec::new(),
        })
    }

    fn part(&mut self, address: u64) -> &'static str {
        if let Some(part) = self.known.get(&address) {
            return part;
        }
        let within = |file: &&Mapped| (file.begin..file.end).contains(&address);
        let Some(file) = self.mapped.iter().find(within) else {
            return OTHER_LIBRARIES;
        };
        let path = file.path.trim_end_matches(" (deleted)");
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_program = path == self.program.trim_end_matches(" (deleted)");
        let part = match (name.contains("libshunt"), name.starts_with("shunt")) {
            (false, false) if is_program => PROGRAM,
            (false, false) => OTHER_LIBRARIES,
            // `shunt ping` is a program, an engine none.
            (of_library, _) => {
                let is_program = !of_library && !is_engine(self.pid);
                let elsewhere = if is_program { PROGRAM } else { OF_SHUNT };
                let place = address - file.begin + file.place;
                let functions = self.functions.entry(file.path.clone()).or_insert_with(|| {
                    // Also what has no name any more.
                    let link = format!(
                        "/proc/{}/map_files/{:x}-{:x}",
                        self.pid, file.begin, file.end
                    );
                    let bytes = fs::read(link).or_else(|_| fs::read(path));
                    let found = bytes.ok().and_then(|bytes| Functions::of(&bytes));
                    let found = found.unwrap_or_default();
                    if found.is_stripped() {
                        self.stripped.push(name.to_owned());
                    }
                    found
                });
                functions
                    .name(place)
                    .and_then(of_crate)
                    .unwrap_or(elsewhere)
            }
        };
        self.known.insert(address, part);
        part
    }
}

/// A line of maps: where, what may be done, place in the file, device, inode, path.
fn mapped(line: &str) -> Option<Mapped> {
    let mut words = line.split_ascii_whitespace();
    let (begin, end) = words.next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let may_run = words.next()?.contains('x');
    let place = number(words.next()?)?;
    let path = line.find('/').map(|at| line[at..].to_owned())?;
    may_run.then_some(Mapped {
        begin: number(begin)?,
        end: number(end)?,
        place,
        path,
    })
}

/// The part of a function: that of the first crate of Shunt's which its symbol names, since generic code of others works for it.
/// Symbols are mangled in one of two ways: as the Rust reference says (v0), where a crate's name stands behind its length and that
/// behind an underscore, or in the older one, where `..` stands between the parts of a path that is within a name.
fn of_crate(symbol: &str) -> Option<&'static str> {
    let places = CRATES.iter().flat_map(|(part, crates)| {
        let crates = crates.split(' ');
        crates.filter_map(move |name| {
            let counted = format!("{}{name}", name.len());
            let written = [
                format!("_{counted}"),
                format!("_ZN{counted}"),
                format!("${name}.."),
            ];
            let place = written.iter().filter_map(|one| symbol.find(one)).min()?;
            Some((place, *part))
        })
    });
    places.min().map(|(_, part)| part)
}

fn report(results: &Results) -> Document {
    let mut document = Document::new("Where the threads of a process are");
    document.text(format!(
        "Process {}: {} threads ran {:.1} ms in {:.1} s; {} samples, {} lost.",
        results.pid,
        results.threads,
        results.thread_time_ms,
        results.seconds,
        results.samples,
        results.lost
    ));
    let rows = results.parts.iter().map(|row| {
        vec![
            row.part.to_owned(),
            format!("{:.1}", row.time_ms),
            format!("{:.1} %", 100.0 * row.share),
        ]
    });
    document.table(["part", "ms", "share"], rows.collect());
    if results.threads_left_out > 0 {
        document.text(format!(
            "{} threads that had run less were not looked at.",
            results.threads_left_out
        ));
    }
    for name in &results.stripped {
        document.text(format!(
            "{name} names no functions (stripped): its parts are not told apart."
        ));
    }
    document.text(
        "A function that was compiled into another one counts for that one; copies are mostly libc's, and those within a system call the kernel's.".to_owned(),
    );
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_belongs_to_the_first_crate_of_shunt_that_its_symbol_names() {
        for (symbol, part) in [
            ("_RNvMs_NtNtCs5_5stack3tcp8transmit", Some("TCP/IP")),
            (
                "_RINvNtCsgEmf_4core5slice4sortNtCs4X_3nic6DriverNtCs5_5stack3tcpE",
                Some("driver"),
            ),
            ("_RNvCs7_6engine4poll", Some("engine")),
            ("_RNvCs7_14preload_inline5start", Some("library")),
            (
                "_ZN3tcp4send9Something13poll_transmit17h01E",
                Some("TCP/IP"),
            ),
            (
                "_ZN4core3ptr42drop_in_place$LT$shim..epoll..Members$GT$17h01E",
                Some("library"),
            ),
            (
                "_ZN6hostif6header46_$LT$impl$u20$client..Socket$GT$5calls17h01E",
                Some("rings and windows"),
            ),
            ("_RNvCs7_3std2io", None),
            ("memcpy", None),
        ] {
            assert_eq!(of_crate(symbol), part, "{symbol}");
        }
    }

    #[test]
    fn every_part_has_its_place_in_the_table() {
        let of_shunt = CRATES.iter().map(|(part, _)| *part);
        let all = of_shunt.chain(Layer::ALL.map(of_kernel));
        for part in all.chain([PROGRAM, OF_SHUNT, OTHER_LIBRARIES, KERNEL_ELSEWHERE]) {
            assert_eq!(
                PARTS.iter().filter(|one| **one == part).count(),
                1,
                "{part}"
            );
        }
    }

    #[test]
    fn a_line_of_maps_is_read_where_it_may_run() {
        let line = "7f00-7fff r-xp 00001000 08:01 42   /usr/lib/a b.so (deleted)";
        let found = mapped(line).unwrap();
        assert_eq!(
            (found.begin, found.end, found.place),
            (0x7f00, 0x7fff, 0x1000)
        );
        assert_eq!(found.path, "/usr/lib/a b.so (deleted)");
        assert!(mapped("7f00-7fff r--p 0 08:01 42 /x").is_none());
        assert!(mapped("7f00-7fff r-xp 0 00:00 0 [vdso]").is_none());
    }
}
