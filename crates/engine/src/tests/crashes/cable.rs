//! A device over one end of a pair of Unix sockets: what was sent before an engine ended has left, as over a card, and the next engine finds
//! what came meanwhile. The other end may lose what carries data. A device that has several queues has such a pair for each.

use hostif::Steering;
use nic::{Caps, Counters, Driver, RxChecksum, RxFrame, TxFrame};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use wire::outline::Outline;

/// How connections are spread over the cores of an engine with two.
pub const STEERING: Steering = Steering { cores: 2, key: 5 };

/// Frames that are shorter carry no data of a test, and are never lost.
const DATA_FRAME_BYTES: usize = 200;
const FRAME_BYTES_MAX: usize = 1_514;

/// How many of the next frames with data are lost.
#[derive(Default)]
pub struct Losses {
    pub coming: AtomicU32,
    pub leaving: AtomicU32,
}

impl Losses {
    fn takes(count: &AtomicU32, len: usize) -> bool {
        let left = count.load(Ordering::Relaxed);
        let is_lost = left > 0 && len >= DATA_FRAME_BYTES;
        count.store(left - u32::from(is_lost), Ordering::Relaxed);
        is_lost
    }
}

/// The two ends of a cable.
pub fn ends() -> [Arc<OwnedFd>; 2] {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (left, right) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    [left, right].map(Arc::new)
}

/// A device at one end.
pub struct Cable {
    /// What it sends leaves by the one of the core that serves the connection.
    ends: Vec<Arc<OwnedFd>>,
    caps: Caps,
    losses: Arc<Losses>,
    counters: Counters,
}

impl Cable {
    pub fn new(ends: Vec<Arc<OwnedFd>>, side: u8, losses: Arc<Losses>) -> Self {
        let caps = Caps {
            tx_checksum: false,
            rx_checksum: false,
            tso_max_bytes: 0,
            gro: false,
            queues: 1,
            payload_by_address: true,
            align: 1,
            mtu: 1_500,
            hardware_address: wire::ethernet::Address([2, 0, 0, 0, 0, side]),
        };
        Self {
            ends,
            caps,
            losses,
            counters: Counters::default(),
        }
    }

    /// The next frame that has come to one of the ends.
    fn receive(&self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        for end in &self.ends {
            match recv(end, &mut *bytes, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => {}
                received => return Ok(Some(received?.1)),
            }
        }
        Ok(None)
    }

    /// Where a frame leaves.
    fn end_for(&self, frame: &[u8]) -> &OwnedFd {
        let outline = Outline::of(frame);
        let core = match (outline.addresses, outline.ports) {
            (Some(addresses), Some(ports)) => {
                let source = (addresses.0, ports.0).into();
                STEERING.core_of(source, (addresses.1, ports.1).into())
            }
            _ => 0,
        };
        &self.ends[usize::from(core) % self.ends.len()]
    }
}

impl Driver for Cable {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        let mut bytes = [0; FRAME_BYTES_MAX];
        for taken in 0..budget {
            let Some(len) = self.receive(&mut bytes)? else {
                return Ok(taken);
            };
            if !Losses::takes(&self.losses.coming, len) {
                sink(RxFrame {
                    bytes: &bytes[..len],
                    checksum: RxChecksum::Unknown,
                    segment_size: None,
                    arrived_at_ns: None,
                });
            }
        }
        Ok(budget)
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        for (sent, frame) in frames.iter().enumerate() {
            let mut bytes = frame.headers.to_vec();
            for span in &frame.payload {
                span.append_to(&mut bytes);
            }
            if let Some(partial) = frame.checksum {
                finish_checksum(&mut bytes, partial.start.into(), partial.offset.into());
            }
            if Losses::takes(&self.losses.leaving, bytes.len()) {
                continue;
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(self.end_for(&bytes), &bytes, flags) {
                Err(Errno::AGAIN) => return Ok(sent),
                done => done?,
            };
        }
        Ok(frames.len())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ends[0].as_fd())
    }

    fn prepare_wait(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

/// RFC 1071: what a card does with a checksum that holds the pseudo header's sum.
fn finish_checksum(bytes: &mut [u8], start: usize, offset: usize) {
    let mut sum = 0_u32;
    for pair in bytes[start..].chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let sum = !u16::try_from(sum).unwrap();
    bytes[start + offset..start + offset + 2].copy_from_slice(&sum.to_be_bytes());
}
