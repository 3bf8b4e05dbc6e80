//! Tables, for people and as JSON.

use std::{fs, path::Path};

use serde::Serialize;

use super::{
    case::{Counters, Group},
    own,
    paper::{Cell, Offset, Sink},
    results::{Missing, Results},
    site::{FileSystem, Site, size_text},
};
use crate::{tools, unit::number};
use output::Table;
use statistics::Summary;

const SPREAD: &str = "spread = (largest - smallest) / median";
const UNITS: &str = "Gbit = 10^9 bit, GB = 10^9 bytes, GiB = 2^30 bytes";
/// See tcp(7).
const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

#[derive(Debug, Serialize)]
pub struct Report {
    measured: Subject,
    version: &'static str,
    kernel: String,
    cores: usize,
    /// What others than `shunt` pace and probe by: shunt chooses reno for what stays on this host. Of a disk nothing is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    congestion_control: Option<String>,
    #[serde(flatten)]
    shown: Shown,
    parts: Vec<FolderReport>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// Transfers of files.
    Mover,
    /// A disk by itself.
    Disk,
}

/// How it was measured, and what of it is wanted.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Shown {
    pub runs: u32,
    /// What is counted of the paper's loops.
    #[serde(rename = "shows_counters")]
    pub counters: bool,
    /// In memory that nobody has touched lately.
    #[serde(rename = "fresh_memory")]
    pub is_fresh: bool,
}

/// One place and size.
#[derive(Debug, Serialize)]
pub struct FolderReport {
    pub folder: String,
    pub file_system: Option<FileSystem>,
    pub bytes: u64,
    pub skipped: Option<String>,
    pub rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub struct Row {
    pub key: String,
    pub title: String,
    pub group: Group,
    pub gbit_per_s: Option<Summary>,
    /// Of both ends together; threads of the kernel that write behind are not in it.
    pub cpu_s_per_gb: Option<Summary>,
    /// Of the disk's own rate in the same run.
    pub of_disk: Option<Summary>,
    counters: Option<Counters>,
    intervals: Vec<(f64, u64)>,
    pub paper_gbit_per_s: Option<f64>,
    pub skipped: Option<String>,
    pub failed: Option<String>,
}

impl FolderReport {
    /// Nothing was measured.
    pub fn skipped(folder: &Path, bytes: u64, why: String) -> Self {
        Self {
            folder: folder.display().to_string(),
            file_system: None,
            bytes,
            skipped: Some(why),
            rows: Vec::new(),
        }
    }

    /// Sums up what was measured.
    pub fn of(site: &Site, results: Results) -> Self {
        Self {
            folder: site.file_system.folder.display().to_string(),
            file_system: Some(site.file_system.clone()),
            bytes: site.bytes,
            skipped: None,
            rows: rows(&results),
        }
    }

    pub fn row(&self, key: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.key == key)
    }

    pub fn place(&self) -> String {
        let kind = self.file_system.as_ref().map_or("?", |fs| &fs.kind);
        format!("{kind}, {}", size_text(self.bytes))
    }
}

pub fn rows(results: &Results) -> Vec<Row> {
    let cells = Cell::all(
        &[Offset::Fixed, Offset::Advancing],
        &[Sink::Null, Sink::File],
    );
    let row = |(case, missing): (&super::case::Case, Option<&Missing>)| {
        let key = case.key.as_str();
        let last = results.runs(key).last().map(|(_, ran)| ran);
        let cell = cells.iter().find(|cell| cell.key() == key);
        let is_stored = case.stores || key == own::DISK_WRITE;
        Row {
            key: key.to_owned(),
            title: case.title.clone(),
            group: case.group,
            gbit_per_s: results.rate(key),
            cpu_s_per_gb: results.cpu(key),
            of_disk: is_stored
                .then(|| results.ratio(key, own::DISK_WRITE))
                .flatten(),
            counters: last.and_then(|ran| ran.counters),
            intervals: last.map_or_else(Vec::new, |ran| ran.intervals.clone()),
            paper_gbit_per_s: cell.and_then(|cell| cell.published()).map(|(rate, _)| rate),
            skipped: match missing {
                Some(Missing::Skipped(why)) => Some(why.clone()),
                _ => None,
            },
            failed: match missing {
                Some(Missing::Failed(why)) => Some(why.clone()),
                _ => None,
            },
        }
    };
    results.iter().map(row).collect()
}

