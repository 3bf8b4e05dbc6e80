//! The bottom layer: interfaces and their addresses, who is found where on a link, frames to build. It also holds
//! what every layer above uses: the configuration, the counters and the timers.

pub(crate) mod arp;
pub(crate) mod identifications;
pub(crate) mod interface;
pub(crate) mod ndp;
pub(crate) mod neighbour;
pub(crate) mod output;
pub(crate) mod questions;
pub(crate) mod source;
pub(crate) mod waiting;

use crate::config::Config;
use crate::containers::timers::{Timer, Timers};
use crate::counters::Counters;
use crate::histogram::Histogram;
use identifications::Identifications;
use interface::Interfaces;
use neighbour::Neighbours;
use output::Scratch;
use questions::Question;
use std::collections::VecDeque;
use waiting::WaitingPackets;

/// The links of this host.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) config: Config,
    pub(crate) counters: Counters,
    /// Round trips as TCP measures them, microseconds.
    pub(crate) round_trips: Histogram,
    pub(crate) timers: Timers,
    pub(crate) interfaces: Interfaces,
    pub(crate) neighbours: Neighbours,
    questions: VecDeque<Question>,
    pub(crate) waiting: WaitingPackets,
    pub(crate) scratch: Scratch,
    pub(crate) identifications: Identifications,
}

impl Link {
    /// No interface yet.
    pub(crate) fn new(config: Config, timers: Timers) -> Self {
        Self {
            config,
            counters: Counters::default(),
            round_trips: Histogram::default(),
            timers,
            interfaces: Interfaces::default(),
            neighbours: Neighbours::new(config.neighbours_max, &config.subkey(b"neighbours")),
            questions: VecDeque::with_capacity(questions::QUESTIONS_MAX),
            waiting: WaitingPackets::default(),
            scratch: Scratch::new(),
            identifications: Identifications::new(&config.subkey(b"udp identifications")),
        }
    }

    /// Sets the timer of neighbour `n`.
    #[inline]
    pub(crate) fn arm_neighbour(&mut self, n: u32) {
        let timer = Timer::Neighbour(n);
        let wanted = self.neighbours.deadline(n);
        if self.timers.deadline(timer).if_set() != wanted {
            self.timers.set(timer, wanted);
        }
    }

    /// Whether something waits to be sent.
    #[inline]
    pub(crate) fn wants_transmit(&self) -> bool {
        !self.questions.is_empty() || self.waiting.wants_transmit()
    }
}
