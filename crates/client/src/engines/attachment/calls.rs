//! Commands under way whose completion somebody awaits: whoever reaps it hands it on.

use std::sync::{Arc, Mutex};

use hostif::Completion;

use crate::lock::lock;
use crate::threads::waker::Waker;

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
    /// Gives a command its token; `waker` is rung when it is answered.
    pub fn begin(&self, waker: &Arc<Waker>) -> u32 {
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

    /// Whether its completion has come.
    pub fn is_answered(&self, token: u32) -> bool {
        lock(&self.state)
            .calls
            .iter()
            .any(|call| call.token == token && call.answer.is_some())
    }

    /// Forgets a command, and gives its completion if that has come.
    pub fn end(&self, token: u32) -> Option<Completion> {
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
