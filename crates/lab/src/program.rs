//! A real program as a child: started, watched with deadlines, its output captured, ended by its
//! own process group.
//!
//! Nothing here waits without a bound, and a program never outlives its value.

use std::{
    io::Read,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open},
};

use crate::{
    Error,
    pause::{POLL_INTERVAL, pause_while},
};

/// Output kept per stream; more is read and dropped, so that the program never blocks on us.
const CAPTURE_LIMIT_BYTES: usize = 16 << 20;

/// How long a program may take to end after SIGTERM before it is killed.
const TERMINATION_GRACE: Duration = Duration::from_secs(1);

/// How often is looked whether to go on waiting for a program's end, of which the kernel tells.
const INTERRUPTION_INTERVAL: Duration = Duration::from_millis(20);

/// The file of this program, to be started on a host.
#[must_use]
pub fn own_binary() -> PathBuf {
    // Without /proc neither is to be had, and the start says so.
    std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into())
}

/// A running program. Dropping it ends it and everything in its process group.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    group: Pid,
    ended: Option<ExitStatus>,
    stdout: Capture,
    stderr: Capture,
}

/// What a program left behind.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Name given at start.
    pub name: String,
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

impl Finished {
    /// Turns an unsuccessful end into an error that shows the last lines of its output.
    pub fn success(self) -> Result<Self, Error> {
        if self.status.success() {
            return Ok(self);
        }
        let problem = format!(
            "ended with {}{}",
            self.status,
            quoted_tail(&self.stderr, &self.stdout)
        );
        Err(Error::Program {
            program: self.name,
            problem,
        })
    }
}

