//! Sockets of the engine that have news, as their observers report it. Everything here happens in the
//! supervisor's one thread; the lock is for the trait's sake.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use client::{Observer, Socket};

/// Name of the supervisor among the observers of a socket.
const OBSERVER: u64 = 0;

/// The keys of sockets that have news, each once.
#[derive(Default)]
pub struct News(Mutex<VecDeque<Arc<NewsBell>>>);

impl News {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<NewsBell>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no socket has news.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// How many sockets have news.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Takes the oldest.
    pub fn take(&self) -> Option<u64> {
        let bell = self.lock().pop_front()?;
        bell.is_rung.store(false, Ordering::Relaxed);
        Some(bell.key)
    }

    /// Observes a socket from now on, under this key. The first look is the caller's.
    pub fn listen_to(self: &Arc<Self>, socket: &dyn Socket, key: u64) -> Arc<NewsBell> {
        let bell = Arc::new_cyclic(|own| NewsBell {
            news: Arc::clone(self),
            own: own.clone(),
            key,
            is_rung: AtomicBool::new(false),
        });
        socket.observe(OBSERVER, Arc::clone(&bell) as Arc<dyn Observer>);
        bell
    }
}

/// Rung when a socket has news.
pub struct NewsBell {
    news: Arc<News>,
    own: std::sync::Weak<NewsBell>,
    key: u64,
    is_rung: AtomicBool,
}

impl NewsBell {
    /// Observes the parts of a socket that it did not have before.
    pub fn listen_again(self: &Arc<Self>, socket: &dyn Socket) {
        socket.observe(OBSERVER, Arc::clone(self) as Arc<dyn Observer>);
        self.ring();
    }

    /// Puts the key among the news, unless it is there.
    pub fn ring(&self) {
        if !self.is_rung.swap(true, Ordering::Relaxed)
            && let Some(own) = self.own.upgrade()
        {
            self.news.lock().push_back(own);
        }
    }
}

impl Observer for NewsBell {
    fn on_ready(&self) {
        self.ring();
    }
}
