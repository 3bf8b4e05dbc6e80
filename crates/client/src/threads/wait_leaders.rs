//! Which sleeping threads poll the session's doorbells, one of each core.
//!
//! Every thread that polls it is woken by every ring. With few threads that is the shortest way; with
//! many it would wake them all for each other's events. So only the first few (leaders) poll it, and
//! the others (followers) sleep on their own waker alone, which whoever reaps rings. When the last
//! leader leaves, it promotes a follower. A ring that comes in between stays in the eventfd.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::threads::waker::Waker;

const MAX_LEADERS: usize = 4;

/// The sleeping threads of a process.
#[derive(Default)]
pub struct WaitLeaders {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    leaders: Vec<Arc<Waker>>,
    followers: VecDeque<Arc<Waker>>,
}

impl WaitLeaders {
    /// A thread is about to sleep: whether it leads.
    pub fn enter(&self, waker: &Arc<Waker>) -> bool {
        let mut state = lock(&self.state);
        if state.leaders.len() < MAX_LEADERS {
            state.leaders.push(Arc::clone(waker));
            return true;
        }
        state.followers.push_back(Arc::clone(waker));
        false
    }

    /// A thread leaves its sleep.
    pub fn leave(&self, waker: &Arc<Waker>) {
        let mut state = lock(&self.state);
        if let Some(at) = state
            .followers
            .iter()
            .position(|other| Arc::ptr_eq(other, waker))
        {
            state.followers.remove(at);
            return;
        }
        // A leader, or one that was promoted, perhaps a moment ago and without knowing it.
        waker.take_promotion();
        state.leaders.retain(|other| !Arc::ptr_eq(other, waker));
        if state.leaders.is_empty()
            && let Some(follower) = state.followers.pop_front()
        {
            follower.promote();
            state.leaders.push(follower);
        }
    }

    /// Wakes everybody, to look again what to sleep on.
    pub fn wake_all(&self) {
        let state = lock(&self.state);
        for waker in state.leaders.iter().chain(&state.followers) {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_leader_promotes_a_follower() {
        let leaders = WaitLeaders::default();
        let wakers: Vec<_> = (0..MAX_LEADERS + 2)
            .map(|_| Waker::new().unwrap())
            .collect();
        let leads: Vec<_> = wakers.iter().map(|waker| leaders.enter(waker)).collect();
        assert_eq!(leads.iter().filter(|leads| **leads).count(), MAX_LEADERS);
        for waker in &wakers[..MAX_LEADERS] {
            leaders.leave(waker);
        }
        assert!(wakers[MAX_LEADERS].take_promotion());
        leaders.leave(&wakers[MAX_LEADERS]);
        assert!(wakers[MAX_LEADERS + 1].take_promotion());
        leaders.leave(&wakers[MAX_LEADERS + 1]);
        assert!(lock(&leaders.state).leaders.is_empty());
    }

    #[test]
    fn a_follower_that_leaves_is_not_promoted() {
        let leaders = WaitLeaders::default();
        let wakers: Vec<_> = (0..=MAX_LEADERS).map(|_| Waker::new().unwrap()).collect();
        for waker in &wakers {
            leaders.enter(waker);
        }
        leaders.leave(&wakers[MAX_LEADERS]);
        for waker in &wakers[..MAX_LEADERS] {
            leaders.leave(waker);
        }
        assert!(!wakers[MAX_LEADERS].take_promotion());
    }
}
