//! Watching a running program from outside, without tracing it: its connections from the kernel's list of
//! sockets, its processor time from /proc. The program is not slowed down and does not notice.
//!
//! Between two looks a connection may come and go unseen; how many did, the kernel's count of
//! accepted connections tells.

mod process;
mod sockets;

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use anyhow::{bail, ensure};
use sim::plan::Observation;

use crate::bench::interrupt::Interrupt;
use sockets::{Asker, Counters, Socket};

/// Time between two looks at the sockets.
const LOOK: Duration = Duration::from_millis(100);
/// A thread that did this part of the program's work counts as one that serves.
const SERVING_SHARE: f64 = 0.1;

/// One connection of the program.
#[derive(Debug, Clone, Copy)]
struct Followed {
    first: Counters,
    last: Counters,
    local: bool,
}

/// The connections seen so far.
#[derive(Debug, Default)]
struct Connections {
    followed: BTreeMap<u64, Followed>,
    opened: u64,
}

impl Connections {
    /// Takes a list of the program's sockets; those of the first one had a life before.
    fn look(&mut self, sockets: impl Iterator<Item = Socket>, first_look: bool) {
        for socket in sockets {
            let opened = &mut self.opened;
            let followed = self.followed.entry(socket.cookie).or_insert_with(|| {
                *opened += u64::from(!first_look);
                let first = match first_look {
                    true => socket.counters,
                    false => Counters::default(),
                };
                Followed {
                    first,
                    last: socket.counters,
                    local: socket.local,
                }
            });
            followed.last = socket.counters;
        }
    }

    fn add_to(&self, observation: &mut Observation) {
        let mut local = 0.0;
        for Followed {
            first,
            last,
            local: is_local,
        } in self.followed.values()
        {
            let segments = |last: u32, first: u32| f64::from(last.wrapping_sub(first));
            let bytes = |last: u64, first: u64| last.saturating_sub(first) as f64;
            let segments_in = segments(last.segments_in, first.segments_in);
            let segments_out = segments(last.segments_out, first.segments_out);
            // A side that speaks in several segments is answered once.
            let exchanges = segments_in.min(segments_out);
            observation.exchanges += exchanges;
            observation.bytes_in += bytes(last.received_bytes, first.received_bytes);
            observation.bytes_out += bytes(last.acknowledged_bytes, first.acknowledged_bytes);
            observation.repeated += segments(last.repeated, first.repeated);
            observation.mss_bytes = observation.mss_bytes.max(f64::from(last.mss_bytes));
            local += if *is_local { exchanges } else { 0.0 };
        }
        if observation.exchanges > 0.0 {
            observation.local_share = local / observation.exchanges;
        }
        observation.connections = self.followed.len() as u64;
        observation.opened = self.opened;
    }
}

/// Processor time that a process has used so far.
pub fn processor_s(pid: u32) -> f64 {
    let usage = process::usage(&[pid]);
    usage.user_s + usage.system_s
}

/// Watches a process and its children for a while.
pub fn observe(pid: u32, time: Duration, interrupt: &Interrupt) -> anyhow::Result<Observation> {
    ensure!(process::runs(pid), "--record: there is no process {pid}");
    let asker = Asker::of(pid)?;
    let name = process::name(pid).unwrap_or_else(|| pid.to_string());
    let mut connections = Connections::default();
    let family = process::family(pid);
    let before = process::usage(&family);
    let machine_before = process::machine_s();
    let opens_before = process::passive_opens(pid);
    let began = Instant::now();
    let mut first_look = true;
    loop {
        let inodes = process::socket_inodes(&process::family(pid));
        let sockets = asker.sockets()?.into_iter();
        connections.look(
            sockets.filter(|socket| inodes.contains(&socket.inode)),
            first_look,
        );
        first_look = false;
        let left = time.saturating_sub(began.elapsed());
        if left.is_zero() || interrupt.came() {
            break;
        }
        if !process::runs(pid) {
            bail!(
                "--record: {name} ({pid}) ended after {:.1} s",
                began.elapsed().as_secs_f64()
            );
        }
        thread::sleep(left.min(LOOK));
    }
    let seconds = began.elapsed().as_secs_f64();
    let after = process::usage(&process::family(pid));
    let work = |thread: &u32, end: &f64| end - before.thread_s.get(thread).unwrap_or(&0.0);
    let works: Vec<f64> = after.thread_s.iter().map(|(t, end)| work(t, end)).collect();
    let least = SERVING_SHARE * works.iter().sum::<f64>();
    let mut observation = Observation {
        name,
        seconds,
        user_s: (after.user_s - before.user_s).max(0.0),
        system_s: (after.system_s - before.system_s).max(0.0),
        sleeps: after.sleeps.saturating_sub(before.sleeps) as f64,
        reads: after.reads.saturating_sub(before.reads) as f64,
        writes: after.writes.saturating_sub(before.writes) as f64,
        serving_threads: works.iter().filter(|work| **work > least).count(),
        cores: thread::available_parallelism().map_or(1, usize::from),
        ..Observation::default()
    };
    if let (Some((busy_before, _)), Some((busy, _))) = (machine_before, process::machine_s()) {
        let own = observation.user_s + observation.system_s;
        observation.others_s = (busy - busy_before - own).max(0.0);
    }
    connections.add_to(&mut observation);
    if let (Some(before), Some(after)) = (opens_before, process::passive_opens(pid)) {
        observation.opened_by_all = after.saturating_sub(before);
    }
    Ok(observation)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(cookie: u64, segments_in: u32, segments_out: u32) -> Socket {
        Socket {
            cookie,
            inode: 1,
            local: cookie == 1,
            counters: Counters {
                received_bytes: u64::from(segments_in) * 100,
                acknowledged_bytes: u64::from(segments_out) * 1000,
                segments_in,
                segments_out,
                ..Counters::default()
            },
        }
    }

    #[test]
    fn only_what_was_carried_while_watched_counts_and_new_connections_count_whole() {
        let mut connections = Connections::default();
        connections.look([socket(1, 10, 10)].into_iter(), true);
        connections.look([socket(1, 14, 18), socket(2, 3, 3)].into_iter(), false);
        connections.look([socket(1, 20, 30)].into_iter(), false);
        let mut observation = Observation::default();
        connections.add_to(&mut observation);
        // Ten requests, each answered by two segments, and three.
        assert_eq!(observation.exchanges, 13.0);
        assert_eq!(observation.bytes_in, 1300.0);
        assert_eq!(observation.bytes_out, 23_000.0);
        assert_eq!((observation.connections, observation.opened), (2, 1));
        assert!((observation.local_share - 10.0 / 13.0).abs() < 1e-12);
    }
}
