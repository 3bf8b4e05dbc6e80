//! The engine inside a program stands still: across a fork, an exec, an exit.

use hostif::sync::doorbell;
use rustix::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use rustix::io::Errno;

use super::Inline;
use crate::process::latency::IdleLatency;
use crate::start_error::StartError;

/// How long an engine that was left behind stays without being needed.
const PATIENCE: tcp::Duration = tcp::Duration::from_secs(1);

/// The poll lock, held: the core stands still.
pub struct Kept<'a> {
    pub(super) engine: &'a Inline,
}

impl Kept<'_> {
    /// Whether a connection, a TIME-WAIT, a datagram whose neighbour is asked for, or another process than this one needs the engine.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        self.engine.run(|core| {
            // What this process wrote last counts.
            core.poll(core.now())?;
            Ok(core.is_needed(own))
        }) == Some(true)
    }

    /// In a forked child: the engine is the parent's. Closes the child's copies of its descriptors, but for
    /// those that are returned: the value lives for ever, so the caller closes them.
    pub fn forget(self) -> Vec<RawFd> {
        let Inline {
            latency,
            kick,
            late_kick,
            control,
            device,
            ..
        } = self.engine;
        self.engine.end(&mut self.engine.place());
        let open = [kick, late_kick, control, device].map(OwnedFd::as_raw_fd);
        let latency = latency.as_ref().map(IdleLatency::number);
        open.into_iter().chain(latency).collect()
    }

    /// In a forked child, which has nothing else to do: runs the engine in place of the parent, which is
    /// gone, until nobody needs it any more.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn run_alone(self) -> Result<(), StartError> {
        let system = |what| move |errno| StartError::System(what, errno);
        let Some(mut core) = self.engine.place().take() else {
            return Ok(());
        };
        core.attach_device(PATIENCE)
            .map_err(system("watch the device"))?;
        // Nobody asks it to end.
        let never = [(); 2].map(|()| doorbell::create());
        let [Ok(first), Ok(second)] = &never else {
            return Err(system("make an eventfd")(Errno::MFILE));
        };
        core.run([first.as_fd(), second.as_fd()])
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if self.engine.polls.let_go() && self.engine.polls.leave_to_waiters() {
            self.engine.poll(None);
        }
    }
}
