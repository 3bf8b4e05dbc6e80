//! A second set of unmodified programs on the engine of a test, which must notice nothing of what the test does to it.
//!
//! Two pairs exchange counted, numbered and hashed messages all the time: a server on the side under test with a client
//! on the peer's host, and the other way round. Each keeps one connection, and a message that is wrong, lost or later
//! than a minute ends it; that ends the test. `witness.py` beside this file is the program of all four.

use std::{fs, path::PathBuf, time::Duration};

use lab::Program;

use crate::{PATIENCE, world::World};

/// What all four run. They need python3.
const PROGRAM: &str = include_str!("witness.py");

/// Programs whose messages are answered as long as they are watched.
#[derive(Debug)]
pub struct Witness {
    askers: [Program; 2],
    /// End with this value, after those who ask them.
    _servers: [Program; 2],
    /// The askers end once there is such a file.
    stop: PathBuf,
}

/// What a witness saw when nothing was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Testimony {
    /// Messages answered, of both pairs.
    pub answers: usize,
    /// The longest wait for one.
    pub slowest: Duration,
}

impl Witness {
    /// Starts both pairs in a world and waits until each was answered once. They need python3.
    ///
    /// # Panics
    /// Where that fails.
    pub fn start(world: &World) -> Self {
        Self::between(
            &|words| world.start_tested(words),
            &|words| {
                if world.is_loopback() {
                    world.start_tested(words)
                } else {
                    world.start_peer(words)
                }
            },
            [&world.tested_address(), &world.peer_address()],
            &world.path(""),
        )
    }

    /// As `start`, for a test with hosts of its own: how programs are started on the side under test and on its peer's,
    /// the addresses of both, and a folder in which every program may look for files.
    ///
    /// # Panics
    /// Where that fails.
    pub fn between(
        tested: &dyn Fn(&[&str]) -> Program,
        peer: &dyn Fn(&[&str]) -> Program,
        [tested_address, peer_address]: [&str; 2],
        folder: &str,
    ) -> Self {
        let mut servers = [
            tested(&["python3", "-c", PROGRAM, "serve", tested_address]),
            peer(&["python3", "-c", PROGRAM, "serve", peer_address]),
        ];
        let [tested_port, peer_port] = servers.each_mut().map(port_of);
        let stop = PathBuf::from(folder).join(format!("witness-{tested_port}-{peer_port}-stop"));
        let file = stop.display().to_string();
        let ask = |address, port| {
            ["python3", "-c", PROGRAM, "ask", address, port, &file].map(str::to_owned)
        };
        let words = [
            ask(tested_address, &tested_port),
            ask(peer_address, &peer_port),
        ];
        let [of_peer, of_tested] = words
            .each_ref()
            .map(|words| words.each_ref().map(String::as_str));
        let mut witness = Self {
            askers: [peer(&of_peer), tested(&of_tested)],
            _servers: servers,
            stop,
        };
        witness.goes_on(1);
        witness
    }

    /// Waits until each pair has so many further answers: what the test does meanwhile disturbs neither.
    ///
    /// # Panics
    /// Where they do not come within [`PATIENCE`], or one was wrong.
    pub fn goes_on(&mut self, further: usize) {
        for asker in &mut self.askers {
            let enough = answers(asker) + further;
            asker
                .wait_until("further answers of the witness", PATIENCE, |asker| {
                    answers(asker) >= enough
                })
                .unwrap_or_else(|error| panic!("{error}"));
        }
    }

    /// Messages answered so far, of both pairs.
    pub fn answers(&self) -> usize {
        self.askers.iter().map(answers).sum()
    }

    /// Ends the witness once each pair has so many answers in all; what it saw.
    ///
    /// # Panics
    /// Where one was wrong, lost or late.
    pub fn finish(mut self, at_least: usize) -> Testimony {
        for asker in &mut self.askers {
            asker
                .wait_until("all answers of the witness", PATIENCE, |asker| {
                    answers(asker) >= at_least
                })
                .unwrap_or_else(|error| panic!("{error}"));
        }
        fs::write(&self.stop, "")
            .unwrap_or_else(|error| panic!("{}: {error}", self.stop.display()));
        let mut seen = Testimony {
            answers: 0,
            slowest: Duration::ZERO,
        };
        for asker in self.askers {
            let finished = asker
                .finish(PATIENCE, || false)
                .and_then(lab::Finished::success);
            let finished = finished.unwrap_or_else(|error| panic!("the witness: {error}"));
            let (answers, slowest) = last_words(&finished.stdout)
                .unwrap_or_else(|| panic!("the witness says nothing: {finished:?}"));
            seen.answers += answers;
            seen.slowest = seen.slowest.max(slowest);
        }
        let _ = fs::remove_file(&self.stop);
        seen
    }
}

/// Where a server listens, once it has said so in a line "port NUMBER".
///
/// # Panics
/// It does not.
pub fn port_of(server: &mut Program) -> String {
    let said = |server: &Program| server.lines().iter().any(|line| line.starts_with("port "));
    server
        .wait_until("port", PATIENCE, said)
        .unwrap_or_else(|error| panic!("{error}"));
    let lines = server.lines();
    let port = lines.iter().find_map(|line| line.strip_prefix("port "));
    port.expect("invariant: it was just there").to_owned()
}

fn answers(asker: &Program) -> usize {
    let lines = asker.lines();
    let is_answer = |line: &&String| line.starts_with("answer ");
    let last = lines.iter().rev().find(is_answer);
    let number = last.and_then(|line| line.split(' ').nth(1)?.parse().ok());
    number.unwrap_or(0)
}

fn last_words(stdout: &str) -> Option<(usize, Duration)> {
    let words = stdout.lines().last()?.strip_prefix("done ")?;
    let (answers, slowest_ms) = words.split_once(' ')?;
    Some((
        answers.parse().ok()?,
        Duration::from_millis(slowest_ms.parse().ok()?),
    ))
}
