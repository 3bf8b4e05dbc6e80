//! A process and its children as /proc shows them: processor time, sleeps, calls and open sockets. See proc(5).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use rustix::param::clock_ticks_per_second;

/// Processes that are followed at most.
const MOST_PROCESSES: usize = 4096;

/// Counters of some processes since each began.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Usage {
    /// Time in the program itself.
    pub user_s: f64,
    /// Time in the kernel on its behalf.
    pub system_s: f64,
    /// Times that a thread went to sleep.
    pub sleeps: u64,
    /// Calls of read(2) and its relatives; those of recv(2) are counted by nobody.
    pub reads: u64,
    /// Calls of write(2) and its relatives.
    pub writes: u64,
    /// What each thread did.
    pub threads: BTreeMap<u32, Thread>,
}

impl Usage {
    /// What each thread did since the usage was that.
    pub fn threads_since(&self, before: &Self) -> Vec<Thread> {
        let since = |(number, did): (&u32, &Thread)| {
            did.since(&before.threads.get(number).copied().unwrap_or_default())
        };
        self.threads.iter().map(since).collect()
    }
}

/// What a thread did since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Thread {
    /// Processor time.
    pub used_s: f64,
    /// The same with the time that it waited for a processor: the rest it had nothing to do. Kernels that do not count
    /// it (schedstat) leave it at the processor time.
    pub ready_s: f64,
}

impl Thread {
    /// What it did since it had done that.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            used_s: (self.used_s - before.used_s).max(0.0),
            ready_s: (self.ready_s - before.ready_s).max(0.0),
        }
    }
}

/// Times that the threads of a process that run now were taken off a processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switches {
    /// They had to wait for something.
    pub voluntary: u64,
    /// Another thread was to run.
    pub involuntary: u64,
}

/// Those of a process; `None`: there is none.
pub fn switches(pid: u32) -> Option<Switches> {
    let tasks = names(&format!("/proc/{pid}/task"));
    let texts = tasks.iter().filter_map(|task| {
        // A thread that has ended meanwhile is none.
        fs::read_to_string(format!("/proc/{pid}/task/{task}/status")).ok()
    });
    let of_threads = texts.map(|text| of_thread(&text));
    of_threads.reduce(|sum, one| Switches {
        voluntary: sum.voluntary + one.voluntary,
        involuntary: sum.involuntary + one.involuntary,
    })
}

/// Of a thread's `status` file.
fn of_thread(text: &str) -> Switches {
    Switches {
        voluntary: number_after(text, "voluntary_ctxt_switches:"),
        involuntary: number_after(text, "nonvoluntary_ctxt_switches:"),
    }
}

/// Every process.
pub fn all() -> Vec<u32> {
    let numbers = names("/proc").into_iter();
    numbers.filter_map(|name| name.parse().ok()).collect()
}

/// Processor time that a process has used so far; none once it has ended.
pub fn processor_s(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    times(&text).map_or(0.0, |(user_s, system_s)| user_s + system_s)
}

/// A process and all that descend from it.
pub fn family(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        next += 1;
        for task in names(&format!("/proc/{parent}/task")) {
            let children = fs::read_to_string(format!("/proc/{parent}/task/{task}/children"));
            let children = children.unwrap_or_default();
            let children = children.split_ascii_whitespace();
            let children = children.filter_map(|child| child.parse::<u32>().ok());
            found.extend(children.take(MOST_PROCESSES - found.len().min(MOST_PROCESSES)));
        }
    }
    found
}

/// Whether a process still runs.
pub fn runs(pid: u32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

fn state(pid: u32) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    fields(&text).first()?.chars().next()
}

/// The name of a process.
pub fn name(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim().to_owned())
}

/// Inodes of the sockets that these processes hold.
pub fn socket_inodes(pids: &[u32]) -> BTreeSet<u32> {
    let mut inodes = BTreeSet::new();
    for pid in pids {
        for descriptor in names(&format!("/proc/{pid}/fd")) {
            let Ok(link) = fs::read_link(format!("/proc/{pid}/fd/{descriptor}")) else {
                continue;
            };
            let link = link.to_string_lossy();
            let inode = link
                .strip_prefix("socket:[")
                .and_then(|rest| rest.strip_suffix(']'));
            inodes.extend(inode.and_then(|inode| inode.parse::<u32>().ok()));
        }
    }
    inodes
}

/// What these processes have used so far. What has ended meanwhile counts no more.
pub fn usage(pids: &[u32]) -> Usage {
    let mut all = Usage::default();
    for pid in pids {
        if let Ok(text) = fs::read_to_string(format!("/proc/{pid}/stat")) {
            let (user_s, system_s) = times(&text).unwrap_or_default();
            all.user_s += user_s;
            all.system_s += system_s;
        }
        let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
        all.reads += number_after(&io, "syscr:");
        all.writes += number_after(&io, "syscw:");
        for task in names(&format!("/proc/{pid}/task")) {
            let folder = format!("/proc/{pid}/task/{task}");
            let read = |name: &str| fs::read_to_string(format!("{folder}/{name}"));
            let status = read("status").unwrap_or_default();
            all.sleeps += number_after(&status, "voluntary_ctxt_switches:");
            let time = read("stat").ok().and_then(|text| times(&text));
            if let (Ok(task), Some((user_s, system_s))) = (task.parse(), time) {
                let used_s = user_s + system_s;
                let ready_s = read("schedstat").ok().and_then(|text| ready(&text));
                let ready_s = ready_s.map_or(used_s, |ready_s| ready_s.max(used_s));
                all.threads.insert(task, Thread { used_s, ready_s });
            }
        }
    }
    all
}

