//! `shunt path measure`: what this machine's own components take, under the names that paths give them, so that
//! `compare` and `diff` can set them beside the paper's values.
//!
//! Memory: a chain of addresses in random order through more than every cache holds, each read waiting for
//! the one before, from each NUMA node to each (numa(7)). PCIe: a read of four bytes of a device's configuration
//! space through sysfs, less the same call on a file that asks no device: the `datacenter-latency` paper timed a
//! command to a device with a modified lspci. What cannot be measured is said with its reason.

use std::{collections::BTreeMap, fs, os::unix::fs::FileExt, path::Path, thread, time::Instant};

use anyhow::{Context, ensure};
use clap::Args;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::Serialize;
use sim::{report::document::Document, rng::Rng};

use statistics::Summary;

/// Measure this machine's memory and PCIe devices
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt path measure
  shunt path measure --json > measured.json
  shunt path compare --with measured.json
  shunt path diff memory-nic --with measured.json

In JSON: names and median nanoseconds. In a virtual machine a read of configuration space goes
to the hypervisor: it then says nothing of the bus.")]
pub struct Arguments {
    /// Measurements of each component; the median counts
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(3..=100))]
    runs: u8,
    /// Print names and nanoseconds as JSON
    #[arg(long)]
    json: bool,
}

/// Reads of one run: some milliseconds of memory, a millisecond of configuration space.
const HOPS: usize = 200_000;
const CONFIG_READS: u32 = 500;
/// Two lines of 64 bytes: processors fetch them as a pair.
const SLOT_BYTES: usize = 128;
const PAGE_BYTES: usize = 4096;
/// The chain is at least so long, and never takes more than this part of the free memory.
const LEAST_BYTES: usize = 64 << 20;
const MOST_OF_FREE: usize = 4;
/// Devices beyond these say nothing new.
const MOST_DEVICES: usize = 8;

/// One component as it was measured.
#[derive(Debug, Serialize)]
struct Measured {
    name: String,
    ns: Summary,
    how: String,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<()> {
    let mut skipped = Vec::new();
    let mut found = memory(arguments.runs)?;
    found.extend(devices(arguments.runs, &mut skipped)?);
    for reason in &skipped {
        note!("skipped: {reason}");
    }
    if arguments.json {
        let names: BTreeMap<&str, f64> = found
            .iter()
            .map(|one| (one.name.as_str(), (one.ns.median * 10.0).round() / 10.0))
            .collect();
        return output::print_json(&names);
    }
    let mut document = Document::new("Components of this machine");
    let rows = found.iter().map(|one| {
        let numbers = [one.ns.median, one.ns.min, one.ns.max].map(|ns| format!("{ns:.1}"));
        let [median, least, most] = numbers;
        vec![one.name.clone(), median, least, most, one.how.clone()]
    });
    let headings = ["component", "median ns", "least", "most", "how"];
    document.table(headings, rows.collect());
    document.text(format!(
        "{} runs each; the paper has 70–75 ns for memory, 30–35 more from another processor, 170–325 for a command \
         to a PCIe device.",
        arguments.runs
    ));
    output::print(&document.to_text())
}

/// A NUMA node with processors.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    number: usize,
    first_cpu: usize,
}

/// The first number of a list as sysfs has it: `0-3,8`.
fn first_of(list: &str) -> Option<usize> {
    let digits = list.trim().split(['-', ',']).next()?;
    digits.parse().ok()
}

/// The machine's nodes; one without a number of its own where the kernel knows of none.
fn nodes() -> Vec<Node> {
    let entries = fs::read_dir("/sys/devices/system/node")
        .into_iter()
        .flatten();
    let of = |entry: fs::DirEntry| {
        let number = entry
            .file_name()
            .to_str()?
            .strip_prefix("node")?
            .parse()
            .ok()?;
        let cpus = fs::read_to_string(entry.path().join("cpulist")).ok()?;
        let first_cpu = first_of(&cpus)?;
        Some(Node { number, first_cpu })
    };
    let mut nodes: Vec<Node> = entries.flatten().filter_map(of).collect();
    nodes.sort_by_key(|node| node.number);
    if nodes.is_empty() {
        nodes.push(Node {
            number: 0,
            first_cpu: 0,
        });
    }
    nodes
}

