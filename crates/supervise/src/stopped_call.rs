//! A system call that the filter has stopped: as it was read, what becomes of it, and how it waits.

use std::os::fd::RawFd;
use std::time::Instant;

use rustix::io::Errno;

use crate::caller::Caller;

/// Calls that wait on one socket.
pub const BLOCKED_MAX: usize = 1024;

/// What becomes of a call.
pub enum Outcome {
    /// The kernel carries it out.
    Continue,
    /// It returns this.
    Return(i64),
    /// It waits and is answered later, or was answered already.
    Later,
}

/// A call, read.
#[derive(Clone, Copy)]
pub struct Call {
    /// The notification's number.
    pub id: u64,
    /// Who called.
    pub caller: Caller,
    /// The descriptor that it is about.
    pub fd: RawFd,
    /// All arguments.
    pub arguments: [u64; 6],
}

/// A call that waits for what happens to a connection.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// The notification.
    pub id: u64,
    /// Who called.
    pub caller: Caller,
    /// On which descriptor.
    pub fd: RawFd,
    /// Until when (SO_SNDTIMEO, SO_RCVTIMEO).
    pub deadline: Option<Instant>,
    /// What it returns when that is over.
    pub late: Errno,
    /// accept4's flags.
    pub flags: i32,
    /// Where accept wants the peer's address and its length.
    pub name: (u64, u64),
}

/// A call that waits for a datagram, or for free space for one.
#[derive(Clone, Copy)]
pub struct Blocked {
    /// The call.
    pub call: Call,
    /// Its number.
    pub number: i64,
    /// Bytes that are sent or received; of several messages, how many are done.
    pub done: usize,
    /// Of several: the bytes that are sent of the one behind them.
    pub partial: usize,
    /// Until when (SO_RCVTIMEO, SO_SNDTIMEO).
    pub deadline: Option<Instant>,
}

impl Blocked {
    /// What it returns when its time is over. Of several messages one counts of which a part was sent.
    pub fn given_up(&self) -> Result<i64, Errno> {
        match i64::try_from(self.done + usize::from(self.partial > 0)) {
            Ok(done) if done > 0 => Ok(done),
            _ => Err(Errno::AGAIN),
        }
    }
}

/// The half of an argument that an `int` is.
pub fn low_half(argument: u64) -> [u8; 4] {
    let [a, b, c, d, ..] = argument.to_le_bytes();
    u32::from_le_bytes([a, b, c, d]).to_ne_bytes()
}
