//! The atomics that ring and doorbell code is written with: real ones, or loom's in a model.
//!
//! See the loom manual. Code that no model covers uses `core::sync::atomic` directly.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
