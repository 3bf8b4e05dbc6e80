//! Commands that are answered: a token goes out, its completion comes back, whoever reaps it hands it on.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hostif::{Command, Completion, Op, SocketId};
use rustix::io::Errno;

use crate::attachment::Attachment;
use crate::attachments::Attachments;
use crate::inline_engine::{self, Budget, Spun};
use crate::lock::lock;
use crate::session::Session;
use crate::wait::Sleep;
use crate::wait_set::WaitSet;
use crate::waker::Waker;

/// An engine that runs answers within this; sleeping costs more.
const SPIN: Duration = Duration::from_micros(10);

struct Call {
    token: u32,
    answer: Option<Completion>,
    waker: Arc<Waker>,
}

#[derive(Default)]
struct State {
    last_token: u32,
    calls: Vec<Call>,
}

/// The commands of an attachment that wait for their completion.
#[derive(Default)]
pub struct Calls {
    state: Mutex<State>,
}

impl Calls {
    fn begin(&self, waker: &Arc<Waker>) -> u32 {
        let mut state = lock(&self.state);
        // 0 asks for no completion.
        state.last_token = state.last_token.checked_add(1).unwrap_or(1);
        let token = state.last_token;
        state.calls.push(Call {
            token,
            answer: None,
            waker: Arc::clone(waker),
        });
        token
    }

    fn is_answered(&self, token: u32) -> bool {
        lock(&self.state)
            .calls
            .iter()
            .any(|call| call.token == token && call.answer.is_some())
    }

    fn end(&self, token: u32) -> Option<Completion> {
        let mut state = lock(&self.state);
        let at = state.calls.iter().position(|call| call.token == token)?;
        state.calls.swap_remove(at).answer
    }

    /// Wakes everybody who waits, to look whether the engine still lives.
    pub fn wake_all(&self) {
        for call in &lock(&self.state).calls {
            call.waker.wake();
        }
    }

    /// Hands a completion to who awaits it; one that nobody awaits is dropped.
    pub fn answer(&self, token: u32, completion: Completion) {
        let mut state = lock(&self.state);
        if let Some(call) = state.calls.iter_mut().find(|call| call.token == token) {
            call.answer = Some(completion);
            call.waker.wake();
        }
    }
}

impl Session {
    /// Sends a command that nobody awaits.
    pub(crate) fn post(&self, socket: SocketId, op: Op) -> Result<(), Errno> {
        self.post_to(socket.core(), Some(socket), op)
    }

    /// As `post`, to a core.
    pub(crate) fn post_to(&self, core: u16, socket: Option<SocketId>, op: Op) -> Result<(), Errno> {
        let attachment = self.living(core)?;
        attachment.push(
            &attachment.commands,
            &Command {
                token: 0,
                socket,
                op,
            },
        )?;
        attachment.ring_engine();
        Ok(())
    }

    /// Sends a command and waits for its completion. Signals do not end the wait: engines answer at
    /// once, and a command cannot be taken back.
    pub(crate) fn call(&self, socket: SocketId, op: Op) -> Result<Completion, Errno> {
        let attachment = self.living(socket.core())?;
        let all = self.attachments()?;
        let waker = all.take_waker()?;
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
        all.return_waker(waker);
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
            if inline_engine::spin(inline_engine, Budget::Fixed(SPIN), None, None, |turned| {
                turned && is_answered()
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
