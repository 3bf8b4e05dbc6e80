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
    /// Processor time of each thread.
    pub thread_s: BTreeMap<u32, f64>,
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
                all.thread_s.insert(task, user_s + system_s);
            }
        }
    }
    all
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
        assert!(!usage(&[me]).thread_s.is_empty());
        assert!(passive_opens(me).is_some());
        assert!(!runs(u32::MAX));
        drop(listener);
    }

    #[test]
    fn what_waits_for_a_disk_is_free() {
        let hz = clock_ticks_per_second() as f64;
        let busy = machine("cpu  100 0 50 800 40 5 5 0 0 0");
        assert_eq!(busy, Some((160.0 / hz, 1000.0 / hz)));
    }
}
