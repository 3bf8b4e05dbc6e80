//! Serves programs into which no library can be preloaded: static ones, Go's, and others that make system calls
//! themselves. Read first: seccomp_unotify(2), unix(7), and `docs/decisions/0026-supervised-programs.md`.
//!
//! `start` puts the calling process, and all it will execute, under a filter that stops the calls which name
//! the ends of sockets. A supervisor, a process of its own, decides about each: what the kernel serves goes on
//! as if nothing had been there; of what an engine serves, the program's descriptor becomes one end of a
//! socket pair, and the supervisor moves bytes between the other end and the engine. So reading, writing,
//! polling, duplicating, forking and closing need no supervisor at all; receiving and sending with addresses do.
//!
//! Start at `supervisor` (the loop and its table), then `calls::connect` and `calls::listen` (when a descriptor changes),
//! `relay` (the bytes), `stream` (calls that the pair would answer otherwise than TCP), `datagram` (UDP).

mod bell;
mod caller;
mod calls;
mod datagram;
mod engine_access;
mod filter;
mod interest;
mod options;
mod pair;
mod queue;
mod relay;
mod settings;
mod signals;
mod stopped_call;
mod stream;
mod supervisor;
mod sys;
mod unheard;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};

use caller::Caller;
use supervisor::Supervisor;

pub use settings::Settings;

/// Why a program cannot be supervised.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A filter that also wants to be told of calls stands above this process.
    #[error(
        "this process is under a filter with user notification already (another supervisor's, a container's): \
         Linux has one per chain of processes. Run it outside, or on the kernel with --policy kernel-only"
    )]
    Supervised,
    /// The kernel does not let this process have a filter.
    #[error(
        "this kernel refuses a seccomp filter with user notification ({0}): it takes Linux 5.14 built with \
         CONFIG_SECCOMP_FILTER, and a container that permits seccomp(2)"
    )]
    Refused(Errno),
    /// The supervisor may not look into the program.
    #[error(
        "the supervisor may not look into the program ({0}): allow it with kernel.yama.ptrace_scope=0, or start \
         it with CAP_SYS_PTRACE"
    )]
    Blind(Errno),
    /// The supervisor could not be started.
    #[error("the supervisor could not be started: {0}")]
    Failed(Errno),
}

/// The number by which a supervisor says that it is at work; others are errno values.
const READY: i32 = 0;

/// How long either side waits for the other while they start: both have nothing else to do.
const PATIENCE_S: i64 = 10;

/// Starts a supervisor and puts this process, which must have a single thread, under it: whatever it executes
/// from now on is served.
pub fn start(settings: Settings) -> Result<(), StartError> {
    if sys::is_supervised() {
        // Linux has one listener per chain of processes: the outer one serves this program too.
        return Ok(());
    }
    let (ours, supervisors) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(StartError::Failed)?;
    let engine_only = settings.engine_only;
    sys::detach(|| supervise(supervisors.as_fd(), settings)).map_err(StartError::Failed)?;
    drop(supervisors);
    let listener = enter(engine_only)?;
    introduce(ours.as_fd(), listener.as_fd()).map_err(StartError::Failed)?;
    let mut word = [0; 4];
    let (len, _) = wait_for(ours.as_fd())
        .and_then(|()| recv(&ours, &mut word[..], RecvFlags::empty()))
        .map_err(StartError::Failed)?;
    drop(listener);
    match i32::from_ne_bytes(word) {
        _ if len < word.len() => Err(StartError::Failed(Errno::PIPE)),
        READY => Ok(()),
        errno => Err(StartError::Blind(Errno::from_raw_os_error(errno))),
    }
}

/// Says who this is and which descriptor is the filter's. A message with that descriptor beside it would be a call
/// that the filter stops.
fn introduce(channel: BorrowedFd<'_>, listener: BorrowedFd<'_>) -> Result<(), Errno> {
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    let words = [tid, listener.as_raw_fd()].map(i32::to_ne_bytes).concat();
    send(channel, &words, SendFlags::NOSIGNAL).map(drop)
}

/// The other side of [`introduce`]: the filter's descriptor, once it is certain that the supervisor may look into the
/// program, which is known only by looking.
fn meet(channel: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    // What the program's starter has open is the program's business.
    sys::close_others(channel.as_raw_fd());
    wait_for(channel)?;
    let mut bytes = [0; 8];
    let (len, _) = recv(channel, &mut bytes[..], RecvFlags::empty())?;
    let (words, _) = bytes[..len].as_chunks::<4>();
    let &[tid, fd] = words else {
        return Err(Errno::PROTO);
    };
    let tid = u32::from_ne_bytes(tid);
    Caller { tid }.descriptor(RawFd::from_ne_bytes(fd))
}

fn wait_for(channel: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut set = [PollFd::from_borrowed_fd(channel, PollFlags::IN)];
    let patience = Timespec {
        tv_sec: PATIENCE_S,
        tv_nsec: 0,
    };
    match poll(&mut set, Some(&patience))? {
        0 => Err(Errno::TIMEDOUT),
        _ => Ok(()),
    }
}

/// Puts this process under the filter.
fn enter(engine_only: bool) -> Result<OwnedFd, StartError> {
    let mut filter = filter::filter(engine_only);
    let entered = match sys::listen(&mut filter) {
        // Without CAP_SYS_ADMIN a filter takes the promise to gain no privileges.
        Err(Errno::ACCESS) => {
            sys::forbid_privileges().map_err(StartError::Refused)?;
            sys::listen(&mut filter)
        }
        entered => entered,
    };
    entered.map_err(|errno| match errno {
        Errno::BUSY => StartError::Supervised,
        errno => StartError::Refused(errno),
    })
}

/// The supervisor's process: hears whom it is to serve, and serves until nobody is left.
fn supervise(channel: BorrowedFd<'_>, settings: Settings) -> i32 {
    sys::stand_alone(c"shunt-supervise");
    allow_many_files();
    let begun = meet(channel)
        .and_then(|listener| Supervisor::new(listener, settings))
        .and_then(|supervisor| leave_terminal().map(|()| supervisor));
    let word = match &begun {
        Ok(_) => READY,
        Err(errno) => errno.raw_os_error(),
    };
    let said = send(channel, &word.to_ne_bytes(), SendFlags::NOSIGNAL);
    match (begun, said) {
        (Ok(mut supervisor), Ok(_)) => {
            supervisor.run();
            0
        }
        _ => 1,
    }
}

/// A connection takes two descriptors here, one in the program: its limit must not be met here first.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let current = maximum;
    // Where it may not, fewer connections are served.
    let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum });
}

/// Whoever reads what the program prints shall not wait for the supervisor's end of it.
fn leave_terminal() -> Result<(), Errno> {
    use rustix::fs::{Mode, OFlags, open};
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)
}
