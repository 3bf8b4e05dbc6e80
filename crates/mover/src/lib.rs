//! Moves files between hosts over TCP: `shunt send` and `shunt recv`.
//!
//! A file travels in blocks. Either end hashes each block; a block whose hashes differ is sent again. A file gets
//! its name only when every block is on the disk and both ends have the same hash of the whole. What a cut
//! leaves behind is a hidden part file with a journal of the blocks that are on the disk, and the next try goes on
//! from there.
//!
//! A session is one control connection and one or more data connections, all from the same side to the same port.
//! `protocol` says what travels on them, `send` and `receive` are the two ends, `source` and `store` the ways to
//! the disk. Read `docs/mover.md` first. Sockets are used through libc, so that this works on Shunt's as well.

mod checksum;
mod choice;
mod connection;
mod direct;
pub mod disk;
mod ending;
mod error;
pub mod experiment;
mod hidden;
mod journal;
mod lock;
mod mapped;
mod meter;
mod name;
mod packing;
mod pipe;
pub mod probe;
mod protocol;
mod receive;
mod send;
mod session;
mod source;
mod store;
mod sys;
mod target;
mod tls;
mod view;

pub use checksum::Algorithm;
pub use error::Error;
pub use meter::{Bottleneck, Stage, Totals};
pub use packing::LEVEL_MAX as PACK_LEVEL_MAX;
pub use protocol::{Role, STREAMS_MAX};
pub use receive::{Receiver, ReceiverConfig};
pub use send::{Sender, SenderConfig};
pub use session::{ALIVE, Access, Listener, Outcome, Session, Token, Watch};
pub use source::Method;
pub use store::Storage;
pub use target::Check;
pub use tls::{Certificates, Encryption};
