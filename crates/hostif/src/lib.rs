//! The host interface: everything that an engine and an attached program share.
//!
//! One region of shared memory per attached program and engine core (rings, sleep words, socket headers,
//! windows) and one control channel (a Unix SOCK_SEQPACKET socket). Start reading at `layout` (where things lie), then
//! `ring` and `doorbell` (how the sides talk and sleep), then `header` and `window` (a socket's state
//! and its bytes), then `control` (attaching). Neither side trusts the other's bytes: the engine checks
//! everything once, when it decodes it.
//!
//! It does not decide when anything runs and knows no TCP.

pub mod congestion;
#[cfg(not(loom))]
pub mod control;
mod cursor;
#[cfg(not(loom))]
pub mod datagram;
pub mod descriptor;
pub mod doorbell;
pub mod figures;
#[cfg(any(test, fuzzing, feature = "fuzzing"))]
#[cfg(not(loom))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(not(loom))]
pub mod header;
#[cfg(not(loom))]
pub mod home;
pub mod id;
pub mod layout;
#[cfg(not(loom))]
pub mod lock;
pub mod moderation;
#[cfg(not(loom))]
pub mod region;
pub mod ring;
pub mod steering;
mod sync;
pub mod turns;
#[cfg(not(loom))]
pub mod window;

pub use cursor::Cells;
pub use descriptor::{
    Command, Completion, Consumed, DatagramOptions, FamilyOptions, FastOpenKeys, FileSource,
    MembershipChange, Op, OptionChanges, Query, ShutdownHow, SocketOption, WriteMode, Written,
};
pub use doorbell::{SleepWord, Sleepers};
pub use figures::Figures;
#[cfg(not(loom))]
pub use header::{Flags, SocketHeader};
pub use id::SocketId;
pub use layout::{Layout, RingEntries};
#[cfg(not(loom))]
pub use lock::RegionLock;
pub use moderation::{Moderation, NOTIFY_VARIABLE};
#[cfg(not(loom))]
pub use region::Region;
pub use ring::{Consumer, Corrupt, Producer, PushError};
pub use steering::{CORES_MAX, Steering};
pub use turns::Turns;
#[cfg(not(loom))]
pub use window::{Window, WindowSpan};

/// Oldest version of the region and control formats that this code speaks.
pub const MIN_VERSION: u16 = 1;
/// Newest version of the region and control formats that this code speaks.
pub const MAX_VERSION: u16 = 1;
/// Abstract name of the engine's control socket (abstract names live in the network namespace).
pub const DEFAULT_ENGINE_NAME: &str = "@shunt/engine";
/// Environment variable that names another engine: `@name` (abstract) or a path.
pub const ENGINE_VARIABLE: &str = "SHUNT_ENGINE";
/// Environment variable that asks for an engine inside the program, and says how it is started.
pub const INLINE_VARIABLE: &str = "SHUNT_INLINE";
/// Environment variable that bounds how long a waiting thread spins, in microseconds.
pub const SPIN_VARIABLE: &str = "SHUNT_SPIN_US";
