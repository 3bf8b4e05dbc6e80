//! Frames for the engine's own addresses: two programs on one engine talk without a device. Such a
//! frame is copied once and comes back as a received one.
//!
//! The addresses of loopback are every engine's own: which programs use them there and not in the kernel is the
//! programs' affair (docs/decisions/0042-loopback.md).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use nic::TxFrame;
use stack::{Busy, EgressCaps, InterfaceAddress, InterfaceConfig, InterfaceId, Resolution};
use std::collections::VecDeque;
use wire::ethernet::Address;

/// Frames under way at most; beyond that senders wait.
const FRAMES_MAX: usize = 256;
/// Largest packet, as on Linux's loopback interface (its 65536 do not fit the field).
const MTU_BYTES: u16 = u16::MAX;

/// The number of `lo` in every network namespace, by which programs know it.
pub const LOOPBACK_INDEX: u32 = 1;

/// RFC 1122 §3.2.1.3 (g), RFC 4291 §2.5.3.
pub const LOOPBACK_ADDRESSES: [InterfaceAddress; 2] = [
    InterfaceAddress {
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        prefix_len: 8,
    },
    InterfaceAddress {
        address: IpAddr::V6(Ipv6Addr::LOCALHOST),
        prefix_len: 128,
    },
];

/// The interface that leads back.
pub struct Loopback {
    interface: InterfaceId,
    frames: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    /// Payload copied so far.
    pub copied_bytes: u64,
}

impl Loopback {
    /// The interface's description, for the stack.
    pub const CONFIG: InterfaceConfig = InterfaceConfig {
        hardware: Address::UNSPECIFIED,
        mtu: MTU_BYTES,
        resolution: Resolution::Loopback,
        scope_id: LOOPBACK_INDEX,
        router_discovery: false,
    };
    /// What it can take in one frame.
    pub const CAPS: EgressCaps = EgressCaps {
        max_segment_bytes: MTU_BYTES as u32,
    };

    /// Nothing under way, on the interface that the stack has named.
    pub fn new(interface: InterfaceId) -> Self {
        Self {
            interface,
            frames: VecDeque::new(),
            spare: Vec::new(),
            copied_bytes: 0,
        }
    }

    /// The interface.
    pub fn interface(&self) -> InterfaceId {
        self.interface
    }

    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Queues a frame to be received by this engine. Its payload must not be in a mapped file.
    pub fn push(&mut self, frame: &TxFrame<'_>) -> Result<(), Busy> {
        if self.frames.len() >= FRAMES_MAX {
            return Err(Busy);
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame.headers);
        for span in &frame.payload {
            span.append_to(&mut bytes);
        }
        self.frames.push_back(bytes);
        self.copied_bytes += frame.payload_len() as u64;
        Ok(())
    }

    /// The next frame that arrives.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        self.frames.pop_front()
    }

    /// Takes back a frame that was received: its memory serves the next.
    pub fn give_back(&mut self, frame: Vec<u8>) {
        self.spare.push(frame);
    }
}
