//! Shunt's drivers as a way of frames: this process shares rings of frames with the kernel, where a packet socket takes a
//! call for each. What is not of the EtherType stays the kernel's.

use std::{io, os::fd::AsRawFd, time::Duration};

use anyhow::Context;
use clap::ValueEnum;
use nic::{
    Driver, TxFrame,
    af_packet::{self, AfPacket},
    af_xdp::{self, AfXdp},
};
use serde::{Deserialize, Serialize};

use super::{BLOCK, Wait};
use crate::sys;

/// A driver for frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[value(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum FrameDriver {
    /// Shunt's driver over a ring of a packet socket, packet(7)
    AfPacket,
    /// Shunt's driver over AF_XDP, in generic mode
    AfXdp,
}

impl FrameDriver {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::AfPacket => "af_packet",
            Self::AfXdp => "af_xdp",
        }
    }

    /// Opens an interface of which it receives frames of one EtherType.
    pub fn open(self, interface: &str, ether_type: u16) -> anyhow::Result<Box<dyn Driver>> {
        let ether_type = Some(ether_type);
        let opened: anyhow::Result<Box<dyn Driver>> = match self {
            Self::AfPacket => AfPacket::open(&af_packet::Config {
                ether_type,
                ..af_packet::Config::new(interface)
            })
            .map(|driver| Box::new(driver) as _)
            .map_err(Into::into),
            Self::AfXdp => AfXdp::open(&af_xdp::Config {
                ether_type,
                ..af_xdp::Config::new(interface)
            })
            .map(|driver| Box::new(driver) as _)
            .map_err(Into::into),
        };
        opened.with_context(|| format!("--raw on {interface} by {}", self.name()))
    }
}

/// Sends a frame; what is held back goes with [`Driver::flush_tx`].
pub fn send(driver: &mut dyn Driver, frame: &[u8]) -> io::Result<()> {
    match driver.tx_burst(&[TxFrame::plain(frame)])? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

/// Waits until something may have come.
pub fn wait(driver: &mut dyn Driver, wait: Wait) -> io::Result<()> {
    let time = match wait {
        Wait::Not => return Ok(()),
        Wait::Blocked => BLOCK,
        Wait::AtMost(time) => time,
    };
    if !driver.prepare_wait()? {
        return Ok(());
    }
    let deadline = driver.wait_deadline_us().map(Duration::from_micros);
    let Some(fd) = driver.wait_fd() else {
        return Ok(());
    };
    let mut sockets = [libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }];
    sys::wait(
        &mut sockets,
        deadline.map_or(time, |deadline| deadline.min(time)),
    )
    .map(drop)
}
