//! A disk by itself: how fast a large file is written and synced, and read, past the page cache: the limit of every transfer
//! that is stored (the `zero-copy` paper measured it first).

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, ensure};
use clap::Args;
use load::interrupt::Interrupt;

use super::{
    own, print,
    report::{FolderReport, Report, Shown, Subject},
    site::Site,
    size,
    turns::{self, Table},
};

/// Measure how fast a folder's disk writes and reads by itself
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt measure disk /data
  shunt measure disk /data --size 10G --runs 9 --json

It writes a file of that size into the folder, with fdatasync, reads one past the page cache, and removes both. In a
virtual machine the cache of its host may answer. The paper's array of 18 disks wrote 14 to 16 Gbit/s. Exit status: 0 measured, 1 nothing could be written there, 2 wrong usage, 130 interrupted.")]
pub struct Arguments {
    /// A folder on the disk
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Size of the file, in bytes or with K, M, G (powers of two)
    #[arg(long, default_value = "1G", value_parser = size)]
    size: u64,
    /// Runs; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let folder = &arguments.folder;
    let found = std::fs::metadata(folder).with_context(|| folder.display().to_string())?;
    ensure!(found.is_dir(), "{}: not a folder", folder.display());
    let interrupt = Interrupt::catch()?;
    let site = match Site::create(folder, arguments.size, 0, interrupt.clone()) {
        Ok(site) => site,
        Err(error) => {
            interrupt.check()?;
            note!("{}: {error:#}", folder.display());
            return Ok(ExitCode::from(1));
        }
    };
    let mut tables = vec![Table::of(site, own::disk())];
    turns::measure(&mut tables, arguments.runs, false)?;
    interrupt.check()?;
    let parts = tables
        .into_iter()
        .map(|table| FolderReport::of(&table.site, table.results));
    let shown = Shown {
        runs: arguments.runs,
        counters: false,
        is_fresh: false,
    };
    print(
        &Report::of(Subject::Disk, parts.collect(), shown),
        arguments.json,
    )
}
