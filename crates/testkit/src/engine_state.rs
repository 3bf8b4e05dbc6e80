//! What an engine process holds: its descriptors by kind, its memory, its threads, and what it says that it serves.
//!
//! A test looks before its bad day and after it: what is there that was not there before has leaked. See
//! proc_pid_fd(5), proc_pid_status(5).

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs, io,
    path::Path,
    time::{Duration, Instant},
};

use crate::{PATIENCE, Witness, world::World};

/// Memory by which an engine may have grown: allocators keep what was freed, and tables keep a bounded number of pages.
const SLACK_KIB: u64 = 8 << 10;

/// As `SLACK_KIB`, where the test had many connections: rows, windows and tables that were used stay for the next ones.
const SLACK_WITH_TABLES_KIB: u64 = 64 << 10;

/// Addresses by which its mappings may have grown: an allocator reserves 64 MiB for each thread that asks it first.
/// Windows and regions are far larger.
const SLACK_MAPPED_KIB: u64 = 512 << 10;

/// So long an engine keeps the backing socket of a connection that has ended.
const TIME_WAIT: Duration = Duration::from_secs(60);

/// So many looks at an engine that show the same are rest.
const LOOKS_AT_REST: u32 = 10;

/// What an engine serves, by its own report: programs, connections, listeners and UDP sockets. TIME-WAIT is left out.
const SERVED: [&str; 4] = ["programs", "connections", "listeners", "datagram_sockets"];

/// What an engine process held at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineState {
    /// Number of the process.
    pub pid: u32,
    /// How many descriptors there are of each kind: `socket`, `pipe`, `anon_inode:[eventfd]`, the path of a file.
    pub descriptors: BTreeMap<String, usize>,
    /// Memory that is present.
    pub resident_kib: u64,
    /// Memory that is mapped.
    pub mapped_kib: u64,
    /// Threads.
    pub threads: u64,
    /// What is served, by name; empty where only the process was looked at.
    pub served: BTreeMap<&'static str, u64>,
    slack_kib: u64,
}

impl EngineState {
    /// What a process holds now.
    ///
    /// # Panics
    /// Where there is no such process, or it is somebody else's.
    pub fn of(pid: u32) -> Self {
        Self::read(pid).unwrap_or_else(|error| panic!("the engine's process {pid}: {error}"))
    }

    /// What a world's engine holds and serves now.
    ///
    /// # Panics
    /// Where no engine stands beside its programs, or it does not answer.
    pub fn of_world(world: &World) -> Self {
        let mut state = Self::of(world.engine_pid());
        state.served = served(world);
        state
    }

    /// What a world's engine holds once programs have come and gone: what it opens with the first of them, and keeps, is
    /// no leak. Needs python3.
    ///
    /// # Panics
    /// Where no engine stands beside its programs, or they are not served.
    pub fn settled(world: &World) -> Self {
        Witness::start(world).finish(1);
        crate::wait_for("end of the first programs", PATIENCE, || {
            served(world).values().all(|&count| count == 0)
        });
        let mut state = Self::of_world(world);
        let mut unchanged = 0;
        crate::wait_for("rest of the engine", PATIENCE, || {
            let now = Self::of_world(world);
            let is_same = now.descriptors == state.descriptors && now.threads == state.threads;
            unchanged = if is_same { unchanged + 1 } else { 0 };
            state = now;
            unchanged == LOOKS_AT_REST
        });
        state
    }

