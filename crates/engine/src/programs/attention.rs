//! Which sessions a turn looks at: those that are awake. A program that has asked for nothing for a while dozes: it is
//! promised, as before a sleep of the engine, that its next note is heard by its doorbell (`hostif::doorbell`), and costs a turn
//! nothing until then. So the work of a turn and of a sleep grows with the programs that do something.

use crate::core::EngineCore;
use crate::programs::session::Session;
use tcp::{Duration, Instant};

/// How long a session stays awake after it had something to do: longer than most pauses between two requests, since a
/// doorbell costs its program a system call.
const AWAKE: Duration = Duration::from_ms(10);
/// So many stay awake in any case: to look at them costs less than a doorbell.
const ALWAYS_AWAKE: usize = 8;

/// Slots of sessions, each at most once in each list.
#[derive(Debug, Default)]
pub struct Attention {
    /// Whose rings are looked at in every turn.
    pub awake: Vec<usize>,
    /// Who is to hear of something.
    pub news: Vec<usize>,
    /// Whose programs broke the protocol.
    pub faulty: Vec<usize>,
}

impl Attention {
    /// The session of a slot is gone.
    pub fn forget(&mut self, slot: usize) {
        for list in [&mut self.awake, &mut self.news, &mut self.faulty] {
            list.retain(|one| *one != slot);
        }
    }
}

impl EngineCore {
    /// The program of a slot may have left a note: its rings are looked at from now on.
    pub(crate) fn wake(&mut self, now: Instant, slot: usize) {
        let Some(Some(session)) = self.sessions.get_mut(slot) else {
            return;
        };
        let Some(rings) = &session.rings else {
            return;
        };
        session.worked_at = now;
        if !core::mem::replace(&mut session.is_awake, true) {
            rings.engine_word.withdraw();
            self.attention.awake.push(slot);
        }
    }

    /// The program of a slot is to hear of something in the next `flush`.
    pub(crate) fn tell(&mut self, slot: usize, what: impl FnOnce(&mut Session)) {
        if let Some(Some(session)) = self.sessions.get_mut(slot) {
            what(session);
            if !core::mem::replace(&mut session.has_news, true) {
                self.attention.news.push(slot);
            }
        }
    }

    /// Takes what awake programs have left. Returns how much that was.
    pub(crate) fn drain_awake(&mut self, now: Instant) -> usize {
        let mut work = 0;
        for at in 0..self.attention.awake.len() {
            let slot = self.attention.awake[at];
            let done = self.drain_rings(now, slot);
            if done > 0
                && let Some(session) = &mut self.sessions[slot]
            {
                session.worked_at = now;
            }
            work += done;
        }
        work
    }

    /// Lets those doze that have had nothing to do for a while. Only where their doorbells are heard.
    pub(crate) fn let_doze(&mut self, now: Instant) {
        let mut at = 0;
        while at < self.attention.awake.len() && self.attention.awake.len() > ALWAYS_AWAKE {
            let slot = self.attention.awake[at];
            let session = self.sessions[slot].as_mut();
            if session.is_none_or(|session| session.try_doze(now, AWAKE)) {
                self.attention.awake.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Puts what waits into the rings of those who are to hear of it.
    pub(crate) fn flush_news(&mut self, now: Instant) {
        let mut news = core::mem::take(&mut self.attention.news);
        news.retain(|&slot| {
            let Some(session) = &mut self.sessions[slot] else {
                return false;
            };
            let is_due = session.ring_deadline().is_some_and(|due| due <= now);
            let flushed = if (session.has_backlog() || is_due) && !session.is_faulty {
                session.flush(now)
            } else {
                Ok(())
            };
            session.has_news = session.has_backlog() || session.ring_deadline().is_some();
            let keeps = session.has_news;
            if flushed.is_err() {
                self.fault(slot, 0, "a completion index that cannot be");
            }
            keeps
        });
        // What came meanwhile is none of a flush's doing.
        news.append(&mut self.attention.news);
        self.attention.news = news;
    }

    /// Sessions that are looked at.
    pub(crate) fn awake(&self) -> impl Iterator<Item = &Session> {
        let slots = self.attention.awake.iter();
        slots.filter_map(|&slot| self.sessions[slot].as_ref())
    }

    /// Sessions that are to hear of something.
    pub(crate) fn told(&self) -> impl Iterator<Item = &Session> {
        let slots = self.attention.news.iter();
        slots.filter_map(|&slot| self.sessions[slot].as_ref())
    }
}

impl Session {
    /// Dozes if it has had nothing to do for `pause`, and still has not once that is announced. What a doorbell does
    /// not tell of must not wait: notes that have to wait for something else, completions that found no room.
    fn try_doze(&mut self, now: Instant, pause: Duration) -> bool {
        let waits = self.early.is_some() || self.unnamed.is_some() || !self.takes_commands();
        let Some(rings) = self.rings.as_ref().filter(|_| !self.is_faulty) else {
            return true;
        };
        if waits || now.since(self.worked_at) < pause {
            return false;
        }
        rings.engine_word.announce();
        if self.has_work() {
            rings.engine_word.withdraw();
            return false;
        }
        self.is_awake = false;
        true
    }
}
