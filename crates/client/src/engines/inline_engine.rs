//! An engine inside this process, which no core of its own runs: the threads that wait run it.
//!
//! Whoever starts such an engine registers it here. Then a thread that waits spins by running the engine,
//! sleeps on the engine's device, and whoever has left a note runs the engine instead of ringing it. Handlers
//! of signals wait meanwhile (`signal_deferral.rs`); a spin ends when one does. What a poll does, and who polls when
//! nobody waits, the engine decides.

use std::io::IoSliceMut;
use std::time::Duration;

use hostif::SocketId;
use hostif::control::{Reply, Request};
use rustix::fd::{BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;

use crate::private::relocate_copy;
use crate::sys::{self, StaticSlot};

pub use crate::threads::signal_deferral::{Held, SignalDeferral, defer};

/// The engine, as the threads of the program see it.
pub trait InlineEngine: Send + Sync {
    /// Runs the engine once, unless another thread is at it.
    fn poll(&self);
    /// As `poll`, for a thread that waits for datagrams on that socket of the session and looks at it itself.
    fn poll_for_datagrams(&self, socket: (u32, SocketId));
    /// As `poll`; what arrives on that socket of the session, at stream offset `start` and directly behind it, may be
    /// placed in what follows the first `skipped` bytes of `slices`, and is then consumed: how much that was. `None`:
    /// another thread is at it.
    fn poll_into(
        &self,
        socket: (u32, SocketId),
        start: u64,
        slices: &mut [IoSliceMut<'_>],
        skipped: usize,
    ) -> Option<usize>;
    /// A note was left: runs the engine, or knows that another thread will. False: the engine has ended.
    fn notify(&self) -> bool;
    /// As `notify`, of a note of a few bytes to be sent on that socket: where others follow at once they may share
    /// a poll.
    fn notify_small(&self, socket: SocketId) -> bool;
    /// The session has written a few bytes on that socket, from stream offset `start` to `end`: they leave at once, or share
    /// a poll with others that follow. Where the engine wants a note of it in the session's ring, `push` puts it there.
    /// False, with nothing done: that could not be, or the engine has ended.
    fn write_small(
        &self,
        socket: (u32, SocketId),
        start: u64,
        end: u64,
        push: &dyn Fn() -> bool,
    ) -> bool;
    /// The program makes any other call than a small send: small sends that were held back leave.
    fn flush_small(&self);
    /// Answers a request of one of this process's sessions, as over its control channel. `None`: the engine has
    /// ended, or knows no such session. The descriptors become the engine's.
    fn ask(&self, session: u32, request: Request, descriptors: Vec<OwnedFd>) -> Option<Answer>;
    /// The program has no number left for a descriptor: closes those of the engine's that it can spare. Whether there were any.
    fn spare_descriptors(&self) -> bool;
    /// A thread is about to sleep.
    fn watch(&self) -> Watch;
    /// It no longer sleeps.
    fn unwatch(&self);
}

/// What a request is answered with, and the descriptors beside it.
pub type Answer = (Reply, Vec<OwnedFd>);

/// What a thread that is about to sleep has to do for the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// There is something to do: poll, and do not sleep.
    Work,
    /// Sleep until this descriptor is readable, or for so long, then poll.
    Device(RawFd, Duration),
    /// The engine has ended.
    Nothing,
}

struct Registered(&'static dyn InlineEngine);

static INLINE_ENGINE: StaticSlot<Registered> = StaticSlot::empty();

/// Registers the engine of this process.
pub fn set(inline_engine: &'static dyn InlineEngine) {
    INLINE_ENGINE.set(Some(Box::leak(Box::new(Registered(inline_engine)))));
}

/// In a forked child: the engine is the parent's.
pub fn clear() {
    INLINE_ENGINE.set(None);
}

/// The engine of this process, if it has one.
pub(crate) fn current() -> Option<&'static dyn InlineEngine> {
    INLINE_ENGINE.current().map(|registered| registered.0)
}

/// Whether there is one.
#[must_use]
pub fn is_here() -> bool {
    current().is_some()
}

/// Runs `work` with the thread's signals blocked, as a thread inherits it that is started meanwhile.
pub fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    let before = sys::block_signals();
    let result = work();
    sys::restore_signals(before);
    result
}

/// Polls for a thread that waits on one socket, in whose buffer the engine may place what arrives.
pub(crate) trait DirectReceive {
    /// Polls once, with the thread's signals held back.
    fn poll(&self, inline_engine: &dyn InlineEngine);
}

/// Polls once.
pub(crate) fn poll(inline_engine: &dyn InlineEngine, direct_receive: Option<&dyn DirectReceive>) {
    let _deferral = SignalDeferral::begin();
    match direct_receive {
        Some(direct_receive) => direct_receive.poll(inline_engine),
        None => inline_engine.poll(),
    }
}

/// A note was left. False: it is left for an engine in another process.
pub(crate) fn notify() -> bool {
    let Some(inline_engine) = current() else {
        return false;
    };
    let _deferral = SignalDeferral::begin();
    inline_engine.notify()
}

/// As `notify`, of a note of a few bytes to be sent.
pub(crate) fn notify_small(socket: SocketId) -> bool {
    let Some(inline_engine) = current() else {
        return false;
    };
    let _deferral = SignalDeferral::begin();
    inline_engine.notify_small(socket)
}

/// Sends the small sends that were held back.
pub(crate) fn flush_small() {
    if let Some(inline_engine) = current() {
        let _deferral = SignalDeferral::begin();
        inline_engine.flush_small();
    }
}

/// Asks the engine of this process, which gets duplicates of the descriptors; `None`: the request has to go
/// over the control channel.
pub(crate) fn ask(
    session: u32,
    request: &Request,
    descriptors: &[BorrowedFd<'_>],
) -> Option<Result<Answer, Errno>> {
    let inline_engine = current()?;
    let copy_all = || {
        let copies = descriptors.iter().map(|fd| relocate_copy(*fd));
        copies.collect::<Result<_, Errno>>()
    };
    let copies = match with_spared_descriptors(copy_all) {
        Ok(copies) => copies,
        // The engine serves a socket without one: nobody but who hands it on misses it.
        Err(Errno::MFILE) if matches!(request, Request::Open { .. }) => Vec::new(),
        Err(errno) => return Some(Err(errno)),
    };
    let _deferral = SignalDeferral::begin();
    inline_engine.ask(session, request.clone(), copies).map(Ok)
}

/// Does what takes descriptors; once more where the process had too many, and an engine inside it can spare some.
///
/// # Errors
/// What `open` said last.
pub fn with_spared_descriptors<T>(open: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    match open() {
        Err(Errno::MFILE) if spare_descriptors() => open(),
        opened => opened,
    }
}

/// The process has no number left: an engine inside it closes what it can spare. Whether there was anything.
pub fn spare_descriptors() -> bool {
    current().is_some_and(|inline_engine| {
        let _deferral = SignalDeferral::begin();
        inline_engine.spare_descriptors()
    })
}

/// A thread is about to sleep.
pub(crate) fn watch(inline_engine: &dyn InlineEngine) -> Watch {
    let _deferral = SignalDeferral::begin();
    inline_engine.watch()
}
