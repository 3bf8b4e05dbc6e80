//! Clients of a watched program on the same machine: who holds the other ends of its connections, and how much
//! processor time they take. What else the machine does is then load of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::PathBuf,
};

use super::{
    process::{self, Thread, processor_s},
    sockets::{Asker, Socket},
};

/// Processes that hold the other ends.
#[derive(Debug)]
pub struct Clients {
    /// What every process had used before; one that is not here began later, from nothing.
    before_s: BTreeMap<u32, f64>,
    /// What each client had used when it was last seen.
    used_s: BTreeMap<u32, f64>,
    /// The same of each of their threads, when it was first and last seen.
    threads: BTreeMap<u32, (Thread, Thread)>,
    /// Other networks of this machine in which clients were looked for, containers' among them.
    networks: BTreeMap<PathBuf, Option<Asker>>,
}

/// Networks that are looked into at most.
const MOST_NETWORKS: usize = 64;

/// Both ends of connections as the clients see them, and the program's own sockets of these.
type Ends = BTreeMap<(SocketAddr, SocketAddr), u32>;

impl Clients {
    /// From now on.
    pub fn new() -> Self {
        let all = process::all().into_iter();
        Self {
            before_s: all.map(|pid| (pid, processor_s(pid))).collect(),
            used_s: BTreeMap::new(),
            threads: BTreeMap::new(),
            networks: BTreeMap::new(),
        }
    }

    /// Looks who holds the other ends of the program's connections, among all sockets of its network and, for what is
    /// not there, of the others that this machine has. Gives the program's sockets whose other end was found.
    pub fn look(
        &mut self,
        family: &[u32],
        own: &BTreeSet<u32>,
        sockets: &[Socket],
    ) -> BTreeSet<u32> {
        let own = sockets
            .iter()
            .filter(|socket| own.contains(&socket.inode))
            .map(|socket| ((socket.remote, socket.local), socket.inode));
        let mut missing: Ends = own.collect();
        let mut near = BTreeSet::new();
        let mut theirs = found(&mut missing, sockets, &mut near);
        if let (false, Some(&pid)) = (missing.is_empty(), family.first()) {
            self.open_networks(pid);
            for asker in self.networks.values().flatten() {
                let sockets = asker.sockets().unwrap_or_default();
                theirs.append(&mut found(&mut missing, &sockets, &mut near));
            }
        }
        if !theirs.is_empty() {
            self.count(family, &theirs);
        }
        near
    }

    /// Opens the networks of other processes; one that may not be opened stays closed.
    fn open_networks(&mut self, pid: u32) {
        let network = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let own = network(pid);
        for pid in process::all() {
            let Some(theirs) = network(pid).filter(|theirs| own.as_ref() != Some(theirs)) else {
                continue;
            };
            if self.networks.len() < MOST_NETWORKS {
                let open = || Asker::of(pid).ok();
                self.networks.entry(theirs).or_insert_with(open);
            }
        }
    }

    fn count(&mut self, family: &[u32], theirs: &BTreeSet<u32>) {
        for pid in process::all() {
            let holds = || !process::socket_inodes(&[pid]).is_disjoint(theirs);
            if !family.contains(&pid) && (self.used_s.contains_key(&pid) || holds()) {
                self.used_s.insert(pid, processor_s(pid));
                for (number, did) in process::usage(&[pid]).threads {
                    let first_and_last = self.threads.entry(number).or_insert((did, did));
                    first_and_last.1 = did;
                }
            }
        }
    }

    /// Their processor time since the beginning; none where nobody was found.
    pub fn used_s(&self) -> Option<f64> {
        let since = |(pid, used): (&u32, &f64)| {
            let before = self.before_s.get(pid).unwrap_or(&0.0);
            // A number that was given to another process meanwhile has a smaller count.
            if used >= before { used - before } else { *used }
        };
        (!self.used_s.is_empty()).then(|| self.used_s.iter().map(since).sum())
    }

    /// What their threads did since each was first seen.
    pub fn threads(&self) -> Vec<Thread> {
        let threads = self.threads.values();
        threads.map(|(first, last)| last.since(first)).collect()
    }
}

/// Sockets at the other ends of those that are missing, which then are missing no more but near.
fn found(missing: &mut Ends, sockets: &[Socket], near: &mut BTreeSet<u32>) -> BTreeSet<u32> {
    let mut theirs = BTreeSet::new();
    for socket in sockets {
        if let Some(own) = missing.remove(&(socket.local, socket.remote)) {
            near.insert(own);
            theirs.insert(socket.inode);
        }
    }
    theirs
}

/// How many would do this work if all did the same: one that does next to nothing counts for nothing.
pub fn alike(threads: &[Thread]) -> usize {
    let works = threads.iter().map(|thread| thread.used_s);
    let (sum, squares) = works.fold((0.0, 0.0), |(sum, squares), work| {
        (sum + work, squares + work * work)
    });
    if squares <= 0.0 {
        return 0;
    }
    // A whole number of threads, of those that were counted.
    (1..MOST_THREADS)
        .find(|count| *count as f64 + 0.5 > sum * sum / squares)
        .unwrap_or(MOST_THREADS)
}

/// Threads that are counted at most.
const MOST_THREADS: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        process::{Command, Stdio},
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn the_process_at_the_other_end_is_found_and_nobody_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut clients = Clients::new();
        // A client that works for as long as it is connected.
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; while echo >&3; do :; done");
        let mut child = Command::new("bash")
            .args(["-c", &script])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (mut stream, _): (TcpStream, _) = listener.accept().unwrap();
        let pid = std::process::id();
        let asker = Asker::of(pid).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        // Threads count from when they were first seen, which may be after much of the work.
        while clients.used_s().is_none_or(|used| used < 0.02) || alike(&clients.threads()) == 0 {
            assert!(Instant::now() < deadline, "{clients:?}");
            let _ = stream.read(&mut [0; 4096]).unwrap();
            let sockets = asker.sockets().unwrap();
            let own = process::socket_inodes(&[pid]);
            let near = clients.look(&[pid], &own, &sockets);
            assert!(near.is_subset(&own));
        }
        assert_eq!(alike(&clients.threads()), 1);
        assert_eq!(clients.used_s.keys().collect::<Vec<_>>(), [&child.id()]);
        let _ = stream.write(&[0]);
        drop(stream);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn nobody_at_the_other_end_is_no_client() {
        let mut clients = Clients::new();
        clients.look(&[], &BTreeSet::new(), &[]);
        assert_eq!(clients.used_s(), None);
    }

    #[test]
    fn threads_count_by_what_they_do() {
        let of = |used_s: &f64| Thread {
            used_s: *used_s,
            ready_s: *used_s,
        };
        let alike = |works: &[f64]| alike(&works.iter().map(of).collect::<Vec<_>>());
        assert_eq!(alike(&[]), 0);
        assert_eq!(alike(&[0.0, 0.0]), 0);
        assert_eq!(alike(&[3.0, 0.0, 0.1, 0.1]), 1);
        assert_eq!(alike(&[1.0, 0.9]), 2);
        assert_eq!(alike(&[0.05; 20]), 20);
    }
}
