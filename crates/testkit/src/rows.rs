//! A program of the matrix as one row of a table: what serves, what asks, and which end Shunt serves in which ways.
//!
//! Every line is text for bash, which ends at what fails; it begins in the row's folder, which is `$HOME`. `$SERVER` and
//! `$CLIENT` are the addresses of the two ends, `$PEERS` holds the sources of small programs that are no package's,
//! `$SELF` is the test's own file. A row is run over the kernel first, where all its clients must succeed, and then in each
//! way; what its clients print and how everything ends must be the same, addresses and the folder apart.

use std::{
    fmt::{self, Write as _},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use lab::{Finished, Program};
use rustix::process::Signal;

use crate::{
    PATIENCE, host, kernel_tcp,
    world::{self, Mode, World},
};

/// Longest life of a client; some of them start a virtual machine or a cluster first.
const LONG: Duration = Duration::from_secs(120);

/// Longest preparation: a compiler that builds a language's library first.
const BUILDING: Duration = Duration::from_secs(180);

/// How the SHA-256 of nothing begins: a client that received nothing on the kernel shows nothing about Shunt.
const NOTHING: &str = "e3b0c44298fc1c14";

/// The same sums by OpenSSL, where that is: it has the processor's instructions for them and takes a fifth of the time.
const HASHING: &str =
    "! command -v openssl >/dev/null || sha256sum() { openssl dgst -sha256 -r \"$@\"; }";

/// Programs of the tests' own.
const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");

/// What Shunt says where a kernel has nothing to say: the next program uses what one that has ended left behind.
const INLINE_NOTICES: [&str; 2] = [
    "shunt: an engine that an ended program left behind",
    "--engine-mode inline: engine @shunt/run/",
];

/// An end of a row's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Who is connected to.
    Server,
    /// Who connects.
    Client,
}

/// When a server is ready to be asked.
#[derive(Clone, Copy, Debug)]
pub enum Ready {
    /// It accepts a connection on this port, which the other end closes again.
    Accepts(u16),
    /// It says this on its standard output or error.
    Says(&'static str),
}

/// A program that runs until it is told to end.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    /// On which end it runs.
    pub at: End,
    /// Shell text; `exec` the server, so that it is what is told to end.
    pub line: &'static str,
    /// When it may be asked.
    pub ready: Ready,
    /// Refuses the root of a user namespace, and runs as an ordinary user there.
    pub unmapped: bool,
}

impl Server {
    /// A server on its end that accepts on a port until it is told to end.
    pub const fn new(line: &'static str, port: u16) -> Self {
        Self {
            at: End::Server,
            line,
            ready: Ready::Accepts(port),
            unmapped: false,
        }
    }
}

/// A row of the matrix.
#[derive(Clone, Copy, Debug)]
pub struct Row<'r> {
    /// Names the test in what is said of it.
    pub name: &'static str,
    /// Programs that must be there.
    pub needs: &'r [&'static str],
    /// Shell text that fails, and says why, where the row cannot be run.
    pub possible: &'static str,
    /// Shell text that prepares files, run by nobody's stack.
    pub before: &'static str,
    /// Started in this order.
    pub servers: &'r [Server],
    /// Run one after the other on the clients' end.
    pub clients: &'r [&'static str],
    /// Each end that Shunt serves, and how.
    pub tested: &'r [(End, &'r [Mode])],
    /// How it serves both ends on one host, over its loopback: the kernel's has nothing to do then.
    pub loopback: &'r [Mode],
}

/// What of a row runs under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tested {
    /// An end, with the other on another host.
    One(End),
    /// Both, on one host.
    Both,
}

impl Tested {
    fn has(self, end: End) -> bool {
        self == Self::Both || self == Self::One(end)
    }

    fn world(self, name: &str, way: Mode) -> World {
        match self {
            Self::One(end) => World::new(&format!("{name}-{end:?}"), way),
            Self::Both => World::over_loopback(&format!("{name}-loopback"), way),
        }
    }
}

