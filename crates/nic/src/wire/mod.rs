//! A cable through shared memory: two ends, each a [`Driver`], in one process or in two. Frames of
//! up to 64 KiB cross with their unfinished checksum and segment size, so that two engines on one
//! machine exchange large segments that nobody ever cuts or sums.
//!
//! Read first: `ring.rs`, and eventfd(2). The sleep protocol is that of the host interface: whoever
//! sleeps says so, fences, and looks once more; whoever writes fences, looks, and rings.
//! What the other end writes to the memory is checked or copied before it is believed. What rings is
//! `doorbell.rs`: two eventfds, or the socket over which two programs have met. Only the socket says that the other
//! end died ([`WireEnd::hear`]); with eventfds the ring then stays full.

mod config;
mod doorbell;
mod error;
mod ring;
mod rx;
mod sys;
mod tx;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use ::wire::ethernet;

use crate::driver::{
    Caps, Counters, Driver, LARGE_SEGMENT_BYTES, MAX_FRAME_BYTES, RxFrame, TxFrame,
};
use crate::hardware_address::random_address;
pub use config::{Config, RING_BYTES};
use doorbell::Doorbell;
pub use error::OpenError;
use error::{broken, failed};
use ring::{Consumer, Producer, RingLayout};
use sys::Region;

/// Two of the longest frames, so that an empty ring takes any frame wherever it stands.
const RING_BYTES_MIN: usize = 192 * 1024;
const RING_BYTES_MAX: usize = 1 << 30;
/// The longest frame where rings are large enough: eight IPv4 packets' worth of TCP, which some interfaces
/// carry in one.
const LONG_FRAME_BYTES: usize = 8 * 65_535 + 14 + 4;
/// Rings from here on take such frames: three of them.
const LONG_RING_BYTES: usize = 2 * 1024 * 1024;

const MAGIC: u64 = u64::from_le_bytes(*b"shuntwr1");
// Offsets in the region: constants first, then one pair of cache lines per word that changes, since
// processors fetch lines in pairs.
const MAGIC_AT: usize = 0;
const MTU_AT: usize = 8;
const ADDRESSES_AT: usize = 16;
const POSITIONS_AT: usize = 256;
const SLEEP_AT: usize = 1024;
const PAIR: usize = 128;
const DATA_AT: usize = 4096;

/// The descriptors of the other end, to be passed to whoever has it (by `SCM_RIGHTS`, in this order).
#[derive(Debug)]
pub struct WireFds {
    /// The shared memory.
    pub region: OwnedFd,
    /// The eventfds that wake the creating end and the other end.
    pub doorbells: [OwnedFd; 2],
}

/// One end of a wire.
pub struct WireEnd {
    region: Region,
    outgoing: Producer,
    incoming: Consumer,
    /// 0 for the creating end, 1 for the other.
    side: usize,
    doorbell: Doorbell,
    caps: Caps,
    buffer: Box<[u8]>,
    announced: bool,
    blocked: bool,
    counters: Counters,
}

fn layout(direction: usize, ring_bytes: usize) -> RingLayout {
    RingLayout {
        tail: POSITIONS_AT + direction * 2 * PAIR,
        head: POSITIONS_AT + direction * 2 * PAIR + PAIR,
        data: DATA_AT + direction * ring_bytes,
        size: ring_bytes,
        frame_bytes_max: frame_bytes_max(ring_bytes),
    }
}

/// The longest frame that rings of this size carry.
const fn frame_bytes_max(ring_bytes: usize) -> usize {
    if ring_bytes < LONG_RING_BYTES {
        MAX_FRAME_BYTES
    } else {
        LONG_FRAME_BYTES
    }
}

/// The word that says that `side` sleeps.
fn sleeping(side: usize) -> usize {
    SLEEP_AT + side * 2 * PAIR
}

/// The word that says that `side` sleeps and has frames that did not fit.
fn wants_room(side: usize) -> usize {
    SLEEP_AT + side * 2 * PAIR + PAIR
}

fn valid_ring(ring_bytes: usize) -> bool {
    (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes) && ring_bytes.is_multiple_of(64)
}

