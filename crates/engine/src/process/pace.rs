//! How long an idle engine may spin before it sleeps.
//!
//! Spinning finds the next frame sooner, but only while nobody else needs the processor. An idle poll
//! takes a microsecond; one that took much longer was interrupted by somebody who had to wait for the
//! scheduler to take the core away from us. Then the engine stops spinning for a while: on a machine
//! with fewer cores than busy threads that is worth more than the wake-ups it costs. Nor is it worth while after
//! what the stack has answered by itself (an echo, a closed port): nobody's next step is to be expected, and who asked
//! may wait for this very processor, to which the scheduler has brought the engine as the one who was woken.

use tcp::{Duration, Instant};

/// An idle poll that takes longer was interrupted.
const INTERRUPTED: Duration = Duration::from_us(25);
/// How long to go without spinning after that.
const RESPITE: Duration = Duration::from_ms(100);

/// The state of the decision.
#[derive(Debug)]
pub struct Pace {
    spin: Duration,
    /// End of the last poll, if it was idle and nothing was waited for since.
    idle_since_turn: Option<Instant>,
    busy_until: Instant,
    crowded_until: Instant,
}

impl Pace {
    /// Spins for `spin_us` at most.
    pub fn new(spin_us: u64) -> Self {
        Self {
            spin: Duration::from_us(spin_us),
            idle_since_turn: None,
            busy_until: Instant::ZERO,
            crowded_until: Instant::ZERO,
        }
    }

    /// A poll begins.
    pub fn on_poll(&mut self, now: Instant) {
        if self
            .idle_since_turn
            .is_some_and(|last| now.since(last) > INTERRUPTED)
        {
            self.crowded_until = now + RESPITE;
        }
        self.idle_since_turn = None;
    }

    /// The poll that began at `now` found something to do, or did not, and that was for a program or a
    /// connection: only then more is likely to follow.
    pub fn on_done(&mut self, now: Instant, worked: bool, has_served: bool) {
        if has_served {
            self.busy_until = now + self.spin;
        }
        if !worked {
            self.idle_since_turn = Some(now);
        }
    }

    /// The engine has waited in the kernel: the time that took says nothing.
    pub fn on_waited(&mut self) {
        self.idle_since_turn = None;
    }

    /// Whether to go on polling although there is nothing to do.
    pub fn may_spin(&self, now: Instant) -> bool {
        now < self.busy_until && now >= self.crowded_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_us(1_000_000 + us)
    }

    fn turn(pace: &mut Pace, us: u64, worked: bool) -> bool {
        pace.on_poll(at(us));
        pace.on_done(at(us), worked, worked);
        pace.may_spin(at(us))
    }

    #[test]
    fn it_spins_after_work_and_then_rests() {
        let mut pace = Pace::new(50);
        assert!(turn(&mut pace, 0, true));
        assert!((1..50).all(|us| turn(&mut pace, us, false)));
        assert!(!turn(&mut pace, 50, false));
    }

    #[test]
    fn what_concerned_no_program_is_not_spun_after() {
        let mut pace = Pace::new(50);
        pace.on_poll(at(0));
        pace.on_done(at(0), true, false);
        assert!(!pace.may_spin(at(0)));
        assert!(turn(&mut pace, 10, true));
        pace.on_poll(at(20));
        pace.on_done(at(20), true, false);
        assert!(pace.may_spin(at(59)), "nor does it end a spin");
        assert!(!pace.may_spin(at(60)));
    }

    #[test]
    fn an_interrupted_idle_turn_stops_the_spinning_for_a_while() {
        let mut pace = Pace::new(50);
        turn(&mut pace, 0, true);
        turn(&mut pace, 1, false);
        assert!(
            !turn(&mut pace, 40, true),
            "somebody took the core for 39 µs"
        );
        assert!(!turn(&mut pace, 90_000, true));
        pace.on_waited();
        assert!(turn(&mut pace, 100_041, true));
    }

    #[test]
    fn long_turns_with_work_and_waits_prove_nothing() {
        let mut pace = Pace::new(50);
        turn(&mut pace, 0, true);
        assert!(turn(&mut pace, 400, true), "the turn before had work to do");
        turn(&mut pace, 401, false);
        pace.on_waited();
        assert!(turn(&mut pace, 900, true), "the time passed in a wait");
    }
}
