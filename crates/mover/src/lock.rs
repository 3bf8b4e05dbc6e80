//! Locks that outlive a thread that panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whoever died with the lock held.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
