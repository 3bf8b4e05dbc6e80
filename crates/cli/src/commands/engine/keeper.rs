//! The keeper: the process that was started as `shunt engine`. The engine is a child of it that shares its descriptors, so
//! that whatever the engine has open stays open when it dies: its state, the programs' channels and memory, their backing
//! sockets, the device. Then the keeper starts the next engine, which goes on (docs/decisions/0067-state-that-outlives-its-engine.md).
//!
//! It has one thread, waits for signals, and does nothing else: it reads nothing that a program or a peer has written. It
//! gives up no right, since the next engine needs them to begin.

mod given_up;
mod replace;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail};
use engine::{History, KeptState};
use inspect::control;
use rustix::fd::RawFd;
use rustix::fs::MemfdFlags;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, WaitStatus, kill_process,
    waitid, waitpid,
};

use super::arguments::{Arguments, DriverName};
use super::checks::{self, Claims};
use crate::sys;
use replace::Replacement;
pub use replace::{Request, check_state, endpoint};

/// An engine that lives shorter than this has not gone on, although it has begun to serve.
const SHORT: Duration = Duration::from_millis(300);
/// How long an engine may take to end whose keeper was killed.
const LAST_MOMENT: Duration = Duration::from_millis(300);
/// So many of them in a row, and there is no next one.
const SHORT_LIVES: u32 = 3;

/// Who this process is.
pub enum Role {
    /// An engine, the child of a keeper.
    Engine(Child),
    /// The keeper, once there is no engine any more.
    Keeper(ExitCode),
}

/// What an engine has of its keeper.
pub struct Child {
    /// What outlives it.
    pub kept: KeptState,
    /// Why it goes on in the place of another.
    pub why: Option<String>,
    begun: sys::Shared,
}

impl Child {
    /// Tells the keeper that this engine serves.
    pub fn has_begun(&self) {
        self.begun.put(&[1]);
    }
}

/// Whether such an engine has a keeper; others take their connections along when they die.
pub fn is_for(arguments: &Arguments) -> bool {
    let is_handed_over = matches!(arguments.driver(), DriverName::AfPacket | DriverName::Tap);
    is_handed_over && arguments.capture.is_none()
}

/// Begins to keep, or goes on where another build has begun; returns in each engine, and in the keeper when there is no engine
/// any more.
pub fn begin(arguments: &Arguments) -> anyhow::Result<Role> {
    confine::be_undumpable();
    let role = match replace::taken_over()? {
        Some(keeper) => keeper.keep(arguments),
        None => {
            checks::check_addresses(arguments.own_addresses(), &arguments.gateway)?;
            let (claims, keeper) = take_place(arguments)?;
            let role = keeper.keep(arguments);
            if matches!(role, Ok(Role::Engine(..))) {
                // They are the keeper's, with which this process shares them.
                std::mem::forget(claims);
            }
            role
        }
    };
    if !matches!(role, Ok(Role::Engine(..))) {
        // What an engine removes at its end, if it comes to that.
        control::remove_stale(&arguments.name)?;
    }
    role
}

