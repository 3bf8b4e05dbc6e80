//! What users' threads have done, on its way back to the core that asked.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use hostif::{SocketId, sync::doorbell};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// A job that a user's thread has finished.
#[derive(Debug)]
pub enum Finished {
    /// What a command of that session has closed is closed: its token can be answered.
    Closed {
        /// The session's number.
        session: u32,
        /// The command's token.
        token: u32,
        /// How often more may be closed before it is answered.
        rounds: u8,
    },
    /// What the kernel calls the backing socket of a socket.
    Named {
        /// The number of the session whose command waits for it.
        session: u32,
        /// The socket.
        socket: SocketId,
        /// Its local address and port.
        name: Result<SocketAddr, Errno>,
    },
    /// The kernel has nothing any more of a UDP socket that was at this port.
    Left {
        /// The port.
        port: u16,
    },
    /// The memory of a pair of windows was given back, and the pair is free.
    Freed {
        /// Region.
        region: u32,
        /// Pair.
        pair: u32,
    },
}

/// Where a core finds the jobs that are finished.
pub struct FinishedJobs {
    receiver: Receiver<Finished>,
    answers: FinishedSender,
}

/// The way to a [`FinishedJobs`].
#[derive(Clone)]
pub struct FinishedSender {
    sender: Sender<Finished>,
    bell: Arc<OwnedFd>,
    /// Something waits to be taken.
    waits: Arc<AtomicBool>,
}

impl FinishedJobs {
    /// An empty one.
    ///
    /// # Errors
    /// No descriptor for its bell.
    pub fn new() -> Result<Self, Errno> {
        let (sender, receiver) = channel();
        let bell = hostif::host_hooks::relocate_fd(doorbell::create()?);
        let answers = FinishedSender {
            sender,
            bell: Arc::new(bell),
            waits: Arc::default(),
        };
        Ok(Self { receiver, answers })
    }

    /// What becomes readable when there is something.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.answers.bell.as_fd()
    }

    /// The way here.
    pub fn sender(&self) -> FinishedSender {
        self.answers.clone()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.answers.waits.load(Ordering::Acquire)
    }

    /// The next one.
    pub fn take(&self) -> Option<Finished> {
        if self.is_empty() {
            return None;
        }
        if let Ok(finished) = self.receiver.try_recv() {
            return Some(finished);
        }
        // Drained, then looked at once more: an answer rings after it was left.
        doorbell::drain(self.bell());
        self.answers.waits.store(false, Ordering::SeqCst);
        self.receiver.try_recv().ok()
    }
}

impl FinishedSender {
    /// Leaves an answer.
    pub fn tell(&self, finished: Finished) {
        // The core may have ended.
        let _ = self.sender.send(finished);
        self.waits.store(true, Ordering::SeqCst);
        doorbell::ring(self.bell.as_fd());
    }
}
