//! What travels between the two ends: messages, each with its length before it, and after some of them the bytes
//! of a file.
//!
//! Everything about files but their bytes goes over the control connection, in both directions. Data connections
//! carry blocks from the sender to the receiver, and small files whole.

mod intake;
mod message;

pub use intake::Intake;
pub use message::{
    BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, BLOCKS_MAX, Block, Entry, Hello, KEPT_MAX, Kind, Message,
    Moved, Role, SMALL_MAX_BYTES, STREAMS_MAX, StageTimes, VERSION, block_bytes_for, blocks_of,
};

use std::io::Write;

use crate::error::Error;
use crate::sys::retried;

/// Longest message in bytes, without the length before it.
pub const MESSAGE_MAX_BYTES: usize = 64 * 1024;

/// A message as it travels.
pub fn encode(message: &Message) -> Vec<u8> {
    let body = postcard::to_stdvec(message).expect("invariant: every message can be encoded");
    debug_assert!(body.len() <= MESSAGE_MAX_BYTES);
    let len = u32::try_from(body.len()).expect("invariant: messages are short");
    [&len.to_le_bytes()[..], &body].concat()
}

/// Sends one message at once.
pub fn send(to: &mut impl Write, message: &Message) -> Result<(), Error> {
    write_all(to, &encode(message))
}

/// Writes all of it, past signals and soft errors.
pub fn write_all(to: &mut impl Write, mut bytes: &[u8]) -> Result<(), Error> {
    while !bytes.is_empty() {
        let count = retried(|| to.write(bytes)).map_err(Error::lost("sending to the peer"))?;
        bytes = &bytes[count..];
    }
    Ok(())
}