    fn read(pid: u32) -> io::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
            number.ok_or_else(|| io::Error::other(format!("no {name} in its status: it has ended")))
        };
        Ok(Self {
            pid,
            descriptors: descriptors(Path::new(&format!("/proc/{pid}/fd")))?,
            resident_kib: number("VmRSS:")?,
            mapped_kib: number("VmSize:")?,
            threads: number("Threads:")?,
            served: BTreeMap::new(),
            slack_kib: SLACK_KIB,
        })
    }

    /// All descriptors.
    pub fn descriptor_count(&self) -> usize {
        self.descriptors.values().sum()
    }

    /// For a test with many connections: their tables and windows may stay, within a bound.
    #[must_use]
    pub fn with_tables(mut self) -> Self {
        self.slack_kib = SLACK_WITH_TABLES_KIB;
        self
    }

    /// Waits until the process holds no descriptor of any kind and no thread that it did not hold at this moment, and
    /// little more memory.
    ///
    /// # Panics
    /// Where that does not come within [`PATIENCE`] after TIME-WAIT: says what is left.
    pub fn assert_back(&self) {
        self.wait_for("process", || Self::of(self.pid));
    }

    /// As `assert_back`, for a state that is [`Self::of_world`]: what is served is as before too.
    ///
    /// # Panics
    /// Where that does not come within [`PATIENCE`] after TIME-WAIT: says what is left.
    pub fn assert_back_in(&self, world: &World) {
        self.wait_for("engine", || Self::of_world(world));
    }

    fn wait_for(&self, what: &str, look: impl Fn() -> Self) {
        let patience = PATIENCE + TIME_WAIT;
        let since = Instant::now();
        let deadline = since + patience;
        loop {
            let began = Instant::now();
            let left = self.what_is_left(&look());
            let took = began.elapsed();
            if left.is_empty() {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "the {what} keeps after {} s, beside what it had:{left}",
                patience.as_secs()
            );
            lab::pause_while(since.elapsed(), took);
        }
    }

    /// What there is later beyond what was there at this moment, a line each; empty where nothing is.
    fn what_is_left(&self, later: &Self) -> String {
        let mut left = String::new();
        for (kind, &count) in &later.descriptors {
            let before = self.descriptors.get(kind).copied().unwrap_or(0);
            if count > before {
                let _ = write!(left, "\n  descriptors {kind}: {count}, before {before}");
            }
        }
        for (name, &count) in &later.served {
            let before = self.served.get(name).copied().unwrap_or(0);
            if count > before {
                let _ = write!(left, "\n  {name}: {count}, before {before}");
            }
        }
        if later.threads > self.threads {
            let _ = write!(
                left,
                "\n  threads: {}, before {}",
                later.threads, self.threads
            );
        }
        for (name, now, before, slack_kib) in [
            (
                "resident",
                later.resident_kib,
                self.resident_kib,
                self.slack_kib,
            ),
            (
                "mapped",
                later.mapped_kib,
                self.mapped_kib,
                SLACK_MAPPED_KIB,
            ),
        ] {
            if now > before + slack_kib {
                let _ = write!(left, "\n  {name} memory: {now} KiB, before {before} KiB");
            }
        }
        left
    }
}

/// Descriptors by kind: of sockets and pipes the number is left out.
fn descriptors(folder: &Path) -> io::Result<BTreeMap<String, usize>> {
    let mut kinds = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        // Closed since the folder was read.
        let Ok(target) = fs::read_link(entry?.path()) else {
            continue;
        };
        let target = target.display().to_string();
        let kind = target
            .split_once(":[")
            .filter(|_| !target.starts_with("anon_inode"));
        let kind = kind.map_or(target.as_str(), |(kind, _)| kind);
        *kinds.entry(kind.to_owned()).or_default() += 1;
    }
    Ok(kinds)
}

fn served(world: &World) -> BTreeMap<&'static str, u64> {
    let status = world.report("status");
    let number = |name: &str| {
        let number = status[name].as_u64();
        number.unwrap_or_else(|| panic!("no {name} in {status}"))
    };
    SERVED
        .into_iter()
        .map(|name| (name, number(name)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_descriptor_that_is_kept_is_named_and_one_that_is_closed_is_not() {
        let before = EngineState::of(std::process::id());
        assert!(before.resident_kib > 0 && before.mapped_kib >= before.resident_kib);
        let held = File::open("/dev/null").unwrap();
        let held_too = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let left = before.what_is_left(&EngineState::of(std::process::id()));
        assert!(
            left.contains("/dev/null: ") && left.contains("socket: "),
            "{left}"
        );
        drop((held, held_too));
        before.assert_back();
    }

    #[test]
    fn memory_counts_beyond_the_slack() {
        let before = EngineState::of(std::process::id());
        let mut later = before.clone();
        later.resident_kib += 2 * SLACK_KIB;
        assert!(before.what_is_left(&later).contains("resident memory"));
        assert_eq!(before.with_tables().what_is_left(&later), "");
    }
}
