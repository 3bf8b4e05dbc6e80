//! From the stack's frames to the driver: payload goes from the send window to the device by address,
//! without a copy here. Replies made while frames are being received wait in [`Replies`], since the
//! driver is busy handing them out.

mod sys;

use hostif::Region;
use hostif::window::WindowSpan;
use nic::{Driver, SharedSlice, TxFrame};
use stack::{Busy, Egress, EgressCaps, Frame, InterfaceId, Payload};
use std::collections::VecDeque;

/// Replies that may wait at most; more are lost, as on a full device.
const REPLIES_MAX: usize = 256;

/// Where a connection's send window is.
#[derive(Clone)]
pub struct SendWindow {
    /// Its region.
    pub region: Region,
    /// The window in it.
    pub span: WindowSpan,
}

/// The driver, with what it takes to send.
pub struct Link {
    /// The driver.
    pub driver: Box<dyn Driver>,
    /// Send windows by socket row.
    windows: Vec<Option<SendWindow>>,
    /// The driver has failed for good.
    pub failure: Option<std::io::Error>,
}

impl Link {
    /// A link over `driver` for sockets in `rows` rows.
    pub fn new(driver: Box<dyn Driver>, rows: usize) -> Self {
        Self {
            driver,
            windows: vec![None; rows],
            failure: None,
        }
    }

    /// Sets or forgets the send window of a socket.
    pub fn set_window(&mut self, row: u32, window: Option<SendWindow>) {
        if let Some(slot) = usize::try_from(row)
            .ok()
            .and_then(|row| self.windows.get_mut(row))
        {
            *slot = window;
        }
    }

    fn send(&mut self, frame: &TxFrame<'_>) -> Result<(), Busy> {
        match self.driver.tx_burst(core::slice::from_ref(frame)) {
            Ok(1) => Ok(()),
            Ok(_) => Err(Busy),
            Err(error) => {
                self.failure = Some(error);
                Err(Busy)
            }
        }
    }

    /// Sends the replies that waited; what the device does not take is lost, and the peer asks again.
    pub fn send_replies(&mut self, replies: &mut Replies) {
        while let Some((bytes, checksum)) = replies.waiting.pop_front() {
            let frame = TxFrame {
                checksum,
                ..TxFrame::plain(&bytes)
            };
            let _ = self.send(&frame);
            replies.spare.push(bytes);
        }
    }
}

fn caps(driver: &dyn Driver) -> EgressCaps {
    // The driver counts payload, the stack whole IP packets: headers of 20 + 60 bytes lie between.
    let payload = driver.caps().tso_max_bytes;
    EgressCaps {
        max_segment_bytes: if payload == 0 { 0 } else { payload + 80 },
    }
}

fn partial(frame: &Frame<'_>) -> Option<nic::PartialChecksum> {
    frame.checksum.map(|checksum| nic::PartialChecksum {
        start: checksum.start,
        offset: checksum.offset,
    })
}

impl Egress for Link {
    fn caps(&self, _interface: InterfaceId) -> EgressCaps {
        caps(&*self.driver)
    }

    fn transmit(&mut self, frame: &Frame<'_>) -> Result<(), Busy> {
        let (checksum, segment_size) = (partial(frame), frame.segment_size);
        let region;
        let payload = match frame.payload {
            Payload::None => [SharedSlice::default(); 2],
            Payload::Bytes(bytes) => [SharedSlice::from(bytes), SharedSlice::default()],
            Payload::Window {
                owner, offset, len, ..
            } => {
                let row = hostif::SocketId::from_bits(owner).map(|id| id.index);
                let window = row
                    .and_then(|row| usize::try_from(row).ok())
                    .and_then(|row| self.windows.get(row).cloned().flatten());
                // A connection has a window before it has anything to send; without one its bytes
                // could not be told, so the frame is dropped and retransmission finds the same.
                let Some(window) = window else { return Ok(()) };
                region = window.region;
                let Some(window) = region.window(window.span) else {
                    return Ok(());
                };
                let len = usize::try_from(len).unwrap_or(0);
                window
                    .spans(offset, len)
                    .map(|(start, len)| sys::shared(start, len))
            }
        };
        self.send(&TxFrame {
            headers: frame.headers,
            payload,
            checksum,
            segment_size,
        })
    }
}

/// Frames made while others are received: resets, ARP and ICMP answers.
pub struct Replies {
    caps: EgressCaps,
    waiting: VecDeque<(Vec<u8>, Option<nic::PartialChecksum>)>,
    spare: Vec<Vec<u8>>,
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
        self.waiting.push_back((bytes, partial(frame)));
        Ok(())
    }
}
