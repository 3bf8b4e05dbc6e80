//! A device that goes down, goes away and comes back. What is sent meanwhile is lost as on a cut cable, so connections
//! wait for it as the kernel's do, and end with an error when their time is over (RFC 9293 §3.8.3). Programs go on
//! talking to the engine.

mod files;
pub mod link;
mod loopback;
pub mod queues;
mod sys;

use crate::core::EngineCore;
use nic::Presence;
use std::io::{Error, ErrorKind};
use tcp::Instant;

/// What the loop has to do with the device's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// It says nothing but that the device has gone, and says that for ever.
    End,
    /// It is the descriptor of another device, perhaps with another number.
    Begin,
}

/// How the device is.
#[derive(Debug, Default)]
pub struct Device {
    /// The driver has failed for good.
    pub failure: Option<Error>,
    /// It has failed for now: the device is to be looked at.
    pub is_doubted: bool,
    /// What was found the last time.
    presence: Presence,
    /// The largest packet, when it was looked at the last time.
    mtu: Option<u32>,
    /// What the loop has to do with the driver's descriptor.
    pub watch: Option<Watch>,
}

impl Device {
    /// The driver has failed. `true`: for now only, and what it was given is lost.
    pub fn on_failure(&mut self, error: Error) -> bool {
        let is_passing = error.kind() == ErrorKind::NetworkUnreachable;
        if is_passing {
            self.is_doubted = true;
        } else {
            self.failure = Some(error);
        }
        is_passing
    }

    /// Whether it was there, and up, when it was looked at the last time.
    pub fn is_up(&self) -> bool {
        self.presence == Presence::Up
    }
}

impl EngineCore {
    /// Looks at the device, once a second and when it has failed.
    pub(crate) fn follow_device(&mut self, now: Instant) {
        self.link.device.is_doubted = false;
        let before = self.link.device.presence;
        let found = self.link.driver.attend();
        self.follow_mtu();
        if found == before {
            return;
        }
        match found {
            Presence::Back { index } => self.take_device(now, index),
            Presence::Gone => self.link.device.watch = Some(Watch::End),
            Presence::Up | Presence::Down => {}
        }
        self.link.device.presence = match found {
            Presence::Back { .. } => Presence::Up,
            other => other,
        };
        // What is not well is among the complaints.
        if self.link.device.presence == Presence::Up && self.shard.core == 0 {
            let interface = &self.config.interface;
            let is_another = before == Presence::Gone;
            tracing::info!(interface, is_another, "the device is there again");
        }
    }

    /// The device is another one of the same name.
    fn take_device(&mut self, now: Instant, index: u32) {
        self.link.device.watch = Some(Watch::Begin);
        let hardware = self.link.driver.caps().hardware_address;
        // The interface was made when the core was.
        let _ = self.stack.exchange_device(now, self.interface, hardware);
        if let Some(shared) = &mut self.shared {
            shared.move_to(index);
        }
    }

    /// Where addresses are shared the kernel tells the MTU with them.
    fn follow_mtu(&mut self) {
        let mtu = self.link.driver.caps().mtu;
        if self.shared.is_none()
            && self
                .link
                .device
                .mtu
                .replace(mtu)
                .is_some_and(|before| before != mtu)
        {
            let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
            // Too small a link for IP: as it was.
            let _ = self.stack.set_mtu(self.interface, mtu);
        }
    }
}
