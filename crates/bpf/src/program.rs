//! Programs: loading with the verifier's words in the error, and running one on a frame of the caller's.
//! Read first: bpf(2), `BPF_PROG_LOAD` and `BPF_PROG_TEST_RUN`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::{Error, Instruction, sys};

/// What a program is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramKind {
    /// Judges frames of an interface before the kernel's stack sees them.
    Xdp {
        /// It knows that a frame can lie in several pieces, of which it sees the first.
        fragments: bool,
    },
    /// Judges packets at a TCX hook.
    Classifier,
    /// Judges packets of a socket.
    SocketFilter,
    /// Runs at a tracepoint of the kernel, whose arguments are its context's words.
    RawTracepoint,
}

impl ProgramKind {
    /// `enum bpf_prog_type`, `expected_attach_type` and flags.
    const fn numbers(self) -> [u32; 3] {
        match self {
            Self::Xdp { fragments } => {
                // linux/bpf.h: BPF_F_XDP_HAS_FRAGS.
                let flags = if fragments { 1 << 5 } else { 0 };
                [6, sys::ATTACH_XDP, flags]
            }
            Self::Classifier => [3, 0, 0],
            Self::SocketFilter => [1, 0, 0],
            Self::RawTracepoint => [17, 0, 0],
        }
    }
}

/// A loaded program; it lives as long as this or a link of it.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
}

/// What a program made of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Its result.
    pub verdict: u32,
    /// The frame as it left it.
    pub frame: Vec<u8>,
}

/// The verifier says at most this much of a refused program.
const LOG_BYTES: usize = 256 * 1024;
/// As much of it goes into an error: its end, where the reason stands.
const LOG_SHOWN_BYTES: usize = 2_000;

impl Program {
    /// Has the kernel verify and load a program; `name` is what `bpftool prog` shows, 15 letters of it.
    ///
    /// # Errors
    /// No privilege, or the verifier refuses the program and says why.
    pub fn load(
        kind: ProgramKind,
        name: &'static str,
        instructions: &[Instruction],
    ) -> Result<Self, Error> {
        let first = match sys::load(kind.numbers(), name, instructions, &mut []) {
            Ok(fd) => return Ok(Self { fd }),
            Err(error) => error,
        };
        if matches!(first.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) {
            return Err(Error::of("loading a BPF program")(first));
        }
        // Only a refused program is worth the memory of the verifier's words.
        let mut log = vec![0; LOG_BYTES];
        match sys::load(kind.numbers(), name, instructions, &mut log) {
            Ok(fd) => Ok(Self { fd }),
            Err(source) => Err(Error::Refused {
                name,
                log: shown(&log),
                source,
            }),
        }
    }

    /// Runs the program on a frame, without attaching it anywhere: for tests. A frame has at least an Ethernet
    /// header; a redirected one goes nowhere.
    ///
    /// # Errors
    /// The kernel cannot run this kind, or the frame is too short.
    pub fn run_on(&self, frame: &[u8]) -> io::Result<Ran> {
        // Room for what a program may put in front.
        let mut after = vec![0; frame.len() + 256];
        let (verdict, len) = sys::test_run(self.fd(), frame, &mut after)?;
        after.truncate(len);
        Ok(Ran {
            verdict,
            frame: after,
        })
    }

    /// Makes a program of kind [`ProgramKind::SocketFilter`] the filter of a socket (socket(7), SO_ATTACH_BPF).
    ///
    /// # Errors
    /// The kernel refuses: another kind of program, or a locked filter.
    pub fn attach_to_socket(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        sys::attach_to_socket(socket, self.fd())
    }

    /// The program's descriptor, to be handed to another process or kept for it.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The end of what the verifier said, without its statistics, on one line.
fn shown(log: &[u8]) -> String {
    let len = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let start = len.saturating_sub(LOG_SHOWN_BYTES);
    let log = String::from_utf8_lossy(&log[start..len]);
    let lines = log.lines().filter(|line| !line.starts_with("processed "));
    lines.collect::<Vec<_>>().join("; ")
}
