//! Which sessions a poll looks at: those that are awake. A program that has asked for nothing for a while dozes: it is
//! promised, as before a sleep of the engine, that its next note is heard by its doorbell (`hostif::sync::doorbell`), and costs a poll
//! nothing until then. So the work of a poll and of a sleep grows with the programs that do something.

use super::Programs;
use super::moderation::Due;
use super::session::Session;
use hostif::SocketId;
use tcp::{Duration, Instant};

/// How long a session stays awake after it had something to do: longer than most pauses between two requests, since a
/// doorbell costs its program a system call.
const AWAKE: Duration = Duration::from_ms(10);
/// So many stay awake in any case: to look at them costs less than a doorbell.
const ALWAYS_AWAKE: usize = 8;

impl Programs {
    /// The session of a slot is gone.
    pub(super) fn forget(&mut self, slot: usize) {
        for list in [&mut self.awake, &mut self.news, &mut self.faulty] {
            list.retain(|one| *one != slot);
        }
    }

    /// The program of a slot may have left a note: its rings are looked at from now on.
    pub(crate) fn wake(&mut self, now: Instant, slot: usize) {
        let Some(session) = self.get_mut(slot) else {
            return;
        };
        let Some(rings) = &session.rings else {
            return;
        };
        session.worked_at = now;
        if !core::mem::replace(&mut session.is_awake, true) {
            rings.engine_word.withdraw();
            self.awake.push(slot);
        }
    }

    /// The program of a slot is to be told of something in the next `flush`.
    pub(crate) fn tell(&mut self, slot: usize, what: impl FnOnce(&mut Session)) {
        if let Some(session) = self.get_mut(slot) {
            what(session);
            if !core::mem::replace(&mut session.has_news, true) {
                self.news.push(slot);
            }
        }
    }

    /// Whether the program of a slot has an event of the socket before it that says all there is to say, and nobody sleeps who
    /// would have to be rung for another.
    pub(crate) fn knows_of(&self, slot: usize, socket: SocketId) -> bool {
        self.get(slot)
            .is_some_and(|session| !session.has_news && session.knows_of(socket))
    }

    /// Slot number `at` of those that are awake.
    pub(crate) fn awake_slot(&self, at: usize) -> Option<usize> {
        self.awake.get(at).copied()
    }

    /// Whether no program but one is awake, and nothing is to be told.
    #[inline]
    pub(crate) fn is_only_one_awake(&self) -> bool {
        self.awake.len() == 1 && self.news.is_empty()
    }

    /// The program of a slot has had something to do.
    pub(crate) fn on_worked(&mut self, now: Instant, slot: usize) {
        if let Some(session) = self.get_mut(slot) {
            session.worked_at = now;
        }
    }

    /// Lets those doze that have had nothing to do for a while. Only where their doorbells are heard.
    pub(crate) fn let_doze(&mut self, now: Instant) {
        let mut at = 0;
        while at < self.awake.len() && self.awake.len() > ALWAYS_AWAKE {
            let slot = self.awake[at];
            let session = self.slots[slot].as_mut();
            if session.is_none_or(|session| session.try_doze(now, AWAKE)) {
                self.awake.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Puts what waits into the rings of those who are to hear of it.
    pub(crate) fn flush(&mut self, now: Instant) {
        if self.news.is_empty() {
            return;
        }
        let mut news = core::mem::take(&mut self.news);
        let urgent_mode = self.urgent_mode;
        news.retain(|&slot| {
            let Some(session) = &mut self.slots[slot] else {
                return false;
            };
            let deadline = session.ring_deadline();
            let is_due = deadline.is_some_and(|due| urgent_mode || due <= now);
            let flushed = if (session.has_backlog() || is_due) && !session.is_faulty {
                session.flush(now, urgent_mode)
            } else {
                Ok(None)
            };
            self.urgent += u64::from(flushed == Ok(Some(Due::Urgent)));
            session.has_news = session.has_backlog() || session.ring_deadline().is_some();
            let keeps = session.has_news;
            if flushed.is_err() {
                self.fault(slot, "a completion index that cannot be");
            }
            keeps
        });
        // What came meanwhile is none of a flush's doing.
        news.append(&mut self.news);
        self.news = news;
    }

    /// Sessions that are looked at.
    pub(crate) fn awake(&self) -> impl Iterator<Item = &Session> {
        let slots = self.awake.iter();
        slots.filter_map(|&slot| self.get(slot))
    }

    /// Sessions that are to hear of something.
    pub(crate) fn told(&self) -> impl Iterator<Item = &Session> {
        let slots = self.news.iter();
        slots.filter_map(|&slot| self.get(slot))
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
