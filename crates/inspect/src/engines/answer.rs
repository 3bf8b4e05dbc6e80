//! Asks engines, all at once, each with a deadline: one that is stopped or hangs is told of and keeps nobody waiting.

use std::{fs, thread, time::Duration};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::Found;
use crate::control::Channel;

/// How long an engine may take to answer somebody who only looks.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Engines that are asked at the same time.
const AT_ONCE: usize = 32;

/// An engine that gave no answer.
#[derive(Debug, Clone)]
pub struct Silent {
    /// Its process, where that is known.
    pub pid: Option<u32>,
    /// Why, for people.
    pub reason: String,
}

impl Silent {
    /// A line for people.
    pub fn line(&self, found: &Found) -> String {
        let process = self.pid.map_or(String::new(), |pid| {
            let name = observe::process::name(pid);
            let name = name.map_or(String::new(), |name| format!(", {name}"));
            format!(" (process {pid}{name})")
        });
        format!("engine {}{process}: {}", found.label(), self.reason)
    }

    /// The same for programs.
    pub fn to_json(&self, found: &Found) -> Value {
        json!({
            "name": found.name, "pid": self.pid, "namespace": namespace_of(found),
            "answers": false, "reason": self.reason,
        })
    }
}

/// The inode of the network namespace where that is not this command's own.
pub fn namespace_of(found: &Found) -> Option<u64> {
    found.namespace.as_ref().map(|namespace| namespace.inode)
}

/// Asks each engine by channels to all its cores.
pub fn ask_each<T: Send>(
    found: Vec<Found>,
    ask: impl Fn(&[Channel]) -> anyhow::Result<T> + Sync,
) -> Vec<(Found, Result<T, Silent>)> {
    let mut answers = Vec::new();
    let mut rest = found.into_iter();
    loop {
        let some: Vec<Found> = rest.by_ref().take(AT_ONCE).collect();
        if some.is_empty() {
            return answers;
        }
        let ask = &ask;
        let asked = thread::scope(|scope| {
            let threads: Vec<_> = some
                .iter()
                .map(|one| scope.spawn(move || ask_one(one, ask)))
                .collect();
            let joined = threads.into_iter().map(|thread| {
                let joined = thread.join();
                joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            joined.collect::<Vec<_>>()
        });
        answers.extend(some.into_iter().zip(asked));
    }
}

fn ask_one<T>(found: &Found, ask: impl Fn(&[Channel]) -> anyhow::Result<T>) -> Result<T, Silent> {
    let opened = match &found.namespace {
        None => Channel::open_within(&found.name, PATIENCE),
        Some(namespace) => namespace
            .enter(|| Channel::open_within(&found.name, PATIENCE))
            .and_then(|opened| opened),
    };
    let silent = |pid: Option<u32>, error: anyhow::Error| {
        let reason = match pid.filter(|&pid| is_stopped(lab::serving(pid))) {
            Some(_) => "does not answer (stopped)".to_owned(),
            None => format!("{error:#}"),
        };
        Silent { pid, reason }
    };
    let channel = opened
        .and_then(|channel| channel.context("no engine answers at that name"))
        .map_err(|error| silent(None, error))?;
    let pid = channel.pid().ok();
    // It would answer once it goes on, which nobody can say when.
    if pid.is_some_and(|pid| is_stopped(lab::serving(pid))) {
        return Err(silent(pid, anyhow::anyhow!("stopped")));
    }
    let channels = channel.all_cores();
    channels
        .and_then(|channels: Vec<Channel>| ask(&channels))
        .map_err(|error| silent(pid, error))
}

/// Whether a process was stopped by a signal or a debugger, see proc_pid_stat(5).
fn is_stopped(pid: u32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before may hold anything.
    let state = text.rsplit_once(") ").map(|(_, rest)| rest);
    state.is_some_and(|rest| rest.starts_with(['T', 't']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_whose_name_nobody_listens_is_told_of() {
        let found = Found {
            name: format!("@shunt/test/silent/{}", std::process::id()),
            namespace: None,
        };
        let answers = ask_each(vec![found], |_| Ok(()));
        let (found, answer) = &answers[0];
        let silent = answer.as_ref().unwrap_err();
        assert_eq!(silent.pid, None);
        let line = silent.line(found);
        assert!(line.contains("no engine answers"), "{line}");
        assert_eq!(silent.to_json(found)["answers"], false);
        assert!(!is_stopped(std::process::id()));
    }
}
