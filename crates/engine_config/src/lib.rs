//! What an engine is started with ([`Config`]), and the settings of the kernel that it follows while it runs (`sysctl.rs`).
//!
//! It opens no device and starts nothing: that is `engine`'s.

mod config;
pub mod sysctl;

pub use config::{
    Address, Config, History, KeptState, Limits, ProcessHooks, Sharing, USER_SHARE_PERCENT,
};
