//! How long each queue was over time: for pictures.
//!
//! The run is cut into at most [`MOST_SLICES`] equal slices, and of each the greatest length is kept.
//! How long a run will be is not known before its end, so slices begin short and are joined in pairs
//! whenever there are too many: memory is bounded, and a peak is never lost.

use serde::Serialize;

use super::{Machine, processor::Core, receive::Queue};
use crate::time::Ns;

/// Most slices of time.
pub const MOST_SLICES: usize = 1024;
/// The first length of a slice.
const FIRST_WIDTH: Ns = 1 << 10;

/// The queues, in the order of the rows of [`Lengths::most`].
pub const QUEUES: [&str; QUEUE_COUNT] = [
    "interrupts",
    "device queues",
    "bottom halves",
    "library ring",
    "sockets",
    "NIC jobs",
    "NIC memory",
    "bus",
    "link",
];
const QUEUE_COUNT: usize = 9;

type Sample = [u32; QUEUE_COUNT];

/// Queue lengths of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Lengths {
    /// Length of a slice.
    pub width_ns: Ns,
    /// For each slice, the greatest length of each queue of [`QUEUES`].
    pub most: Vec<[u32; QUEUE_COUNT]>,
}

impl Lengths {
    pub(super) fn watching() -> Self {
        Self {
            width_ns: FIRST_WIDTH,
            most: vec![Sample::default()],
        }
    }

    /// From `now` on the queues have these lengths; until then they had those of `before`.
    fn record(&mut self, now: Ns, before: &Sample, lengths: &Sample) {
        while now / self.width_ns >= MOST_SLICES as Ns {
            self.join_pairs();
        }
        let slice = usize::try_from(now / self.width_ns).unwrap_or(MOST_SLICES - 1);
        if slice >= self.most.len() {
            self.most.resize(slice + 1, *before);
        }
        for (most, length) in self.most[slice].iter_mut().zip(lengths) {
            *most = (*most).max(*length);
        }
    }

    fn join_pairs(&mut self) {
        self.width_ns *= 2;
        let pairs = self.most.chunks(2);
        self.most = pairs
            .map(|pair| {
                let (first, second) = (pair[0], pair.last().copied().unwrap_or_default());
                std::array::from_fn(|queue| first[queue].max(second[queue]))
            })
            .collect();
    }
}

/// What is kept while a run is watched.
#[derive(Debug)]
pub(super) struct Watch {
    pub lengths: Lengths,
    last: Sample,
}

impl Watch {
    pub fn new() -> Self {
        Self {
            lengths: Lengths::watching(),
            last: Sample::default(),
        }
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

impl Machine<'_> {
    /// Notes the queues' lengths after an event.
    pub(super) fn watch_lengths(&mut self) {
        let now = self.now;
        self.bus.settle(now);
        self.link.settle(now);
        let over = |length: fn(&Core) -> usize| count(self.cores.iter().map(length).sum());
        let lengths = [
            over(|core| core.interrupts.len()),
            count(self.queues.iter().map(Queue::held).sum()),
            over(|core| core.halves.len()),
            over(|core| core.server.ring.len()),
            over(|core| core.server.sockets.len()),
            count(self.nic.jobs()),
            over(|core| core.server.stored.len()),
            count(self.bus.inside.len()),
            count(self.link.inside.len()),
        ];
        if let Some(watch) = &mut self.watch {
            watch.lengths.record(now, &watch.last, &lengths);
            watch.last = lengths;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Kind, Scenario};

    fn sample(length: u32) -> Sample {
        [length; QUEUE_COUNT]
    }

    #[test]
    fn a_length_lasts_until_the_next_change() {
        let mut lengths = Lengths::watching();
        let width = lengths.width_ns;
        lengths.record(0, &sample(0), &sample(3));
        lengths.record(4 * width, &sample(3), &sample(1));
        let first: Vec<u32> = lengths.most.iter().map(|most| most[0]).collect();
        assert_eq!(first, [3, 3, 3, 3, 3]);
        lengths.record(6 * width, &sample(1), &sample(0));
        assert_eq!(lengths.most[5][0], 1);
    }

    #[test]
    fn slices_are_joined_and_keep_their_peak() {
        let mut lengths = Lengths::watching();
        lengths.record(10, &sample(0), &sample(7));
        lengths.record(20, &sample(7), &sample(0));
        lengths.record(1_000_000_000, &sample(0), &sample(2));
        assert!(lengths.most.len() <= MOST_SLICES);
        assert_eq!(lengths.most[0][0], 7);
        assert_eq!(lengths.most[1][0], 0);
        assert_eq!(lengths.most.last().map(|most| most[0]), Some(2));
    }

    #[test]
    fn an_overloaded_library_leaves_its_sockets_full() {
        let mut scenario = Scenario::default();
        scenario.workload.clients = 9;
        scenario.stack.kind = Kind::User;
        let outcome = Machine::run_with_timeline(&scenario, 1, 0, 100);
        let sockets = QUEUES.iter().position(|name| *name == "sockets").unwrap();
        let most = outcome.lengths.most.iter().map(|most| most[sockets]).max();
        assert!(most > Some(200), "{most:?}");
        assert_eq!(outcome.spans.len(), 100);
    }
}
