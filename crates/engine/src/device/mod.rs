//! A device that goes down, goes away and comes back. What is sent meanwhile is lost as on a cut cable, so connections
//! wait for it as the kernel's do, and end with an error when their time is over (RFC 9293 §3.8.3). Programs go on
//! talking to the engine.

pub mod capture;
pub(crate) mod extents;
pub(crate) mod files;
pub mod link;
mod loopback;
pub mod queues;
pub(crate) mod replies;
mod sys;

use nic::Presence;
use std::io::{Error, ErrorKind};

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

    /// Notes how it was found. What it is now, and whether it was another device until then; `None`: as before.
    pub fn on_found(&mut self, found: Presence) -> Option<(Presence, bool)> {
        self.is_doubted = false;
        let before = self.presence;
        if found == before {
            return None;
        }
        self.watch = match found {
            Presence::Back { .. } => Some(Watch::Begin),
            Presence::Gone => Some(Watch::End),
            Presence::Up | Presence::Down => self.watch,
        };
        self.presence = match found {
            Presence::Back { .. } => Presence::Up,
            other => other,
        };
        Some((self.presence, before == Presence::Gone))
    }

    /// Notes the length of its largest packet, bytes. Whether that is new.
    pub fn has_new_mtu(&mut self, mtu: u32) -> bool {
        self.mtu.replace(mtu).is_some_and(|before| before != mtu)
    }

    /// Whether it was there, and up, when it was looked at the last time.
    pub fn is_up(&self) -> bool {
        self.presence == Presence::Up
    }
}
