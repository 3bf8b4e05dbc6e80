//! `shunt lab cable`: watches and changes the cable of TAPs, and the process that is it.
//!
//! That process has the two TAPs as its standard input and output and belongs to no host. It is
//! asked over a socket beside the labs' state: one line of JSON each way.

use std::{
    io::{BufRead, BufReader, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::Args;
use lab::{Lab, state};
use netem::{
    CableCounters,
    join::{Control, Joined, Settings},
};
use serde::{Deserialize, Serialize};

use super::{Name, impairments::Impairments};
use crate::sys;

/// How long a cable may take to start or to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Show what the cable of a lab does to frames, or change it while everything runs.
///
/// A change lays a new cable: frames on the way are lost, and counters start anew.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt lab cable
  shunt lab cable --impair loss=3%,delay=50ms
  shunt lab cable --name wan --impair rate=10mbit --impair-back rate=1mbit --json")]
pub struct Arguments {
    #[command(flatten)]
    name: Name,
    #[command(flatten)]
    impairments: Impairments,
    /// Print what it does and did as JSON.
    #[arg(long)]
    json: bool,
}

/// Carry frames between standard input and output, both TAPs: the process that `lab up` starts.
#[derive(Debug, Args)]
pub struct Carry {
    /// Where it is asked.
    #[arg(long)]
    socket: PathBuf,
    /// What it does to frames, as JSON.
    #[arg(long)]
    settings: String,
}

/// What a cable says of itself.
#[derive(Debug, Serialize, Deserialize)]
struct Status {
    settings: Settings,
    counters: [CableCounters; 2],
}

pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let lab = Lab::open(&arguments.name.name)?;
    let socket = socket_of(lab.name())?;
    let mut status = ask(&socket, None).with_context(|| {
        let (name, cable) = (lab.name(), lab.cable());
        format!("lab {name} has no running cable of TAPs (its cable is {cable}): see `shunt lab up --cable tap`")
    })?;
    if arguments.impairments.given() {
        let settings = arguments.impairments.change(status.settings)?;
        status = ask(&socket, Some(settings))?;
    }
    output::print_result(arguments.json, &status, || {
        let hosts: Vec<&str> = lab.hosts().iter().map(|h| h.spec().name.as_str()).collect();
        status.text(&hosts)
    })?;
    Ok(ExitCode::SUCCESS)
}

impl Status {
    fn text(&self, hosts: &[&str]) -> String {
        let mut text = format!("seed {}\n", self.settings.seed);
        let directions = self.settings.impairments.iter().zip(&self.counters);
        for (index, (impairment, counters)) in directions.enumerate() {
            let name = |index: usize| hosts.get(index).copied().unwrap_or("?");
            let does = impairment.to_string();
            let does = if does.is_empty() { "nothing" } else { &does };
            let CableCounters {
                offered,
                delivered,
                lost,
                burst_lost,
                overflowed,
                duplicated,
                corrupted,
                reordered,
                marked,
            } = counters;
            text += &format!(
                "{} to {}: {does}\n  frames offered {offered}, delivered {delivered}, lost {lost}, lost in bursts {burst_lost}, \
                 dropped by the queue {overflowed}, duplicated {duplicated}, corrupted {corrupted}, \
                 reordered {reordered}, marked {marked}\n",
                name(index),
                name(1 - index),
            );
        }
        text
    }
}

/// Starts the process that joins the TAPs of a lab, and waits until it answers.
pub fn start(lab: &mut Lab, taps: [OwnedFd; 2], settings: Settings) -> anyhow::Result<()> {
    let socket = socket_of(lab.name())?;
    forget(lab.name())?;
    let [first, second] = taps;
    let own = lab::own_binary();
    let mut command = Command::new(own);
    command
        .args(["lab", "carry", "--socket"])
        .arg(&socket)
        .arg("--settings")
        .arg(serde_json::to_string(&settings).context("composing JSON")?)
        .stdin(Stdio::from(first))
        .stdout(Stdio::from(second))
        .stderr(Stdio::null())
        .current_dir("/");
    sys::start_in_new_session(&mut command);
    let child = command
        .spawn()
        .context("starting the process that is the cable")?;
    lab.joined_by(child.id())?;
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = ask(&socket, None) {
        if Instant::now() > deadline {
            return Err(error.context("the cable does not answer"));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Removes what a cable left beside the labs' state.
pub fn forget(name: &str) -> anyhow::Result<()> {
    let socket = socket_of(name)?;
    match std::fs::remove_file(&socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", socket.display()))
        }
        _ => Ok(()),
    }
}

/// Runs the cable itself until it is killed or an interface goes away.
pub fn carry(arguments: &Carry) -> anyhow::Result<ExitCode> {
    let settings: Settings =
        serde_json::from_str(&arguments.settings).context("reading --settings")?;
    let duplicate = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned();
    let ends = [
        duplicate(std::io::stdin().as_fd()).context("standard input")?,
        duplicate(std::io::stdout().as_fd()).context("standard output")?,
    ];
    let listener = UnixListener::bind(&arguments.socket)
        .with_context(|| format!("binding {}", arguments.socket.display()))?;
    let mut joined = Joined::new(ends, settings).context("making an eventfd")?;
    let control = joined.control();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // One question at a time; a caller that says nothing is left after a while.
            let _ = answer(&stream, &control);
        }
    });
    joined.run().context("carrying frames")?;
    Ok(ExitCode::SUCCESS)
}

fn answer(stream: &UnixStream, control: &Control) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    if let Some(settings) = serde_json::from_str::<Option<Settings>>(&line)? {
        control.set(settings);
    }
    let status = Status {
        settings: control.settings(),
        counters: control.counters(),
    };
    let mut stream = stream;
    writeln!(stream, "{}", serde_json::to_string(&status)?)?;
    Ok(())
}

fn ask(socket: &Path, change: Option<Settings>) -> anyhow::Result<Status> {
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("connecting to {}", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "{}", serde_json::to_string(&change)?)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    if line.is_empty() {
        bail!("the cable refused the question");
    }
    serde_json::from_str(&line).context("reading the cable's answer")
}

fn socket_of(name: &str) -> anyhow::Result<PathBuf> {
    Ok(state::directory()?.join(format!("cable-{name}.socket")))
}
