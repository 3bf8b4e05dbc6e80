//! Who ran what, and when: for pictures. Bounded by the number of spans asked for.

use serde::Serialize;

use crate::time::Ns;

/// What a processor was doing.
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
}

/// A stretch of time in which one processor did one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Span {
    /// The processor; the NIC's count on their own.
    pub core: usize,
    /// What it did.
    pub level: Level,
    /// From when.
    pub from: Ns,
    /// Until when.
    pub to: Ns,
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

    pub fn add(&mut self, core: usize, level: Level, from: Ns, to: Ns) {
        if self.spans.len() < self.most && to > from {
            self.spans.push(Span {
                core,
                level,
                from,
                to,
            });
        }
    }

    pub fn into_spans(self) -> Vec<Span> {
        self.spans
    }
}
