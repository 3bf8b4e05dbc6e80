//! Queues of the device that stop: one that takes no frames, one that brings none.
//!
//! A full queue is usual for milliseconds: the frame stays where it is and is offered again ([`stack::Busy`]). But
//! whoever waits for room has no timer, so connections behind a queue that never moves again would hang and say nothing.
//! Such a queue is therefore treated as a cut cable: each frame is offered to it, and lost where it does not take it, so
//! that retransmission, and in the end its limit (RFC 9293 §3.8.3), go on as over any dead path. That nothing arrives
//! cannot be told from a network that is silent; it is said, and connections end by the same timers.

use stack::Busy;
use tcp::{Duration, Instant};

/// How long a queue may take nothing before it counts as stopped. The slowest link empties a full one sooner.
const STOPPED_AFTER: Duration = Duration::from_secs(1);
/// Two refusals further apart belong to two bursts: nobody knows what the queue did meanwhile.
const FORGOTTEN_AFTER: Duration = Duration::from_ms(500);
/// How long nothing may arrive while frames leave for connections.
const SILENT_AFTER: Duration = Duration::from_secs(10);
/// Frames that have to leave meanwhile: as many as a connection attempt sends in that time.
const ASKED_MIN: u64 = 4;

/// What an engine core knows of its queue of the device.
#[derive(Debug, Default)]
pub struct Queues {
    now: Instant,
    /// The first and the last of refusals in a row.
    refused: Option<(Instant, Instant)>,
    is_stopped: bool,
    /// Frames that were lost because the queue had stopped.
    lost_frames: u64,
    heard: Heard,
}

/// When something arrived last.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    at: Instant,
    received: u64,
    /// Frames that had left then.
    sent: u64,
    is_silent: bool,
}

impl Queues {
    /// A poll begins.
    pub fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// The device was offered a frame and did or did not take it. `Busy`: it is to be offered again, else it is gone.
    pub fn on_offered(&mut self, is_taken: bool) -> Result<(), Busy> {
        if is_taken {
            if self.is_stopped {
                tracing::info!(
                    lost_frames = self.lost_frames,
                    "the device takes frames again"
                );
            }
            (self.refused, self.is_stopped) = (None, false);
            return Ok(());
        }
        let now = self.now;
        let is_recent = |(_, last): &(Instant, Instant)| now.since(*last) < FORGOTTEN_AFTER;
        let first = match self
            .refused
            .filter(|refused| self.is_stopped || is_recent(refused))
        {
            Some((first, _)) => first,
            None => now,
        };
        self.refused = Some((first, now));
        self.is_stopped |= now.since(first) >= STOPPED_AFTER;
        if self.is_stopped {
            self.lost_frames += 1;
            return Ok(());
        }
        Err(Busy)
    }

    /// Called now and then: frames that came and went until now, and whether there are connections.
    pub fn look(&mut self, now: Instant, (received, sent): (u64, u64), has_connections: bool) {
        let heard = &mut self.heard;
        if received != heard.received || !has_connections || heard.at == Instant::default() {
            *heard = Heard {
                at: now,
                received,
                sent,
                is_silent: false,
            };
        } else if now.since(heard.at) >= SILENT_AFTER {
            heard.is_silent = sent.saturating_sub(heard.sent) >= ASKED_MIN;
        }
    }

    /// Frames lost because the queue had stopped.
    pub fn lost_frames(&self) -> u64 {
        self.lost_frames
    }

    /// What is wrong, as text for people; the same text as long as it is the same fault.
    pub fn complaints(&self, interface: &str) -> impl Iterator<Item = String> {
        let stopped = self.is_stopped.then(|| {
            format!(
                "the device of {interface:?} takes no frames: what is sent is lost, and connections end when their time is over; look at `ip -s -d link show {interface}`, and restart the engine, with another --driver if it stays so"
            )
        });
        let silent = self.heard.is_silent.then(|| {
            format!(
                "nothing has arrived on {interface:?} for ten seconds although frames leave: the peers, the link or the device's receive queue is silent"
            )
        });
        stopped.into_iter().chain(silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_us(1_000_000 + ms * 1_000)
    }

    #[test]
    fn a_queue_that_is_full_for_a_while_loses_nothing() {
        let mut queues = Queues::default();
        for round in 0..20 {
            for ms in (0..900).step_by(100) {
                queues.set_now(at(round * 1_000 + ms));
                assert_eq!(queues.on_offered(false), Err(Busy));
            }
            assert_eq!(queues.on_offered(true), Ok(()));
        }
        assert_eq!(queues.lost_frames(), 0);
        assert_eq!(queues.complaints("eth0").count(), 0);
    }

    #[test]
    fn refusals_far_apart_are_not_one_long_one() {
        let mut queues = Queues::default();
        for second in 0..60 {
            queues.set_now(at(second * 1_000));
            assert_eq!(queues.on_offered(false), Err(Busy));
        }
    }

    #[test]
    fn after_a_second_it_is_a_cut_cable_until_it_takes_a_frame() {
        let mut queues = Queues::default();
        for ms in (0..1_000).step_by(100) {
            queues.set_now(at(ms));
            assert_eq!(queues.on_offered(false), Err(Busy));
        }
        // However long nobody offers anything: it is still the one that has stopped.
        for ms in [1_000, 1_100, 90_000] {
            queues.set_now(at(ms));
            assert_eq!(queues.on_offered(false), Ok(()));
            let said: Vec<String> = queues.complaints("eth0").collect();
            assert!(said[0].contains("\"eth0\" takes no frames"), "{said:?}");
        }
        assert_eq!(queues.lost_frames(), 3);
        assert_eq!(queues.on_offered(true), Ok(()));
        assert_eq!(queues.complaints("eth0").count(), 0);
        assert_eq!(queues.on_offered(false), Err(Busy), "it begins anew");
    }

    #[test]
    fn silence_is_said_where_somebody_asked() {
        let silent = |queues: &Queues| queues.complaints("eth0").count() == 1;
        let mut queues = Queues::default();
        // Nobody asks; then three frames, too few to tell; then more.
        for (second, received, sent, expected) in [
            (0, 7, 100, false),
            (20, 7, 100, false),
            (30, 7, 103, false),
            (31, 7, 104, true),
            (32, 8, 104, false),
            (33, 8, 120, false),
            (42, 8, 140, true),
        ] {
            queues.look(at(second * 1_000), (received, sent), true);
            assert_eq!(silent(&queues), expected, "{second} s");
        }
        queues.look(at(43_000), (8, 150), false);
        assert!(!silent(&queues), "no connection waits for anything");
    }
}
