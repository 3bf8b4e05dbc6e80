//! When a program that sleeps is rung: which news wait, for how many others and how long. Which policies there
//! are: see `hostif::Moderation`. That nobody is rung who is awake is the doorbell's affair.

use hostif::Moderation;
use tcp::{Duration, Instant};

/// What one session's policy has to remember.
#[derive(Debug, Default)]
pub struct Moderator {
    policy: Moderation,
    /// Events that the program was not rung for.
    waiting: u32,
    /// When the first of them came.
    since: Option<Instant>,
    /// There is something that does not wait.
    is_urgent: bool,
}

impl Moderator {
    /// From now on by this policy.
    pub fn set(&mut self, policy: Moderation) {
        self.policy = policy;
        // What waits under another policy waits no longer.
        self.is_urgent |= self.waiting > 0;
    }

    /// The policy.
    pub fn policy(&self) -> Moderation {
        self.policy
    }

    /// Something that never waits: the answer to a command.
    pub fn on_completion(&mut self) {
        self.is_urgent = true;
    }

    /// The ring is full.
    pub fn on_full(&mut self) {
        self.is_urgent = true;
    }

    /// An event was put into the ring.
    pub fn on_event(&mut self, now: Instant) {
        self.waiting = self.waiting.saturating_add(1);
        self.since.get_or_insert(now);
    }

    /// An event that the program has not taken yet says this one too.
    pub fn on_repeated_event(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// When the program has to be rung by the clock.
    pub fn deadline(&self) -> Option<Instant> {
        let after = Duration::from_us(u64::from(self.policy.after_us));
        self.since.map(|since| since + after)
    }

    /// Whether it is time to ring; then everything so far is dealt with.
    pub fn take_due(&mut self, now: Instant) -> bool {
        let is_due = self.is_urgent
            || self.policy.every.is_some_and(|every| self.waiting >= every)
            || self.deadline().is_some_and(|deadline| deadline <= now);
        if is_due {
            (self.waiting, self.since, self.is_urgent) = (0, None, false);
        }
        is_due
    }
}