impl Program {
    /// Starts a command in a process group of its own and captures what it writes.
    pub fn start(name: &str, mut command: Command) -> Result<Self, Error> {
        command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| failure(name, format!("cannot be started: {error}")))?;
        let group = i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .expect("invariant: a child has a positive pid");
        let stdout = Capture::start(child.stdout.take());
        let stderr = Capture::start(child.stderr.take());
        Ok(Self {
            name: name.to_owned(),
            child,
            group,
            ended: None,
            stdout,
            stderr,
        })
    }

    /// Number of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Of an engine, the process that serves: see [`serving`].
    pub fn serving_pid(&self) -> u32 {
        serving(self.pid())
    }

    /// What it wrote to standard output so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// What it wrote to standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// The lines of its standard output that are whole by now.
    pub fn lines(&self) -> Vec<String> {
        let text = self.stdout();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(str::to_owned).collect()
    }

    /// Its exit status, once it has ended; what it wrote is there then.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, Error> {
        let ended = self.look()?;
        if ended.is_some() {
            self.stdout.finish();
            self.stderr.finish();
        }
        Ok(ended)
    }

    fn look(&mut self) -> Result<Option<ExitStatus>, Error> {
        if self.ended.is_none() {
            self.ended = self
                .child
                .try_wait()
                .map_err(|error| failure(&self.name, format!("waiting: {error}")))?;
        }
        Ok(self.ended)
    }

    /// Waits for the end; a program that takes longer than `patience` is ended and is an error.
    pub fn finish(
        mut self,
        patience: Duration,
        interrupted: impl Fn() -> bool,
    ) -> Result<Finished, Error> {
        let deadline = Instant::now() + patience;
        let status = loop {
            if let Some(status) = self.try_wait()? {
                break status;
            }
            let late = Instant::now() >= deadline;
            if late || interrupted() {
                self.stop();
                let why = if late {
                    format!("did not end within {} s", patience.as_secs())
                } else {
                    "interrupted".to_owned()
                };
                return Err(failure(
                    &self.name,
                    why + &quoted_tail(&self.stderr.text(), &self.stdout.text()),
                ));
            }
            self.pause_until_end();
        };
        Ok(Finished {
            name: self.name.clone(),
            status,
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
        })
    }

    /// Sleeps until it has ended, or for a moment. See pidfd_open(2).
    fn pause_until_end(&self) {
        let moment = Timespec::try_from(INTERRUPTION_INTERVAL).ok();
        match pidfd_open(self.group, PidfdFlags::empty()) {
            Ok(end) => {
                let _ = poll(&mut [PollFd::new(&end, PollFlags::IN)], moment.as_ref());
            }
            Err(_) => std::thread::sleep(POLL_INTERVAL),
        }
    }

    /// Waits until `condition` holds. A program that ends first, or takes too long, is an error; its last words
    /// count.
    pub fn wait_until(
        &mut self,
        what: &str,
        patience: Duration,
        mut condition: impl FnMut(&Self) -> bool,
    ) -> Result<(), Error> {
        let since = Instant::now();
        let deadline = since + patience;
        loop {
            let began = Instant::now();
            if condition(self) {
                return Ok(());
            }
            let look = began.elapsed();
            if let Some(status) = self.try_wait()? {
                if condition(self) {
                    return Ok(());
                }
                let tail = quoted_tail(&self.stderr.text(), &self.stdout.text());
                return Err(failure(
                    &self.name,
                    format!("ended with {status} before {what}{tail}"),
                ));
            }
            if Instant::now() >= deadline {
                let tail = quoted_tail(&self.stderr.text(), &self.stdout.text());
                return Err(failure(
                    &self.name,
                    format!("no {what} within {} s{tail}", patience.as_secs()),
                ));
            }
            pause_while(since.elapsed(), look);
        }
    }

    /// Waits until a TCP socket in the program's network namespace listens on the port.
    pub fn wait_listening(&mut self, port: u16, patience: Duration) -> Result<(), Error> {
        let what = format!("listener on port {port}");
        self.wait_until(&what, patience, |program| listens(program.pid(), port))
    }

    /// Waits until a Unix socket of an abstract name that ends so is in the program's network namespace, as an engine's control socket is once
    /// it serves; or until `interrupted` says so.
    pub fn wait_bound(
        &mut self,
        name: &str,
        patience: Duration,
        interrupted: impl Fn() -> bool,
    ) -> Result<(), Error> {
        self.wait_until("control socket", patience, |program| {
            // /proc/PID/net/unix shows the process's own network namespace, see unix(7).
            let sockets = std::fs::read_to_string(format!("/proc/{}/net/unix", program.pid()));
            let is_bound = |text: String| text.lines().any(|line| line.ends_with(name));
            interrupted() || sockets.is_ok_and(is_bound)
        })
    }

    /// Sends a signal to the program itself.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        rustix::process::kill_process(self.group, signal)
            .map_err(|error| failure(&self.name, format!("signalling: {error}")))
    }

    /// Asks the program and its group to end, and kills what does not.
    pub fn stop(&mut self) {
        if self.ended.is_none() {
            let _ = rustix::process::kill_process_group(self.group, Signal::TERM);
            let deadline = Instant::now() + TERMINATION_GRACE;
            while matches!(self.look(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        // Its children may outlive it; the group's number stays taken as long as one of them does.
        let _ = rustix::process::kill_process_group(self.group, Signal::KILL);
        if self.ended.is_none() {
            self.ended = self.child.wait().ok();
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.stop();
    }
}

/// True where /proc/PID/net/tcp or tcp6 shows a listener, see proc_net(5).
fn listens(pid: u32, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let suffix = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")) else {
            return false;
        };
        text.lines().skip(1).any(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let local = fields.next().unwrap_or_default();
            let state = fields.nth(1).unwrap_or_default();
            local.ends_with(&suffix) && state == LISTEN
        })
    })
}

fn failure(program: &str, problem: String) -> Error {
    Error::Program {
        program: program.to_owned(),
        problem,
    }
}

/// The last lines of whichever stream said something.
fn quoted_tail(stderr: &str, stdout: &str) -> String {
    let text = if stderr.trim().is_empty() {
        stdout
    } else {
        stderr
    };
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let tail = &lines[lines.len().saturating_sub(8)..];
    if tail.is_empty() {
        String::new()
    } else {
        format!(":\n  {}", tail.join("\n  "))
    }
}

/// Reads a pipe to its end in a thread.
#[derive(Debug)]
struct Capture {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Capture {
    fn start(pipe: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let reader = pipe.map(|mut pipe| {
            let bytes = Arc::clone(&bytes);
            std::thread::spawn(move || {
                let mut buffer = [0_u8; 8192];
                while let Ok(len @ 1..) = pipe.read(&mut buffer) {
                    let mut kept = locked(&bytes);
                    let room = CAPTURE_LIMIT_BYTES.saturating_sub(kept.len()).min(len);
                    kept.extend_from_slice(&buffer[..room]);
                }
            })
        });
        Self { bytes, reader }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&locked(&self.bytes)).into_owned()
    }

