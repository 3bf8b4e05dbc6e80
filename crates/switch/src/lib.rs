//! Which stack a socket of a program goes to, the kernel or an engine, and why.
//!
//! The preload library (`shim`) asks for its program, the supervisor (`supervise`) for programs that cannot be preloaded: both
//! decide late, when an address says where the socket belongs (decisions 12 and 32). Start at `kind` (which sockets are followed
//! at all) and `policy`, then `bind`, `connect`, `listen` and `datagram`, one decision each, and `reason`
//! (the words for it). `attached` are the engines of the process,
//! `stream` is a socket that is on them, `backing` the kernel's socket behind it, `options` what a program has set.
//!
//! Nothing here knows descriptors of a program beyond the length of a call, nor how a program is served.

pub mod attached;
pub mod backing;
pub mod bind;
pub mod connect;
pub mod datagram;
pub mod device;
pub mod groups;
pub mod kind;
pub mod listen;
pub mod options;
pub mod policy;
pub mod readiness;
pub mod reason;
pub mod stream;
