//! Another build takes the engine's place, as `shunt upgrade` asks.
//!
//! The command listens at [`endpoint`] and sends the keeper SIGUSR1; the kernel says who sent it. A process that the keeper
//! forks, with descriptors of its own, asks the command which file it is to be and has that file look at the state
//! (`--check-state`). If it can go on, the keeper ends the engine and executes the file: the same process, another build, with
//! the same descriptors. One whose engine does not live executes the build before again.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use engine::{Config, History, KeptState};
use hostif::control::{receive, send};
use rustix::fd::{AsFd as _, AsRawFd as _, RawFd};
use rustix::net::{RecvFlags, sockopt};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::super::arguments::Arguments;
use super::Keeper;
use crate::sys;

/// By it a build that is executed in another's place learns what it has.
const VARIABLE: &str = "SHUNT_KEPT";
/// What a build says that can go on.
const CAN: &str = "shunt: this build can go on with that state";

/// What `shunt upgrade` wants, and hears.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// This file is to be the engine.
    With(PathBuf),
    /// It can go on, and does now.
    Ready,
    /// It cannot, and why.
    Refused(String),
}

/// Where the command of process `command` listens for the keeper.
pub fn endpoint(keeper: u32, command: u32) -> String {
    format!("@shunt/upgrade/{keeper}/{command}")
}

/// A build that is being looked at.
pub(super) struct Replacement {
    helper: Pid,
    file: sys::Shared,
    /// Once the helper has ended: whether it found that the build can go on.
    outcome: Option<bool>,
}

impl Replacement {
    /// Looks whether the helper has ended.
    pub(super) fn is_preparing(&mut self) -> bool {
        if self.outcome.is_none() {
            let ended = super::ended(self.helper).ok().flatten();
            self.outcome = ended.map(|status| status.exit_status() == Some(0));
        }
        self.outcome.is_none()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.outcome == Some(true)
    }
}

/// What one build leaves to the next, by number where it is a descriptor.
#[derive(Serialize, Deserialize)]
struct Legacy {
    state: RawFd,
    listener: RawFd,
    own: Vec<RawFd>,
    words: Vec<Vec<u8>>,
    before: Option<RawFd>,
    unreaped: Option<i32>,
    stopped_ns: u64,
    why: Option<String>,
    history: HashMap<String, u64>,
}

impl Keeper {
    /// Has somebody look at what process `command` wants.
    pub(super) fn prepare(&self, command: libc::pid_t) -> anyhow::Result<Option<Replacement>> {
        let file = sys::Shared::new().context("sharing a page")?;
        let Some(helper) = sys::fork().context("starting a helper")? else {
            self.signals.let_go();
            let is_ready = self.look(command, &file).unwrap_or(false);
            std::process::exit(if is_ready { 0 } else { 1 });
        };
        Ok(Some(Replacement {
            helper,
            file,
            outcome: None,
        }))
    }

    /// In the helper: whether the build that the command names can go on.
    fn look(&self, command: libc::pid_t, file: &sys::Shared) -> anyhow::Result<bool> {
        let keeper = rustix::process::getppid().context("the keeper is gone")?;
        let number = |pid: libc::pid_t| u32::try_from(pid).unwrap_or(0);
        let name = endpoint(number(keeper.as_raw_nonzero().get()), number(command));
        let channel = hostif::control::connect(&name).context("reaching the command")?;
        let peer = sockopt::socket_peercred(&channel).context("asking who listens")?;
        if peer.pid.as_raw_nonzero().get() != command {
            bail!("somebody else listens there");
        }
        let asked = receive(channel.as_fd(), RecvFlags::empty()).context("hearing the command")?;
        let Ok(Request::With(path)) = serde_json::from_slice(&asked.bytes) else {
            bail!("no file was named");
        };
        let (answer, is_ready) = match self.try_build(&path) {
            Ok(()) => (Request::Ready, true),
            Err(error) => (Request::Refused(format!("{error:#}")), false),
        };
        if is_ready {
            file.put(path.as_os_str().as_bytes());
        }
        let answer = serde_json::to_vec(&answer)?;
        send(channel.as_fd(), &answer, &[]).context("answering the command")?;
        Ok(is_ready)
    }

    /// Has a build look at the state.
    fn try_build(&self, path: &Path) -> anyhow::Result<()> {
        let state = self.kept.state.try_clone().context("the engine's state")?;
        let tried = sys::without_library(&mut Command::new(path))
            .args(&self.words)
            .arg("--check-state")
            .stdin(state)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()
            .with_context(|| format!("{} cannot be executed", path.display()))?;
        let said = String::from_utf8_lossy(&tried.stdout);
        if tried.status.success() && said.trim() == CAN {
            return Ok(());
        }
        let error = String::from_utf8_lossy(&tried.stderr);
        let last = error.lines().rev().find(|line| !line.trim().is_empty());
        let why = last.map_or(String::new(), |line| {
            format!(": {}", line.trim_start_matches("shunt: "))
        });
        bail!(
            "{} cannot go on with this engine's state ({}){why}",
            path.display(),
            tried.status
        )
    }

