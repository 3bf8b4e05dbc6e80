//! Frames: how they come, and who takes those that leave ([`Egress`]). The `engine` implements it.

use crate::link::interface::InterfaceId;
use crate::tables::ConnectionId;
use core::net::IpAddr;

/// What the caller knows about a received frame besides its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct RxMeta {
    /// State of the TCP or UDP checksum.
    pub checksum: RxChecksum,
    /// Payload of each of the packets that the device, or a sender on this machine, left in one frame, if
    /// it is such a one: it may be longer than its IPv4 header can say.
    pub segment_bytes: Option<u16>,
}

/// How far the TCP or UDP checksum of a received frame has been taken care of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxChecksum {
    /// Nobody looked.
    #[default]
    Unknown,
    /// The device found it right.
    Verified,
    /// The field holds only the sum of the pseudo header: the sender is on this machine, the
    /// payload never left memory.
    Partial,
}

/// What an interface can take in one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EgressCaps {
    /// Largest IP packet that the interface cuts into segments itself, bytes; 0: it cannot. Of IPv6 it
    /// gets none beyond what 16 bits can say.
    pub max_segment_bytes: u32,
}

/// The interface cannot take the frame now; the stack offers it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// A checksum that the device, or the driver in its place, must complete: the field holds the sum of
/// the pseudo header (as `VIRTIO_NET_HDR_F_NEEDS_CSUM`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// Where summing begins, bytes from the start of the frame.
    pub start: u16,
    /// Where the field is, bytes from `start`.
    pub offset: u16,
}

/// A frame that leaves: headers here, payload wherever it is.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Where it leaves.
    pub interface: InterfaceId,
    /// Everything up to the payload.
    pub headers: &'a [u8],
    /// The payload.
    pub payload: Payload<'a>,
    /// A checksum to complete.
    pub checksum: Option<PartialChecksum>,
    /// Payload of each segment that the device is to cut; `None`: the frame is one packet.
    pub segment_size: Option<u16>,
}

impl<'a> Frame<'a> {
    /// A packet that stands in `headers` as a whole.
    pub(crate) const fn whole(interface: InterfaceId, headers: &'a [u8]) -> Frame<'a> {
        Frame {
            interface,
            headers,
            payload: Payload::None,
            checksum: None,
            segment_size: None,
        }
    }
}

/// The payload of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// None.
    None,
    /// These bytes.
    Bytes(&'a [u8]),
    /// A span of a send window.
    Window {
        /// The connection.
        connection: ConnectionId,
        /// Its owner's token.
        owner: u64,
        /// Stream offset of the first byte.
        offset: u64,
        /// Number of bytes.
        len: u32,
    },
}

/// Takes the frames that leave.
pub trait Egress {
    /// What `interface` can do.
    fn caps(&self, interface: InterfaceId) -> EgressCaps;

    /// Sends one frame, or refuses it for now.
    ///
    /// # Errors
    /// [`Busy`]: the frame was not taken.
    fn transmit(&mut self, frame: &Frame<'_>) -> Result<(), Busy>;

    /// The host has to find the hardware address of `address` on an interface with
    /// [`crate::Resolution::External`]; the answer comes through [`crate::Stack::set_neighbour`].
    fn resolve(&mut self, interface: InterfaceId, address: IpAddr) {
        let _ = (interface, address);
    }
}
