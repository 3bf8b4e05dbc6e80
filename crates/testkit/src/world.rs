//! A world for unmodified programs: two hosts, a folder and, where Shunt is to serve, an engine on host `a`.
//!
//! What is under test runs on host `a` in one of the [`Mode`]s, its peer on the kernel of host `b`. What is missing on
//! this machine skips a test, and that is said past libtest's capture of output.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use lab::{Finished, Lab, LabSpec, Program};
use serde_json::Value;

use crate::{PATIENCE, host, shunt};

/// Who serves the program under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The kernel, with which the others are compared.
    Kernel,
    /// An engine of one core.
    Engine,
    /// An engine of two cores.
    Cores,
    /// An engine of one core over `AF_XDP`.
    Xdp,
    /// An engine within the program.
    Inline,
    /// An engine of one core, and every program supervised, none preloaded.
    Supervised,
}

impl Mode {
    /// What `shunt engine` is told; `None`: there is none beside the program.
    fn engine(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Kernel | Self::Inline => None,
            Self::Engine | Self::Supervised => Some(&["--cores", "1"]),
            Self::Cores => Some(&["--cores", "2"]),
            Self::Xdp => Some(&["--cores", "1", "--driver", "af_xdp"]),
        }
    }

    /// What `shunt run` is told besides the policy.
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Kernel | Self::Engine | Self::Cores | Self::Xdp => &[],
            Self::Inline => &["--engine-mode=inline"],
            Self::Supervised => &["--supervise", "only"],
        }
    }
}

/// Two hosts, a folder that is everybody's home, and who serves host `a`'s programs.
#[derive(Debug)]
pub struct World {
    /// Who serves the program under test.
    pub way: Mode,
    /// The engine, where one stands beside the programs. Ends before its hosts do.
    pub engine: Option<Program>,
    /// The hosts `a` and `b`.
    pub lab: Lab,
    /// Removed with this value.
    pub folder: PathBuf,
    /// Everything runs on host `a`, and meets over its loopback.
    is_loopback: bool,
    /// The engine shares the kernel's addresses of host `a`.
    is_shared: bool,
}

impl World {
    /// Builds the hosts and starts the engine. Ask [`can_run`] before.
    ///
    /// # Panics
    /// Where that fails.
    pub fn new(test: &str, way: Mode) -> Self {
        Self::build(test, way, false, &[])
    }

    /// As `new`, with further flags for `shunt engine`, as far as there is one. With `--share` among them it shares
    /// the kernel's addresses.
    ///
    /// # Panics
    /// Where that fails.
    pub fn with_engine(test: &str, way: Mode, flags: &[&str]) -> Self {
        Self::build(test, way, false, flags)
    }

    /// As `new`, with the peer on host `a` too, in the same way: both meet over its loopback.
    ///
    /// # Panics
    /// Where that fails.
    pub fn over_loopback(test: &str, way: Mode) -> Self {
        Self::build(test, way, true, &[])
    }

    /// The hosts alone, for a test that starts its engine in a way of its own.
    ///
    /// # Panics
    /// Where that fails.
    pub fn without_engine(test: &str, way: Mode) -> Self {
        Self::hosts(test, way, false, false)
    }

    fn build(test: &str, way: Mode, is_loopback: bool, flags: &[&str]) -> Self {
        let is_shared = flags.contains(&"--share");
        let mut world = Self::hosts(test, way, is_loopback, is_shared);
        world.engine = world.start_engine(flags);
        world
    }

    fn hosts(test: &str, way: Mode, is_loopback: bool, is_shared: bool) -> Self {
        let name = format!("{test}-{way:?}");
        let lab = Lab::temporary(&format!("t-{name}"), &LabSpec::default())
            .unwrap_or_else(|error| panic!("{error}"));
        let folder = std::env::temp_dir().join(format!("shunt-{name}-{}", std::process::id()));
        // Servers read it after a change of user.
        fs::DirBuilder::new()
            .mode(0o755)
            .create(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        Self {
            way,
            engine: None,
            lab,
            folder,
            is_loopback,
            is_shared,
        }
    }

    /// Starts an engine as this world's way needs one, with further flags, and waits until it serves. `None`: programs
    /// of this way have none beside them.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn start_engine(&self, flags: &[&str]) -> Option<Program> {
        let options = self.way.engine()?;
        let shunt = shunt().display().to_string();
        let words = [&[shunt.as_str(), "engine"], options, flags].concat();
        Some(crate::once_serving(self.start("a", &words)))
    }

