//! Ethernet frames, see packet(7): from one port of this host to another, or to a host where `shunt echo --raw` sends
//! them back. Frames that are sent and frames that are sent back have different EtherTypes, both of those that IEEE 802
//! leaves to experiments on a local network: two echoes never answer each other.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, OwnedFd},
};

use anyhow::Context;
use nic::Driver;

use super::{
    Arrival, BLOCK, Probe, Wait,
    datagram::{is_nothing, wait_readable},
    link::{self, FrameDriver},
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

/// Frames that are taken from a driver at a time.
const BURST: usize = 64;

/// A port that sends and a port, it may be the same one, that receives.
pub struct Frames {
    link: Link,
    frame: Vec<u8>,
    message: Message,
}

/// How frames leave and come.
enum Link {
    /// By sockets of the kernel, a call for each.
    Sockets {
        sender: OwnedFd,
        receiver: OwnedFd,
        buffer: Vec<u8>,
    },
    /// By drivers in this process; what was sent leaves when it is asked for answers, a burst at once.
    Drivers {
        sender: Box<dyn Driver>,
        receiver: Option<Box<dyn Driver>>,
        is_unsent: bool,
        arrived: VecDeque<Arrival>,
    },
}

/// An Ethernet port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// Number of its interface.
    pub index: u32,
    pub address: [u8; 6],
}

/// Where frames go.
#[derive(Debug, Clone)]
pub struct FrameWay {
    /// The sending interface.
    pub interface: String,
    pub from: Port,
    /// Whom the frames are for.
    pub to: [u8; 6],
    /// The interface of this host at which they arrive as they are, where it is one. Without it they are sent back.
    pub back: Option<(String, Port)>,
    /// The driver; none: sockets of the kernel.
    pub driver: Option<FrameDriver>,
}

impl Frames {
    /// Opens the ports.
    pub fn open(way: &FrameWay, message: Message) -> anyhow::Result<Self> {
        let interface = &way.interface;
        let mut frame = [way.to, way.from.address].concat();
        frame.extend(ETHER_TYPE_REQUEST.to_be_bytes());
        frame.resize(HEADER_BYTES + message.len(), 0);
        let link = match way.driver {
            // Where there are two ports the sending one hears replies that nobody sends.
            Some(driver) => Link::Drivers {
                sender: driver.open(interface, ETHER_TYPE_REPLY)?,
                receiver: match &way.back {
                    Some((name, _)) => Some(driver.open(name, ETHER_TYPE_REQUEST)?),
                    None => None,
                },
                is_unsent: false,
                arrived: VecDeque::new(),
            },
            None => Link::sockets(way).with_context(|| {
                format!("--raw on {interface}: frames need CAP_NET_RAW; run this as root")
            })?,
        };
        Ok(Self {
            link,
            frame,
            message,
        })
    }
}

impl Link {
    fn sockets(way: &FrameWay) -> io::Result<Self> {
        let receiver = match &way.back {
            Some((_, port)) => sys::packet_socket(port.index, ETHER_TYPE_REQUEST)?,
            None => sys::packet_socket(way.from.index, ETHER_TYPE_REPLY)?,
        };
        sys::set_receive_timeout(receiver.as_fd(), BLOCK)?;
        Ok(Self::Sockets {
            // It hears replies that nobody sends where there are two ports, and no copy of what it sends itself.
            sender: sys::packet_socket(way.from.index, ETHER_TYPE_REPLY)?,
            receiver,
            buffer: vec![0; FRAME_MAX_BYTES],
        })
    }
}

/// What a frame that came is.
fn arrival(message: &Message, frame: &[u8]) -> Arrival {
    let data = frame.get(HEADER_BYTES..).unwrap_or_default();
    message.check(data, true).into()
}

impl Probe for Frames {
    fn send(&mut self, sequence: u64) -> io::Result<()> {
        self.frame[HEADER_BYTES..].copy_from_slice(self.message.of(sequence));
        match &mut self.link {
            Link::Sockets { sender, .. } => {
                sys::send(sender.as_fd(), &self.frame, libc::MSG_DONTWAIT).map(drop)
            }
            Link::Drivers {
                sender, is_unsent, ..
            } => {
                *is_unsent = true;
                link::send(sender.as_mut(), &self.frame)
            }
        }
    }

    fn receive(&mut self, wait: Wait) -> io::Result<Option<Arrival>> {
        let message = &self.message;
        match &mut self.link {
            Link::Sockets {
                receiver, buffer, ..
            } => {
                let flags = wait_readable(receiver.as_fd(), wait)?;
                match sys::recv(receiver.as_fd(), buffer, flags) {
                    Ok(count) => Ok(Some(arrival(message, &buffer[..count]))),
                    Err(error) if is_nothing(&error) => Ok(None),
                    Err(error) => Ok(Some(Arrival::Failed {
                        sequence: None,
                        reason: error.to_string(),
                    })),
                }
            }
            Link::Drivers {
                sender,
                receiver,
                is_unsent,
                arrived,
            } => {
                if std::mem::take(is_unsent) {
                    sender.flush_tx()?;
                }
                if arrived.is_empty() {
                    let port = receiver.as_mut().unwrap_or(sender);
                    let mut take = |port: &mut dyn Driver| {
                        port.rx_burst(BURST, &mut |frame| {
                            arrived.push_back(arrival(message, frame.bytes));
                        })
                    };
                    if take(port.as_mut())? == 0 && wait != Wait::Not {
                        link::wait(port.as_mut(), wait)?;
                        take(port.as_mut())?;
                    }
                }
                Ok(arrived.pop_front())
            }
        }
    }

    fn is_datagram(&self) -> bool {
        true
    }
}