/// Claims the addresses and the name. The engine of a keeper that was killed ends a moment after it.
fn take_place(arguments: &Arguments) -> anyhow::Result<(Claims, Keeper)> {
    let deadline = Instant::now() + LAST_MOMENT;
    loop {
        let taken = Claims::take(arguments.own_addresses()).and_then(|claims| {
            control::remove_stale(&arguments.name)
                .with_context(|| format!("removing the old --name {}", arguments.name))?;
            Ok((claims, Keeper::new(arguments)?))
        });
        if taken.is_ok() || Instant::now() >= deadline {
            return taken;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

struct Keeper {
    kept: KeptState,
    signals: sys::HeldBack,
    /// The engine leaves something there when it serves. On a busy machine its beginning takes seconds: time tells nothing.
    begun: sys::Shared,
    /// What was open before the first engine began.
    own: Vec<RawFd>,
    /// What the first build was started with.
    words: Vec<OsString>,
    /// The build before, for when this one does not live: the number of its file.
    before: Option<RawFd>,
    /// Why the next engine goes on in the place of another.
    why: Option<String>,
    short_lives: u32,
    /// The process of the engine before: the kernel drops its entries of /proc when it is waited for, which takes 15 ms where somebody has
    /// looked at its descriptors. The next engine begins first.
    unreaped: Option<Pid>,
}

/// How an engine has ended.
enum End {
    /// By itself: its status.
    Orderly(u8),
    /// Because somebody asked it to: its status.
    Asked(u8),
    /// A signal or a panic has ended it.
    Crash(String),
    /// Another build is to take its place.
    Replaced(Replacement),
}

impl Keeper {
    fn new(arguments: &Arguments) -> anyhow::Result<Self> {
        let access = checks::socket_access(arguments)?;
        let listener = engine::open_control_socket(&arguments.name, access)
            .with_context(|| format!("--name {}", arguments.name))?;
        let state = rustix::fs::memfd_create(c"shunt-state", MemfdFlags::CLOEXEC)
            .context("making a file for the engine's state")?;
        let signals = sys::hold_signals_back().context("holding signals back")?;
        Ok(Self {
            kept: KeptState {
                state: Arc::new(state),
                keeper: std::process::id(),
                listener: Arc::new(listener),
                goes_on: false,
                left: Vec::new(),
                device: Vec::new(),
                stopped_ns: 0,
                history: History {
                    since_s: seconds(),
                    ..History::default()
                },
            },
            signals,
            begun: sys::Shared::new().context("sharing a page")?,
            own: engine::open_descriptors().context("listing descriptors")?,
            words: std::env::args_os().skip(1).collect(),
            before: None,
            why: None,
            short_lives: 0,
            unreaped: None,
        })
    }

    /// One engine after the other.
    fn keep(mut self, arguments: &Arguments) -> anyhow::Result<Role> {
        loop {
            let started = Instant::now();
            self.begun.put(&[0]);
            let engine = sys::start_beside(&self.signals).context("starting the engine")?;
            let Some(engine) = engine else {
                return self.be_engine();
            };
            if let Some(before) = self.unreaped.take() {
                // A script that a build begins with may have waited for it.
                let _ = ended(before);
            }
            let end = self.wait_for(engine)?;
            self.unreaped = Some(engine);
            self.kept.stopped_ns = engine::clock_ns();
            let has_begun = !self.begun.bytes().is_empty();
            let is_short = !has_begun || started.elapsed() < SHORT;
            if is_short && let Some(before) = self.before.filter(|_| end.is_failure()) {
                self.kept.history.failed_upgrades += 1;
                self.kept.history.upgrades = self.kept.history.upgrades.saturating_sub(1);
                self.why = Some(
                    "the build that was to take this one's place did not live: going on".to_owned(),
                );
                let failed = self.execute(&format!("/proc/self/fd/{before}"), None);
                self.reset_connections(arguments);
                failed?;
                bail!("the build before cannot be started again");
            }
            let went_on = std::mem::replace(&mut self.kept.goes_on, true);
            match end {
                End::Orderly(code) | End::Asked(code) => {
                    if went_on && (!has_begun || (is_short && end.is_failure())) {
                        self.reset_connections(arguments);
                    }
                    return Ok(Role::Keeper(ExitCode::from(code)));
                }
                End::Crash(how) => {
                    let noted = self.note_crash(&how, is_short);
                    if noted.is_err() {
                        self.reset_connections(arguments);
                    }
                    noted?;
                }
                End::Replaced(replacement) => {
                    self.kept.history.last_s = Some(seconds());
                    self.replace(&replacement);
                }
            }
        }
    }

    /// In the child.
    fn be_engine(mut self) -> anyhow::Result<Role> {
        if self.kept.goes_on {
            self.kept.left = engine::open_descriptors().context("listing descriptors")?;
            let own = &self.own;
            self.kept.left.retain(|number| {
                own.binary_search(number).is_err() && Some(*number) != self.before
            });
        }
        // The descriptors are the keeper's, with which this process shares them. A panic that unwound would close them.
        std::mem::forget(self.kept.clone());
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            report(panic);
            std::process::abort();
        }));
        Ok(Role::Engine(Child {
            kept: self.kept,
            why: self.why,
            begun: self.begun,
        }))
    }

    fn note_crash(&mut self, how: &str, is_short: bool) -> anyhow::Result<()> {
        self.short_lives = if is_short { self.short_lives + 1 } else { 0 };
        if self.short_lives == SHORT_LIVES {
            bail!("the engine {how}, as those before it that had gone on: giving up");
        }
        let history = &mut self.kept.history;
        history.restarts = history.restarts.saturating_add(1);
        history.last_s = Some(seconds());
        let count = history.restarts;
        self.why = Some(format!(
            "the engine {how}; another one goes on (restart {count})"
        ));
        Ok(())
    }

    /// Until the engine has ended. What asks this process to end asks the engine.
    fn wait_for(&self, engine: Pid) -> anyhow::Result<End> {
        let (mut is_asked, mut replacing) = (false, None);
        loop {
            let (signal, sender, user) = self.signals.wait().context("waiting for the engine")?;
            match signal {
                libc::SIGCHLD => {}
                libc::SIGUSR1 => {
                    // The engine, which shares descriptors with this process, is nobody to listen to.
                    let is_trusted = user == 0 || user == rustix::process::geteuid().as_raw();
                    let is_other = sender > 0 && sender != engine.as_raw_nonzero().get();
                    if is_trusted && is_other && replacing.is_none() {
                        replacing = self.prepare(sender)?;
                    }
                    continue;
                }
                signal => {
                    is_asked = true;
                    let signal = Signal::from_named_raw(signal).unwrap_or(Signal::TERM);
                    // It may have ended already.
                    let _ = kill_process(engine, signal);
                    continue;
                }
            }
            if let Some(status) = status(engine, WaitIdOptions::NOHANG)? {
                let (signal, code) = (status.terminating_signal(), status.exit_status());
                return Ok(End::of(signal, code, is_asked));
            }
            let prepared = replacing.take_if(|one: &mut Replacement| !one.is_preparing());
            if let Some(replacement) = prepared.filter(Replacement::is_ready) {
                // Its rows are true at every store.
                let _ = kill_process(engine, Signal::KILL);
                status(engine, WaitIdOptions::empty())?;
                return Ok(End::Replaced(replacement));
            }
        }
    }
}

