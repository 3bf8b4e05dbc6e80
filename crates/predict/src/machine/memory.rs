//! Memory: a chain of addresses in random order through more than every cache holds, each read waiting for the one before, from
//! each NUMA node to each (numa(7)). It lies in huge pages where the kernel gives them, so that a read is a read and no walk
//! through page tables; the same in 4 KiB pages is told beside it, since that is what most programs have.

use std::{fs, thread, time::Instant};

use anyhow::{Context, ensure};
use clap::Args;
use rustix::thread::{CpuSet, sched_setaffinity};
use sim::rng::Rng;
use statistics::Summary;

use super::{Measured, is_virtual, sys, tell};

/// Measure this machine's memory, from each NUMA node to each
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt measure memory
  shunt measure memory --json > memory.json
  shunt path diff memory-nic --with memory.json

In JSON: names and median nanoseconds. Exit status: 0 measured, 2 wrong usage or too little free memory.")]
pub struct Arguments {
    /// Measurements of each; the median counts
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(3..=100))]
    runs: u8,
    /// Print names and nanoseconds as JSON
    #[arg(long)]
    json: bool,
}

/// Reads of one run: some milliseconds.
const HOPS: usize = 200_000;
/// Two lines of 64 bytes: processors fetch them as a pair.
const SLOT_BYTES: usize = 128;
/// What a huge page holds.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// The chain is at least so long, and never takes more than this part of the free memory.
const LEAST_BYTES: usize = 256 << 20;
const CACHES: usize = 8;
const MOST_OF_FREE: usize = 4;
/// So much of the chain must lie in huge pages to be told as that.
const HUGE: f64 = 0.95;

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<()> {
    let found = measure(arguments.runs)?;
    tell(
        "This machine's memory",
        &found,
        "The paper has 70–75 ns for memory, 30–35 more from another processor.",
        arguments.json,
    )
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

/// How the chain lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pages {
    Huge,
    Small,
}

fn measure(runs: u8) -> anyhow::Result<Vec<Measured>> {
    let bytes = chain_bytes()?;
    let nodes = nodes();
    let of = if is_virtual() {
        "; in a virtual machine, whose hypervisor's page tables are walked too: an upper bound"
    } else {
        ""
    };
    let mut found = Vec::new();
    for home in &nodes {
        for wanted in [Pages::Huge, Pages::Small] {
            // Memory lies where it is written first.
            let chain = on(home.first_cpu, || chain(bytes, wanted))?;
            let is_huge = sys::huge_part(&chain) >= HUGE;
            let missing = wanted == Pages::Huge && !is_huge;
            if missing {
                note!(
                    "skipped: huge pages: the kernel gives none (/sys/kernel/mm/transparent_hugepage/enabled)"
                );
                continue;
            }
            for from in &nodes {
                let samples = on(from.first_cpu, || {
                    let mut at = 0;
                    (0..runs)
                        .map(|_| chase(&chain, &mut at))
                        .collect::<Vec<f64>>()
                })?;
                let pages = if wanted == Pages::Huge {
                    "huge pages"
                } else {
                    "4 KiB pages"
                };
                found.push(Measured {
                    name: name(&nodes, home, from, wanted),
                    ns: Summary::of(&samples).context("no run")?,
                    how: format!(
                        "reads that wait for each other, through {} MiB in {pages}{of}",
                        bytes >> 20
                    ),
                });
            }
        }
    }
    Ok(found)
}

fn name(nodes: &[Node], home: &Node, from: &Node, pages: Pages) -> String {
    let mut name = match (nodes.len(), home == from) {
        (1, _) => "memory".to_owned(),
        (_, true) => format!("memory, node {}", home.number),
        (_, false) => format!("memory, node {} from node {}", home.number, from.number),
    };
    if pages == Pages::Small {
        name += ", 4 KiB pages";
    }
    name
}

/// Several times the largest cache, so that few reads find a line that is still there; within what is free.
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
    let wanted = LEAST_BYTES.max(CACHES * largest);
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

/// One cycle through all slots. Pieces of two megabytes in random order, and the slots of a piece in random order: no
/// prefetcher follows, not even one that fetches what lies near.
fn chain(bytes: usize, pages: Pages) -> Vec<ChainSlot> {
    let order = order(bytes, HUGE_PAGE_BYTES);
    let mut slots: Vec<ChainSlot> = Vec::with_capacity(order.len());
    sys::prefer_huge_pages(&mut slots, pages == Pages::Huge);
    slots.resize(order.len(), ChainSlot(0));
    for (at, next) in order.iter().zip(order.iter().cycle().skip(1)) {
        slots[*at] = ChainSlot(*next);
    }
    slots
}

fn order(bytes: usize, page_bytes: usize) -> Vec<usize> {
    let per_page = page_bytes / SLOT_BYTES;
    let pages = (bytes / page_bytes).max(1);
    let mut rng = Rng::new(1);
    let mut page_order: Vec<usize> = (0..pages).collect();
    shuffle(&mut page_order, &mut rng);
    let mut slot_order: Vec<usize> = (0..per_page).collect();
    let mut order = Vec::with_capacity(pages * per_page);
    for page in page_order {
        shuffle(&mut slot_order, &mut rng);
        order.extend(slot_order.iter().map(|slot| page * per_page + slot));
    }
    order
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_is_one_cycle_through_every_slot_piece_by_piece() {
        let chain = chain(8 * HUGE_PAGE_BYTES, Pages::Small);
        let per_page = HUGE_PAGE_BYTES / SLOT_BYTES;
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
    fn names_say_from_where_and_in_which_pages() {
        let nodes = [0, 1].map(|number| Node {
            number,
            first_cpu: number,
        });
        let [one, other] = &nodes;
        assert_eq!(name(&nodes[..1], one, one, Pages::Huge), "memory");
        assert_eq!(
            name(&nodes, one, other, Pages::Small),
            "memory, node 0 from node 1, 4 KiB pages"
        );
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
