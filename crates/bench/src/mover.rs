//! `shunt bench mover`: large files, by `shunt send` and by what people use instead, beside the disk's own rate; and
//! the loops of the `zero-copy` paper beside its tables.
//!
//! Each case moves the same file from the page cache over loopback, once per run; ratios are taken within runs.

mod case;
pub mod disk;
mod own;
mod pair;
mod paper;
mod peers;
mod report;
mod results;
mod site;
mod sockets;
mod turns;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use load::interrupt::{self, Interrupt};

use case::Case;
use paper::{Cell, Offset, Sink};
use report::{FolderReport, Report, Shown, Subject};
use site::Site;
use turns::Table;

/// Why files do not travel over UDP.
pub const NO_UDP: &str = "files travel over TCP only: over UDP loss recovery, congestion control and pacing would have to be \
     made again, and on a path that keeps up that is no faster";

/// Large files: `shunt send` beside scp, rsync and others, the disk's own rate, and the zero-copy paper's loops.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt bench mover --quick
  shunt bench mover --dir /data --dir /dev/shm --size 10G
  shunt bench mover --size 1G,4G,10G --only own               does the rate sag as files grow?
  shunt bench mover --only paper --offset fixed,advancing --sink null,file --counters
  shunt bench mover --fresh --only own,peers                  in memory that nobody has touched lately
  shunt bench mover --only sockets                            over Shunt's own TCP, between two hosts of a lab
  shunt bench mover --internal --counters                     no disk: calls, copies and switches

A run with a fixed offset sends the same part of the file again and again. It is what the paper measured first;
it is no transfer, and labelled so.
Ctrl-C ends it, removes its files and prints what was measured so far.
Exit status: 0 measured, 1 a run failed, or nothing could be measured in a folder, 2 wrong usage.")]
pub struct Arguments {
    /// Folder on the file system to measure; may be given several times [default: . and /dev/shm]
    #[arg(long, value_name = "FOLDER")]
    dir: Vec<PathBuf>,
    /// Sizes of the file, in bytes or with K, M, G (powers of two); all beyond the first show how the rate
    /// changes with the size [default: 4G; with --quick 256M]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = size)]
    size: Vec<u64>,
    /// Runs of each case [default: 5; with --quick 2]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Few runs of a small file
    #[arg(long)]
    quick: bool,
    /// What to measure [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Measured>,
    /// Offsets of the paper's loops
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "fixed,advancing"
    )]
    offset: Vec<Offset>,
    /// Where the paper's loops put what they receive
    #[arg(long, value_enum, value_delimiter = ',', default_value = "null,file")]
    sink: Vec<Sink>,
    /// The paper's internal transfer only: its loops, into memory
    #[arg(long, conflicts_with_all = ["only", "sink"])]
    internal: bool,
    /// Before each run let free memory lie for ten seconds: the host of a virtual machine takes it back, and to touch it
    /// again is dear
    #[arg(long)]
    fresh: bool,
    /// Show system calls, copied bytes and context switches of the paper's loops
    #[arg(long)]
    counters: bool,
    /// Refused: see below
    #[arg(long, hide = true)]
    udp: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// A part of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Measured {
    /// shunt send and recv in their modes, and the disk by itself
    Own,
    /// What people use instead
    Peers,
    /// The paper's loops
    Paper,
    /// shunt send and recv between two hosts of a lab, on the kernel's sockets and on Shunt's
    Sockets,
}

/// The default place that is no disk.
const MEMORY_FOLDER: &str = "/dev/shm";

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.udp {
        bail!("--udp: {}", NO_UDP);
    }
    let interrupt = Interrupt::catch()?;
    let (runs, size) = if arguments.quick {
        (2, 256 << 20)
    } else {
        (5, 4 << 30)
    };
    let runs = arguments.runs.unwrap_or(runs);
    let sizes = match arguments.size.as_slice() {
        [] => vec![size],
        sizes => sizes.to_vec(),
    };
    let default = [PathBuf::from("."), PathBuf::from(MEMORY_FOLDER)];
    let folders = match arguments.dir.as_slice() {
        [] => &default[..],
        folders => folders,
    };
    for folder in &arguments.dir {
        let found = std::fs::metadata(folder).with_context(|| dir_flag(folder))?;
        ensure!(found.is_dir(), "{}: not a folder", dir_flag(folder));
    }
    let mut parts = Vec::new();
    for folder in folders {
        let mut tables: Vec<Table> = Vec::new();
        for (index, &bytes) in sizes.iter().enumerate() {
            let made = tables.iter().map(|table| table.site.bytes);
            let largest = made.max().unwrap_or(0);
            match Site::create(folder, bytes, largest, interrupt.clone()) {
                Ok(site) => tables.push(Table::of(site, arguments.cases(index > 0))),
                Err(error) if interrupt.came() && parts.is_empty() => return Err(error),
                Err(_) if interrupt.came() => {
                    return tell(arguments, parts, runs).map(|_| interrupt::STATUS.into());
                }
                Err(error) => {
                    parts.push(FolderReport::skipped(folder, bytes, format!("{error:#}")))
                }
            }
        }
        turns::measure(&mut tables, runs, arguments.fresh)?;
        parts.extend(
            tables
                .into_iter()
                .map(|table| FolderReport::of(&table.site, table.results)),
        );
        if interrupt.came() {
            return tell(arguments, parts, runs).map(|_| interrupt::STATUS.into());
        }
    }
    tell(arguments, parts, runs)
}

