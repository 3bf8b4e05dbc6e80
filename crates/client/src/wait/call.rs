//! Commands that are answered: a token goes out, and the thread waits until somebody has reaped its completion.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hostif::{Command, Completion, Op, SocketId};
use rustix::io::Errno;

use crate::engines::attachment::Attachment;
use crate::engines::attachment::attachments::Attachments;
use crate::engines::budget::Budget;
use crate::engines::inline_engine;
use crate::engines::session::Session;
use crate::sys;
use crate::threads::waker::Waker;
use crate::wait::sleep::Sleep;
use crate::wait::spin::{self, Spun};
use crate::wait::wait_set::WaitSet;

/// An engine that runs answers within this; sleeping costs more.
const SPIN: Duration = Duration::from_micros(10);
/// Between two looks of a thread that nobody can wake.
const PAUSE: Duration = Duration::from_micros(100);

impl Session {
    /// Sends a command and waits for its completion. Signals do not end the wait: engines answer at
    /// once, and a command cannot be taken back.
    pub(crate) fn call(&self, socket: SocketId, op: Op) -> Result<Completion, Errno> {
        let attachment = self.living(socket.core())?;
        let all = self.attachments()?;
        // At the limit of descriptors too: the engine answers at once.
        let waker = all.take_waker().unwrap_or_else(|_| Waker::silent());
        let token = attachment.calls.begin(&waker);
        let command = Command {
            token,
            socket: Some(socket),
            op,
        };
        let result = attachment.push(&attachment.commands, &command);
        if result.is_ok() {
            attachment.ring_engine();
            self.await_answer(all, attachment, &waker, token);
        }
        let answer = attachment.calls.end(token);
        if !waker.is_silent() {
            all.return_waker(waker);
        }
        result?;
        answer.ok_or(Errno::CONNRESET)
    }

    fn await_answer(
        &self,
        all: &'static Attachments,
        attachment: &'static Attachment,
        waker: &Arc<Waker>,
        token: u32,
    ) {
        if let Some(inline_engine) = inline_engine::current() {
            let is_answered = || {
                self.reap_if_free(attachment);
                attachment.calls.is_answered(token)
            };
            let poll = || inline_engine::poll(inline_engine, None);
            if spin::spin(poll, Budget::Fixed(SPIN), None, |polled| {
                polled && is_answered()
            }) == Spun::Over
            {
                return;
            }
        }
        let start = Instant::now();
        while start.elapsed() < SPIN {
            self.reap_if_free(attachment);
            if attachment.calls.is_answered(token) {
                return;
            }
            core::hint::spin_loop();
        }
        let mut over = || attachment.calls.is_answered(token) || attachment.is_dead();
        while !over() {
            if waker.is_silent() {
                let _ = sys::ppoll(&mut [], Some(PAUSE), None);
                self.reap_if_free(attachment);
                continue;
            }
            let sleep = Sleep {
                kernel: &mut [],
                mask: None,
                deadline: None,
                is_interruptible: false,
                direct_receive: None,
            };
            let _ = WaitSet::only(self, all).sleep(waker, sleep, &mut over);
        }
    }

    /// As `call`, for commands whose completion is an errno and a number.
    pub(crate) fn call_plain(&self, socket: SocketId, op: Op) -> Result<u64, Errno> {
        match self.call(socket, op)? {
            Completion::Done {
                errno: 0, value, ..
            } => Ok(value),
            Completion::Done { errno, .. } => Err(Errno::from_raw_os_error(i32::from(errno))),
            _ => Err(Errno::PROTO),
        }
    }
}
