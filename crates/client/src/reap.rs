//! Reaping: taking completions and events out of the ring and handing them to whom they concern.

use hostif::Completion;

use crate::attachment::Attachment;
use crate::attachments::Attachments;
use crate::crank;
use crate::lock::{lock, try_lock};
use crate::registry::Audience;
use crate::session::Session;

/// Taken out of the ring at once, before anybody is told.
const BATCH: usize = 32;

type Batch = [Option<Completion>; BATCH];

impl Session {
    /// Takes everything that the engine has reported and tells observers and waiters. Readiness does not
    /// need this: it comes from the sockets' headers.
    pub fn reap(&self) {
        if let Some(crank) = crank::current() {
            crank::turn(crank, None);
        }
        for attachment in self.attached().into_iter().flat_map(Attachments::iter) {
            self.reap_all(attachment);
        }
    }

    /// As `reap` for one core; waits for a thread that does it already, so that afterwards everything that was in
    /// the ring before has been taken out.
    pub(crate) fn reap_all(&self, attachment: &Attachment) {
        loop {
            let mut batch: Batch = [None; BATCH];
            let full = {
                let mut ring = lock(&attachment.completions);
                self.fill(attachment, &mut ring, &mut batch)
            };
            self.dispatch(attachment, &batch);
            if !full {
                return;
            }
        }
    }

    /// As `reap_all`, unless another thread is at it. Whether there was anything.
    pub(crate) fn reap_if_free(&self, attachment: &Attachment) -> bool {
        let taken = self.take_if_free(attachment);
        if let Some(batch) = &taken {
            self.dispatch(attachment, batch);
        }
        taken.is_some()
    }

    fn take_if_free(&self, attachment: &Attachment) -> Option<Batch> {
        let mut ring = try_lock(&attachment.completions)?;
        if !ring.has_next() {
            return None;
        }
        // Only now: those who spin come by often, and for nothing.
        let mut batch: Batch = [None; BATCH];
        self.fill(attachment, &mut ring, &mut batch);
        Some(batch)
    }

    fn fill(
        &self,
        attachment: &Attachment,
        ring: &mut hostif::Consumer<Completion>,
        batch: &mut Batch,
    ) -> bool {
        for place in batch {
            match ring.pop() {
                Ok(Some(completion)) => *place = Some(completion),
                Ok(None) => return false,
                Err(_) => {
                    self.on_engine_lost(attachment, "it wrote garbage into the completion ring");
                    return false;
                }
            }
        }
        true
    }

    fn dispatch(&self, attachment: &Attachment, batch: &Batch) {
        let mut audience = Audience::default();
        for completion in batch.iter().flatten() {
            match completion {
                Completion::Done { token, .. } | Completion::Accepted { token, .. } => {
                    attachment.calls.answer(*token, *completion);
                }
                Completion::Event { socket } => {
                    lock(&self.registry).gather(*socket, &mut audience);
                }
            }
        }
        audience.tell();
    }
}
