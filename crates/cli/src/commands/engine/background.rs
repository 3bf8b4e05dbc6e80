//! An engine in the background: this binary once more, with the same flags, in a session of its own.
//!
//! The process that starts it waits until it answers and then ends, so that the engine is nobody's
//! child: a program that `shunt run` starts never meets it in wait(2).

use std::{
    env, fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use crate::{control::Channel, sys};

/// The flag that asks for this.
const FLAG: &str = "--background";

/// How long an engine may take until it answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// An engine that answers.
#[derive(Debug)]
pub struct Started {
    /// Its process.
    pub pid: u32,
    /// Where it writes what it has to say.
    pub log: PathBuf,
}

/// Starts this command again without `--background`, and returns once it answers at `name`.
pub fn start(name: &str, log: Option<&Path>) -> anyhow::Result<Started> {
    let log = match log {
        Some(file) => file.to_owned(),
        None => usual_log(name)?,
    };
    let unwritable = || format!("--log {}", log.display());
    let file = fs::File::create(&log).with_context(unwritable)?;
    let mut command = Command::new("/proc/self/exe");
    command
        .args(env::args_os().skip(1).filter(|argument| argument != FLAG))
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file);
    sys::start_in_new_session(&mut command);
    let mut child = command.spawn().context("starting the engine")?;
    match wait_until_it_answers(&mut child, name, &log) {
        Ok(()) => Ok(Started {
            pid: child.id(),
            log,
        }),
        Err(error) => {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// One file per control socket, beside what else is kept of this user's labs and engines.
fn usual_log(name: &str) -> anyhow::Result<PathBuf> {
    let plain: String = name
        .trim_start_matches('@')
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let directory = lab::state::directory().context("finding a place for the log (--log)")?;
    // Other network namespaces may have an engine of that name.
    let namespace = fs::metadata("/proc/self/ns/net").context("reading /proc/self/ns/net")?;
    Ok(directory.join(format!("{plain}-{}.log", namespace.ino())))
}

fn wait_until_it_answers(child: &mut Child, name: &str, log: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().context("waiting for the engine")? {
            bail!("{}", last_words(log, &status.to_string()));
        }
        // Another engine of that name is not ours: ours will end and say so.
        if let Some(channel) = Channel::open(name)?
            && channel.pid()? == child.id()
            && channel.is_served()?
        {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!(
                "the engine does not answer at {name} within {} s; see {}",
                PATIENCE.as_secs(),
                log.display()
            );
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The engine's own error message, or where to look.
fn last_words(log: &Path, status: &str) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let own = text.lines().rev().find_map(|line| {
        line.strip_prefix("shunt: ")
            .or_else(|| line.strip_prefix("error: "))
    });
    own.map_or_else(
        || format!("the engine ended at once ({status}); see {}", log.display()),
        str::to_owned,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_own_error_is_what_the_user_sees() {
        let log = env::temp_dir().join(format!("shunt-words-{}", std::process::id()));
        fs::write(&log, "INFO serving\nshunt: --nic nope: no such interface\n").unwrap();
        let words = last_words(&log, "exit status: 2");
        fs::write(&log, "thread panicked\n").unwrap();
        let nothing = last_words(&log, "exit status: 101");
        fs::remove_file(&log).unwrap();
        assert_eq!(words, "--nic nope: no such interface");
        assert!(nothing.contains("101") && nothing.contains(log.to_str().unwrap()));
    }
}
