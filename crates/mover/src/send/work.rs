//! What the data threads are to do next, and what the receiver has not yet said to be whole.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::job::Job;
use crate::lock::lock;
use crate::protocol::{Block, Entry};

/// Most files that the receiver has not said to be whole.
const OPEN_MAX: usize = 4_096;
/// Most large ones among them.
const JOBS_MAX: usize = 32;

/// Something to send.
#[derive(Debug)]
pub enum Task {
    Small(Small),
    /// A block of a large one.
    Block(Arc<Job>, Block),
    /// Standard input: its entry is told, and whoever gets it sends all of it.
    Input(Entry),
}

#[derive(Clone, Debug)]
pub struct Small {
    pub path: PathBuf,
    /// What is said of it.
    pub entry: Entry,
}

/// A file that the receiver has not said to be whole.
#[derive(Clone, Debug)]
pub enum Open {
    /// It can be sent again.
    Small(Small),
    /// It, too.
    Large(Arc<Job>),
    /// Folders, links and standard input.
    Other(PathBuf),
}

impl Open {
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Small(small) => small.path.clone(),
            Self::Large(job) => job.source.path().to_owned(),
            Self::Other(path) => path.clone(),
        }
    }
}

#[derive(Debug)]
enum Queued {
    Small(Small),
    Large(Arc<Job>),
    Input(Entry),
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Queued>,
    open: HashMap<u64, Open>,
    large: usize,
    is_closed: bool,
}

/// Shared by the threads of a sender.
#[derive(Debug, Default)]
pub struct Work {
    state: Mutex<State>,
    bell: Condvar,
}

impl Work {
    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        // The time bound serves those who look at something else too.
        let (state, _) = self
            .bell
            .wait_timeout(state, Duration::from_millis(100))
            .unwrap_or_else(PoisonError::into_inner);
        state
    }

    /// Waits until another file may be begun; `false`: the work is closed.
    pub fn await_capacity(&self) -> bool {
        let mut state = lock(&self.state);
        while !state.is_closed && (state.open.len() >= OPEN_MAX || state.large >= JOBS_MAX) {
            state = self.wait(state);
        }
        !state.is_closed
    }

    /// Notes a file of which the receiver will be told; a small one is for the data threads at once.
    pub fn add(&self, file: u64, open: Open) {
        let mut state = lock(&self.state);
        match &open {
            Open::Small(small) => state.queue.push_back(Queued::Small(small.clone())),
            Open::Large(_) => state.large += 1,
            Open::Other(_) => {}
        }
        state.open.insert(file, open);
        self.bell.notify_all();
    }

    /// The receiver is ready for a large file, or wants a part of it again.
    pub fn queue_job(&self, job: Arc<Job>) {
        lock(&self.state).queue.push_back(Queued::Large(job));
        self.bell.notify_all();
    }

    /// A small file once more.
    pub fn queue_small(&self, small: Small) {
        lock(&self.state).queue.push_back(Queued::Small(small));
        self.bell.notify_all();
    }

    /// Standard input.
    pub fn queue_input(&self, entry: Entry) {
        lock(&self.state).queue.push_back(Queued::Input(entry));
        self.bell.notify_all();
    }

    /// A file that the receiver has not said to be whole.
    pub fn find(&self, file: u64) -> Option<Open> {
        lock(&self.state).open.get(&file).cloned()
    }

    /// The receiver is done with a file, one way or the other.
    pub fn close_file(&self, file: u64) -> Option<Open> {
        let mut state = lock(&self.state);
        let open = state.open.remove(&file);
        if let Some(Open::Large(job)) = &open {
            job.give_up();
            state.large -= 1;
        }
        self.bell.notify_all();
        open
    }

    /// The next thing to send; `None`: there is nothing more. `idle` is called before it waits.
    pub fn next(&self, mut idle: impl FnMut()) -> Option<Task> {
        let mut state = lock(&self.state);
        loop {
            match state.queue.front() {
                Some(Queued::Large(job)) => {
                    let job = Arc::clone(job);
                    if let Some(block) = job.take() {
                        return Some(Task::Block(job, block));
                    }
                    state.queue.pop_front();
                    continue;
                }
                Some(Queued::Small(_) | Queued::Input(_)) => match state.queue.pop_front() {
                    Some(Queued::Small(small)) => return Some(Task::Small(small)),
                    Some(Queued::Input(entry)) => return Some(Task::Input(entry)),
                    _ => continue,
                },
                None if state.is_closed => return None,
                None => {}
            }
            drop(state);
            idle();
            state = lock(&self.state);
            if state.queue.is_empty() && !state.is_closed {
                state = self.wait(state);
            }
        }
    }

    /// Waits until the receiver is done with everything; `false`: the work was closed before.
    pub fn await_empty(&self) -> bool {
        let mut state = lock(&self.state);
        while !state.open.is_empty() && !state.is_closed {
            state = self.wait(state);
        }
        state.open.is_empty()
    }

    /// Nothing more comes.
    pub fn close(&self) {
        lock(&self.state).is_closed = true;
        self.bell.notify_all();
    }
}
