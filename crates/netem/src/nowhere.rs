//! A device without anybody at its other end: what is sent is counted and lost, nothing arrives.

use std::io;

use nic::wire::{Config, WireEnd};
use nic::{Caps, Counters, Driver, RxFrame, TxFrame};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// The device. It can do what a wire in memory can.
pub struct Nowhere {
    caps: Caps,
    bell: OwnedFd,
    counters: Counters,
}

impl Nowhere {
    /// All of them have the same hardware address, as programs on one interface have.
    ///
    /// # Errors
    /// No memory, or no descriptor.
    pub fn new() -> io::Result<Self> {
        let config = Config {
            hardware_addresses: Some([wire::ethernet::Address([2; 6]); 2]),
            ..Config::default()
        };
        let (end, _other) = WireEnd::pair(&config).map_err(io::Error::other)?;
        Ok(Self {
            caps: end.caps().clone(),
            bell: eventfd(0, EventfdFlags::CLOEXEC)?,
            counters: Counters::default(),
        })
    }

    /// An eventfd: a write to it wakes whoever waits for the device.
    #[must_use]
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Driver for Nowhere {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, _: usize, _: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        Ok(0)
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        self.counters.tx_frames += frames.len() as u64;
        Ok(frames.len())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn prepare_wait(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