impl Report {
    /// Sums up all places and sizes.
    pub fn of(measured: Subject, parts: Vec<FolderReport>, shown: Shown) -> Self {
        let congestion = || fs::read_to_string(CONGESTION).ok();
        Self {
            measured,
            version: env!("CARGO_PKG_VERSION"),
            kernel: tools::kernel_release(),
            cores: tools::processors(),
            congestion_control: (measured == Subject::Mover)
                .then(congestion)
                .flatten()
                .map(|name| name.trim().to_owned()),
            shown,
            parts,
        }
    }

    /// Whether a run of something went wrong that is ours, or a folder was not measured at all; that a peer fails is a
    /// result.
    pub fn failed(&self) -> bool {
        if self.parts.iter().any(|part| part.skipped.is_some()) {
            return true;
        }
        let mut rows = self.parts.iter().flat_map(|part| &part.rows);
        rows.any(|row| row.group != Group::Peer && row.failed.is_some())
    }

    pub fn text(&self) -> String {
        let mut text = format!(
            "\nshunt {}, Linux {}, {} cores; ",
            self.version, self.kernel, self.cores
        );
        if self.measured == Subject::Disk {
            text += &format!(
                "{}; medians of {} runs in turns,\n{SPREAD}, {UNITS}\n",
                "one file, written with fdatasync at the end, and read past the page cache",
                self.shown.runs
            );
            return self
                .parts
                .iter()
                .fold(text, |text, part| text + &disk_text(part));
        }
        text += &format!(
            "one file from the page cache, over loopback but where a row names two hosts, one stream, moved and synced\n\
             medians of {} interleaved runs, ratio = median of the ratios within runs, {SPREAD};\n\
             {UNITS}; CPU is that of both ends' processes\n",
            self.shown.runs
        );
        if let Some(name) = &self.congestion_control {
            text += &format!(
                "congestion control of this system: {name}; shunt chooses reno for what stays on this host\n"
            );
        }
        if self.shown.is_fresh {
            text += "free memory lay for ten seconds before each run\n";
        }
        for part in &self.parts {
            text += &part_text(part);
            if self.shown.counters {
                text += &counters_text(part);
            }
        }
        text
    }
}

/// What the two ways of a disk came to.
fn disk_text(part: &FolderReport) -> String {
    let mut table = Table::new("case | Gbit/s | spread | paper | runs");
    for row in &part.rows {
        let Some(rate) = &row.gbit_per_s else {
            continue;
        };
        table.row([
            row.title.clone(),
            number(rate.median),
            format!("{:.0} %", rate.spread() * 100.0),
            row.paper_gbit_per_s.map_or_else(|| "-".to_owned(), number),
            rate.samples.len().to_string(),
        ]);
    }
    let heading = format!("\n{}, in {}\n", part.place(), part.folder);
    heading + &table.render() + &not_measured(part)
}

fn part_text(part: &FolderReport) -> String {
    if let Some(why) = &part.skipped {
        return format!("\nnot measured: {}: {why}\n", part.folder);
    }
    let dash = || "-".to_owned();
    let mut table = Table::new("case | Gbit/s | spread | CPU s/GB | of disk | paper | runs");
    for row in part.rows.iter().filter(|row| row.gbit_per_s.is_some()) {
        let Some(rate) = &row.gbit_per_s else {
            continue;
        };
        let cpu = row.cpu_s_per_gb.as_ref();
        let of_disk = row.of_disk.as_ref();
        table.row([
            row.title.clone(),
            number(rate.median),
            format!("{:.0} %", rate.spread() * 100.0),
            cpu.map_or_else(dash, |cpu| format!("{:.3}", cpu.median)),
            of_disk.map_or_else(dash, |ratio| format!("{:.2}", ratio.median)),
            row.paper_gbit_per_s.map_or_else(dash, number),
            rate.samples.len().to_string(),
        ]);
    }
    let heading = format!("\n{}, in {}\n", part.place(), part.folder);
    heading + &table.render() + &not_measured(part) + &intervals_text(part)
}