impl Row<'_> {
    /// What most rows have in common.
    pub const EMPTY: Self = Self {
        name: "",
        needs: &[],
        possible: "",
        before: "",
        servers: &[],
        clients: &[],
        tested: &[],
        loopback: &[],
    };

    /// Runs the row over the kernel and in all its ways.
    ///
    /// # Panics
    /// Where one of them is not like the kernel, and where the row fails on the kernel.
    pub fn check(&self) {
        if !world::can_run(self.name, self.needs) || !self.is_possible() {
            return;
        }
        let mut faults = String::new();
        // Whichever end is tested, on the kernel both are the kernel's.
        let mut kernel = None;
        for (end, ways) in self.tested {
            let tested = Tested::One(*end);
            let kernel = kernel.get_or_insert_with(|| self.run_on_kernel(tested));
            faults += &self.faults(tested, ways, kernel);
        }
        if !self.loopback.is_empty() {
            let kernel = self.run_on_kernel(Tested::Both);
            faults += &self.faults(Tested::Both, self.loopback, &kernel);
        }
        assert!(faults.is_empty(), "{}: {faults}", self.name);
    }

    /// What the kernel does, which has to succeed.
    fn run_on_kernel(&self, tested: Tested) -> Transcript {
        let kernel = self.run(tested, Mode::Kernel);
        for (line, done) in self.clients.iter().zip(&kernel.clients) {
            let works = done.status == "exit status: 0" && !done.stdout.contains(NOTHING);
            assert!(works, "{line}\nfails on the kernel: {done}{kernel}");
        }
        kernel
    }

    /// Where the ways are not like the kernel.
    fn faults(&self, tested: Tested, ways: &[Mode], kernel: &Transcript) -> String {
        let (mut faults, mut transcripts) = (String::new(), String::new());
        for way in ways {
            let shunt = self.run(tested, *way);
            let differing = shunt.differing(kernel);
            if !differing.is_empty() {
                let _ = write!(faults, "\n{tested:?} on {way:?}: {differing}");
                let _ = write!(transcripts, "\n== {tested:?} on {way:?}:{shunt}");
            }
        }
        if !faults.is_empty() {
            let _ = write!(transcripts, "\n== {tested:?} on the kernel:{kernel}");
        }
        // What differs comes first: a log may be cut.
        faults + &transcripts
    }

    fn is_possible(&self) -> bool {
        let mut command = Command::new("sh");
        command
            .args(["-c", self.possible])
            .env("PEERS", PEERS)
            .env("PATH", world::path());
        let said = match command.output() {
            Ok(tried) if tried.status.success() => return true,
            Ok(tried) => String::from_utf8_lossy(&tried.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        let reason = said.trim().lines().last().unwrap_or("not possible here");
        world::skip(self.name, reason);
        false
    }

    fn run(&self, tested: Tested, way: Mode) -> Transcript {
        let world = tested.world(self.name, way);
        let stage = Stage::new(&world, tested);
        stage.prepare(self.before);
        let mut servers: Vec<Program> = Vec::new();
        for server in self.servers {
            servers.push(stage.serve(server));
        }
        let clients = self.clients.iter().map(|line| {
            let client = stage.start(End::Client, line, false);
            let done = client
                .finish(LONG, || false)
                .unwrap_or_else(|error| panic!("{}, {tested:?} on {way:?}: {error}", self.name));
            stage.told(&done)
        });
        let clients = clients.collect();
        stage.assert_served(self.name);
        // Those that were started last know of the others.
        let mut ends = Vec::new();
        let mut words = Vec::new();
        for program in servers.into_iter().rev() {
            program
                .signal(Signal::TERM)
                .unwrap_or_else(|error| panic!("{error}"));
            let done = program
                .finish(PATIENCE, || false)
                .unwrap_or_else(|error| panic!("{}, {tested:?} on {way:?}: {error}", self.name));
            ends.push(done.status.to_string());
            words.push(stage.told(&done));
        }
        if tested == Tested::Both && way != Mode::Kernel {
            kernel_tcp::assert_silent(host(&world.lab, "a"));
        }
        Transcript {
            clients,
            ends,
            servers: words,
        }
    }
}

/// A world with the ends' names.
struct Stage<'w> {
    world: &'w World,
    tested: Tested,
    server: String,
    client: String,
}

impl<'w> Stage<'w> {
    fn new(world: &'w World, tested: Tested) -> Self {
        let (own, peer) = (world.tested_address(), world.peer_address());
        let (server, client) = match tested {
            Tested::One(End::Server) | Tested::Both => (own, peer),
            Tested::One(End::Client) => (peer, own),
        };
        Self {
            world,
            tested,
            server,
            client,
        }
    }

    /// Starts a line on an end.
    fn start(&self, end: End, line: &str, unmapped: bool) -> Program {
        let text = format!("set -eo pipefail; {HASHING}; cd\n{line}");
        let plain = ["bash", "-c", &text];
        let (on, words) = if self.tested.has(end) {
            ("a", self.world.tested_words(&plain))
        } else {
            ("b", plain.to_vec())
        };
        let command = if unmapped {
            self.world.command_unmapped(on, &words)
        } else {
            self.world.command(on, &words)
        };
        self.launch(line, command)
    }

    /// Runs a line that is not under test.
    fn prepare(&self, line: &str) {
        let text = format!("cd\n{line}");
        let command = self.world.command("b", &["sh", "-ec", &text]);
        self.launch(line, command)
            .finish(BUILDING, || false)
            .and_then(Finished::success)
            .unwrap_or_else(|error| panic!("{error}"));
    }

    fn launch(&self, line: &str, mut command: Command) -> Program {
        // A compiler's cache is not in the row's folder.
        if let Some(home) = std::env::var_os("HOME") {
            command.env("GOCACHE", Path::new(&home).join(".cache/go-build"));
        }
        command
            .env("SERVER", &self.server)
            .env("CLIENT", &self.client)
            .env("SELF", own_file())
            .env("PEERS", PEERS)
            .env("LC_ALL", "C");
        world::launch(line, command)
    }

