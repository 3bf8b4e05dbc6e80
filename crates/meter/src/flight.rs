//! Which probes are on their way, and what is known of those that were, in constant memory: the newest 65,536 probes have
//! an entry each. An answer to an older one is called late.

/// Entries; a power of two.
const ENTRIES: u64 = 1 << 16;
/// Probes on their way at most: half of the entries, so that what was answered is remembered for a while.
pub const FLIGHT_MAX: u64 = ENTRIES / 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Unused,
    Waiting,
    Answered,
    Lost,
}

/// When a probe was due and when it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// When it was due; in a closed loop, when it was sent.
    pub due_ns: u64,
    /// When it was sent.
    pub sent_ns: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    state: State,
    times: Times,
}

/// What an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// The first one in time. `reordered`: an answer to a later probe came before it (RFC 4737 §3.3).
    First {
        /// Of the probe.
        times: Times,
        /// See above.
        reordered: bool,
    },
    /// The probe was answered before.
    Duplicate,
    /// The probe had been given up.
    Late,
    /// No such probe was sent.
    Unknown,
}

/// Probes on their way.
#[derive(Debug)]
pub struct Flight {
    entries: Vec<Entry>,
    /// Below it nothing waits.
    oldest: u64,
    /// The sequence number of the next probe.
    next: u64,
    waiting: u64,
    newest_answered: Option<u64>,
}

impl Flight {
    /// Nothing is on its way.
    pub fn new() -> Self {
        let entries = usize::try_from(ENTRIES).expect("invariant: 65,536 entries");
        Self {
            entries: vec![Entry::default(); entries],
            oldest: 0,
            next: 0,
            waiting: 0,
            newest_answered: None,
        }
    }

    /// How many are on their way.
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// The sequence number of the next probe: as many were sent before.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Whether one more has a place.
    pub fn has_capacity(&self) -> bool {
        self.next - self.oldest < FLIGHT_MAX
    }

    /// The next probe was sent. Where sending failed it is taken back by [`Flight::give_up`].
    pub fn sent(&mut self, times: Times) {
        let sequence = self.next;
        *self.entry(sequence) = Entry {
            state: State::Waiting,
            times,
        };
        self.next += 1;
        self.waiting += 1;
    }

    pub fn answered(&mut self, sequence: u64) -> Match {
        if sequence >= self.next {
            return Match::Unknown;
        }
        if self.next - sequence > ENTRIES {
            return Match::Late;
        }
        let entry = self.entry(sequence);
        let times = entry.times;
        match entry.state {
            State::Waiting => entry.state = State::Answered,
            State::Answered => return Match::Duplicate,
            State::Lost => {
                // A second answer to it is a duplicate.
                entry.state = State::Answered;
                return Match::Late;
            }
            State::Unused => return Match::Unknown,
        }
        self.waiting -= 1;
        let reordered = self.newest_answered.is_some_and(|newest| sequence < newest);
        self.newest_answered = self.newest_answered.max(Some(sequence));
        self.skip_settled();
        Match::First { times, reordered }
    }

    /// Nobody waits for this probe any more. False where nobody did.
    pub fn give_up(&mut self, sequence: u64) -> bool {
        if sequence >= self.next || self.next - sequence > ENTRIES {
            return false;
        }
        let entry = self.entry(sequence);
        let waited = entry.state == State::Waiting;
        if waited {
            entry.state = State::Lost;
            self.waiting -= 1;
            self.skip_settled();
        }
        waited
    }

    /// The probe that waits longest, and when it was sent.
    pub fn oldest(&self) -> Option<(u64, u64)> {
        let is_any = self.oldest < self.next;
        is_any.then(|| (self.oldest, self.entries[place(self.oldest)].times.sent_ns))
    }

    /// The only probe that is on its way, where it is one.
    pub fn only(&self) -> Option<u64> {
        (self.waiting == 1).then_some(self.oldest)
    }

    fn skip_settled(&mut self) {
        while self.oldest < self.next && self.entries[place(self.oldest)].state != State::Waiting {
            self.oldest += 1;
        }
    }

    fn entry(&mut self, sequence: u64) -> &mut Entry {
        &mut self.entries[place(sequence)]
    }
}

fn place(sequence: u64) -> usize {
    usize::try_from(sequence % ENTRIES).expect("invariant: below 65,536")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(count: u64) -> Flight {
        let mut flight = Flight::new();
        (0..count).for_each(|at| {
            flight.sent(Times {
                due_ns: at,
                sent_ns: at,
            })
        });
        flight
    }

    fn is_first(found: Match, reordered: bool) -> bool {
        matches!(found, Match::First { reordered: was, .. } if was == reordered)
    }

    #[test]
    fn each_probe_is_answered_once_and_what_comes_again_is_a_duplicate() {
        let mut flight = sent(3);
        assert!(is_first(flight.answered(0), false));
        assert_eq!(flight.answered(0), Match::Duplicate);
        assert!(is_first(flight.answered(2), false));
        assert!(is_first(flight.answered(1), true));
        assert_eq!(
            (flight.waiting(), flight.oldest(), flight.answered(3)),
            (0, None, Match::Unknown)
        );
        assert_eq!(flight.answered(u64::MAX), Match::Unknown);
    }

    #[test]
    fn an_answer_to_a_probe_that_was_given_up_is_late_and_then_a_duplicate() {
        let mut flight = sent(2);
        assert!(flight.give_up(0) && !flight.give_up(0) && !flight.give_up(9));
        assert_eq!((flight.oldest(), flight.only()), (Some((1, 1)), Some(1)));
        assert_eq!(flight.answered(0), Match::Late);
        assert_eq!(flight.answered(0), Match::Duplicate);
    }

    #[test]
    fn what_is_older_than_the_memory_is_late_and_the_flight_is_bounded() {
        let mut flight = sent(FLIGHT_MAX);
        assert!(!flight.has_capacity());
        (0..FLIGHT_MAX).for_each(|one| assert!(flight.give_up(one)));
        assert!(flight.has_capacity());
        (0..ENTRIES).for_each(|_| flight.sent(Times::default()));
        assert_eq!(flight.answered(0), Match::Late);
        assert!(!flight.give_up(0));
    }
}
