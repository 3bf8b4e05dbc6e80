//! An engine in the background: this binary once more, with the same flags, in a session of its own.
//!
//! The process that starts it waits until it answers and then ends, so that the engine is nobody's
//! child: a program that `shunt run` starts never meets it in wait(2).

use std::{
    env,
    ffi::OsString,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use hostif::control::QueryKind;
use inspect::control::Channel;

use crate::sys;

/// The flag that asks for this, and the one that needs it, which has a value.
const FLAG: &str = "--background";
const LOG_FLAG: &str = "--log";

/// How long an engine may take until it answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// An engine that answers.
#[derive(Debug)]
pub struct Started {
    pub pid: u32,
    /// Where it writes what it has to say.
    pub log: PathBuf,
    /// What of it is not as was asked for.
    pub complaints: Vec<String>,
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
    sys::without_library(&mut command)
        .args(in_foreground(env::args_os().skip(1)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file);
    sys::start_in_new_session(&mut command);
    let mut child = command.spawn().context("starting the engine")?;
    match wait_until_it_answers(&mut child, name, &log) {
        Ok(complaints) => Ok(Started {
            pid: child.id(),
            log,
            complaints,
        }),
        Err(error) => {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// The arguments of this process without what is for the background.
fn in_foreground(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut is_value = false;
    let with_value = format!("{LOG_FLAG}=");
    let mut is_ours = |argument: &OsString| {
        let was_value = std::mem::take(&mut is_value);
        is_value = !was_value && argument == LOG_FLAG;
        let is_flag = argument == FLAG || argument == LOG_FLAG;
        let has_value = argument.as_bytes().starts_with(with_value.as_bytes());
        was_value || is_flag || has_value
    };
    arguments.filter(|argument| !is_ours(argument)).collect()
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

/// Returns what it complains of.
fn wait_until_it_answers(child: &mut Child, name: &str, log: &Path) -> anyhow::Result<Vec<String>> {
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
            return complaints(&channel);
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

/// What its first core, which speaks for the device, has to say.
fn complaints(channel: &Channel) -> anyhow::Result<Vec<String>> {
    let status = channel.query(QueryKind::Status)?;
    let all = status["complaints"].as_array().into_iter().flatten();
    let words = all.filter_map(|one| one.as_str().map(str::to_owned));
    Ok(words.collect())
}

/// The engine's own error message, or where to look.
fn last_words(log: &Path, status: &str) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let own = text.lines().rev().find_map(|line| {
        let object = serde_json::from_str::<serde_json::Value>(line).ok();
        let message = object.and_then(|line| Some(line["fields"]["message"].as_str()?.to_owned()));
        let line = message.as_deref().unwrap_or(line);
        let own = line.strip_prefix("shunt: ");
        own.or_else(|| line.strip_prefix("error: "))
            .map(str::to_owned)
    });
    own.unwrap_or_else(|| format!("the engine ended at once ({status}); see {}", log.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_itself_is_told_nothing_of_the_background_and_its_log() {
        let words = |text: &str| -> Vec<OsString> { text.split(' ').map(OsString::from).collect() };
        for given in [
            "engine --nic lo --background --log FILE --cores 2",
            "engine --log=FILE --nic lo --background --cores 2",
            "engine --nic lo --log --background --background --cores 2",
        ] {
            let left = in_foreground(words(given).into_iter());
            assert_eq!(left, words("engine --nic lo --cores 2"), "{given}");
        }
    }

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
