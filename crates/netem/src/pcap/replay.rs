//! A driver that plays a capture: its inbound frames arrive, and what is transmitted is kept to be
//! looked at. Nothing of it depends on a network.
//!
//! The capture is read whole at the start. Frames of which it holds only a part are counted as
//! dropped; merged frames are played as they were recorded.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use wire::ethernet;

use super::format::{self, Direction, FormatError, Packet};
use nic::driver::{Caps, Counters, Driver, LARGE_SEGMENT_BYTES, RxChecksum, RxFrame, TxFrame};
use nic::offload::Finisher;

/// The largest capture that is taken into memory.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// When frames arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timing {
    /// As soon as they are asked for.
    AsAsked,
    /// As far apart as they were recorded, from the first receive on.
    Recorded,
}

/// How to play a capture.
#[derive(Debug, Clone)]
pub struct Config {
    /// When frames arrive.
    pub timing: Timing,
    /// The address that our side pretends to have.
    pub hardware_address: ethernet::Address,
    /// The MTU that the link pretends to have.
    pub mtu: u32,
    /// Transmitted frames kept at most; further ones are counted as dropped.
    pub transmitted_max: usize,
}

impl Config {
    /// As soon as asked, at MTU 1500, keeping up to 65,536 transmitted frames.
    #[must_use]
    pub fn new(hardware_address: ethernet::Address) -> Self {
        Self {
            timing: Timing::AsAsked,
            hardware_address,
            mtu: 1500,
            transmitted_max: 65_536,
        }
    }
}

/// Why a capture cannot be played.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file cannot be read.
    #[error("reading {path:?}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file is too long.
    #[error("{path:?} is longer than 1 GiB: cut it with editcap or tcpdump first")]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a capture that can be played.
    #[error("{path:?}: {source}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: FormatError,
    },
}

/// A capture being played.
pub struct Replay {
    file: Vec<u8>,
    packets: Vec<Packet>,
    next: usize,
    timing: Timing,
    start: Option<Instant>,
    caps: Caps,
    finisher: Finisher,
    transmitted: Vec<Vec<u8>>,
    transmitted_max: usize,
    counters: Counters,
}

impl Replay {
    /// Plays the capture at `path`.
    ///
    /// # Errors
    /// The file cannot be read, or is no Ethernet capture.
    pub fn open(path: &Path, config: &Config) -> Result<Self, OpenError> {
        let read_error = |source| OpenError::Read {
            path: path.to_owned(),
            source,
        };
        if std::fs::metadata(path).map_err(read_error)?.len() > FILE_BYTES_MAX {
            return Err(OpenError::TooLong {
                path: path.to_owned(),
            });
        }
        let file = std::fs::read(path).map_err(read_error)?;
        let format_error = |source| OpenError::Format {
            path: path.to_owned(),
            source,
        };
        Self::from_bytes(file, config).map_err(format_error)
    }

    /// Plays a capture that is in memory.
    ///
    /// # Errors
    /// The bytes are no Ethernet capture.
    pub fn from_bytes(file: Vec<u8>, config: &Config) -> Result<Self, FormatError> {
        let mut packets = format::read(&file)?;
        packets.retain(|packet| packet.direction != Some(Direction::Outbound));
        let before = packets.len();
        packets.retain(|packet| !packet.truncated);
        let rx_dropped = (before - packets.len()) as u64;
        let caps = Caps {
            tx_checksum: true,
            rx_checksum: false,
            tso_max_bytes: LARGE_SEGMENT_BYTES,
            gro: false,
            queues: 1,
            payload_by_address: false,
            align: 1,
            mtu: config.mtu,
            hardware_address: config.hardware_address,
        };
        Ok(Self {
            file,
            packets,
            next: 0,
            timing: config.timing,
            start: None,
            caps,
            finisher: Finisher::new(),
            transmitted: Vec::new(),
            transmitted_max: config.transmitted_max,
            counters: Counters {
                rx_dropped,
                ..Counters::default()
            },
        })
    }

    /// Whether every frame has been received.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.next == self.packets.len()
    }

    /// What was transmitted: cut, and with checksums finished.
    #[must_use]
    pub fn transmitted(&self) -> &[Vec<u8>] {
        &self.transmitted
    }

    /// Nanoseconds until the next frame; `None`: no frame is left.
    fn next_in_ns(&self) -> Option<u64> {
        let next = self.packets.get(self.next)?;
        let (Timing::Recorded, Some(start)) = (self.timing, self.start) else {
            return Some(0);
        };
        let due_ns = next.time_ns.saturating_sub(self.packets[0].time_ns);
        let elapsed_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Some(due_ns.saturating_sub(elapsed_ns))
    }
}

impl Driver for Replay {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        self.start.get_or_insert_with(Instant::now);
        let mut received = 0;
        while received < budget && self.next_in_ns() == Some(0) {
            let bytes = &self.file[self.packets[self.next].bytes.clone()];
            sink(RxFrame {
                bytes,
                checksum: RxChecksum::Unknown,
                segment_size: None,
                arrived_at_ns: None,
            });
            self.counters.rx_frames += 1;
            self.counters.rx_bytes += bytes.len() as u64;
            self.next += 1;
            received += 1;
        }
        Ok(received)
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        for frame in frames {
            if self.transmitted.len() >= self.transmitted_max {
                self.counters.tx_dropped += 1;
                continue;
            }
            let transmitted = &mut self.transmitted;
            match self
                .finisher
                .finish(frame, &mut |bytes| transmitted.push(bytes.to_vec()))
            {
                Ok(_) => {
                    self.counters.tx_frames += 1;
                    self.counters.tx_bytes += frame.frame_len() as u64;
                }
                Err(_) => self.counters.tx_dropped += 1,
            }
        }
        Ok(frames.len())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn prepare_wait(&mut self) -> io::Result<bool> {
        Ok(self.next_in_ns() != Some(0))
    }

    fn wait_deadline_us(&self) -> Option<u64> {
        self.next_in_ns().map(|ns| ns.div_ceil(1000))
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
