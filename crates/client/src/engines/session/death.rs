//! The engine is gone: every socket shows an error as if the peer had reset it, and one line says so.

use rustix::io::Errno;

use crate::engines::attachment::Attachment;
use crate::engines::attachment::attachments::Attachments;
use crate::engines::changes;
use crate::engines::inline_engine::{self, DirectReceive};
use crate::engines::session::Session;
use crate::engines::session::registry::Notifications;
use crate::lock::lock;
use crate::say::say;

impl Session {
    /// Marks the attachment dead, and all others to this engine with it, and tells everybody.
    pub(crate) fn on_engine_lost(&self, attachment: &Attachment, reason: &str) {
        if !attachment.set_dead() {
            return;
        }
        let current = self.attached().filter(|all| all.has(attachment));
        if let Some(all) = current
            && all.set_dead()
        {
            say(&format!(
                "the engine is gone ({reason}); its connections are reset. Start it again with `shunt \
                 engine`: listeners come back, and new sockets use it"
            ));
            changes::note_change();
            let mut notifications = Notifications::default();
            lock(&self.registry).gather_all(&mut notifications);
            notifications.tell_change();
            for attachment in all.iter() {
                attachment.calls.wake_all();
            }
        }
    }

    /// Looks whether the engine still holds its end of the control channel. A system call.
    pub(crate) fn check_engine(&self, attachment: &Attachment) {
        if !attachment.is_dead() && attachment.control.is_hung_up() {
            self.on_engine_lost(attachment, "it closed the control channel");
        }
    }

    /// A call found nothing to do: now and then look whether that is because the engine is gone.
    pub(crate) fn on_idle_call(
        &self,
        attachment: &Attachment,
        direct_receive: Option<&dyn DirectReceive>,
    ) {
        // A program that asks again and again without ever waiting polls the inline engine too.
        if let Some(inline_engine) = inline_engine::current() {
            inline_engine::poll(inline_engine, direct_receive);
        }
        if attachment.should_check() {
            self.check_engine(attachment);
        }
    }

    /// For a program that looks at its sockets and makes no call on them: now and then looks whether the engine lives.
    pub fn look_alive(&self) {
        for attachment in self.attached().into_iter().flat_map(Attachments::iter) {
            self.on_idle_call(attachment, None);
        }
    }

    /// Tells the engine of what was left with [`Doorbell::Later`](crate::Doorbell::Later): one ring of each of its cores that sleeps.
    pub fn ring(&self) {
        for attachment in self.attached().into_iter().flat_map(Attachments::iter) {
            attachment.ring_engine();
        }
    }

    /// The attachment to a core, or ECONNRESET if its engine is gone.
    pub(crate) fn living(&self, core: u16) -> Result<&'static Attachment, Errno> {
        let attachment = self.attachment(core)?;
        if attachment.is_dead() {
            Err(Errno::CONNRESET)
        } else {
            Ok(attachment)
        }
    }
}
