//! Stages of whatever an engine and its programs are passing at the moment, from the marks that they note: for `shunt ui --stages`.
//!
//! Many messages are on their way at once and no mark names its message. Two marks are taken for the same message only where the
//! order of all marks leaves no choice; how many that were is told beside the times. Waits of a queue belong to nobody else where
//! as many came out as had come in, so a run of `n` beginnings followed by `n` ends is taken in the order of the queue.

use std::{io, path::Path, time::Duration};

use hostif::stages::{Mark, Marks, now_ns};
use serde::Serialize;
use statistics::Recorder;

use super::timeline::STAGES;

/// Beginnings without an end that are remembered.
const PENDING_MAX: usize = 4096;

/// How a beginning is found for an end.
#[derive(Clone, Copy)]
enum Match {
    /// The end follows its beginning within one call of one thread: the latest is its own.
    Latest,
    /// As many ends as beginnings.
    Runs,
}

/// Stages that one engine and its programs see, by their place in [`STAGES`], in the order in which a server has them. What the
/// wire and a program do in between is not noted by them.
const SEEN: [(usize, Mark, Mark, Match); 8] = [
    (6, Mark::Arrived, Mark::Received, Match::Runs),
    (7, Mark::Received, Mark::Placed, Match::Latest),
    (8, Mark::Placed, Mark::Readable, Match::Runs),
    (9, Mark::Readable, Mark::Seen, Match::Runs),
    (APPLICATION, Mark::Seen, Mark::Pushed, Match::Runs),
    (1, Mark::Pushed, Mark::Taken, Match::Runs),
    (2, Mark::Taken, Mark::Accepted, Match::Runs),
    (3, Mark::Accepted, Mark::Transmit, Match::Runs),
];
const APPLICATION: usize = 11;

/// A stage during a stretch of time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LiveStage {
    /// Its name, as `shunt ping --stages` has it.
    pub name: &'static str,
    /// Messages that came to its end.
    pub ended: u64,
    /// Those of them whose beginning is known.
    pub told_apart: u64,
    /// Of those: mean, median, 99th percentile, in microseconds; `None` where there are too few.
    pub mean_us: Option<f64>,
    /// See there.
    pub p50_us: Option<f64>,
    /// See there.
    pub p99_us: Option<f64>,
}

/// What was noted lately.
#[derive(Debug, Clone, Serialize)]
pub struct LiveStages {
    /// Processes that note, as they see their numbers.
    pub pids: Vec<u32>,
    /// Over how long.
    pub window_s: f64,
    /// In the order in which a server has them.
    pub stages: Vec<LiveStage>,
}

/// What the processes of a folder have noted since `window` ago.
///
/// # Errors
/// The folder cannot be read.
pub fn look(folder: &Path, window: Duration) -> io::Result<LiveStages> {
    let window_ns = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
    let found = Marks::read_since(folder, now_ns().saturating_sub(window_ns))?;
    let mut pids = found.pids;
    pids.sort_unstable();
    pids.dedup();
    Ok(LiveStages {
        pids,
        window_s: window.as_secs_f64(),
        stages: stages(&found.marks),
    })
}

fn stages(marks: &[(u64, Mark)]) -> Vec<LiveStage> {
    let seen = SEEN.iter().map(|&(at, begin, end, how)| {
        let (ended, times) = match how {
            Match::Latest => latest(marks, begin, end),
            Match::Runs => runs(marks, begin, end),
        };
        let told = times.distribution();
        let percentile = |percent| told.as_ref().and_then(|one| one.percentile_us(percent));
        LiveStage {
            name: STAGES[at].name,
            ended,
            told_apart: times.count(),
            mean_us: told.as_ref().map(|one| one.mean_us),
            p50_us: percentile(50.0),
            p99_us: percentile(99.0),
        }
    });
    seen.collect()
}

