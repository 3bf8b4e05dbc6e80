//! How a call on data waits: until when, for what, and whether the engine may place bytes in its buffer meanwhile.

use std::time::Duration;

use rustix::io::Errno;

use super::call::Call;
use crate::fd_table::file::Sleeper;
use crate::wait::sleep::{Deadline, after_interruption};
use crate::wait::sleeping;
use client::UserBuffer;

/// The sleeps of one call: the flags and the deadline are asked for at the first.
pub struct Wait {
    dont_wait: bool,
    /// Whether the descriptor blocks, once that was asked for.
    blocks: Option<bool>,
    is_for_data: bool,
    deadline: Option<Deadline>,
    /// From the first sleep to the end of the call another thread's close(2) changes nothing for it.
    open: Option<Sleeper>,
}

impl Wait {
    /// For a call that may have MSG_DONTWAIT.
    pub fn new(dont_wait: bool) -> Wait {
        Wait {
            dont_wait,
            blocks: None,
            is_for_data: false,
            deadline: None,
            open: None,
        }
    }

    /// As `new`: while it sleeps no signal need be sent for data (`sk_wait_data`).
    pub fn for_data(dont_wait: bool) -> Wait {
        Wait {
            is_for_data: true,
            ..Wait::new(dont_wait)
        }
    }

    fn is_signalled(&self, call: &Call<'_>) -> bool {
        self.is_for_data && call.socket.is_signalled()
    }

    /// Sleeps until `news` holds. EAGAIN: the call must not block, or its time is up.
    pub fn sleep(
        &mut self,
        call: &Call<'_>,
        news: &dyn Fn() -> bool,
        timeout: Option<Duration>,
    ) -> Result<(), Errno> {
        let deadline = self.deadline(call, timeout)?;
        self.open.get_or_insert_with(|| call.file.sleeper());
        let stream = [call.stream.as_ref()];
        let is_signalled = self.is_signalled(call);
        let awaits = is_signalled.then(|| call.stream.awaits_data());
        let slept = sleeping::sleep(&stream, &mut [], None, deadline, &mut || news());
        drop(awaits);
        match slept {
            // Nobody was signalled of what came this late.
            Err(_) if is_signalled && news() => Ok(()),
            Err(Errno::INTR) => Err(after_interruption(deadline)),
            result => result,
        }
    }

    /// Sleeps until something has arrived, perhaps in the user buffer, or nothing more comes. EAGAIN as of
    /// `sleep`.
    pub fn sleep_with_buffer(
        &mut self,
        call: &Call<'_>,
        user_buffer: &UserBuffer<'_, '_>,
        timeout: Option<Duration>,
    ) -> Result<(), Errno> {
        let deadline = self.deadline(call, timeout)?;
        self.open.get_or_insert_with(|| call.file.sleeper());
        let stream = call.stream;
        let mut news =
            || user_buffer.placed() > 0 || stream.readable_bytes() > 0 || call.no_more_comes();
        let is_signalled = self.is_signalled(call);
        let awaits = is_signalled.then(|| stream.awaits_data());
        let slept = sleeping::sleep_with_buffer(user_buffer, deadline, &mut news);
        drop(awaits);
        match slept {
            // As above.
            Err(_) if is_signalled && news() => Ok(()),
            Err(Errno::INTR) => Err(after_interruption(deadline)),
            result => result,
        }
    }

    /// Whether the call may block. Errors: those of asking for the descriptor's flags.
    pub fn may_block(&mut self, call: &Call<'_>) -> Result<bool, Errno> {
        if let Some(blocks) = self.blocks {
            return Ok(blocks);
        }
        let blocks = !self.dont_wait && !call.socket.is_nonblocking(call.fd)?;
        Ok(*self.blocks.insert(blocks))
    }

    /// When the call gives up. EAGAIN: it must not block, or its time is up.
    fn deadline(&mut self, call: &Call<'_>, timeout: Option<Duration>) -> Result<Deadline, Errno> {
        if !self.may_block(call)? {
            return Err(Errno::AGAIN);
        }
        let deadline = *self
            .deadline
            .get_or_insert_with(|| Deadline::after_option(timeout));
        if deadline.is_over() {
            return Err(Errno::AGAIN);
        }
        Ok(deadline)
    }
}
