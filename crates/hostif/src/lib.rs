//! The host interface: everything that an engine and an attached program share.
//!
//! One region of shared memory per attached program and engine core (rings, sleep words, socket headers,
//! windows) and one control channel (a Unix SOCK_SEQPACKET socket). Start reading at `layout` (where things lie), then
//! `ring` and `sync::doorbell` (how the sides talk and sleep), then `header` and `window` (a socket's state
//! and its bytes), then `control` (attaching). Neither side trusts the other's bytes: the engine checks
//! everything once, when it decodes it.
//!
//! It does not decide when anything runs and knows no TCP.

pub mod byte_channel;
#[cfg(not(loom))]
pub mod control;
pub mod copy;
mod cursor;
#[cfg(not(loom))]
pub mod datagram;
pub mod descriptor;
#[cfg(not(loom))]
pub mod environment;
pub mod figures;
#[cfg(any(test, fuzzing, feature = "fuzzing"))]
#[cfg(not(loom))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(not(loom))]
pub mod header;
#[cfg(not(loom))]
pub mod holders;
#[cfg(not(loom))]
pub mod host_hooks;
pub mod id;
#[cfg(not(loom))]
pub mod large_copy;
pub mod layout;
#[cfg(not(loom))]
pub mod region;
pub mod ring;
#[cfg(not(loom))]
pub mod stages;
pub mod stamp;
pub mod steering;
pub mod sync;
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
pub mod window;

#[cfg(not(loom))]
pub use byte_channel::region::{ChannelPair, ChannelRegion};
pub use cursor::Cells;
pub use descriptor::{
    Command, Completion, Consumed, DatagramOptions, FamilyOptions, FastOpenKeys, FileSource,
    LaneNews, MembershipChange, Op, OptionChanges, Query, ShutdownHow, SocketOption, WriteMode,
    Written,
};
pub use figures::Figures;
pub use figures::congestion::CongestionFigures;
#[cfg(not(loom))]
pub use header::{Flags, SocketHeader};
#[cfg(not(loom))]
pub use holders::{Holders, Transport};
pub use id::SocketId;
pub use layout::{Layout, RingEntries};
#[cfg(not(loom))]
pub use region::{HeaderPlace, Region, Resumed};
pub use ring::{Consumer, Corrupt, Producer, PushError};
pub use steering::{CORES_MAX, Steering};
pub use sync::doorbell::{SleepWord, Sleepers};
pub use sync::lock::RegionLock;
pub use sync::moderation::{Moderation, NOTIFY_VARIABLE};
pub use sync::poll_lock::PollLock;
#[cfg(not(loom))]
pub use sys::WindowPlace;
#[cfg(not(loom))]
pub use window::{Span, Window, WindowSpan};

/// Oldest version of the region and control formats that this code speaks.
pub const MIN_VERSION: u16 = 5;
/// Newest version of the region and control formats that this code speaks.
pub const MAX_VERSION: u16 = 5;
/// Abstract name of the engine's control socket (abstract names live in the network namespace).
pub const DEFAULT_ENGINE_NAME: &str = "@shunt/engine";
/// Environment variable that names another engine: `@name` (abstract) or a path.
pub const ENGINE_VARIABLE: &str = "SHUNT_ENGINE";
/// Between the names where [`ENGINE_VARIABLE`] names several, in the order of their priority.
pub const ENGINE_SEPARATOR: char = ',';
/// Abstract name of the program's end of a socket pair that a supervisor put in the place of a socket, before that
/// socket's inode: `shunt explain` reads it in /proc/net/unix.
pub const PAIR_PREFIX: &str = "@shunt/pair/";
/// Engines that one process may be attached to.
pub const ENGINES_MAX: usize = 8;
/// Environment variable that says which of several engines gets a connection that all of them could carry.
pub const PLACEMENT_VARIABLE: &str = "SHUNT_PLACEMENT";
/// Environment variable, `1`, by which a program uses loopback on its engine, before the kernel's.
pub const LOOPBACK_VARIABLE: &str = "SHUNT_LOOPBACK";
/// Environment variable that names the library that the programs of a `shunt run` have; empty where they shall have none.
pub const LIBRARY_VARIABLE: &str = "SHUNT_LIBRARY";
/// Environment variable that names the file of `shunt` itself.
pub const BINARY_VARIABLE: &str = "SHUNT_BINARY";
/// Environment variable that says which sockets may leave the kernel.
pub const POLICY_VARIABLE: &str = "SHUNT_POLICY";
/// Environment variable, `1`, by which sockets do not fall back to the kernel when no engine is there.
pub const REQUIRE_VARIABLE: &str = "SHUNT_REQUIRE";
/// Environment variable that asks for an engine inside the program, and says how it is started.
pub const INLINE_VARIABLE: &str = "SHUNT_INLINE";
/// Its name as C has it.
pub const INLINE_VARIABLE_NAME: &core::ffi::CStr = c"SHUNT_INLINE";
/// Environment variable that bounds how long a waiting thread spins, in microseconds.
pub const SPIN_VARIABLE: &str = "SHUNT_SPIN_US";
/// How a preload library and a supervisor of the same program know of each other.
pub mod supervision {
    /// In the sixth argument of a system call that has none: the preload library's own, which a supervisor
    /// lets pass.
    pub const UNSUPERVISED: u64 = 0x5348_554e_545f_4f4b;
    /// How a process asks whether a supervisor hears its calls: a shutdown(2) of descriptor -1 in this direction,
    /// which the kernel refuses.
    pub const QUESTION: i32 = 0x5348_554e;
    /// The answer to it.
    pub const ANSWER: i64 = 0x5355_5056;
}