/// Each end with the latest beginning before it, where that had no end yet.
fn latest(marks: &[(u64, Mark)], begin: Mark, end: Mark) -> (u64, Recorder) {
    let (mut ended, mut times, mut last) = (0, Recorder::default(), None);
    for &(at_ns, mark) in marks {
        if mark == begin {
            last = Some(at_ns);
        } else if mark == end {
            ended += 1;
            if let Some(begun_ns) = last.take() {
                times.add(at_ns - begun_ns);
            }
        }
    }
    (ended, times)
}

/// Runs of beginnings that as many ends follow, before the next beginning.
fn runs(marks: &[(u64, Mark)], begin: Mark, end: Mark) -> (u64, Recorder) {
    let (mut ended, mut times) = (0, Recorder::default());
    let (mut begun, mut over): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
    let mut close = |begun: &mut Vec<u64>, over: &mut Vec<u64>| {
        if begun.len() == over.len() && begun.len() < PENDING_MAX {
            let waits = begun.iter().zip(over.iter());
            waits.for_each(|(begun_ns, over_ns)| times.add(over_ns.saturating_sub(*begun_ns)));
        }
        begun.clear();
        over.clear();
    };
    for &(at_ns, mark) in marks {
        if mark == begin {
            if !over.is_empty() {
                close(&mut begun, &mut over);
            }
            if begun.len() < PENDING_MAX {
                begun.push(at_ns);
            }
        } else if mark == end {
            ended += 1;
            if over.len() < PENDING_MAX {
                over.push(at_ns);
            }
        }
    }
    close(&mut begun, &mut over);
    (ended, times)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(marks: &[(u64, Mark)], name: &str) -> LiveStage {
        let mut marks = marks.to_vec();
        marks.sort_unstable();
        let found = stages(&marks).into_iter().find(|one| one.name == name);
        found.unwrap()
    }

    #[test]
    fn a_message_alone_has_the_times_between_its_marks() {
        let marks = [
            (1_000, Mark::Pushed),
            (3_000, Mark::Taken),
            (3_500, Mark::Accepted),
            (5_000, Mark::Transmit),
        ];
        for (name, us) in [("ring", 2.0), ("pick-up", 0.5), ("TCP/IP, sending", 1.5)] {
            let found = stage(&marks, name);
            assert_eq!((found.ended, found.told_apart), (1, 1), "{name}");
            assert!((found.mean_us.unwrap() - us).abs() < 1e-9, "{found:?}");
            assert!((found.p50_us.unwrap() - us).abs() < 0.01, "{found:?}");
        }
        assert_eq!(stage(&marks, "wake-up").mean_us, None);
    }

    #[test]
    fn a_batch_is_taken_in_the_order_of_its_queue_and_what_leaves_a_choice_is_not_taken() {
        let (begin, end) = (Mark::Accepted, Mark::Transmit);
        let batch = [(0, begin), (100, begin), (1_000, end), (1_300, end)];
        let found = stage(&batch, "TCP/IP, sending");
        assert_eq!((found.ended, found.told_apart), (2, 2));
        assert!((found.mean_us.unwrap() - 1.1).abs() < 1e-9);
        // Two messages in one segment, and an end whose beginning is older than the window.
        let joined = [(0, begin), (100, begin), (1_000, end), (2_000, begin)];
        assert_eq!(stage(&joined, "TCP/IP, sending").told_apart, 0);
        let older = [(10, end), (100, begin), (1_000, end)];
        let found = stage(&older, "TCP/IP, sending");
        assert_eq!((found.ended, found.told_apart), (2, 1));
    }

    #[test]
    fn a_frame_without_payload_is_no_beginning() {
        let marks = [
            (0, Mark::Received),
            (700, Mark::Received),
            (900, Mark::Placed),
        ];
        let found = stage(&marks, "TCP/IP, receiving");
        assert_eq!((found.ended, found.told_apart), (1, 1));
        assert!((found.mean_us.unwrap() - 0.2).abs() < 1e-9);
    }
}
