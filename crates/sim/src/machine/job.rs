//! A piece of work for a processor, and what follows when it is done.

use super::event::Id;
use crate::time::{NEVER, Ns};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Nothing,
    /// The interrupt of a queue announced this many packets.
    Announced {
        queue: usize,
        packets: u32,
    },
    /// One packet was taken in an interrupt of its own.
    Received {
        request: Id,
        last: bool,
    },
    /// A masked queue is polled from now on.
    Poll {
        queue: usize,
    },
    /// One packet was polled; this many more may be.
    Polled {
        queue: usize,
        request: Id,
        last: bool,
        left: u32,
    },
    /// A segment is complete: into the socket's queue, and the server wakes.
    Deliver(Id),
    /// A packet is handed to the library's ring of another processor.
    Ring {
        request: Id,
        last: bool,
    },
    /// The server has read a segment.
    Read(Id),
    /// The server has answered: the response leaves the machine.
    Reply(Id),
    /// The server has given the response to the NIC.
    ToNic(Id),
    /// A packet of a connection's set-up: this much for the bottom half.
    SetUp(Ns),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    /// Work left; `NEVER` for what has no end.
    pub left: Ns,
    pub after: After,
    /// A process may be preempted here.
    pub preemptible: bool,
    /// When it joined its queue.
    pub since: Ns,
    pub begun: bool,
}

impl Job {
    pub fn new(left: Ns, after: After, now: Ns) -> Self {
        Self {
            left,
            after,
            preemptible: false,
            since: now,
            begun: false,
        }
    }

    /// A process's work that may be preempted, or may not.
    pub fn process(left: Ns, after: After, preemptible: bool, now: Ns) -> Self {
        Self {
            preemptible,
            ..Self::new(left, after, now)
        }
    }

    /// An endless computation.
    pub fn endless(now: Ns) -> Self {
        Self::process(NEVER, After::Nothing, true, now)
    }
}
