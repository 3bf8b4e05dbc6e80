//! When a program that sleeps is rung: which news wait, for how many more and for how long. Which policies there
//! are: see `hostif::Moderation`. That nobody is rung who is awake is the doorbell's affair.

use hostif::Moderation;
use tcp::{Duration, Instant};

/// Why a program is to be rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Its policy says so.
    ByPolicy,
    /// Its policy would have it wait, and urgent data or urgent mode does not.
    Urgent,
}

/// What one session's policy has to remember.
#[derive(Debug, Default)]
pub struct Moderator {
    policy: Moderation,
    /// Events that the program was not rung for.
    waiting: u32,
    /// When the first of them came.
    since: Option<Instant>,
    /// There is something that does not wait.
    is_pressing: bool,
    /// There is urgent data, which waits for no policy.
    is_urgent: bool,
}

impl Moderator {
    /// From now on by this policy.
    pub fn set(&mut self, policy: Moderation) {
        self.policy = policy;
        // What waits under another policy waits no longer.
        self.is_pressing |= self.waiting > 0;
    }

    /// The policy.
    pub fn policy(&self) -> Moderation {
        self.policy
    }

    /// Something that never waits: the answer to a command.
    pub fn on_completion(&mut self) {
        self.is_pressing = true;
    }

    /// The ring is full.
    pub fn on_full(&mut self) {
        self.is_pressing = true;
    }

    /// A socket has urgent data (RFC 9293 §3.8.5): it overtakes what waits, and takes it along.
    pub fn on_urgent(&mut self) {
        self.is_urgent = true;
    }

    /// An event was put into the program's ring.
    pub fn on_event(&mut self, now: Instant) {
        self.waiting = self.waiting.saturating_add(1);
        self.since.get_or_insert(now);
    }

    /// An event that the program has not taken yet says this one too.
    pub fn on_repeated_event(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// Whether no news wait, and the next that come ring at once.
    pub fn rests(&self) -> bool {
        self.since.is_none() && !self.is_pressing && !self.is_urgent && self.policy.after_us == 0
    }

    /// When the program has to be rung by the clock.
    pub fn deadline(&self) -> Option<Instant> {
        let after = Duration::from_us(u64::from(self.policy.after_us));
        self.since.map(|since| since + after)
    }

    /// Whether it is time to ring; then everything so far is dealt with. In `urgent_mode` nothing waits.
    pub fn take_due(&mut self, now: Instant, urgent_mode: bool) -> Option<Due> {
        let by_policy = self.is_pressing
            || self.policy.every.is_some_and(|every| self.waiting >= every)
            || self.deadline().is_some_and(|deadline| deadline <= now);
        let overtakes = self.is_urgent || (urgent_mode && self.since.is_some());
        let due = match (by_policy, overtakes) {
            (true, _) => Some(Due::ByPolicy),
            (false, true) => Some(Due::Urgent),
            (false, false) => None,
        };
        if due.is_some() {
            (self.waiting, self.since) = (0, None);
            (self.is_pressing, self.is_urgent) = (false, false);
        }
        due
    }
}
