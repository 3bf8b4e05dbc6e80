//! How often Shunt copies a byte of a stream between a program and a device.
//!
//! Counted are the copies that programs (into and out of their windows) and the engine make. What the kernel
//! or a driver moves between a window and its device is the device's, as a network card's DMA would be.

use serde_json::{Value, json};

/// Bytes since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Taken from programs to be sent, bytes of files included.
    pub sent: u64,
    /// Copied on their way: by programs into send windows, by the engine from files and between its own
    /// programs.
    pub for_sending: u64,
    /// Taken by programs.
    pub received: u64,
    /// Copied on their way: by the engine into receive windows, by programs out of them.
    pub for_receiving: u64,
    /// Passed by programs to others of this host through memory that both map, as they say: copied once by each. Not in the others.
    pub passed: u64,
}

impl Copies {
    /// A program has written bytes; `in_place`: it named a file, or made them in the window, instead of copying them.
    pub fn on_written(&mut self, bytes: u64, in_place: bool) {
        self.sent += bytes;
        if !in_place {
            self.for_sending += bytes;
        }
    }

    /// The engine has copied bytes that are being sent.
    pub fn on_copied_out(&mut self, bytes: u64) {
        self.for_sending += bytes;
    }

    /// The engine has placed bytes that arrived.
    pub fn on_placed(&mut self, bytes: u64) {
        self.for_receiving += bytes;
    }

    /// A program has taken bytes, which it copied to where it wanted them, or had the kernel do so, into a file, unless
    /// it used them `in_place`.
    pub fn on_consumed(&mut self, bytes: u64, in_place: bool) {
        self.received += bytes;
        if !in_place {
            self.for_receiving += bytes;
        }
    }

    /// For the report: the counts.
    pub fn to_json(self) -> Value {
        json!({
            "sent_bytes": self.sent, "copied_to_send_bytes": self.for_sending,
            "received_bytes": self.received, "copied_to_receive_bytes": self.for_receiving,
            "passed_bytes": self.passed,
        })
    }
}
