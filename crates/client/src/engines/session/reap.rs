//! Reaping: taking completions and events out of the ring and handing them to whom they concern, in the order in which
//! the engine has reported them: one thread at a time does both.

use core::cell::Cell;
use std::sync::MutexGuard;

use hostif::{Completion, SocketId};
use smallvec::SmallVec;

use crate::engines::attachment::Attachment;
use crate::engines::attachment::attachments::Attachments;
use crate::engines::inline_engine;
use crate::engines::session::Session;
use crate::engines::session::registry::Notifications;
use crate::lock::{lock, try_lock};

/// Taken out of the ring at once, before anybody is told.
const BATCH: usize = 32;

type Batch = SmallVec<[Completion; BATCH]>;

thread_local! {
    /// This thread tells somebody of something.
    static IS_TELLING: Cell<bool> = const { Cell::new(false) };
}

/// The right to take completions and to tell of them. What is told may end in a call of this crate (the last reference to a
/// socket goes): the thread does not wait for itself then.
struct Telling<'a>(Option<MutexGuard<'a, ()>>);

impl<'a> Telling<'a> {
    fn wait(attachment: &'a Attachment) -> Self {
        if IS_TELLING.get() {
            return Self(None);
        }
        Self::begin(lock(&attachment.telling))
    }

    /// `None`: another thread has it.
    fn try_now(attachment: &'a Attachment) -> Option<Self> {
        if IS_TELLING.get() {
            return Some(Self(None));
        }
        try_lock(&attachment.telling).map(Self::begin)
    }

    fn begin(guard: MutexGuard<'a, ()>) -> Self {
        IS_TELLING.set(true);
        Self(Some(guard))
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        if self.0.is_some() {
            IS_TELLING.set(false);
        }
    }
}

impl Session {
    /// Takes everything that the engine has reported and tells observers and waiters. Readiness does not
    /// need this: it comes from the sockets' headers.
    pub fn reap(&self) {
        if let Some(inline_engine) = inline_engine::current() {
            inline_engine::poll(inline_engine, None);
        }
        for attachment in self.attached().into_iter().flat_map(Attachments::iter) {
            self.reap_all(attachment);
        }
    }

    /// As `reap` for one core; waits for a thread that does it already, so that afterwards everything that was in
    /// the ring before has been taken out.
    pub(crate) fn reap_all(&self, attachment: &Attachment) {
        loop {
            let _telling = Telling::wait(attachment);
            let mut batch = Batch::new();
            self.fill(attachment, &mut batch);
            self.dispatch(attachment, &batch);
            if batch.len() < BATCH {
                return;
            }
        }
    }

    /// As `reap_all`, unless another thread is at it. Whether there was anything.
    pub(crate) fn reap_if_free(&self, attachment: &Attachment) -> bool {
        // Those who spin come by often, and for nothing.
        if !try_lock(&attachment.completions).is_some_and(|ring| ring.has_next()) {
            return false;
        }
        let Some(_telling) = Telling::try_now(attachment) else {
            return false;
        };
        let mut batch = Batch::new();
        self.fill(attachment, &mut batch);
        self.dispatch(attachment, &batch);
        !batch.is_empty()
    }

    /// Takes what is in the ring now, [`BATCH`] at most.
    fn fill(&self, attachment: &Attachment, batch: &mut Batch) {
        let mut ring = lock(&attachment.completions);
        while batch.len() < BATCH {
            match ring.pop() {
                Ok(Some(completion)) => batch.push(completion),
                Ok(None) => break,
                Err(_) => {
                    drop(ring);
                    self.on_engine_lost(attachment, "it wrote garbage into the completion ring");
                    break;
                }
            }
        }
    }

    /// Makes the threads of this process that wait for a socket look at it again, after a change that no engine reports.
    pub(crate) fn tell(&self, id: SocketId) {
        let mut notifications = Notifications::default();
        lock(&self.registry).gather(id, &mut notifications);
        notifications.tell_change();
    }

    fn dispatch(&self, attachment: &Attachment, batch: &[Completion]) {
        if batch.is_empty() {
            return;
        }
        let mut events: SmallVec<[SocketId; BATCH]> = SmallVec::new();
        for completion in batch {
            match completion {
                Completion::Done { token, .. } | Completion::Accepted { token, .. } => {
                    attachment.calls.answer(*token, *completion);
                }
                Completion::Event { socket } => events.push(*socket),
            }
        }
        let mut notifications = Notifications::default();
        if !events.is_empty() {
            let registry = lock(&self.registry);
            for socket in &events {
                registry.gather(*socket, &mut notifications);
            }
        }
        notifications.tell();
    }
}
