//! How the two sides exclude each other and sleep: doorbells, locks in the region, and the atomics that they are written with,
//! real ones or loom's in a model.
//!
//! See the loom manual. Code that no model covers uses `core::sync::atomic` directly.

pub mod doorbell;
#[cfg(not(loom))]
pub mod lock;
pub mod moderation;
pub mod poll_lock;

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
