//! This command's side of an engine's control channel: finding an engine and asking it.
//!
//! Every answer has a deadline, so that an engine that hangs is an error and not a wait.

use std::{
    io::{self, Read as _},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use hostif::control::{self, CaptureFilter, QueryKind, Reply, Request};
use rustix::{
    fd::{AsFd as _, BorrowedFd, OwnedFd},
    io::Errno,
    net::{RecvFlags, sockopt},
};
use serde_json::Value;

/// How long an engine may take to answer a command that needs it.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest report that is taken: a million connections have less.
const REPORT_BYTES_MAX: u64 = 1 << 30;

/// A channel to an engine that somebody listens for.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    name: String,
    patience: Duration,
}

impl Channel {
    /// Connects to the engine of that name; None where nobody listens.
    pub fn open(name: &str) -> anyhow::Result<Option<Self>> {
        Self::open_within(name, PATIENCE)
    }

    /// The same with an engine that may take only so long to answer.
    pub fn open_within(name: &str, patience: Duration) -> anyhow::Result<Option<Self>> {
        check_name(name)?;
        let deadline = Instant::now() + patience;
        let socket = loop {
            match control::connect(name) {
                Ok(socket) => break socket,
                Err(Errno::CONNREFUSED | Errno::NOENT) => return Ok(None),
                // Its backlog is full: busy, not missing.
                Err(Errno::AGAIN) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) => return Err(error).with_context(|| format!("engine address {name}")),
            }
        };
        Self::over(socket, name.to_owned(), patience).map(Some)
    }

    fn over(socket: OwnedFd, name: String, patience: Duration) -> anyhow::Result<Self> {
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(patience))
            .context("setting a timeout")?;
        Ok(Self {
            socket,
            name,
            patience,
        })
    }

    /// Number of the process that listens.
    pub fn pid(&self) -> anyhow::Result<u32> {
        let peer = sockopt::socket_peercred(&self.socket).context("asking who listens")?;
        Ok(u32::try_from(peer.pid.as_raw_nonzero().get())?)
    }

    /// Whether the engine serves this channel. After that it knows this process: see the engine's
    /// `until_idle_s`.
    pub fn is_served(&self) -> anyhow::Result<bool> {
        match self.ask(&Request::Addresses) {
            Ok((Reply::Addresses { .. }, _)) => Ok(true),
            Ok((Reply::Refused { text, .. }, _)) => bail!("the engine at {}: {text}", self.name),
            Ok((other, _)) => bail!("the engine at {} answered {other:?}", self.name),
            // It ended between our call and its answer.
            Err(error) if is_gone(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A report of the engine.
    pub fn query(&self, kind: QueryKind) -> anyhow::Result<Value> {
        let (reply, descriptors) = self.ask(&Request::Query { kind })?;
        match reply {
            Reply::Report => {}
            Reply::Refused { text, .. } => bail!("the engine at {}: {text}", self.name),
            other => bail!("the engine at {} answered {other:?}", self.name),
        }
        let file = descriptors
            .into_iter()
            .next()
            .context("the engine sent no report")?;
        let file = std::fs::File::from(file);
        let bytes = file
            .metadata()
            .context("reading the engine's report")?
            .len();
        if bytes > REPORT_BYTES_MAX {
            bail!(
                "the engine at {} sent a report of {bytes} bytes; {REPORT_BYTES_MAX} are taken at most",
                self.name
            );
        }
        let bounded = std::io::BufReader::new(file).take(bytes);
        serde_json::from_reader(bounded).context("reading the engine's report")
    }

    /// Frames from now on, as a stream of records; it ends when this channel and every copy of it are closed.
    pub fn capture(&self, filter: CaptureFilter) -> anyhow::Result<OwnedFd> {
        match self.ask(&Request::Capture(filter))? {
            (Reply::Capture, descriptors) => {
                let stream = descriptors.into_iter().next();
                stream.context("the engine sent no stream")
            }
            (Reply::Refused { text, .. }, _) => bail!("the engine at {}: {text}", self.name),
            (other, _) => bail!("the engine at {} answered {other:?}", self.name),
        }
    }

    /// Keeps the engine's session for this channel alive.
    pub fn keep(&self) -> anyhow::Result<OwnedFd> {
        rustix::io::fcntl_dupfd_cloexec(&self.socket, 0).context("duplicating a descriptor")
    }

    /// This channel to the engine's first core, and one to each other.
    pub fn all_cores(self) -> anyhow::Result<Vec<Self>> {
        let status = self.query(QueryKind::Status)?;
        let cores = status["cores"].as_u64().unwrap_or(1);
        let mut channels = vec![self];
        for core in 1..u16::try_from(cores)? {
            let channel = channels[0].to_core(core)?;
            channels.push(channel);
        }
        Ok(channels)
    }

    fn to_core(&self, core: u16) -> anyhow::Result<Self> {
        match self.ask(&Request::Join { core })? {
            (Reply::Joined, descriptors) => {
                let socket = descriptors.into_iter().next().context("no channel came")?;
                Self::over(socket, self.name.clone(), self.patience)
            }
            (other, _) => bail!("core {core} of the engine at {}: {other:?}", self.name),
        }
    }

    fn ask(&self, request: &Request) -> anyhow::Result<(Reply, Vec<OwnedFd>)> {
        self.ask_with(request, &[])
    }

    fn ask_with(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> anyhow::Result<(Reply, Vec<OwnedFd>)> {
        let context = || format!("asking the engine at {}", self.name);
        control::send(self.socket.as_fd(), &request.encode(), descriptors).with_context(context)?;
        let received = match control::receive(self.socket.as_fd(), RecvFlags::empty()) {
            Err(Errno::AGAIN) => bail!(
                "the engine at {} does not answer within {} s: it is stopped or hangs; end it and start it again",
                self.name,
                self.patience.as_secs()
            ),
            received => received.with_context(context)?,
        };
        if received.bytes.is_empty() {
            return Err(Errno::CONNRESET).with_context(context);
        }
        let reply = Reply::decode(&received.bytes).with_context(context)?;
        Ok((reply, received.descriptors))
    }
}

fn is_gone(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref::<Errno>(),
        Some(&(Errno::CONNRESET | Errno::PIPE))
    )
}

/// Refuses what cannot name a control socket, see unix(7).
pub fn check_name(name: &str) -> anyhow::Result<()> {
    /// Room in sockaddr_un after the family and a first or last zero.
    const MAX_BYTES: usize = 107;
    let bytes = name.strip_prefix('@').unwrap_or(name).len();
    if bytes == 0 || bytes > MAX_BYTES {
        bail!(
            "{name:?} is no name of a control socket: write @NAME or a path, 1 to {MAX_BYTES} bytes"
        );
    }
    Ok(())
}

/// Removes the file of a control socket whose engine has ended without doing so.
pub fn remove_stale(name: &str) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    if name.starts_with('@') {
        return Ok(());
    }
    let is_socket = std::fs::symlink_metadata(name).is_ok_and(|file| file.file_type().is_socket());
    if is_socket && matches!(control::connect(name), Err(Errno::CONNREFUSED)) {
        std::fs::remove_file(name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unused_name(test: &str) -> String {
        format!("@shunt/test/{test}/{}", std::process::id())
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        for name in ["", "@", &"x".repeat(108)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        assert!(check_name(&"@".repeat(108)).is_ok());
    }

    #[test]
    fn nobody_listening_is_no_error() {
        assert!(Channel::open(&unused_name("nobody")).unwrap().is_none());
    }

    #[test]
    fn a_listener_that_ends_before_it_answers_does_not_serve() {
        let name = unused_name("ends");
        let listener = control::listen(&name).unwrap();
        let channel = Channel::open(&name).unwrap().unwrap();
        assert_eq!(channel.pid().unwrap(), std::process::id());
        drop(listener);
        assert!(!channel.is_served().unwrap());
    }

    #[test]
    fn the_file_of_an_ended_engine_is_removed_and_that_of_a_living_one_is_not() {
        let path = std::env::temp_dir().join(format!("shunt-stale-{}", std::process::id()));
        let name = path.to_str().unwrap();
        let listener = control::listen(name).unwrap();
        remove_stale(name).unwrap();
        assert!(path.exists());
        drop(listener);
        remove_stale(name).unwrap();
        assert!(!path.exists());
    }
}