    /// Waits for the rest of the output. A child that kept the pipe open may hold it for ever, so
    /// the wait is bounded and the reader then left to itself.
    fn finish(&mut self) {
        let Some(reader) = self.reader.take() else {
            return;
        };
        let deadline = Instant::now() + TERMINATION_GRACE;
        while !reader.is_finished() && Instant::now() < deadline {
            std::thread::sleep(POLL_INTERVAL);
        }
        if reader.is_finished() {
            let _ = reader.join();
        }
    }
}

fn locked(bytes: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process that serves as the engine that was started as process `pid`: its only child, where it is the keeper of one, see
/// proc_pid_task_children(5).
pub fn serving(pid: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let mut numbers = children.split_whitespace();
    let only = numbers.next().filter(|_| numbers.next().is_none());
    only.and_then(|child| child.parse().ok()).unwrap_or(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Program::start("sh", command).unwrap()
    }

    #[test]
    fn a_line_counts_once_it_is_whole() {
        let mut program = shell("printf 'one\ntwo\nthr'; exec sleep 60");
        let mut seen = Vec::new();
        let begun = |program: &Program| program.stdout().ends_with("thr");
        program
            .wait_until("output", Duration::from_secs(60), |program| {
                seen.push(program.lines());
                begun(program)
            })
            .unwrap();
        assert_eq!(program.lines(), ["one", "two"]);
        assert!(
            seen.iter()
                .flatten()
                .all(|line| line == "one" || line == "two")
        );
    }

    #[test]
    fn output_and_status_of_a_finished_program_are_kept() {
        let finished = shell("echo out; echo err >&2; exit 3")
            .finish(Duration::from_secs(5), || false)
            .unwrap();
        assert_eq!(
            (finished.stdout.as_str(), finished.stderr.as_str()),
            ("out\n", "err\n")
        );
        assert_eq!(finished.status.code(), Some(3));
        let error = finished.success().unwrap_err().to_string();
        assert!(
            error.contains("err") && error.contains("exit status: 3"),
            "{error}"
        );
    }

    #[test]
    fn the_last_words_of_a_program_are_waited_for_though_it_has_ended() {
        let mut program = shell("echo word");
        // They come between the look at its output and the look at its end.
        let mut is_first = true;
        let waited = program.wait_until("word", Duration::from_secs(5), |program| {
            if std::mem::take(&mut is_first) {
                let stat = format!("/proc/{}/stat", program.pid());
                let is_over =
                    || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z"));
                while !is_over() {}
                return false;
            }
            program.stdout().contains("word")
        });
        waited.unwrap();
        let silent = shell("true").wait_until("word", Duration::from_secs(5), |_| false);
        assert!(silent.unwrap_err().to_string().contains("before word"));
    }

    #[test]
    fn a_program_that_takes_too_long_is_ended() {
        let error = shell("echo begun; sleep 60")
            .finish(Duration::from_millis(200), || false)
            .unwrap_err();
        assert!(error.to_string().contains("begun"));
    }

    #[test]
    fn dropping_a_program_ends_its_children_too() {
        let mut program = shell("sleep 61 & echo $!; wait");
        program
            .wait_until("pid", Duration::from_secs(5), |program| {
                program.stdout().ends_with('\n')
            })
            .unwrap();
        let child: u32 = program.stdout().trim().parse().unwrap();
        drop(program);
        let deadline = Instant::now() + Duration::from_secs(5);
        let running = |pid: u32| {
            std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| !stat.contains(") Z "))
        };
        while running(child) {
            assert!(Instant::now() < deadline, "process {child} is still there");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    #[test]
    fn a_program_that_ends_before_the_condition_is_an_error_with_its_words() {
        let error = shell("echo no such file >&2")
            .wait_until("listener", Duration::from_secs(5), |_| false)
            .unwrap_err();
        assert!(error.to_string().contains("no such file"));
    }
}
