//! One thing that is measured again and again, and what came of it.

use std::{
    ffi::OsStr,
    process::{Command, Stdio},
};

use super::site::Site;

/// What a case is compared as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// What the machine does by itself.
    Limit,
    /// This binary.
    Own,
    /// Somebody else's.
    Peer,
    /// A loop of the paper.
    Paper,
}

/// Moves the file once.
pub type Run = Box<dyn Fn(&Site) -> anyhow::Result<Ran>>;

/// One way of moving the file.
pub struct Case {
    /// Names it.
    pub key: String,
    pub title: String,
    pub group: Group,
    /// Programs that must be installed.
    pub tools: &'static [&'static str],
    /// Whether the file is there afterwards, to be checked.
    pub stores: bool,
    /// Moves it once.
    pub run: Run,
}

/// What one run came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Ran {
    /// Bytes over time.
    pub gbit_per_s: f64,
    /// Processor time of both ends for 10^9 bytes.
    pub cpu_s_per_gb: Option<f64>,
    /// Counters, where they are kept.
    pub counters: Option<Counters>,
    /// Ends of intervals in seconds, and bytes in each.
    pub intervals: Vec<(f64, u64)>,
}

/// What is counted of a loop, for each MiB moved.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Counters {
    /// System calls of the sender that moved bytes: each is a switch into the kernel and one back.
    pub sender_calls_per_mib: f64,
    /// Bytes that the sender's calls copied between program and kernel, for each byte moved.
    pub sender_copies: f64,
    pub receiver_calls_per_mib: f64,
    pub receiver_copies: f64,
    /// Times that either thread had to wait.
    pub voluntary_switches_per_mib: f64,
    /// Times that either lost its processor.
    pub involuntary_switches_per_mib: f64,
}

impl Ran {
    /// So many bytes in so many seconds.
    pub fn of(bytes: u64, seconds: f64, cpu_s: Option<f64>) -> Self {
        let bytes = bytes as f64;
        Self {
            gbit_per_s: bytes * 8.0 / 1e9 / seconds.max(1e-9),
            cpu_s_per_gb: cpu_s.map(|cpu| cpu / (bytes / 1e9)),
            counters: None,
            intervals: Vec::new(),
        }
    }
}

/// A command that reads nothing and prints nothing.
pub fn quiet(program: impl AsRef<OsStr>) -> Command {
    quiet_as(Command::new(program))
}

/// The same of one that is there.
pub fn quiet_as(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}