/// Runs something on one processor.
fn on<T: Send>(cpu: usize, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
    let result = thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let mut only = CpuSet::new();
            only.set(cpu);
            sched_setaffinity(None, &only)
                .with_context(|| format!("moving to processor {cpu}"))
                .map(|()| work())
        });
        thread.join()
    });
    result
        .ok()
        .context("invariant: the measuring thread ends")?
}

fn memory(runs: u8) -> anyhow::Result<Vec<Measured>> {
    let bytes = chain_bytes()?;
    let nodes = nodes();
    let mut found = Vec::new();
    for home in &nodes {
        // Memory lies where it is written first.
        let chain = on(home.first_cpu, || chain(bytes))?;
        for from in &nodes {
            let samples = on(from.first_cpu, || {
                let mut at = 0;
                (0..runs)
                    .map(|_| chase(&chain, &mut at))
                    .collect::<Vec<f64>>()
            })?;
            let name = match (nodes.len(), home == from) {
                (1, _) => "memory".to_owned(),
                (_, true) => format!("memory, node {}", home.number),
                (_, false) => format!("memory, node {} from node {}", home.number, from.number),
            };
            found.push(Measured {
                name,
                ns: Summary::of(&samples).context("no run")?,
                how: format!(
                    "reads that wait for each other, through {} MiB",
                    bytes >> 20
                ),
            });
        }
    }
    Ok(found)
}

/// Twice the largest cache, within what is free.
fn chain_bytes() -> anyhow::Result<usize> {
    let caches = fs::read_dir("/sys/devices/system/cpu/cpu0/cache")
        .into_iter()
        .flatten();
    let size = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join("size")).ok()?;
        cache_bytes(&text)
    };
    let largest = caches.flatten().filter_map(size).max().unwrap_or(0);
    let text = fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    let free = free_bytes(&text).context("/proc/meminfo has no MemAvailable")?;
    let wanted = LEAST_BYTES.max(2 * largest);
    ensure!(
        wanted <= free / MOST_OF_FREE,
        "a chain through more than the caches takes {} MiB, which is more than a quarter of the free {} MiB",
        wanted >> 20,
        free >> 20
    );
    Ok(wanted)
}

/// `32K`, `266240K`, `8M`, see Documentation/ABI/stable/sysfs-devices-system-cpu.
fn cache_bytes(text: &str) -> Option<usize> {
    let text = text.trim();
    let (digits, shift) = match text.strip_suffix('K') {
        Some(digits) => (digits, 10),
        None => (text.strip_suffix('M')?, 20),
    };
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}

/// MemAvailable of proc_meminfo(5).
fn free_bytes(text: &str) -> Option<usize> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// A slot of the chain: where the next one is.
#[derive(Debug, Clone)]
#[repr(C, align(128))]
struct ChainSlot(usize);

/// One cycle through all slots. Pages in random order, and the slots of a page in random order: no prefetcher
/// follows, and an address is translated once for a whole page's reads.
fn chain(bytes: usize) -> Vec<ChainSlot> {
    let per_page = PAGE_BYTES / SLOT_BYTES;
    let pages = (bytes / PAGE_BYTES).max(1);
    let mut rng = Rng::new(1);
    let mut page_order: Vec<usize> = (0..pages).collect();
    shuffle(&mut page_order, &mut rng);
    let mut slot_order: Vec<usize> = (0..per_page).collect();
    let mut order = Vec::with_capacity(pages * per_page);
    for page in page_order {
        shuffle(&mut slot_order, &mut rng);
        order.extend(slot_order.iter().map(|slot| page * per_page + slot));
    }
    let mut slots = vec![ChainSlot(0); order.len()];
    for (at, next) in order.iter().zip(order.iter().cycle().skip(1)) {
        slots[*at] = ChainSlot(*next);
    }
    slots
}

