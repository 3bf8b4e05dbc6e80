//! A program in a process of its own, for tests that kill: this test binary again, with a role.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

const ROLE: &str = "SHUNT_TEST_ROLE";
const ENGINE: &str = "SHUNT_TEST_ENGINE";
const PEER: &str = "SHUNT_TEST_PEER";
/// What a program says begins with this; the test harness speaks on the same stream.
const MARK: &str = "program: ";

/// A running program; killed when dropped.
pub struct ProgramProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl ProgramProcess {
    /// Starts this binary's test `program_process`, which calls [`part`].
    pub fn start(role: &str, engine: &str, peer: std::net::SocketAddr) -> ProgramProcess {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["program_process", "--exact", "--ignored", "--nocapture"])
            .env(ROLE, role)
            .env(ENGINE, engine)
            .env(PEER, peer.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        ProgramProcess {
            child,
            stdin,
            stdout,
        }
    }

    /// What the program says next. A program that hangs is ended by its own deadlines.
    pub fn said(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.stdout.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "the program ended");
            if let Some((_, said)) = line.split_once(MARK) {
                return said.trim().to_owned();
            }
        }
    }

    /// Lets a program go on that waits in [`Part::wait`].
    pub fn go_on(&mut self) {
        self.stdin.as_mut().unwrap().write_all(b"g").unwrap();
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end.
    pub fn end(&mut self, patience: Duration) -> ExitStatus {
        let mut status = None;
        testkit::wait_for("end of the program", patience, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for ProgramProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a program was told.
pub struct Part {
    pub role: String,
    pub engine: String,
    pub peer: std::net::SocketAddr,
}

/// In the program: its part, if this is one.
pub fn part() -> Option<Part> {
    Some(Part {
        role: std::env::var(ROLE).ok()?,
        engine: std::env::var(ENGINE).ok()?,
        peer: std::env::var(PEER).ok()?.parse().ok()?,
    })
}

impl Part {
    pub fn say(&self, text: &str) {
        println!("{MARK}{text}");
    }

    /// Until the test says to go on, or is gone.
    pub fn wait(&self) {
        let _ = std::io::stdin().read(&mut [0]);
    }
}
