//! Folders that vanish, files with content, and `shunt` as a user starts it.

#![allow(dead_code, clippy::unwrap_used, missing_docs)] // each test file uses a part; a failure ends the test

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

pub const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A folder of one test, removed at its end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shunt-{test}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        fs::create_dir(path.join("target")).unwrap();
        Self(path)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// As many MiB as there are in `len`: one of them over and over, each page of it with its number in front.
pub fn write_content(path: &Path, len: usize) {
    const PAGE: usize = 4096;
    let mut file = fs::File::create(path).unwrap();
    let mut state = 88_172_645_463_325_252_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    let mut chunk: Vec<u8> = words.flatten().take(1 << 20).collect();
    let mut number = 0_u64;
    for _ in 0..len >> 20 {
        for page in chunk.chunks_exact_mut(PAGE) {
            page[..8].copy_from_slice(&number.to_le_bytes());
            number += 1;
        }
        file.write_all(&chunk).unwrap();
    }
}

pub fn same(one: &Path, other: &Path) -> bool {
    let (mut one, mut other) = (fs::File::open(one).unwrap(), fs::File::open(other).unwrap());
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let count = one.read(&mut left).unwrap();
        if count == 0 {
            return other.read(&mut right).unwrap() == 0;
        }
        if other.read_exact(&mut right[..count]).is_err() || left[..count] != right[..count] {
            return false;
        }
    }
}

pub fn shunt(arguments: &[&str]) -> Command {
    let mut command = Command::new(SHUNT);
    command
        .args(arguments)
        .env_remove("SHUNT_TOKEN")
        .stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub fn run(arguments: &[&str]) -> Output {
    shunt(arguments).output().unwrap()
}

/// A child that does not outlive its test, however that ends, nor does what it has started: strace(1) leaves its child
/// behind when it is killed.
pub struct Guarded(Option<Child>);

impl Guarded {
    pub fn start(command: &mut Command) -> Self {
        Self(Some(command.process_group(0).spawn().unwrap()))
    }

    /// Its output, when it ends by itself.
    pub fn finish(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Deref for Guarded {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().unwrap()
    }
}

impl DerefMut for Guarded {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Once it was waited for, its number may be another's.
            if matches!(child.try_wait(), Ok(None)) {
                let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
                let _ = child.wait();
            }
        }
    }
}

/// A command that listens, and its port.
pub fn listening(arguments: &[&str]) -> (Guarded, u16) {
    let mut child = Guarded::start(&mut shunt(arguments));
    let port = port_of(&mut child);
    (child, port)
}

/// A token that nobody else has.
pub fn token() -> String {
    mover::Token::random().unwrap().to_string()
}

/// A command that listens, and the line by which it says so.
pub fn listening_line(arguments: &[&str]) -> (Guarded, String) {
    let mut child = Guarded::start(&mut shunt(arguments));
    let line = line_of(&mut child);
    (child, line)
}

fn line_of(child: &mut Child) -> String {
    let mut lines = BufReader::new(child.stderr.as_mut().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    line
}

/// The port that a command says that it listens on.
pub fn port_of(child: &mut Child) -> u16 {
    let line = line_of(child);
    let address = line
        .strip_prefix("listening on ")
        .unwrap_or_else(|| panic!("{line}"));
    let address = address.split(';').next().unwrap();
    let port = address.rsplit(':').next().unwrap();
    port.parse().unwrap_or_else(|_| panic!("{line}"))
}

/// Waits until something is so.
pub fn await_condition(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn wait(child: &mut Child) -> ExitStatus {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < until, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
