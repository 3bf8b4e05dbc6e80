//! Files of results: one report in JSON on each line, in the order of the runs.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Read, Write},
    path::Path,
};

use anyhow::{Context, ensure};

use crate::report::{Report, VERSION};

/// What is read of a file at most.
const FILE_MAX_BYTES: u64 = 256 << 20;

/// Adds a report to a file, which is made where there is none.
pub fn append(file: &Path, report: &Report) -> anyhow::Result<()> {
    let mut line = serde_json::to_string(report).context("composing JSON")?;
    line.push('\n');
    let opened = OpenOptions::new().append(true).create(true).open(file);
    opened
        .and_then(|mut open| open.write_all(line.as_bytes()))
        .with_context(|| format!("--save: writing {}", file.display()))
}

/// The reports of a file.
pub fn read(file: &Path) -> anyhow::Result<Vec<Report>> {
    let name = file.display();
    let open = File::open(file).with_context(|| format!("reading {name}"))?;
    let mut reports = Vec::new();
    for (index, line) in BufReader::new(open.take(FILE_MAX_BYTES))
        .lines()
        .enumerate()
    {
        let line = line.with_context(|| format!("reading {name}"))?;
        if line.trim().is_empty() {
            continue;
        }
        let number = index + 1;
        let report: Report = serde_json::from_str(&line)
            .with_context(|| format!("{name}, line {number}: no result of `shunt ping --save`"))?;
        ensure!(
            report.version == VERSION,
            "{name}, line {number}: version {}, this program reads {VERSION}",
            report.version
        );
        reports.push(report);
    }
    ensure!(
        !reports.is_empty(),
        "{name}: there is no result in it; `shunt ping --save {name}` adds one"
    );
    Ok(reports)
}
