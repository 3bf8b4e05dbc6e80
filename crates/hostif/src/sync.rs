//! How the two sides exclude each other and sleep: doorbells, locks in the region, and the atomics that they are written with,
//! real ones or loom's in a model.
//!
//! See the loom manual. Code that no model covers uses `core::sync::atomic` directly.

pub mod doorbell;
pub mod lock;
pub mod moderation;
#[cfg(loom)]
pub(crate) mod mortal;
pub mod poll_lock;

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use mortal::{AtomicU32, AtomicU64, Ordering, fence};
