//! Ethernet frames, see packet(7): from one port of this host to another, or to a host where `shunt echo --raw` sends
//! them back. Frames that are sent and frames that are sent back have different EtherTypes, both of those that IEEE 802
//! leaves to experiments on a local network: two echoes never answer each other.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use super::{
    Arrival, BLOCK, Probe, Wait,
    datagram::{is_nothing, wait_readable},
    message::Message,
};
use crate::sys;

/// EtherType of a frame that is to be sent back.
pub const ETHER_TYPE_REQUEST: u16 = 0x88b5;
/// EtherType of a frame that was sent back.
pub const ETHER_TYPE_REPLY: u16 = 0x88b6;
/// Destination, source, EtherType.
pub const HEADER_BYTES: usize = 14;
/// The longest that is received.
const FRAME_MAX_BYTES: usize = 65_550;

/// A port that sends and a port, it may be the same one, that receives.
#[derive(Debug)]
pub struct Frames {
    sender: OwnedFd,
    receiver: OwnedFd,
    frame: Vec<u8>,
    message: Message,
    buffer: Vec<u8>,
}

/// An Ethernet port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// Number of its interface.
    pub index: u32,
    /// Its address.
    pub address: [u8; 6],
}

impl Frames {
    /// From `from` to the address `to`. With `back` the frames arrive there as they are; without they are sent back.
    ///
    /// # Errors
    /// CAP_NET_RAW is missing, or the interface is gone.
    pub fn open(from: Port, to: [u8; 6], back: Option<Port>, message: Message) -> io::Result<Self> {
        let receiver = match back {
            Some(port) => sys::packet_socket(port.index, ETHER_TYPE_REQUEST)?,
            None => sys::packet_socket(from.index, ETHER_TYPE_REPLY)?,
        };
        sys::set_receive_timeout(receiver.as_fd(), BLOCK)?;
        let mut frame = [to, from.address].concat();
        frame.extend(ETHER_TYPE_REQUEST.to_be_bytes());
        frame.resize(HEADER_BYTES + message.len(), 0);
        Ok(Self {
            // It hears replies that nobody sends where there are two ports, and no copy of what it sends itself.
            sender: sys::packet_socket(from.index, ETHER_TYPE_REPLY)?,
            receiver,
            frame,
            message,
            buffer: vec![0; FRAME_MAX_BYTES],
        })
    }
}

impl Probe for Frames {
    fn send(&mut self, sequence: u64) -> io::Result<()> {
        self.frame[HEADER_BYTES..].copy_from_slice(self.message.of(sequence));
        sys::send(self.sender.as_fd(), &self.frame, libc::MSG_DONTWAIT).map(drop)
    }

    fn receive(&mut self, wait: Wait) -> io::Result<Option<Arrival>> {
        let flags = wait_readable(self.receiver.as_fd(), wait)?;
        let count = match sys::recv(self.receiver.as_fd(), &mut self.buffer, flags) {
            Ok(count) => count,
            Err(error) if is_nothing(&error) => return Ok(None),
            Err(error) => {
                return Ok(Some(Arrival::Failed {
                    sequence: None,
                    reason: error.to_string(),
                }));
            }
        };
        let data = self.buffer[..count].get(HEADER_BYTES..).unwrap_or_default();
        Ok(Some(self.message.check(data, true).into()))
    }

    fn is_datagram(&self) -> bool {
        true
    }
}
