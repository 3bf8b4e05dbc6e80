//! An independent peer: gVisor's netstack at the far end of a cable that delays, loses and duplicates, and a
//! program on Shunt at the near one. Handshake, bulk and close both ways, every byte compared.
//!
//! The peer is a small Go program (`peers/netstack`), built here; without Go, or without its module, the
//! tests are skipped.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

mod peer_support;

use std::{
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Instant as Clock,
};

use peer_support::{
    FRAME_BYTES, Far, PATIENCE, PORT, active_program, content, lab, passive_program, skip,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send};
use testkit::{Lab, Program, host};

const PEER: &str = "netstack peer";
const IMPAIRMENT: &str = "delay=1ms,loss=1%,duplicate=1%,reorder=1%";

/// The built peer; says once why there is none.
fn binary() -> Option<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match BUILT.get_or_init(build) {
        Ok(path) => Some(path),
        Err(reason) => {
            skip(PEER, reason);
            None
        }
    }
}

fn build() -> Result<PathBuf, String> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/netstack");
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join("netstack-peer");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&output)
        .arg(".")
        .current_dir(source)
        .output()
        .map_err(|error| format!("go cannot be started: {error}"))?;
    if built.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&built.stderr);
    let last = said.lines().last().unwrap_or_default();
    Err(format!("its Go program cannot be built here: {last}"))
}

/// Host b: the peer in a process of its own, and the cable to it.
struct Peer {
    far: Far,
    cable: OwnedFd,
    process: Program,
}

impl Peer {
    fn start(lab: &Lab, tap: OwnedFd, binary: &Path, role: [&str; 2]) -> Self {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .unwrap();
        rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).unwrap();
        let mut command = Command::new(binary);
        command
            .args(["-fd", &theirs.as_raw_fd().to_string()])
            .args(["-address", &host(lab, "b").spec().address.to_string()])
            .args(["-bytes", &content().len().to_string()])
            .args(role);
        let process = Program::start(PEER, command).unwrap();
        Self {
            far: Far::new(tap, IMPAIRMENT),
            cable: ours,
            process,
        }
    }

    /// Carries frames until both programs are done.
    fn run(&mut self, program: &mut Program) {
        let deadline = Clock::now() + PATIENCE;
        while program.try_wait().unwrap().is_none() || !self.process.stdout().contains("right") {
            let ended = self.process.try_wait().unwrap();
            assert!(
                Clock::now() < deadline && ended.is_none(),
                "peer: {ended:?} {} {}; program: {} {}",
                self.process.stdout(),
                self.process.stderr(),
                program.stdout(),
                program.stderr(),
            );
            self.turn();
        }
        let said = program.stdout();
        assert!(
            said.trim().ends_with("right"),
            "{said} {}",
            program.stderr()
        );
    }

    fn turn(&mut self) {
        self.far.exchange();
        let now_us = self.far.now_us();
        while let Some(frame) = self.far.lines[0].pop(now_us) {
            // A full cable loses the frame.
            let _ = send(&self.cable, &frame, SendFlags::empty());
            self.far.lines[0].give_back(frame);
        }
        let mut buffer = [0; FRAME_BYTES];
        while let Ok((_, len)) = recv(&self.cable, &mut buffer, RecvFlags::empty()) {
            self.far.lines[1].push(now_us, &buffer[..len]);
        }
        self.far.exchange();
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: 300_000,
        };
        let mut fds = [
            PollFd::new(&self.far.tap, PollFlags::IN),
            PollFd::new(&self.cable, PollFlags::IN),
        ];
        poll(&mut fds, Some(&wait)).unwrap();
    }
}

#[test]
fn a_program_connects_to_netstack_and_both_get_every_byte() {
    let (Some(binary), Some((lab, tap))) = (binary(), lab(PEER, "netstack-active")) else {
        return;
    };
    let mut peer = Peer::start(&lab, tap, binary, ["-listen", &PORT.to_string()]);
    testkit::wait_for("listener", PATIENCE, || {
        peer.process.stdout().contains("ready")
    });
    peer.run(&mut active_program(&lab));
}

#[test]
fn netstack_connects_to_a_program_and_both_get_every_byte() {
    let (Some(binary), Some((lab, tap))) = (binary(), lab(PEER, "netstack-passive")) else {
        return;
    };
    let mut program = passive_program(&lab);
    testkit::wait_for("listener", PATIENCE, || program.stdout().contains("ready"));
    let ours = host(&lab, "a").spec().engine_address.address;
    let remote = format!("{ours}:{PORT}");
    let mut peer = Peer::start(&lab, tap, binary, ["-connect", &remote]);
    peer.run(&mut program);
}
