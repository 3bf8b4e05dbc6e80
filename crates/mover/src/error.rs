//! Why a transfer, or one file of it, ended.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use thiserror::Error as ThisError;

/// Why a transfer ended before its end.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The system refused something on a file or folder.
    #[error("{what} {}: {cause}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        cause: io::Error,
    },
    /// The connection failed.
    #[error("{what}: {cause}")]
    Network {
        /// What was tried.
        what: String,
        /// The system's answer.
        cause: io::Error,
    },
    /// The peer said something that no honest peer says.
    #[error("the peer broke the protocol: {0}")]
    Protocol(&'static str),
    /// A thread panicked: a bug of ours, which must not leave the others waiting.
    #[error("a thread of this transfer ended by a bug of Shunt's; what it says stands above")]
    Bug,
    /// The peer would not have it; the text is its reason.
    #[error("the peer refused: {0}")]
    Refused(String),
    /// A listener that the world could reach, and nothing that keeps strangers out.
    #[error("listening on {0} without a token or certificates: anybody there could connect")]
    Unguarded(SocketAddr),
    /// The peer is silent for too long.
    #[error("nothing was heard of the peer for {0} s")]
    Silent(u64),
    /// The peer does not know the token.
    #[error(
        "the peer has another token, or none; pass --token (or SHUNT_TOKEN) with the same token to both ends"
    )]
    Token,
    /// A token that could be guessed, or that was mistyped.
    #[error(
        "this is no token that Shunt has made, or a digit of it is wrong; take the one that the end prints that listens without --token"
    )]
    NoToken,
    /// Keys, certificates or what TLS makes of them.
    #[error("{0}")]
    Encryption(String),
    /// The source is not what it was when it was opened.
    #[error("{} changed while it was sent; send it again, from its beginning, when nobody writes it", .0.display())]
    Changed(PathBuf),
    /// Blocks arrive damaged however often they are sent.
    #[error("block {block} of {} arrived damaged {tries} times", path.display())]
    Damaged {
        /// The file, as the receiver names it.
        path: PathBuf,
        /// Which block.
        block: u64,
        /// How often it was tried.
        tries: u32,
    },
    /// The whole has another hash than its parts promised.
    #[error("{}: the hash of the whole differs", .0.display())]
    Differs(PathBuf),
    /// The target's file system has too little room.
    #[error("no room for {}: {needed_bytes} bytes are needed, {free_bytes} are free", path.display())]
    NoRoom {
        /// The file.
        path: PathBuf,
        /// Its size.
        needed_bytes: u64,
        /// What the file system has for this user.
        free_bytes: u64,
    },
    /// What would be written to is not this user's alone.
    #[error("{} is there and is a link, no plain file, or not this user's alone; remove it", .0.display())]
    Foreign(PathBuf),
    /// Another transfer writes the same file.
    #[error("{}: another transfer is writing it", .0.display())]
    Busy(PathBuf),
    /// Somebody asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// For `map_err` on calls about files.
    pub(crate) fn file(
        what: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |cause| Self::File { what, path, cause }
    }

    /// For `map_err` on calls on a connection whose peer may be silent or gone.
    pub(crate) fn lost(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Self::Silent(crate::sys::SILENCE.as_secs())
            }
            io::ErrorKind::UnexpectedEof => Self::network("the peer closed the connection")(source),
            _ => Self::network(what)(source),
        }
    }

    /// For `map_err` on calls about connections.
    pub(crate) fn network(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Network {
            what: what.into(),
            cause,
        }
    }
}