fn not_measured(part: &FolderReport) -> String {
    let mut text = String::new();
    for row in &part.rows {
        if let Some(why) = &row.skipped {
            text += &format!("not measured: {}: {why}\n", row.title);
        }
        if let Some(why) = &row.failed {
            text += &format!("failed: {}: {why}\n", row.title);
        }
    }
    text
}

/// As the paper's table 3: interval, GiB, Gbit/s; of transfers into memory only.
fn intervals_text(part: &FolderReport) -> String {
    let advancing = Cell::all(&[Offset::Advancing], &[Sink::Null]);
    let mut text = String::new();
    for row in advancing.iter().filter_map(|cell| part.row(&cell.key())) {
        if row.intervals.is_empty() {
            continue;
        }
        text += &format!(
            "by the second, {} (the paper's table 3), last run:\n",
            row.title
        );
        let mut from = 0.0;
        for &(to, bytes) in &row.intervals {
            let gib = bytes as f64 / f64::from(1 << 30);
            let gbit = bytes as f64 * 8.0 / 1e9 / (to - from);
            text += &format!("  {from:>5.2} - {to:<5.2} s  {gib:>6.2} GiB  {gbit:>6.1} Gbit/s\n");
            from = to;
        }
    }
    text
}

fn counters_text(part: &FolderReport) -> String {
    let mut table = Table::new(
        "per MiB moved | sender calls | copied/byte | receiver calls | copied/byte | waits | preempted",
    );
    let mut any = false;
    for row in &part.rows {
        let Some(counters) = row.counters else {
            continue;
        };
        any = true;
        table.row([
            row.title.clone(),
            format!("{:.2}", counters.sender_calls_per_mib),
            format!("{:.2}", counters.sender_copies),
            format!("{:.2}", counters.receiver_calls_per_mib),
            format!("{:.2}", counters.receiver_copies),
            format!("{:.2}", counters.voluntary_switches_per_mib),
            format!("{:.2}", counters.involuntary_switches_per_mib),
        ]);
    }
    if !any {
        return String::new();
    }
    let facts = sim::paper::Facts::zero_copy();
    format!(
        "\n{}each call is a switch into the kernel and one back; copies are those between program and kernel.\n\
         The paper counts {} switches and {} copies a block for read/write, {} and {} for sendfile, the device's own among them.\n",
        table.render(),
        facts.field("zc.switches", "read_write"),
        facts.field("zc.copies", "read_write"),
        facts.field("zc.switches", "sendfile"),
        facts.field("zc.copies", "sendfile"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mover::results::{Results, tests::results};

    fn report_of(subject: Subject, measured: &Results) -> Report {
        let part = FolderReport {
            folder: "/d".to_owned(),
            file_system: None,
            bytes: 1 << 30,
            skipped: None,
            rows: rows(measured),
        };
        let shown = Shown {
            runs: 3,
            counters: false,
            is_fresh: false,
        };
        Report::of(subject, vec![part], shown)
    }

    #[test]
    fn a_peer_that_fails_is_told_and_is_no_failure_of_the_run() {
        let mut measured = results(&[
            (own::DISK_WRITE, Group::Limit, &[32.0, 32.0, 32.0][..]),
            (own::XXH3, Group::Own, &[31.0, 31.0, 31.0]),
            ("peer-x", Group::Peer, &[24.0, 24.0, 24.0]),
        ]);
        measured.fail(2, "it stored too little".to_owned());
        let report = report_of(Subject::Mover, &measured);
        let text = report.text();
        assert!(
            text.contains("failed: ") && text.contains("it stored too little"),
            "{text}"
        );
        assert!(text.contains("31.0") && !report.failed(), "{text}");
    }

    #[test]
    fn of_a_disk_by_itself_nothing_is_said_of_transfers() {
        let measured = results(&[
            (own::DISK_WRITE, Group::Limit, &[32.0, 32.0, 32.0][..]),
            ("source-read", Group::Limit, &[40.0, 41.0, 42.0]),
        ]);
        let report = report_of(Subject::Disk, &measured);
        let text = report.text();
        for strange in ["congestion", "loopback", "stream", "CPU", "of disk"] {
            assert!(!text.contains(strange), "{strange}: {text}");
        }
        assert!(text.contains("32.0") && text.contains("41.0"), "{text}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["measured"], "disk");
        assert!(json.get("congestion_control").is_none());
    }
}
