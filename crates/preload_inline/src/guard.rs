//! The process that tells peers when this one is killed: `shunt engine --guard`, started by the engine inside with the file of its
//! tables. See `cli/src/commands/engine/guard.rs` and docs/decisions/0065-peers-of-a-killed-program.md.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt as _;

use engine::Inline;
use hostif::BINARY_VARIABLE;
use hostif::environment::value;
use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use crate::engine::CONNECTIONS;
use crate::settings::Settings;
use crate::sys;

/// The other end of the guard's pipe.
pub struct Guard {
    tx: OwnedFd,
    /// The guard's own end, which is never read here: a write to a guard that has ended would be a SIGPIPE to the program.
    rx: OwnedFd,
}

impl Guard {
    /// Whether `shunt run` has named the program that it is.
    pub fn can_start() -> bool {
        value(BINARY_VARIABLE).is_some()
    }

    /// Starts it, with the device's packet sockets: one that it closes last, and one for which it makes a ring. `None`: without it
    /// peers of a program that is killed are not told.
    pub fn start(
        settings: &Settings,
        engine: &Inline,
        sockets: &[Option<OwnedFd>; 2],
    ) -> Option<Self> {
        let binary = CString::new(value(BINARY_VARIABLE)?.into_vec()).ok()?;
        let state = engine.state_file()?;
        let program = pidfd_open(getpid(), PidfdFlags::empty()).ok()?;
        let (rx, tx) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        // It hears of a program without a packet socket as of one.
        let [device, ring] = sockets.each_ref().map(|one| one.as_ref().unwrap_or(&rx));
        let fds = [&state, &program, &rx, device, ring].map(|fd| fd.as_raw_fd());
        sys::start_apart(&binary, &arguments(settings)?, fds).ok()?;
        let [tx, rx] = [tx, rx].map(client::relocate);
        Some(Self { tx, rx })
    }

    /// A child goes on with the engine when this process has ended, or not after all.
    pub fn tell(&self, has_heir: bool) {
        // It may be gone, and the pipe full.
        let _ = rustix::io::write(&self.tx, if has_heir { b"x" } else { b"o" });
    }

    /// The engine has gone on with the socket that has a ring.
    pub fn release_first_socket(&self) {
        let _ = rustix::io::write(&self.tx, b"r");
    }

    /// In a forked child: the engine, and so the guard, is the parent's.
    pub fn forget(&self) {
        for end in [&self.tx, &self.rx] {
            client::close_relocated(end.as_raw_fd());
        }
    }
}

/// As the engine here was started, over a packet socket.
fn arguments(settings: &Settings) -> Option<Vec<CString>> {
    let list = |words: Vec<String>| words.join(",");
    let own = settings.addresses.iter();
    let own = own.map(|own| format!("{}/{}", own.address, own.prefix_len));
    let mut words = vec![
        "shunt".to_owned(),
        "engine".to_owned(),
        "--guard".to_owned(),
        "--driver=af_packet".to_owned(),
        format!("--nic={}", settings.nic),
        format!("--address={}", list(own.collect())),
        format!("--max-connections={CONNECTIONS}"),
    ];
    if !settings.gateways.is_empty() {
        let gateways = settings.gateways.iter().map(ToString::to_string);
        words.push(format!("--gateway={}", list(gateways.collect())));
    }
    words
        .into_iter()
        .map(|word| CString::new(word).ok())
        .collect()
}