    fn serve(&self, server: &Server) -> Program {
        let mut program = self.start(server.at, server.line, server.unmapped);
        let waited = match server.ready {
            Ready::Accepts(port) => {
                let (address, asker) = match server.at {
                    End::Server => (&self.server, End::Client),
                    End::Client => (&self.client, End::Server),
                };
                program.wait_until("answer", LONG, |_| self.answers(asker, address, port))
            }
            Ready::Says(word) => program.wait_until(word, LONG, |program| {
                program.stdout().contains(word) || program.stderr().contains(word)
            }),
        };
        waited.unwrap_or_else(|error| panic!("{:?}: {error}", self.world.way));
        program
    }

    /// Whether a server accepts a connection, which the asking end closes again.
    fn answers(&self, asker: End, address: &str, port: u16) -> bool {
        if self.tested == Tested::Both {
            // As its clients ask, for the kernel may not be asked.
            let line = format!("exec 3<>/dev/tcp/{address}/{port}");
            return world::finish(self.start(asker, &line, false))
                .status
                .success();
        }
        let from = if self.tested.has(asker) { "a" } else { "b" };
        let address = format!("{address}:{port}");
        let address = address.parse().unwrap_or_else(|_| panic!("{address}"));
        let asking = host(&self.world.lab, from);
        asking.wait_connect(address, Duration::ZERO).is_ok()
    }

    /// That the engine carried bytes, or had its programs pass them; where it is within the program the policy alone forbids the kernel.
    fn assert_served(&self, name: &str) {
        if self.world.engine.is_none() {
            return;
        }
        let status = self.world.report("status");
        let count = |field: &str| status["copies"][field].as_u64().unwrap_or_default();
        let carried = count("sent_bytes") + count("received_bytes") + count("passed_bytes");
        assert!(carried > 0, "{name}: the engine carried nothing: {status}");
    }

    fn told(&self, done: &Finished) -> Told {
        let folder = self.world.folder.display().to_string();
        let plain = |text: &str| {
            text.replace(&self.server, "SERVER")
                .replace(&self.client, "CLIENT")
                .replace(&folder, "HOME")
        };
        let complaints = done.stderr.split_inclusive('\n');
        let complaints: String = complaints
            .filter(|line| {
                self.world.way != Mode::Inline
                    || !INLINE_NOTICES.iter().any(|notice| line.starts_with(notice))
            })
            .collect();
        Told {
            status: done.status.to_string(),
            stdout: plain(&done.stdout),
            stderr: plain(&complaints),
        }
    }
}

fn own_file() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|error| panic!("this test's file: {error}"))
}

/// What a program said, and its end.
struct Told {
    status: String,
    stdout: String,
    stderr: String,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tail = |text: &str| {
            text[text.floor_char_boundary(text.len().saturating_sub(2_000))..].to_owned()
        };
        let (stdout, stderr) = (tail(&self.stdout), tail(&self.stderr));
        write!(f, "\n{}\n{stdout}{stderr}", self.status)
    }
}

/// What came of a row in one way.
struct Transcript {
    clients: Vec<Told>,
    /// How the servers ended, the last one first.
    ends: Vec<String>,
    /// What they said, which is not compared: logs name times and processes.
    servers: Vec<Told>,
}

impl Transcript {
    /// Where it is not like that of the kernel, in a line for each program; empty: nowhere.
    fn differing(&self, kernel: &Self) -> String {
        let mut text = String::new();
        for (at, (shunt, kernel)) in self.clients.iter().zip(&kernel.clients).enumerate() {
            for (what, shunt, kernel) in [
                ("ends with", &shunt.status, &kernel.status),
                ("prints", &shunt.stdout, &kernel.stdout),
                ("complains", &shunt.stderr, &kernel.stderr),
            ] {
                if let Some((shunt, kernel)) = first_difference(shunt, kernel) {
                    let client = at + 1;
                    let _ = write!(
                        text,
                        "client {client} {what} {shunt:?}, on the kernel {kernel:?}; "
                    );
                }
            }
        }
        if self.ends != kernel.ends {
            let (ends, on_kernel) = (&self.ends, &kernel.ends);
            let _ = write!(
                text,
                "servers end with {ends:?}, on the kernel {on_kernel:?}"
            );
        }
        text
    }
}

/// The first lines that differ; where only their ends do, all of both.
fn first_difference<'t>(one: &'t str, other: &'t str) -> Option<(&'t str, &'t str)> {
    if one == other {
        return None;
    }
    let (mut ours, mut theirs) = (one.lines(), other.lines());
    loop {
        match (ours.next(), theirs.next()) {
            (None, None) => return Some((one, other)),
            (ours, theirs) if ours == theirs => {}
            (ours, theirs) => return Some((ours.unwrap_or(""), theirs.unwrap_or(""))),
        }
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for told in &self.clients {
            write!(f, "{told}")?;
        }
        for told in &self.servers {
            write!(f, "\n(server){told}")?;
        }
        Ok(())
    }
}
