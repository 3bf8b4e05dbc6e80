//! `shunt upgrade`: another build takes a running engine's place, and its connections go on.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use hostif::control::{QueryKind, receive, send};
use inspect::control::Channel;
use output::{print, print_json};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::net::{RecvFlags, SocketFlags};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::engine::keeper::{Request, endpoint};

/// How long the new build may take to look at the state, and to serve.
const PATIENCE: Duration = Duration::from_secs(20);

/// Let another build take a running engine's place; its programs' connections go on.
///
/// The new build looks at the engine's state first. Where it cannot go on with that, or does not serve, the old one goes on.
/// Engines over AF_XDP or DPDK, or with --capture, have to be started again; an engine inside a
/// program is of the new build when the program is started the next time.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt upgrade                                  (this binary, for the usual engine)
  shunt upgrade --engine @shunt/b --with ./shunt-1.3
  shunt upgrade --json | jq .pause_us

Exit status: 0 where the new build serves, 1 where the old one goes on, 2 otherwise.")]
pub struct Arguments {
    /// The engine: its control socket, @NAME or a path.
    #[arg(long, value_name = "ADDRESS", env = hostif::ENGINE_VARIABLE, default_value = hostif::DEFAULT_ENGINE_NAME)]
    engine: String,
    /// The build that is to take its place [default: this one].
    #[arg(long, value_name = "FILE")]
    with: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let name = &arguments.engine;
    let channel = Channel::open(name)?;
    let channel = channel.with_context(|| format!("no engine answers at {name}"))?;
    let status = channel.query(QueryKind::Status)?;
    if status["mode"] == "inline" {
        let text = "this engine is inside its program: it is of the new build when the program is started the next time";
        return tell(arguments, &json!({"upgraded": false, "why": text}), text, 0);
    }
    if status["kept"].is_null() {
        bail!(
            "the engine at {name} has no keeper (AF_XDP, DPDK or --capture): end it and start the new build"
        );
    }
    let file = match &arguments.with {
        Some(file) => file.clone(),
        None => std::env::current_exe().context("finding this binary")?,
    };
    let file =
        std::fs::canonicalize(&file).with_context(|| format!("--with {}", file.display()))?;
    let refused = ask_keeper(channel.pid()?, &file)?;
    let outcome = match refused {
        Some(why) => Err(why),
        None => wait_for_successor(name, &status["kept"])?,
    };
    match outcome {
        Ok(after) => {
            let pause_us = after["kept"]["pause_us"].as_u64().unwrap_or(0);
            let connections = &after["connections"];
            let text = format!(
                "{} serves at {name} with {connections} connections; nobody was served for {}.{} ms",
                file.display(),
                pause_us / 1_000,
                pause_us % 1_000 / 100,
            );
            let report =
                json!({"upgraded": true, "pause_us": pause_us, "connections": connections});
            tell(arguments, &report, &text, 0)
        }
        Err(why) => {
            let text = format!("the engine at {name} goes on as it was: {why}");
            tell(arguments, &json!({"upgraded": false, "why": why}), &text, 1)
        }
    }
}

fn tell(arguments: &Arguments, report: &Value, text: &str, code: u8) -> anyhow::Result<ExitCode> {
    if arguments.json {
        print_json(report)?;
    } else if code == 0 {
        print(&format!("{text}\n"))?;
    } else {
        note!("shunt: {text}");
    }
    Ok(ExitCode::from(code))
}

/// Asks the keeper for the build in `file`; why it refuses.
fn ask_keeper(keeper: u32, file: &Path) -> anyhow::Result<Option<String>> {
    let listener = hostif::control::listen(&endpoint(keeper, std::process::id()))
        .context("listening for the engine's keeper")?;
    let pid = i32::try_from(keeper).ok().and_then(Pid::from_raw);
    let pid = pid.context("the engine has no process number")?;
    kill_process(pid, Signal::USR1).with_context(|| {
        format!("asking process {keeper}: only root and the user who runs the engine may")
    })?;
    let channel = accept(&listener)?;
    let asked = serde_json::to_vec(&Request::With(file.to_owned()))?;
    send(channel.as_fd(), &asked, &[]).context("asking the engine's keeper")?;
    wait_until_readable(&channel)?;
    let answer = receive(channel.as_fd(), RecvFlags::empty()).context("hearing the keeper")?;
    match serde_json::from_slice(&answer.bytes) {
        Ok(Request::Ready) => Ok(None),
        Ok(Request::Refused(why)) => Ok(Some(why)),
        _ => bail!("the engine's keeper has not answered: the engine goes on as it was"),
    }
}

fn accept(listener: &OwnedFd) -> anyhow::Result<OwnedFd> {
    wait_until_readable(listener)?;
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC).context("meeting the engine's keeper")
}

fn wait_until_readable(fd: &OwnedFd) -> anyhow::Result<()> {
    let patience = Timespec::try_from(PATIENCE).context("a timeout")?;
    let mut ready = [PollFd::new(fd, PollFlags::IN)];
    let count = poll(&mut ready, Some(&patience)).context("waiting for the engine's keeper")?;
    if count == 0 {
        bail!("the engine's keeper does not answer: the engine goes on as it was");
    }
    Ok(())
}

/// Until the new build serves, or the old one does again, and why.
fn wait_for_successor(name: &str, before: &Value) -> anyhow::Result<Result<Value, String>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let channel = Channel::open(name)?;
        let status = channel.and_then(|channel| channel.query(QueryKind::Status).ok());
        if let Some(status) = status {
            let kept = &status["kept"];
            if kept["failed_upgrades"] != before["failed_upgrades"] {
                let why = "the new build ended when it was to serve; the engine's log says why";
                return Ok(Err(why.to_owned()));
            }
            if kept["upgrades"] != before["upgrades"] {
                return Ok(Ok(status));
            }
        }
        if Instant::now() >= deadline {
            bail!("no engine answers at {name}: see its log");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
