//! The epoll instances of the program, and the sets that they use. A set is never freed but used again.

use std::sync::{Mutex, PoisonError};

use super::set::Set;

/// An epoll instance of the program.
pub struct Instance {
    set: &'static Set,
}

/// Every set there is; used by fork handlers, and to use the free ones again.
pub static SETS: Mutex<Sets> = Mutex::new(Sets {
    all: Vec::new(),
    free: Vec::new(),
});

/// All sets, and those that no instance uses.
pub struct Sets {
    /// Never shrinks.
    pub all: Vec<&'static Set>,
    free: Vec<&'static Set>,
}

impl Instance {
    /// A new one, which watches nothing.
    pub fn new() -> Instance {
        let mut sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
        let set = sets.free.pop().unwrap_or_else(|| {
            let set: &'static Set = Box::leak(Box::default());
            sets.all.push(set);
            set
        });
        Instance { set }
    }

    /// Its interests.
    pub fn set(&self) -> &'static Set {
        self.set
    }

    /// The last reference to the epoll file is gone.
    pub fn release(&self) {
        self.set.clear();
        self.set.outer.clear();
        SETS.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .free
            .push(self.set);
    }
}
