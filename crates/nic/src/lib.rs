//! The driver layer: one trait, [`Driver`], and one folder per way of reaching a network.
//!
//! Every driver takes the same [`TxFrame`] (headers, two payload spans, an unfinished checksum, a
//! large segment) and delivers the same [`RxFrame`]. What a device cannot do is completed in
//! software by [`offload`]. The stack asks [`Caps`] and never a driver's name.
//!
//! This crate makes the network's system calls; it parses no more of a frame than offloads need,
//! keeps no protocol state, and starts no thread.

pub mod af_packet;
pub mod af_xdp;
pub mod align;
mod decorator;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod driver;
mod hardware_address;
pub mod offload;
pub mod offload_override;
mod retry;
pub mod shared_slice;
pub mod sharing;
mod sys;
pub mod tap;
mod vnet;
mod whole_tcp;
pub mod wire;

pub use align::Aligner;
pub use driver::{
    CONTROL_MESSAGE_BYTES, Caps, ControlMessage, Counters, Driver, LocalPeerChange, LocalPeers,
    PartialChecksum, Presence, RxChecksum, RxFrame, TxFrame,
};
pub use hardware_address::random_address;
pub use offload_override::OffloadOverride;
pub use shared_slice::SharedSlice;