    /// Number of the engine's process.
    ///
    /// # Panics
    /// Where none stands beside the programs.
    pub fn engine_pid(&self) -> u32 {
        let engine = self.engine.as_ref();
        engine
            .unwrap_or_else(|| panic!("{:?} has no engine process", self.way))
            .serving_pid()
    }

    /// Waits until the engine has gone on for a second, if it follows another one: of those that are killed sooner the third is given
    /// up.
    ///
    /// # Panics
    /// Where none does.
    pub fn wait_engine_goes_on(&self) {
        crate::wait_for("an engine that goes on", PATIENCE, || {
            let Ok(status) = serde_json::from_str::<Value>(&self.status()) else {
                return false;
            };
            let began_s = status["kept"]["last_s"].as_u64().unwrap_or(0);
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            now.is_ok_and(|now| now.as_secs() >= began_s + 2)
        });
    }

    /// Whether everything runs on host `a`.
    pub fn is_loopback(&self) -> bool {
        self.is_loopback
    }

    /// The address of the program under test.
    pub fn tested_address(&self) -> String {
        let spec = host(&self.lab, "a").spec();
        let address = match self.way {
            _ if self.is_loopback => return "127.0.0.1".to_owned(),
            Mode::Kernel => spec.address,
            _ if self.is_shared => spec.address,
            _ => spec.engine_address,
        };
        address.address.to_string()
    }

    /// The address of its peer.
    pub fn peer_address(&self) -> String {
        if self.is_loopback {
            // Another one, so that both can have servers on one port.
            return "127.0.0.2".to_owned();
        }
        host(&self.lab, "b").spec().address.address.to_string()
    }

    /// A path in the folder, as text.
    pub fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// A command for host `on`, beside Shunt.
    ///
    /// # Panics
    /// Where the host is gone.
    pub fn command(&self, on: &str, words: &[&str]) -> Command {
        self.prepared(on, words, false)
    }

    /// A command of an ordinary user for a program that refuses the root that a user namespace gives; of root elsewhere.
    ///
    /// # Panics
    /// Where the host is gone.
    pub fn command_unmapped(&self, on: &str, words: &[&str]) -> Command {
        self.prepared(on, words, self.lab.rootless())
    }

    fn prepared(&self, on: &str, words: &[&str], as_user: bool) -> Command {
        let host = host(&self.lab, on);
        let command = if as_user {
            host.command_as_user(words[0])
        } else {
            host.command(words[0])
        };
        let mut command = command.unwrap_or_else(|error| panic!("{error}"));
        command
            .args(&words[1..])
            .env("PATH", path())
            .env("HOME", &self.folder);
        command
    }

