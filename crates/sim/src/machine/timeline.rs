//! Who ran what, and when: for pictures. Bounded by the number of spans asked for.

use serde::Serialize;

use super::{event::Id, job::After};
use crate::time::Ns;

/// What a processor, the bus or the link was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// An interrupt.
    Interrupt,
    /// A bottom half.
    BottomHalf,
    /// The server process.
    Server,
    /// An endless computation.
    Background,
    /// The server, with nothing to do, looking for work.
    Spin,
    /// The thread that polls what a bottom half left.
    PollThread,
    /// A job on the NIC.
    Nic,
    /// A transfer over the bus.
    Bus,
    /// A response on the server's link (`network.link_queue`).
    Link,
}

/// A stretch of time in which one processor did one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Span {
    /// The processor; the NIC's count on their own. 0 for bus and link.
    pub core: usize,
    /// What it did.
    pub level: Level,
    /// From when.
    pub from: Ns,
    /// Until when.
    pub to: Ns,
    /// For which request, by its place among those of the run; none where it was for none alone.
    pub request: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Timeline {
    spans: Vec<Span>,
    most: usize,
}

impl Timeline {
    pub fn new(most: usize) -> Self {
        Self {
            spans: Vec::new(),
            most,
        }
    }

    pub fn wants_more(&self) -> bool {
        self.spans.len() < self.most
    }

    pub fn add(&mut self, core: usize, level: Level, from: Ns, to: Ns, request: Option<Id>) {
        if self.wants_more() && to > from {
            self.spans.push(Span {
                core,
                level,
                from,
                to,
                request,
            });
        }
    }

    pub fn into_spans(self) -> Vec<Span> {
        self.spans
    }
}

/// The request that a job works for.
pub(super) fn request_of(after: After) -> Option<Id> {
    match after {
        After::Received { request, .. }
        | After::Polled { request, .. }
        | After::Ring { request, .. }
        | After::Deliver(request)
        | After::Read(request)
        | After::Reply(request)
        | After::ToNic(request) => Some(request),
        After::Nothing | After::Announced { .. } | After::Poll { .. } | After::SetUp(_) => None,
    }
}
