//! What tests with an independent peer share: the TAP of host a behind a bad cable, a program on Shunt
//! there, and the content that both sides send and compare.

#![allow(clippy::unwrap_used, dead_code)] // a failure here ends the test; each test uses its part

use std::{
    io::Write as _,
    os::fd::OwnedFd,
    time::{Duration, Instant as Clock},
};

use netem::Cable as Line;
use testkit::{Cable, Lab, LabSpec, Program, host, shunt};

/// Where the passive side listens.
pub const PORT: u16 = 7;
/// How much both sides send.
pub const BYTES: usize = 1_000_000;
/// How long a test may take at most.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// Largest frame on the cable.
pub const FRAME_BYTES: usize = 2_048;

/// What both sides send.
pub fn content() -> Vec<u8> {
    (0..BYTES)
        .map(|at| (at * 31 % 251).to_le_bytes()[0])
        .collect()
}

/// The same in the program's words.
const CONTENT: &str = "content = bytes(at * 31 % 251 for at in range(1000000))";

/// Sends all of it, receives all, compares.
const EXCHANGE: &str = "
import threading
threading.Thread(target=lambda: (s.sendall(content), s.shutdown(socket.SHUT_WR))).start()
got = b''
while True:
    piece = s.recv(100000)
    if not piece: break
    got += piece
print('right' if got == content else 'wrong: %d bytes' % len(got))";

/// The TAP of host a, behind a line each way.
pub struct Far {
    /// Frames of the host.
    pub tap: OwnedFd,
    /// From the host, and to it.
    pub lines: [Line; 2],
    start: Clock,
}

impl Far {
    /// Both lines do to frames what `impairment` says, such as `delay=1ms,loss=1%`.
    pub fn new(tap: OwnedFd, impairment: &str) -> Self {
        let impairment = impairment.parse().unwrap();
        Self {
            tap,
            lines: [Line::new(impairment, 1), Line::new(impairment, 2)],
            start: Clock::now(),
        }
    }

    /// Time on the lines.
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap()
    }

    /// Takes in what the host has sent, and lets out what has crossed.
    pub fn exchange(&mut self) {
        let now_us = self.now_us();
        let mut buffer = [0; FRAME_BYTES];
        while let Ok(len) = rustix::io::read(&self.tap, &mut buffer) {
            self.lines[0].push(now_us, &buffer[..len]);
        }
        while let Some(frame) = self.lines[1].pop(now_us) {
            rustix::io::write(&self.tap, &frame).unwrap();
            self.lines[1].give_back(frame);
        }
    }
}

/// Says why a test with that peer does not run.
pub fn skip(peer: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {peer}: {reason}");
}

/// A lab whose host b is somebody else at the TAP of host a; None where there can be none.
pub fn lab(peer: &str, test: &str) -> Option<(Lab, OwnedFd)> {
    let spec = LabSpec {
        cable: Cable::Tap,
        ..LabSpec::default()
    };
    match Lab::temporary(&format!("t-{test}"), &spec) {
        Ok(mut lab) => {
            let [near, _] = lab.take_taps().unwrap();
            Some((lab, near))
        }
        Err(error) => {
            skip(peer, &error.to_string());
            None
        }
    }
}

/// A Python program on host a, on Shunt, that connects to the peer; it prints `right` at its end.
pub fn active_program(lab: &Lab) -> Program {
    let address = host(lab, "b").spec().address.address;
    let connect = format!("s = socket.create_connection(('{address}', {PORT})){EXCHANGE}");
    program(lab, &connect)
}

/// One that prints `ready`, waits for the peer to connect, and prints `right` at its end.
pub fn passive_program(lab: &Lab) -> Program {
    let ours = host(lab, "a").spec().engine_address.address;
    let accept = format!(
        "l = socket.create_server(('{ours}', {PORT}))\nprint('ready', flush=True)\ns, _ = l.accept(){EXCHANGE}"
    );
    program(lab, &accept)
}

fn program(lab: &Lab, script: &str) -> Program {
    let mut command = host(lab, "a").command(shunt()).unwrap();
    let script = format!("import socket\n{CONTENT}\n{script}");
    command.args(["run", "--policy", "engine-only", "--", "python3", "-c"]);
    command.arg(script);
    Program::start("python3 on Shunt", command).unwrap()
}
