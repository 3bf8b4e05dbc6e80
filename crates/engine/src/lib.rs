//! The engine: owns the network device and all protocol state, serves attached programs over rings.
//!
//! Start with [`EngineCore`] (`core/`), a plain value whose `poll(now)` moves everything forward
//! once; `process/`, the thread around it that decides when to poll, spin and sleep, and [`Engine`], one or more of
//! these threads that share nothing (`shards/`). Its parts: `programs/` has who is attached, `calls/` carries
//! out what programs ask by their rings, `sockets/` holds what calls and the stack act on and is
//! the stack's `Host`, `device/` is the way to the driver.
//!
//! One core serves one driver queue. A second process that takes over is not here yet.

mod byte_channels;
mod config;
mod core;
mod device;
mod errno;
#[cfg(any(test, fuzzing, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(any(test, fuzzing, feature = "fuzzing"))]
#[doc(hidden)]
pub mod harness;
mod inline;
mod kernel;
mod local_peers;
mod orphans;
mod process;
mod programs;
mod shards;
mod socket_layer;
mod sockets;
mod stamps;
mod start_error;
mod state;
pub mod sysctl;
#[cfg(test)]
mod tests;

pub use config::{Address, Config, Limits, Sharing};
pub use core::EngineCore;
pub use inline::{Inline, Kept, Watched};
pub use local_peers::LocalPeerDriver;
pub use process::run::Engine;
pub use shards::steering::core_of_frame;
pub use sockets::rows::SOCKET_ROW_BYTES;
pub use sockets::user_buffer::UserBuffer;
pub use stack::{FastOpenModes, Protocols, SynCookies};
pub use start_error::StartError;
pub use tcp::{Algorithm as CongestionControl, EcnMode};
