//! Replies made while frames are received: they wait, since the driver is busy handing those out.

use super::link::{caps, partial};
use nic::Driver;
use stack::{Busy, Egress, EgressCaps, Frame, InterfaceId, Payload};
use std::collections::VecDeque;

/// Replies that may wait at most; more are lost, as on a full device.
const REPLIES_MAX: usize = 256;

/// One of them.
pub(super) struct Reply {
    pub(super) interface: InterfaceId,
    pub(super) bytes: Vec<u8>,
    pub(super) checksum: Option<nic::PartialChecksum>,
}

/// Frames made while others are received: resets, ARP and ICMP answers.
pub struct Replies {
    caps: EgressCaps,
    pub(super) waiting: VecDeque<Reply>,
    /// Buffers for those that come.
    pub(super) spare: Vec<Vec<u8>>,
}

impl Replies {
    /// An empty queue for a driver's link.
    pub fn new(driver: &dyn Driver) -> Self {
        Self {
            caps: caps(driver),
            waiting: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl Egress for Replies {
    fn caps(&self, _interface: InterfaceId) -> EgressCaps {
        self.caps
    }

    fn transmit(&mut self, frame: &Frame<'_>) -> Result<(), Busy> {
        if self.waiting.len() >= REPLIES_MAX {
            return Err(Busy);
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame.headers);
        match frame.payload {
            Payload::None => {}
            Payload::Bytes(payload) => bytes.extend_from_slice(payload),
            // Connections answer in `poll_transmit`, never while frames are received.
            Payload::Window { .. } => return Err(Busy),
        }
        self.waiting.push_back(Reply {
            interface: frame.interface,
            bytes,
            checksum: partial(frame),
        });
        Ok(())
    }
}