impl End {
    fn of(signal: Option<i32>, code: Option<i32>, is_asked: bool) -> Self {
        let status = match (signal, code) {
            (Some(signal), _) if !is_asked => {
                return Self::Crash(format!("was ended by signal {signal}"));
            }
            (Some(signal), _) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
            (None, code) => code.and_then(|code| u8::try_from(code).ok()).unwrap_or(2),
        };
        if is_asked {
            Self::Asked(status)
        } else {
            Self::Orderly(status)
        }
    }

    /// Whether an engine that had just begun could not.
    fn is_failure(&self) -> bool {
        match self {
            Self::Orderly(code) => *code != 0,
            Self::Crash(_) => true,
            Self::Asked(_) | Self::Replaced(_) => false,
        }
    }
}

/// The status of a child that has ended; it is a zombie until [`ended`] hears of it.
fn status(child: Pid, options: WaitIdOptions) -> anyhow::Result<Option<WaitIdStatus>> {
    let options = options | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(child), options).context("waiting for the engine")
}

/// The status of a child that has ended.
fn ended(child: Pid) -> anyhow::Result<Option<WaitStatus>> {
    let ended = waitpid(Some(child), WaitOptions::NOHANG).context("waiting for a child")?;
    Ok(ended.map(|(_, status)| status))
}

fn seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_was_asked_to_end_has_not_failed_to_begin() {
        for (signal, code, is_asked, is_failure) in [
            (Some(15), None, true, false),
            (None, Some(2), true, false),
            (Some(11), None, false, true),
            (None, Some(2), false, true),
            (None, Some(0), false, false),
        ] {
            let end = End::of(signal, code, is_asked);
            assert_eq!(
                end.is_failure(),
                is_failure,
                "{signal:?} {code:?} {is_asked}"
            );
        }
        assert!(matches!(End::of(Some(15), None, true), End::Asked(143)));
    }
}