fn pack(address: ethernet::Address) -> u64 {
    let [a, b, c, d, e, f] = address.0;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

fn unpack(word: u64) -> ethernet::Address {
    let [a, b, c, d, e, f, _, _] = word.to_le_bytes();
    ethernet::Address([a, b, c, d, e, f])
}

impl WireEnd {
    /// A wire: our end, and the descriptors of the other one for [`WireEnd::from_fds`].
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn create(config: &Config) -> Result<(Self, WireFds), OpenError> {
        let (region, fd, address) = Self::region(config)?;
        let eventfd = || Doorbell::eventfd().map_err(failed("eventfd"));
        let doorbells = [eventfd()?, eventfd()?];
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(failed("duplicating an eventfd"));
        let doorbell = Doorbell::Pair {
            ours: copy(&doorbells[0])?,
            theirs: copy(&doorbells[1])?,
        };
        let end = Self::new(region, 0, doorbell, config.mtu, address);
        let region = fd;
        Ok((end, WireFds { region, doorbells }))
    }

    /// A wire to whoever is at the other end of `channel`, a connected Unix socket of packets that from now on
    /// is the wire's own: our end, and the memory to be passed on.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn create_over(config: &Config, channel: OwnedFd) -> Result<(Self, OwnedFd), OpenError> {
        let (region, fd, address) = Self::region(config)?;
        let doorbell = Doorbell::Channel(channel);
        Ok((Self::new(region, 0, doorbell, config.mtu, address), fd))
    }

    /// Memory for a wire, its descriptor, and the address of the creating end.
    fn region(config: &Config) -> Result<(Region, OwnedFd, ethernet::Address), OpenError> {
        let ring_bytes = config.ring_bytes;
        if !valid_ring(ring_bytes) {
            return Err(OpenError::RingSize { ring_bytes });
        }
        let (fd, region) =
            Region::create(DATA_AT + 2 * ring_bytes).map_err(failed("making the shared memory"))?;
        let addresses = match config.hardware_addresses {
            Some(addresses) => addresses,
            None => [
                random_address().map_err(failed("getrandom"))?,
                random_address().map_err(failed("getrandom"))?,
            ],
        };
        region
            .word(MTU_AT)
            .store(u64::from(config.mtu), Ordering::Relaxed);
        for (side, address) in addresses.into_iter().enumerate() {
            region
                .word(ADDRESSES_AT + side * 8)
                .store(pack(address), Ordering::Relaxed);
        }
        region.word(MAGIC_AT).store(MAGIC, Ordering::Release);
        Ok((region, fd, addresses[0]))
    }

    /// The other end of a wire that was created here or in another process. It can be taken once.
    ///
    /// # Errors
    /// The memory is not a wire's, or cannot be mapped.
    pub fn from_fds(fds: WireFds) -> Result<Self, OpenError> {
        let [theirs, ours] = fds.doorbells;
        Self::adopt(&fds.region, Doorbell::Pair { ours, theirs })
    }

    /// The other end of a wire that [`WireEnd::create_over`] made at the other end of `channel`.
    ///
    /// # Errors
    /// As [`WireEnd::from_fds`].
    pub fn adopt_over(region: &OwnedFd, channel: OwnedFd) -> Result<Self, OpenError> {
        Self::adopt(region, Doorbell::Channel(channel))
    }

    fn adopt(region: &OwnedFd, doorbell: Doorbell) -> Result<Self, OpenError> {
        let region = Region::adopt(region).map_err(failed("mapping the shared memory"))?;
        let ring_bytes = region.len().saturating_sub(DATA_AT) / 2;
        let sized = valid_ring(ring_bytes) && region.len() == DATA_AT + 2 * ring_bytes;
        if !sized || region.word(MAGIC_AT).load(Ordering::Acquire) != MAGIC {
            return Err(OpenError::NotAWire);
        }
        let mtu = u32::try_from(region.word(MTU_AT).load(Ordering::Relaxed))
            .map_err(|_| OpenError::NotAWire)?;
        let address = unpack(region.word(ADDRESSES_AT + 8).load(Ordering::Relaxed));
        Ok(Self::new(region, 1, doorbell, mtu, address))
    }

    /// Both ends in this process.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn pair(config: &Config) -> Result<(Self, Self), OpenError> {
        let (end, fds) = Self::create(config)?;
        Ok((end, Self::from_fds(fds)?))
    }

    fn new(
        region: Region,
        side: usize,
        doorbell: Doorbell,
        mtu: u32,
        hardware_address: ethernet::Address,
    ) -> Self {
        let ring_bytes = (region.len() - DATA_AT) / 2;
        let caps = Caps {
            tx_checksum: true,
            rx_checksum: true,
            tso_max_bytes: LARGE_SEGMENT_BYTES,
            gro: true,
            queues: 1,
            payload_by_address: false,
            align: 1,
            mtu,
            hardware_address,
        };
        Self {
            outgoing: Producer::new(layout(side, ring_bytes)),
            incoming: Consumer::new(layout(1 - side, ring_bytes)),
            region,
            side,
            doorbell,
            caps,
            buffer: vec![0; frame_bytes_max(ring_bytes)].into_boxed_slice(),
            announced: false,
            blocked: false,
            counters: Counters::default(),
        }
    }

    /// Wakes the other end if `word` says that it waits for what was just written.
    fn ring_if(&self, word: usize) -> io::Result<()> {
        // Between our write and this read: the sleeper writes its word, fences and reads our
        // position, so at least one of the two sees the other (Dekker).
        fence(Ordering::SeqCst);
        let word = self.region.word(word);
        if word.load(Ordering::Relaxed) == 0 || word.swap(0, Ordering::AcqRel) == 0 {
            return Ok(());
        }
        self.doorbell.ring()
    }

    /// Takes back what rang at a wire over a channel, whose owner calls this when the channel is readable. False: the
    /// other end is gone. What it has sent before can still be received.
    ///
    /// # Errors
    /// The channel failed.
    pub fn hear(&mut self) -> io::Result<bool> {
        self.doorbell.hear()
    }

    /// Takes back that we sleep, and what rang meanwhile where nobody else [hears](WireEnd::hear) it.
    fn wake(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.announced) {
            return Ok(());
        }
        self.region
            .word(sleeping(self.side))
            .store(0, Ordering::Relaxed);
        self.region
            .word(wants_room(self.side))
            .store(0, Ordering::Relaxed);
        match self.doorbell {
            Doorbell::Pair { .. } => self.doorbell.hear().map(drop),
            Doorbell::Channel(_) => Ok(()),
        }
    }
}

impl Driver for WireEnd {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        self.receive(budget, sink)
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        self.send(frames)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.doorbell.fd())
    }

    fn prepare_wait(&mut self) -> io::Result<bool> {
        self.announced = true;
        self.region
            .word(sleeping(self.side))
            .store(1, Ordering::Relaxed);
        if self.blocked {
            self.region
                .word(wants_room(self.side))
                .store(1, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        let idle = self.incoming.is_empty(&self.region).map_err(broken)?
            && !(self.blocked && self.outgoing.has_capacity(&self.region).map_err(broken)?);
        if !idle {
            self.wake()?;
        }
        Ok(idle)
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests;