    /// The engine has ended: executes the build. It returns where that cannot be, and this build goes on.
    pub(super) fn replace(&mut self, replacement: &Replacement) {
        let path = PathBuf::from(OsString::from_vec(replacement.file.bytes()));
        let own = std::fs::File::open("/proc/self/exe");
        let own = own.map(std::mem::ManuallyDrop::new);
        let before = own.as_ref().ok().map(|file| file.as_raw_fd());
        self.kept.history.upgrades += 1;
        self.why = Some(format!("{} takes the engine's place", path.display()));
        let failed = self.execute(&path.display().to_string(), before);
        self.kept.history.upgrades -= 1;
        self.kept.history.failed_upgrades += 1;
        self.why = failed
            .err()
            .map(|error| format!("another build did not take the engine's place: {error:#}"));
        if let Ok(file) = own {
            drop(std::mem::ManuallyDrop::into_inner(file));
        }
    }

    /// Executes a file in this process's place. It returns only if that cannot be.
    pub(super) fn execute(&self, path: &str, before: Option<RawFd>) -> anyhow::Result<()> {
        let history = &self.kept.history;
        let mut told: HashMap<String, u64> = [
            ("since_s", history.since_s),
            ("restarts", history.restarts.into()),
            ("upgrades", history.upgrades.into()),
            ("failed_upgrades", history.failed_upgrades.into()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        told.extend(history.last_s.map(|last_s| ("last_s".to_owned(), last_s)));
        let legacy = Legacy {
            state: self.kept.state.as_raw_fd(),
            listener: self.kept.listener.as_raw_fd(),
            own: self.own.clone(),
            words: self
                .words
                .iter()
                .map(|word| word.as_bytes().to_vec())
                .collect(),
            before,
            unreaped: self.unreaped.map(|pid| pid.as_raw_nonzero().get()),
            stopped_ns: self.kept.stopped_ns,
            why: self.why.clone(),
            history: told,
        };
        sys::keep_over_exec(engine::descriptor_numbers().context("counting descriptors")?);
        self.signals.let_go();
        let error = Command::new(path)
            .arg0("shunt")
            .args(&self.words)
            .env(VARIABLE, serde_json::to_string(&legacy)?)
            .exec();
        sys::close_at_exec(engine::open_descriptors).context("marking descriptors")?;
        Err(error).with_context(|| format!("executing {path}"))
    }
}

/// What a build before this one has left to it; `None`: it is the first.
pub(super) fn taken_over() -> anyhow::Result<Option<Keeper>> {
    let Some(text) = std::env::var_os(VARIABLE) else {
        return Ok(None);
    };
    let signals = sys::hold_signals_back().context("holding signals back")?;
    let legacy: Legacy = serde_json::from_slice(text.as_bytes()).context(VARIABLE)?;
    sys::close_at_exec(engine::open_descriptors).context("marking descriptors")?;
    let number = |name: &str| legacy.history.get(name).copied();
    let count = |name: &str| number(name).and_then(|count| u32::try_from(count).ok());
    let history = History {
        since_s: number("since_s").unwrap_or(0),
        restarts: count("restarts").unwrap_or(0),
        upgrades: count("upgrades").unwrap_or(0),
        failed_upgrades: count("failed_upgrades").unwrap_or(0),
        last_s: number("last_s"),
        pause_us: None,
    };
    Ok(Some(Keeper {
        kept: KeptState {
            keeper: std::process::id(),
            state: Arc::new(sys::inherited(legacy.state).context("the state")?),
            listener: Arc::new(sys::inherited(legacy.listener).context("the control socket")?),
            goes_on: true,
            left: Vec::new(),
            device: Vec::new(),
            stopped_ns: legacy.stopped_ns,
            history,
        },
        signals,
        begun: sys::Shared::new().context("sharing a page")?,
        own: legacy.own,
        words: legacy.words.into_iter().map(OsString::from_vec).collect(),
        before: legacy.before,
        why: legacy.why,
        short_lives: 0,
        unreaped: legacy.unreaped.and_then(Pid::from_raw),
    }))
}

/// `--check-state`: whether this build can go on with the state that is standard input.
pub fn check_state(mut config: Config, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if !super::is_for(arguments) {
        // What `shunt doctor --measure` has found since may be another driver.
        bail!("an engine that is started like this now has no keeper: name the --driver");
    }
    let state = Arc::new(std::io::stdin().as_fd().try_clone_to_owned()?);
    config.kept = Some(KeptState {
        listener: Arc::clone(&state),
        state,
        keeper: 0,
        goes_on: true,
        left: Vec::new(),
        device: Vec::new(),
        stopped_ns: 0,
        history: History::default(),
    });
    engine::check_state(&config, arguments.cores)?;
    output::print(&format!("{CAN}\n"))?;
    Ok(ExitCode::SUCCESS)
}