/// Fisher and Yates.
fn shuffle(numbers: &mut [usize], rng: &mut Rng) {
    for end in (1..numbers.len()).rev() {
        let bound = u64::try_from(end + 1).unwrap_or(u64::MAX);
        let other = usize::try_from(rng.bits() % bound).unwrap_or(0);
        numbers.swap(end, other);
    }
}

/// Nanoseconds of a read that waits for the one before. A run goes on where the last one ended: nothing that it
/// reads is in a cache.
fn chase(chain: &[ChainSlot], place: &mut usize) -> f64 {
    let mut at = *place;
    let began = Instant::now();
    for _ in 0..HOPS {
        at = chain[at].0;
    }
    let took = began.elapsed();
    *place = at;
    took.as_secs_f64() * 1e9 / HOPS as f64
}

fn devices(runs: u8, skipped: &mut Vec<String>) -> anyhow::Result<Vec<Measured>> {
    let entries = fs::read_dir("/sys/bus/pci/devices").into_iter().flatten();
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    if paths.is_empty() {
        skipped.push("pcie: no device in /sys/bus/pci/devices".to_owned());
    }
    let mut found = Vec::new();
    for path in paths.iter().take(MOST_DEVICES) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match device(path, runs) {
            Ok(samples) => found.push(Measured {
                name: format!("pcie {name}"),
                ns: Summary::of(&samples).context("no run")?,
                how: format!("{}: reading configuration space, less the call", kind(path)),
            }),
            Err(error) => skipped.push(format!("pcie {name}: {error:#}")),
        }
    }
    Ok(found)
}

/// What serves the device, or what it is by number.
fn kind(device: &Path) -> String {
    let driver = fs::read_link(device.join("driver")).ok();
    let driver = driver.as_deref().and_then(Path::file_name);
    match driver {
        Some(driver) => driver.to_string_lossy().into_owned(),
        None => "no driver".to_owned(),
    }
}

/// Nanoseconds of a read of four bytes of configuration space, run by run.
fn device(path: &Path, runs: u8) -> anyhow::Result<Vec<f64>> {
    let asked = fs::File::open(path.join("config")).context("opening config")?;
    // A binary file as well, which the kernel answers from memory.
    let call = fs::File::open("/proc/self/auxv").context("opening /proc/self/auxv")?;
    (0..runs)
        .map(|_| Ok((read_ns(&asked)? - read_ns(&call)?).max(0.0)))
        .collect()
}

fn read_ns(file: &fs::File) -> anyhow::Result<f64> {
    let mut word = [0; 4];
    let began = Instant::now();
    for _ in 0..CONFIG_READS {
        file.read_exact_at(&mut word, 0).context("reading")?;
    }
    Ok(began.elapsed().as_secs_f64() * 1e9 / f64::from(CONFIG_READS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_is_one_cycle_through_every_slot_page_by_page() {
        let chain = chain(8 * PAGE_BYTES);
        let per_page = PAGE_BYTES / SLOT_BYTES;
        assert_eq!(chain.len(), 8 * per_page);
        let mut seen = vec![false; chain.len()];
        let (mut at, mut pages) = (0, 0);
        for _ in 0..chain.len() {
            assert!(!std::mem::replace(&mut seen[at], true), "a short cycle");
            pages += usize::from(at / per_page != chain[at].0 / per_page);
            at = chain[at].0;
        }
        assert_eq!(at, 0);
        // The walk begins within a page, which it enters again at its end.
        assert!((8..=9).contains(&pages), "{pages}");
        assert_eq!(size_of::<ChainSlot>(), SLOT_BYTES);
    }

    #[test]
    fn sizes_and_lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(cache_bytes("266240K\n"), Some(260 << 20));
        assert_eq!(cache_bytes("8M"), Some(8 << 20));
        assert_eq!(cache_bytes("8"), None);
        assert_eq!(
            free_bytes("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"),
            Some(2 << 20)
        );
        assert_eq!(free_bytes("MemTotal: 9 kB\n"), None);
        assert_eq!((first_of("0-3,8\n"), first_of("\n")), (Some(0), None));
    }
}