/// Time on a processor and time in front of one, of a `schedstat` file.
fn ready(text: &str) -> Option<f64> {
    let mut numbers = text.split_ascii_whitespace();
    let mut seconds = || Some(numbers.next()?.parse::<f64>().ok()? / 1e9);
    Some(seconds()? + seconds()?)
}

/// Seconds in which processors of this machine did something, and those in which they could have.
pub fn machine_s() -> Option<(f64, f64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    machine(text.lines().next()?)
}

/// user nice system idle iowait irq softirq steal: idle and iowait are what was free.
fn machine(line: &str) -> Option<(f64, f64)> {
    let numbers = line.strip_prefix("cpu ")?.split_ascii_whitespace();
    let ticks: Vec<f64> = numbers.take(8).filter_map(|n| n.parse().ok()).collect();
    let all: f64 = ticks.iter().sum();
    let free = ticks.get(3)? + ticks.get(4)?;
    let hz = clock_ticks_per_second() as f64;
    Some(((all - free) / hz, all / hz))
}

/// Connections that the network of a process has accepted, of all programs together.
pub fn passive_opens(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/net/snmp")).ok()?;
    let mut lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("Tcp: "))
        .map(str::split_ascii_whitespace);
    let (mut names, mut values) = (lines.next()?, lines.next()?);
    let at = names.position(|name| name == "PassiveOpens")?;
    values.nth(at)?.parse().ok()
}

/// Processor time in seconds of a process and of those of its descendants that live, or that were waited for, so
/// far. It can be read until the process itself is waited for.
pub fn cpu_with_descendants_s(pid: u32) -> f64 {
    let hz = clock_ticks_per_second() as f64;
    let of = |pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // utime, stime, cutime, cstime.
        let ticks = fields(&text).into_iter().skip(11).take(4);
        ticks.filter_map(|n| n.parse::<f64>().ok()).sum::<f64>() / hz
    };
    family(pid).into_iter().map(of).sum()
}

/// User and system time of a `stat` file in seconds.
fn times(text: &str) -> Option<(f64, f64)> {
    let fields = fields(text);
    let hz = clock_ticks_per_second() as f64;
    // Fields 14 and 15, counted from the first; the name before may contain anything.
    let seconds = |at: usize| Some(fields.get(at)?.parse::<f64>().ok()? / hz);
    Some((seconds(11)?, seconds(12)?))
}

/// Fields of a `stat` file after the name, which stands in brackets.
fn fields(text: &str) -> Vec<&str> {
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_ascii_whitespace().collect()
}

fn number_after(text: &str, label: &str) -> u64 {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(label)?.trim().parse().ok());
    value.unwrap_or(0)
}

fn names(folder: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_move_the_fields() {
        let hz = clock_ticks_per_second() as f64;
        let text = "7 (a) b (c)) S 1 7 7 0 -1 0 0 0 0 0 250 125 0 0 20 0 1 0 99\n";
        assert_eq!(times(text), Some((250.0 / hz, 125.0 / hz)));
        assert_eq!(fields(text)[0], "S");
        assert_eq!(times("cut"), None);
    }

    #[test]
    fn this_process_has_used_time_and_holds_its_sockets() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let me = std::process::id();
        assert!(runs(me) && family(me).contains(&me));
        assert!(!socket_inodes(&[me]).is_empty());
        let threads = usage(&[me]).threads;
        assert!(!threads.is_empty());
        assert!(threads.values().all(|each| each.ready_s >= each.used_s));
        assert!(passive_opens(me).is_some());
        assert!(!runs(u32::MAX));
        drop(listener);
    }

    #[test]
    fn switches_of_both_kinds_are_told_apart() {
        let text = "Threads:\t1\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        let (voluntary, involuntary) = (150, 545);
        let expected = Switches {
            voluntary,
            involuntary,
        };
        assert_eq!(of_thread(text), expected);
        assert!(switches(std::process::id()).is_some());
        assert_eq!(switches(u32::MAX), None);
    }

    #[test]
    fn who_waits_for_a_processor_is_ready() {
        assert_eq!(ready("1000000000 500000000 7\n"), Some(1.5));
        assert_eq!(ready("1000000000"), None);
        assert_eq!(ready(""), None);
        let (before, after) = ((1.0, 2.0), (1.5, 4.0));
        let of = |(used_s, ready_s)| Thread { used_s, ready_s };
        assert_eq!(of(after).since(&of(before)), of((0.5, 2.0)));
        assert_eq!(of(before).since(&of(after)), of((0.0, 0.0)));
    }

    #[test]
    fn what_waits_for_a_disk_is_free() {
        let hz = clock_ticks_per_second() as f64;
        let busy = machine("cpu  100 0 50 800 40 5 5 0 0 0");
        assert_eq!(busy, Some((160.0 / hz, 1000.0 / hz)));
    }
}
