//! Who works for the host under test and its peer, and how long it has waited for a processor meanwhile: a run in which that was
//! long says nothing about the host.

use std::{fs, path::Path};

/// The kernel's threads that take in frames lie below this, one for each processor, begun before any program.
const KERNEL_THREADS: std::ops::Range<u32> = 1..4_096;

/// The engine, where there is one, and the kernel's threads for packets that wait.
#[derive(Debug)]
pub(super) struct Workers {
    processes: Vec<u32>,
}

impl Workers {
    pub(super) fn new(engine: Option<u32>) -> Self {
        let takes_in = |pid: &u32| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.starts_with("ksoftirqd/"))
        };
        let kernel = KERNEL_THREADS.filter(takes_in);
        Self {
            processes: engine.into_iter().chain(kernel).collect(),
        }
    }

    /// The sum over all threads, with those of `agent` and the one that asks, which is the peer, in ns; see proc(5) on schedstat.
    pub(super) fn waited_ns(&self, agent: u32) -> i64 {
        let processes = self.processes.iter().chain([&agent]);
        let folders = processes.map(|pid| format!("/proc/{pid}/task"));
        let threads = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
        let waited = threads.filter_map(|thread| waited_ns(&thread.ok()?.path()));
        waited
            .chain(waited_ns(Path::new("/proc/thread-self")))
            .sum()
    }
}

/// None of a thread that has ended.
fn waited_ns(thread: &Path) -> Option<i64> {
    let text = fs::read_to_string(thread.join("schedstat")).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_processor_is_seen() {
        let workers = Workers::new(None);
        let waited_ns = || workers.waited_ns(std::process::id());
        let before = waited_ns();
        // More threads than processors: some wait.
        let count = std::thread::available_parallelism().map_or(1, usize::from) * 4;
        std::thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(|| while waited_ns() == before {});
            }
        });
        assert!(waited_ns() > before);
    }
}
