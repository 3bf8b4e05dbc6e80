//! Watching a running program from outside, without tracing it: its connections from the kernel's list of
//! sockets, its processor time from /proc. The program is not slowed down and does not notice.
//!
//! Between two looks a connection may come and go unseen; how many did, the kernel's count of
//! accepted connections tells.

mod clients;
pub mod process;
mod sockets;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{bail, ensure};
use sim::plan::Observation;

use clients::{Clients, alike};
pub use process::{machine_s, processor_s};
use sockets::{Asker, Counters, Socket};

/// Time between two looks at the sockets, and at who holds their other ends.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_AT_CLIENTS: Duration = Duration::from_secs(1);

/// One connection of the program.
#[derive(Debug, Clone, Copy)]
struct Followed {
    first: Counters,
    last: Counters,
    local: bool,
    /// How often it was there.
    looks: u64,
}

/// The connections seen so far.
#[derive(Debug, Default)]
struct Connections {
    followed: BTreeMap<u64, Followed>,
    opened: u64,
    looks: u64,
}

impl Connections {
    /// Takes a list of the program's sockets; those of the first one had a life before.
    fn look(&mut self, sockets: impl Iterator<Item = Socket>) {
        let first_look = self.looks == 0;
        self.looks += 1;
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
                    local: socket.stays_here(),
                    looks: 0,
                }
            });
            followed.last = socket.counters;
            followed.looks += 1;
        }
    }

    /// The other end of this one is on this machine, whatever its address says.
    fn is_near(&mut self, cookie: u64) {
        if let Some(followed) = self.followed.get_mut(&cookie) {
            followed.local = true;
        }
    }

    fn add_to(&self, observation: &mut Observation) {
        let mut local = 0.0;
        for Followed {
            first,
            last,
            local: is_local,
            looks,
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
            if exchanges > 0.0 {
                observation.concurrent += *looks as f64 / self.looks as f64;
            }
        }
        if observation.exchanges > 0.0 {
            observation.local_share = local / observation.exchanges;
        }
        observation.connections = self.followed.len() as u64;
        observation.opened = self.opened;
    }
}

/// Watches a process and its children for a while, or until `interrupt` is set.
pub fn observe(pid: u32, time: Duration, interrupt: &AtomicBool) -> anyhow::Result<Observation> {
    ensure!(process::runs(pid), "--record: there is no process {pid}");
    let asker = Asker::of(pid)?;
    let name = process::name(pid).unwrap_or_else(|| pid.to_string());
    let clients = Clients::new();
    let before = process::usage(&process::family(pid));
    let machine_before = process::machine_s();
    let opens_before = process::passive_opens(pid);
    let began = Instant::now();
    let (connections, clients) = look_on(pid, &name, &asker, clients, || {
        let left = time.saturating_sub(began.elapsed());
        if interrupt.load(Ordering::Relaxed) {
            Duration::ZERO
        } else {
            left
        }
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let after = process::usage(&process::family(pid));
    let threads = after.threads_since(&before);
    let asking = clients.threads();
    let ready_s = |threads: &[process::Thread]| threads.iter().map(|t| t.ready_s).sum();
    let mut observation = Observation {
        name,
        seconds,
        user_s: (after.user_s - before.user_s).max(0.0),
        system_s: (after.system_s - before.system_s).max(0.0),
        sleeps: after.sleeps.saturating_sub(before.sleeps) as f64,
        reads: after.reads.saturating_sub(before.reads) as f64,
        writes: after.writes.saturating_sub(before.writes) as f64,
        clients_s: clients.used_s(),
        client_threads: alike(&asking),
        clients_ready_s: ready_s(&asking),
        serving_threads: alike(&threads),
        serving_ready_s: ready_s(&threads),
        cores: thread::available_parallelism().map_or(1, usize::from),
        ..Observation::default()
    };
    if let (Some((busy_before, all_before)), Some((busy, all))) =
        (machine_before, process::machine_s())
    {
        let own = observation.user_s + observation.system_s;
        observation.others_s = (busy - busy_before - own).max(0.0);
        let idle_s = (all - all_before) - (busy - busy_before);
        observation.idle_s = idle_s.max(0.0);
    }
    connections.add_to(&mut observation);
    if let (Some(before), Some(after)) = (opens_before, process::passive_opens(pid)) {
        observation.opened_by_all = after.saturating_sub(before);
    }
    Ok(observation)
}

/// Looks at the program's connections, and now and then at its clients, for as long as there is time left.
fn look_on(
    pid: u32,
    name: &str,
    asker: &Asker,
    mut clients: Clients,
    left: impl Fn() -> Duration,
) -> anyhow::Result<(Connections, Clients)> {
    let mut connections = Connections::default();
    let began = Instant::now();
    let mut next_look_at_clients = Duration::ZERO;
    loop {
        let family = process::family(pid);
        let inodes = process::socket_inodes(&family);
        let sockets = asker.sockets()?;
        let own = sockets.iter().filter(|s| inodes.contains(&s.inode));
        connections.look(own.copied());
        let left = left();
        if began.elapsed() >= next_look_at_clients || left.is_zero() {
            let near = clients.look(&family, &inodes, &sockets);
            let near = sockets.iter().filter(|s| near.contains(&s.inode));
            near.for_each(|socket| connections.is_near(socket.cookie));
            next_look_at_clients = began.elapsed() + LOOK_AT_CLIENTS;
        }
        if left.is_zero() {
            return Ok((connections, clients));
        }
        if !process::runs(pid) {
            bail!(
                "--record: {name} ({pid}) ended after {:.1} s",
                began.elapsed().as_secs_f64()
            );
        }
        thread::sleep(left.min(LOOK));
    }
}

/// How many programs wanted a processor over the last minute, see proc_loadavg(5); `None`: the system does not tell.
pub fn load_average() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(cookie: u64, segments_in: u32, segments_out: u32) -> Socket {
        let remote = if cookie == 1 {
            "127.0.0.1:2"
        } else {
            "10.0.0.2:2"
        };
        Socket {
            cookie,
            inode: 1,
            local: "10.0.0.1:1".parse().unwrap(),
            remote: remote.parse().unwrap(),
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
        connections.look([socket(1, 10, 10)].into_iter());
        connections.look([socket(1, 14, 18), socket(2, 3, 3)].into_iter());
        connections.look([socket(1, 20, 30)].into_iter());
        let mut observation = Observation::default();
        connections.add_to(&mut observation);
        // Ten requests, each answered by two segments, and three.
        assert_eq!(observation.exchanges, 13.0);
        assert_eq!(observation.bytes_in, 1300.0);
        assert_eq!(observation.bytes_out, 23_000.0);
        assert_eq!((observation.connections, observation.opened), (2, 1));
        assert!((observation.local_share - 10.0 / 13.0).abs() < 1e-12);
        // One was there all the time, one at one look of three.
        assert!((observation.concurrent - 4.0 / 3.0).abs() < 1e-12);
        connections.is_near(2);
        let mut near = Observation::default();
        connections.add_to(&mut near);
        assert_eq!(near.local_share, 1.0);
    }
}
