//! The engine: owns the network device and all protocol state, serves attached programs over rings.
//!
//! Start with [`EngineCore`] (`core.rs`), a plain value whose `poll(now)` moves everything forward
//! once; `core_loop.rs`, the thread around it that decides when to poll, spin and sleep; and [`Engine`]
//! (`run.rs`), one or more of these threads that share nothing (`shard.rs`). `control.rs`
//! answers the control channel, `commands.rs` the rings, `sockets.rs` holds what both act on and is
//! the stack's `Host`; `egress.rs` is its way to the driver.
//!
//! One core serves one driver queue. A second process that takes over is not here yet.

mod answers;
mod attention;
mod byte_channels;
mod commands;
mod config;
mod congestion;
mod connect;
mod control;
mod copies;
mod core;
mod core_loop;
mod datagrams;
mod descriptors;
mod device;
mod egress;
mod errno;
mod families;
mod files;
#[cfg(any(test, fuzzing, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(any(test, fuzzing, feature = "fuzzing"))]
#[doc(hidden)]
pub mod harness;
mod held;
mod holders;
mod housekeeping;
mod idle_exit;
mod inline;
mod latency;
mod local_peers;
mod moderation;
mod names;
mod notes;
mod notify;
mod options;
mod orphans;
mod pace;
mod queues;
mod region;
mod report;
mod rows;
mod run;
mod session;
mod shard;
mod sharing;
mod signals;
mod sockets;
mod stamping;
mod stamps;
mod state;
mod steering;
mod stop;
pub mod sysctl;
#[cfg(test)]
mod tests;
mod user_buffer;
mod users;

pub use config::{Address, Config, Limits};
pub use core::EngineCore;
pub use inline::{Inline, Kept, Watched};
pub use local_peers::LocalPeerDriver;
pub use rows::SOCKET_ROW_BYTES;
pub use run::{Engine, StartError};
pub use sharing::Sharing;
pub use stack::{FastOpenModes, Protocols, SynCookies};
pub use steering::core_of_frame;
pub use tcp::{Algorithm as CongestionControl, EcnMode};
pub use user_buffer::UserBuffer;
