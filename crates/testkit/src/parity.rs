//! The parity programs: small C programs that print what socket calls return (`crates/shim/tests/programs`). Which there
//! are, and where it says what they print otherwise where a supervisor serves them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lab::{Finished, Program};

use crate::workspace;

/// What the runs of one test binary share, and need only once: compiled programs, and what they print on the kernel.
pub struct Shared {
    flags: [String; 4],
}

impl Shared {
    /// The programs are kept in `folder` for the next process, what the kernel prints for this one, `test`, alone.
    ///
    /// # Errors
    /// Where the folders cannot be made anew.
    pub fn new(folder: &Path, test: &str) -> io::Result<Shared> {
        let (built, said) = (folder.join("built"), folder.join(format!("said-{test}")));
        match std::fs::remove_dir_all(&said) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => std::fs::create_dir_all(&said)?,
        }
        let path = |path: &Path| path.display().to_string();
        Ok(Shared {
            flags: ["--built".into(), path(&built), "--said".into(), path(&said)],
        })
    }

    /// Options of the runner.
    pub fn flags(&self) -> impl Iterator<Item = &str> {
        self.flags.iter().map(String::as_str)
    }
}

/// What a supervised program can tell from the kernel, line by line and with the reason: a folder with a file for each
/// program, see `run.py --help`. docs/decisions/0026-supervised-programs.md says more.
#[must_use]
pub fn differing_supervised() -> PathBuf {
    workspace::root().join("crates/shim/tests/programs/supervised")
}

/// What compiles them, runs them and compares what they print.
#[must_use]
pub fn runner() -> PathBuf {
    workspace::root().join("crates/shim/tests/programs/run.py")
}

/// How long the runner may say nothing: it ends a program that works for so long (`limit_s` and `WORKING_FACTOR` there), and says then
/// what came of it. How long all of them take together depends on what else the machine does.
const SILENCE: Duration = Duration::from_secs(300);

/// What the runner has said when it has ended.
///
/// # Panics
/// Where it goes on without saying anything.
#[must_use]
pub fn finish(mut run: Program) -> Finished {
    loop {
        let said = run.stdout().len();
        let waited = run.wait_until("next program", SILENCE, |run| run.stdout().len() > said);
        let has_ended = run.try_wait().is_ok_and(|ended| ended.is_some());
        if has_ended {
            break;
        }
        waited.unwrap_or_else(|error| panic!("{error}"));
    }
    run.finish(Duration::ZERO, || false)
        .unwrap_or_else(|error| panic!("{error}"))
}

/// How many of a run's programs print the same, or what is to be said where one does not: the names of those come first, and
/// what differs in each next, so that a log that is cut still has them.
///
/// # Errors
/// That.
pub fn judged(done: &Finished) -> Result<usize, String> {
    let is_progress = |line: &&str| line.starts_with("compiled ") || line.starts_with("asked ");
    let (same, others): (Vec<&str>, Vec<&str>) = done
        .stdout
        .lines()
        .filter(|line| !is_progress(line))
        .partition(|line| line.starts_with("same "));
    if done.status.success() {
        return Ok(same.len());
    }
    let names: Vec<&str> = others
        .iter()
        .filter_map(|line| Some(line.strip_prefix("DIFFERENT ")?.trim()))
        .collect();
    Err(format!(
        "different: {}\n{}\n{}\nthe same: {}, {}",
        names.join(" "),
        others.join("\n"),
        done.stderr,
        same.len(),
        done.status
    ))
}

/// The names of all of them but those that are left out, in order.
///
/// # Panics
/// Where their folder cannot be read.
pub fn names(is_left_out: impl Fn(&str) -> bool) -> Vec<String> {
    let runner = runner();
    let folder = runner.parent().unwrap_or(&runner);
    let files = folder
        .read_dir()
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut names: Vec<String> = files
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .filter(|name| !is_left_out(name))
        .collect();
    names.sort();
    names
}
