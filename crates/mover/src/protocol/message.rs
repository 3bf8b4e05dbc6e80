//! The messages. Whatever is in them was written by the peer and is checked where it is used; sizes are bounded here.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::checksum::{Algorithm, Digest};

/// Version of the protocol; both ends must have the same.
pub const VERSION: u16 = 3;
/// Most data connections of a session.
pub const STREAMS_MAX: u16 = 64;
/// Smallest block.
pub const BLOCK_BYTES_MIN: u32 = 1 << 20;
pub const BLOCK_BYTES_MAX: u32 = 64 << 20;
/// Most blocks of a file: its hashes take 32 MiB.
pub const BLOCKS_MAX: u64 = 1 << 20;
/// Files up to this size travel whole, without asking what is there.
pub const SMALL_MAX_BYTES: u64 = 256 * 1024;
/// Most hashes in one [`Message::Kept`].
pub const KEPT_MAX: usize = 1_024;

/// What the connecting side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// It has the files.
    Sender,
    /// It wants them.
    Receiver,
}

/// The first message of each connection, from the side that connects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub version: u16,
    /// What the connecting side is.
    pub role: Role,
    /// Random; the same on all connections of a session.
    pub session: [u8; 16],
    /// Which data connection; `None`: the control connection.
    pub stream: Option<u16>,
    /// Data connections of the session.
    pub streams: u16,
    /// For the proof of the token.
    pub nonce: [u8; 32],
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A file, with its size if that is known before its end (it is not for standard input).
    File(Option<u64>),
    /// A folder; it comes after what is in it.
    Folder,
    /// A symbolic link with its text.
    Link(Vec<u8>),
}

/// A file, folder or link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Number in this session.
    pub file: u64,
    /// Relative name.
    pub name: Vec<u8>,
    pub kind: Kind,
    pub mode: u32,
    /// Time of the last change: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// How its blocks are hashed.
    pub algorithm: Algorithm,
    /// Bytes of each block but the last: a power of two.
    pub block_bytes: u32,
    /// It has holes.
    pub is_sparse: bool,
}

/// Stands before a block's bytes; its hash (32 bytes) follows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    pub file: u64,
    pub index: u64,
    pub len: u32,
    /// The file has no other.
    pub is_only: bool,
    /// A hole: no bytes follow, only the hash.
    pub is_hole: bool,
    /// They follow as a zstd frame of so many bytes, fewer than they are.
    pub packed: Option<u32>,
}

/// Where an end's time went, in microseconds of all its data threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageTimes {
    /// Waiting for a disk: reading at the sender, writing at the receiver.
    pub disk_us: u64,
    pub hash_us: u64,
    /// Packing and unpacking (zstd).
    pub pack_us: u64,
    /// In calls on the connection.
    pub network_us: u64,
    /// All of the threads' time.
    pub total_us: u64,
}

/// Everything that is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Connecting side, first.
    Hello(Hello),
    /// Accepting side: its nonce, and its proof that it knows the token, if it has one.
    Challenge([u8; 32], Option<Digest>),
    /// Connecting side: its proof.
    Proof(Option<Digest>),
    /// Accepting side: go on.
    Welcome,
    /// Either side: it ends here, and why.
    Refuse(String),
    /// Sender, control connection: what comes. A file's blocks wait for [`Message::Ready`].
    Entry(Entry),
    /// Receiver: hashes of blocks that it has from an earlier try, from this one on.
    Kept(u64, u64, Vec<Digest>),
    /// Receiver: it is ready for this file.
    Ready(u64),
    /// Sender, data connection.
    Block(Block),
    /// Sender, data connection: a whole file; so many bytes, or a zstd frame of as many as the second number says, and the
    /// hash follow.
    Small(Entry, u32, Option<u32>),
    /// Receiver: this block did not match; once more.
    Again(u64, u64),
    /// Sender: all blocks are on their way; so many bytes it is, and this is the hash.
    End(u64, u64, Digest),
    /// Receiver: these are whole and have their names.
    Done(Vec<u64>),
    /// Either side: this file will not be, and why.
    Failed(u64, String),
    /// Receiver, now and then, so that the sender knows that it lives: bytes that it has stored.
    Alive(u64),
    /// Sender, data connection: nothing more on this one. Control connection: all is done.
    Finish,
    /// Receiver: the same, and where its time went.
    Finished(StageTimes),
    /// Sender, data connection: so many bytes follow, to measure the network.
    Probe(u32),
    /// Sender, data connection: that was all; now write so many bytes, to measure the disk.
    ProbeEnd(u64),
    /// Receiver: what it took of the network, and what its disk took if it stores anything.
    Probed(Moved, Option<Moved>),
}

/// A block size that keeps the blocks of a file few enough.
pub fn block_bytes_for(size: Option<u64>) -> u32 {
    // Of standard input anything may come: blocks for a terabyte.
    let size = size.unwrap_or(1 << 40);
    let mut bytes = BLOCK_BYTES_MIN;
    while bytes < BLOCK_BYTES_MAX && size.div_ceil(u64::from(bytes)) > BLOCKS_MAX / 4 {
        bytes *= 2;
    }
    bytes
}

/// How many blocks a file of this size has.
pub fn blocks_of(size: u64, block_bytes: u32) -> u64 {
    size.div_ceil(u64::from(block_bytes))
}

/// Bytes in a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// So many.
    pub bytes: u64,
    /// In microseconds.
    pub us: u64,
}

impl Moved {
    /// Bytes that took this long.
    pub fn new(bytes: u64, taken: Duration) -> Self {
        Self {
            bytes,
            us: u64::try_from(taken.as_micros()).unwrap_or(u64::MAX),
        }
    }

    /// 10^9 bits a second.
    pub fn gbit_per_s(self) -> f64 {
        self.bytes as f64 * 8.0 / 1e3 / self.us.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_grow_with_the_file() {
        assert_eq!(block_bytes_for(Some(10 << 30)), BLOCK_BYTES_MIN);
        assert_eq!(block_bytes_for(Some(1 << 40)), 4 << 20);
        assert_eq!(block_bytes_for(Some(u64::MAX)), BLOCK_BYTES_MAX);
        assert_eq!(blocks_of(0, BLOCK_BYTES_MIN), 0);
        assert_eq!(blocks_of((1 << 20) + 1, BLOCK_BYTES_MIN), 2);
    }
}