    /// The words of a program under test: with `shunt run` before them, but over the kernel.
    pub fn tested_words<'w>(&self, words: &[&'w str]) -> Vec<&'w str> {
        let shunt: &'static str = shunt().to_str().unwrap_or("shunt");
        match self.way {
            Mode::Kernel => words.to_vec(),
            way => {
                let loopback: &[&str] = if self.is_loopback {
                    &["--loopback"]
                } else {
                    &[]
                };
                let run = [shunt, "run", "--policy", "engine-only"];
                [&run, loopback, way.flags(), &["--"], words].concat()
            }
        }
    }

    /// Starts a program on a host, beside Shunt.
    pub fn start(&self, on: &str, words: &[&str]) -> Program {
        launch(words[0], self.command(on, words))
    }

    /// Starts a program on the side under test.
    pub fn start_tested(&self, words: &[&str]) -> Program {
        self.start("a", &self.tested_words(words))
    }

    /// Starts its peer.
    pub fn start_peer(&self, words: &[&str]) -> Program {
        self.start("b", words)
    }

    /// Runs a program on the side under test to its end.
    pub fn run_tested(&self, words: &[&str]) -> Finished {
        finish(self.start_tested(words))
    }

    /// Runs its peer to its end.
    pub fn run_peer(&self, words: &[&str]) -> Finished {
        finish(self.start_peer(words))
    }

    /// Waits until a server answers at `address`, with its port, asked from a host.
    ///
    /// # Panics
    /// Where it does not within [`PATIENCE`], or ends.
    pub fn wait_ready(&self, server: &mut Program, asked_from: &str, address: &str) {
        let address = address
            .parse()
            .unwrap_or_else(|error| panic!("{address}: {error}"));
        let asking = host(&self.lab, asked_from);
        server
            .wait_until("answer", PATIENCE, |_| {
                asking.wait_connect(address, Duration::ZERO).is_ok()
            })
            .unwrap_or_else(|error| panic!("{error}"));
    }

    /// Writes the file `content`, without repetition, and returns its SHA-256.
    ///
    /// # Panics
    /// Where it cannot be written.
    pub fn content(&self, bytes: usize) -> String {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let words = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        let bytes: Vec<u8> = words.take(bytes / 8).flatten().collect();
        let path = self.folder.join("content");
        fs::write(&path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        sha256(&path)
    }

    /// What `shunt status --json` prints now, also where no engine answers.
    pub fn status(&self) -> String {
        self.asked("status").stdout
    }

    /// What `shunt status` or `shunt ss` says with `--json`, once the engine answers: who asks gives it two seconds, which a
    /// busy machine may not leave it.
    ///
    /// # Panics
    /// Where it does not answer within [`PATIENCE`].
    pub fn report(&self, command: &str) -> Value {
        let mut report = None;
        crate::wait_for("answer of the engine", PATIENCE, || {
            let told = self.asked(command);
            report = told
                .success()
                .ok()
                .and_then(|told| serde_json::from_str(&told.stdout).ok());
            report.is_some()
        });
        report.expect("invariant: that was waited for")
    }

    fn asked(&self, command: &str) -> Finished {
        let shunt = shunt().display().to_string();
        finish(self.start("a", &[&shunt, command, "--json"]))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // What still runs may write there; the lab ends it a moment later.
        let _ = fs::remove_dir_all(&self.folder);
        // No test makes an engine do what it may not (crate `confine`).
        let said = self.engine.as_ref().map(Program::stderr);
        let said = said.unwrap_or_default();
        let refused = said
            .lines()
            .find(|line| line.contains("was refused (EPERM)"));
        assert!(std::thread::panicking() || refused.is_none(), "{refused:?}");
    }
}

/// Starts a prepared command.
///
/// # Panics
/// Where it cannot be started.
pub fn launch(name: &str, command: Command) -> Program {
    Program::start(name, command).unwrap_or_else(|error| panic!("{error}"))
}

/// Waits for a program's end.
///
/// # Panics
/// Where it takes longer than [`PATIENCE`].
pub fn finish(program: Program) -> Finished {
    program
        .finish(PATIENCE, || false)
        .unwrap_or_else(|error| panic!("{error}"))
}

/// What a person in front of the terminal sees: the status, what was printed, what was complained of.
pub fn seen(finished: &Finished) -> (Option<i32>, &str, &str) {
    (
        finished.status.code(),
        &finished.stdout,
        finished.stderr.trim_end(),
    )
}

/// The SHA-256 of a file, by sha256sum(1).
///
/// # Panics
/// Where there is no such program or file.
pub fn sha256(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output();
    let text = output.map_or_else(|error| panic!("sha256sum: {error}"), |output| output.stdout);
    let text = String::from_utf8_lossy(&text).into_owned();
    let sum = text.split_ascii_whitespace().next();
    sum.unwrap_or_else(|| panic!("{}: no sum", path.display()))
        .to_owned()
}

/// Where programs are looked for: also where Debian keeps what only administrators start.
pub fn path() -> String {
    let mut path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    for version in versions.flatten() {
        path = format!("{path}:{}", version.path().join("bin").display());
    }
    path
}

/// Says past libtest's capture that a test is skipped, and why.
pub fn skip(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {reason}");
}

/// Which of these programs are not on this machine.
pub fn missing<'p>(programs: &[&'p str]) -> Vec<&'p str> {
    let path = path();
    let has = |program: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("command -v {program}")]);
        let found = command.env("PATH", &path).output();
        found.is_ok_and(|output| output.status.success())
    };
    let all = programs.iter().copied();
    all.filter(|program| !has(program)).collect()
}

/// Whether a test that needs these programs and hosts of its own can run here; says why not.
pub fn can_run(test: &str, programs: &[&str]) -> bool {
    let missing = missing(programs);
    if !missing.is_empty() {
        skip(test, &format!("not installed: {}", missing.join(", ")));
        return false;
    }
    let probe = Lab::temporary(&format!("t-{test}-probe"), &LabSpec::default());
    probe
        .inspect_err(|error| skip(test, &error.to_string()))
        .is_ok()
}