/// The paper's loops into memory, one transfer that is stored, and the disk by itself.
pub(crate) fn short(
    folder: &Path,
    bytes: u64,
    runs: u32,
    interrupt: Interrupt,
) -> anyhow::Result<FolderReport> {
    let site = Site::create(folder, bytes, 0, interrupt)?;
    let mut cases = own::limits();
    cases.extend(
        own::cases()
            .into_iter()
            .filter(|case| case.key == own::XXH3),
    );
    let offsets = [Offset::Fixed, Offset::Advancing];
    let loops = Cell::all(&offsets, &[Sink::Null]).into_iter();
    cases.extend(loops.map(Cell::case));
    let mut tables = vec![Table::of(site, cases)];
    turns::measure(&mut tables, runs, false)?;
    let table = tables.pop().context("invariant: there is one table")?;
    Ok(FolderReport::of(&table.site, table.results))
}

/// The pairs of the paper's loops: what they ask, and the cases of read(2) with write(2) and of sendfile(2).
pub(crate) fn paper_pairs() -> [(&'static str, String, String); 2] {
    let key = |method, offset| {
        let sink = Sink::Null;
        Cell {
            method,
            offset,
            sink,
        }
        .key()
    };
    let pair = |what, offset| {
        use ::mover::Method::{ReadWrite, Sendfile};
        (what, key(ReadWrite, offset), key(Sendfile, offset))
    };
    [
        ("sendfile by read/write, fixed offset", Offset::Fixed),
        (
            "sendfile by read/write, advancing offset",
            Offset::Advancing,
        ),
    ]
    .map(|(what, offset)| pair(what, offset))
}

/// The names of the cases of [`short`].
pub(crate) mod keys {
    pub use super::own::{DISK_WRITE, XXH3};
}

fn dir_flag(folder: &Path) -> String {
    format!("--dir {}", folder.display())
}

/// Prints what was measured; the exit status says whether a run of ours went wrong.
fn tell(arguments: &Arguments, parts: Vec<FolderReport>, runs: u32) -> anyhow::Result<ExitCode> {
    let shown = Shown {
        runs,
        counters: arguments.counters || arguments.internal,
        is_fresh: arguments.fresh,
    };
    print(&Report::of(Subject::Mover, parts, shown), arguments.json)
}

fn print(report: &Report, json: bool) -> anyhow::Result<ExitCode> {
    output::print_result(json, report, || report.text())?;
    Ok(ExitCode::from(u8::from(report.failed())))
}

impl Arguments {
    fn measures(&self, what: Measured) -> bool {
        if self.internal {
            return what == Measured::Paper;
        }
        self.only.is_empty() || self.only.contains(&what)
    }

    /// What is measured; of sizes beyond the first only how the rate changes.
    fn cases(&self, is_further_size: bool) -> Vec<Case> {
        let mut cases = Vec::new();
        if self.measures(Measured::Own) || self.measures(Measured::Peers) {
            cases.extend(own::limits());
        }
        if self.measures(Measured::Own) {
            cases.extend(own::cases());
        } else if self.measures(Measured::Peers) {
            // What they are compared with.
            cases.extend(
                own::cases()
                    .into_iter()
                    .filter(|case| case.key == own::XXH3),
            );
        }
        if is_further_size {
            cases.retain(|case| [own::DISK_WRITE, own::XXH3, own::BLAKE3].contains(&&*case.key));
            return cases;
        }
        if self.measures(Measured::Peers) {
            cases.extend(peers::cases());
        }
        if self.measures(Measured::Sockets) {
            cases.extend(sockets::cases());
        }
        if self.measures(Measured::Paper) {
            let sinks = if self.internal {
                &[Sink::Null][..]
            } else {
                &self.sink
            };
            cases.extend(Cell::all(&self.offset, sinks).into_iter().map(Cell::case));
        }
        cases
    }
}

/// 4096, 512M, 10G.
fn size(text: &str) -> Result<u64, String> {
    const MOST: u64 = 16 << 40;
    let wrong = || format!("{text:?} is no size: use for example 512M or 10G (powers of two)");
    let (number, shift) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 10),
        Some('m' | 'M') => (&text[..text.len() - 1], 20),
        Some('g' | 'G') => (&text[..text.len() - 1], 30),
        Some('t' | 'T') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let bytes = number.checked_mul(1 << shift).ok_or_else(wrong)?;
    if (1..=MOST).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_and_bounded() {
        assert_eq!(size("10G"), Ok(10 << 30));
        assert_eq!(size("512m"), Ok(512 << 20));
        assert_eq!(size("4096"), Ok(4096));
        for wrong in ["", "0", "G", "-1M", "1.5G", "99999999999T", "17T"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_case_has_a_name_of_its_own_and_further_sizes_only_the_main_ones() {
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: Arguments,
        }
        let parse = |line: &[&str]| {
            let line = ["x"].iter().chain(line).copied();
            let parsed: Line = clap::Parser::parse_from(line);
            parsed.arguments
        };
        let cases = parse(&[]).cases(false);
        let keys: std::collections::BTreeSet<&str> =
            cases.iter().map(|case| case.key.as_str()).collect();
        assert_eq!(keys.len(), cases.len());
        assert_eq!(parse(&[]).cases(true).len(), 3);
        let peers = parse(&["--only", "peers"]).cases(false);
        let own = |case: &&Case| case.group == case::Group::Own;
        assert_eq!(peers.iter().filter(own).count(), 1);
        let internal = parse(&["--internal"]).cases(false);
        assert_eq!(internal.len(), 4);
        assert!(internal.iter().all(|case| case.group == case::Group::Paper));
    }
}
