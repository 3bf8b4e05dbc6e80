//! The engine: owns the network device and all protocol state, serves attached programs over rings.
//!
//! Start with [`EngineCore`] (`core/`), a plain value whose `poll(now)` moves everything forward once. Two modules drive it:
//! `process/`, a thread for each core that decides when to poll, spin and sleep ([`Engine`]; cores share nothing, see
//! the crate `shards`), and `inline/`, the threads of the program around it that wait.
//!
//! A core joins `programs/` (who is attached: sessions, rings, users) with `socket_layer/`, which carries out what they
//! ask of sockets and knows nothing of them. Each part below owns its state, and its methods take what else they need:
//!
//! | part | has |
//! |---|---|
//! | `sockets/` | rows, headers, windows, backing sockets; it is the stack's `Host` |
//! | `device/` | the driver, send windows and files by address, queues that stop, a device that goes and comes back |
//! | `stamps/` | times of sending |
//! | `byte_channels/` | connections to neighbours whose bytes pass through common memory |
//! | `kernel/` | addresses that the kernel has too; who hears on a port |
//! | `orphans.rs` | sockets that no session holds, whose descriptors are open somewhere |
//! | `state/` | the tables, in one memory file |
//!
//! One core serves one driver queue. An engine that goes on in a new process finds its data in `state/` (`core/resume.rs`).

mod byte_channels;
mod core;
mod device;
mod errno;
#[cfg(any(test, fuzzing, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(any(test, fuzzing, feature = "fuzzing"))]
#[doc(hidden)]
pub mod harness;
mod held_ports;
mod inline;
mod kernel;
mod orphans;
mod process;
mod programs;
mod socket_layer;
mod sockets;
mod stamps;
mod start_error;
mod state;
#[cfg(test)]
mod tests;

pub use core::{EngineCore, SmallWrite};
pub use engine_config::{
    Address, Config, History, KeptState, Limits, ProcessHooks, Sharing, USER_SHARE_PERCENT, sysctl,
};
pub use inline::{Inline, Kept, Watched};
pub use process::clock::clock_ns;
pub use process::left::reset_left;
pub use process::resume::{Left, check_state, descriptor_numbers, left_behind, open_descriptors};
pub use process::run::{Engine, open_control_socket};
pub use shards::card;
pub use shards::section::Section;
pub use shards::steering::core_of_frame;
pub use sockets::rows::SOCKET_ROW_BYTES;
pub use sockets::user_buffer::UserBuffer;
pub use stack::{FastOpenModes, Protocols, SynCookies};
pub use start_error::StartError;
pub use tcp::{Algorithm as CongestionControl, EcnMode};
