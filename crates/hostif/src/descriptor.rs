//! What travels in the rings: 56 bytes of payload in a 64-byte slot (the last word is the ring's stamp).
//!
//! Encoding is little-endian by words and decoding checks every field: a value that comes out of
//! `decode` is well formed whatever the other side wrote. Socket names and positions still have to be
//! looked up and compared by the engine.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::id::SocketId;

mod codec;
mod datagram;
mod options;

pub use datagram::{DatagramOptions, FamilyOptions};
pub use options::{OptionChanges, SocketOption};

/// Payload words of a slot.
pub const WORDS: usize = 7;
/// A descriptor as it lies in a slot, without the ring's stamp.
pub type Words = [u64; WORDS];
const _: () = assert!(core::mem::size_of::<Words>() + 8 == 64);

/// The words are no descriptor of the expected kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("malformed descriptor")]
pub struct Malformed;

/// A kind of descriptor, one per ring.
pub trait Descriptor: Sized {
    /// As words for a slot.
    fn encode(&self) -> Words;
    /// Reads and checks words from a slot.
    fn decode(words: &Words) -> Result<Self, Malformed>;
}

/// Which direction a shutdown ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShutdownHow {
    /// The program will not read any more.
    Read,
    /// The program will not write any more: FIN after what is written.
    Write,
    /// Both.
    Both,
}

/// How a membership of a group is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MembershipChange {
    /// Receive from the group, or from this source of it.
    Join,
    /// Stop receiving from it.
    Leave,
    /// Of a group that is received from as a whole, leave out this source.
    Block,
    /// Receive from it again.
    Unblock,
}

impl MembershipChange {
    const ALL: [Self; 4] = [Self::Join, Self::Leave, Self::Block, Self::Unblock];

    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Join => 0,
            Self::Leave => 1,
            Self::Block => 2,
            Self::Unblock => 3,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// What a command asks for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Op {
    /// Take a local address; port 0 lets the engine choose. Done's value is the port.
    Bind {
        /// The local address.
        local: SocketAddr,
    },
    /// Start to accept connections.
    Listen {
        /// Length of the queue of connections that nobody accepted yet.
        backlog: u32,
    },
    /// Start to connect. Done means that it has started; the outcome shows in the socket header.
    Connect {
        /// The peer.
        remote: SocketAddr,
        /// The local address, if the program chose one with this call.
        local: Option<SocketAddr>,
    },
    /// As `Connect` to an address of the engine's own, and only if a listener there would hear it: else
    /// `ECONNREFUSED`, and nothing was sent. Another stack may have the same address.
    ConnectHeard {
        /// The peer.
        remote: SocketAddr,
        /// The local address, if the program chose one with this call.
        local: Option<SocketAddr>,
    },
    /// As `Connect`, with Fast Open (RFC 7413). Done's value is how many bytes the SYN waits for and can take;
    /// 0: it has left, and is like any other. `EOPNOTSUPP`: the engine has it switched off.
    ConnectFast {
        /// The peer.
        remote: SocketAddr,
        /// The local address, if the program chose one with this call.
        local: Option<SocketAddr>,
    },
    /// As `ConnectFast` of a program that has nothing to send: the SYN has the peer's cookie, or asks for it, and waits
    /// for nothing.
    ConnectForCookie {
        /// The peer.
        remote: SocketAddr,
        /// The local address, if the program chose one with this call.
        local: Option<SocketAddr>,
    },
    /// Take an established connection from the listener; answered with `Completion::Accepted`.
    Accept {
        /// Backing socket for the new connection, from `Prepare`.
        handle: u32,
    },
    /// End one or both directions.
    Shutdown {
        /// Which.
        how: ShutdownHow,
        /// Everything the program has written: the FIN comes after it.
        written: u64,
    },
    /// Drop this session's hold on the socket.
    Close {
        /// Everything the program has written.
        written: u64,
        /// Everything the program has consumed: unread bytes mean RST instead of FIN (RFC 2525 §2.17).
        consumed: u64,
    },
    /// Change options.
    SetOptions {
        /// Which, and how.
        changes: OptionChanges,
        /// The low half of the count of bytes that the program has written: a change is for those that it writes after it.
        written_low: u32,
    },
    /// Take the peer of a datagram socket away.
    Disconnect,
    /// The program was refused a datagram that is too long for its way: its error queue, if it has one, shall
    /// say so as that of Linux does (`IP_RECVERR` of ip(7)).
    TooLong {
        /// For whom it was.
        destination: SocketAddr,
    },
    /// Change what a datagram socket hears of a group (RFC 3376 §2, RFC 3678).
    Membership {
        /// How.
        change: MembershipChange,
        /// The group.
        group: IpAddr,
        /// The source that it is about; `None`: all of them.
        source: Option<IpAddr>,
        /// The interface by its scope; 0: as routed.
        interface: u32,
    },
    /// Change the options of a datagram socket.
    SetDatagramOptions(DatagramOptions),
    /// Change one of the rarer options.
    SetOption {
        /// Which.
        option: SocketOption,
        /// Its new value.
        value: u64,
        /// As of `SetOptions`.
        written_low: u32,
    },
    /// The keys of a listener's Fast Open cookies (`TCP_FASTOPEN_KEY`).
    SetFastOpenKeys(FastOpenKeys),
    /// Ask for more than a completion holds: the answer lies in the region, Done's value is its length
    /// in bytes. One question of a region is asked at a time.
    Query {
        /// For what.
        what: Query,
    },
    /// Something happened in the byte channels of a connection (`byte_channel`) of which the neighbour, or the engine, has to be told.
    TellLane(LaneNews),
    /// Give back a backing socket that no accept used, or a shared file.
    CloseBacking {
        /// From `Prepare`.
        handle: u32,
    },
}

/// What happened in the byte channels of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaneNews {
    /// Bytes were sent to a neighbour that waits for them.
    Bytes,
    /// There is free space for a neighbour that waits for it.
    Room,
    /// The neighbour wrote a position that cannot be: the connection is to be reset.
    Nonsense,
}

impl LaneNews {
    const ALL: [Self; 3] = [Self::Bytes, Self::Room, Self::Nonsense];

    /// Its number.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Bytes => 0,
            Self::Room => 1,
            Self::Nonsense => 2,
        }
    }

    /// By its number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// Keys of Fast Open cookies: one for new cookies, and perhaps an older one whose cookies are still good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FastOpenKeys {
    /// For new cookies.
    pub primary: [u8; 16],
    /// The older one.
    pub backup: Option<[u8; 16]>,
}

/// What a program can ask about a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Query {
    /// The connection's figures, as [`crate::Figures`].
    Figures,
    /// The headers of the SYN that opened the connection (`TCP_SAVED_SYN`).
    SavedSyn,
    /// What its congestion control believes, as [`crate::CongestionFigures`].
    Congestion,
    /// The oldest time of sending that was not fetched, as [`crate::stamp::Told`]; it counts as fetched from then on.
    Stamp,
    /// How many sessions hold the socket, and one more where a descriptor may be open that no session has: the completion's number.
    Holders,
}

impl Query {
    const fn code(self) -> u8 {
        match self {
            Self::Figures => 1,
            Self::SavedSyn => 2,
            Self::Congestion => 3,
            Self::Stamp => 4,
            Self::Holders => 5,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Figures),
            2 => Some(Self::SavedSyn),
            3 => Some(Self::Congestion),
            4 => Some(Self::Stamp),
            5 => Some(Self::Holders),
            _ => None,
        }
    }
}

/// A command of the program (`cmd` ring).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Command {
    /// Comes back in the completion; 0 asks for none.
    pub token: u32,
    /// The socket; `None` only for `CloseBacking`.
    pub socket: Option<SocketId>,
    /// What to do.
    pub op: Op,
}

/// The program placed bytes in the send window, or reserved space there for bytes of a file (`snd` ring).
///
/// Pushed under the socket's send lock, before the header's `written` moves on: whoever sees that
/// position can rely on this note being in its ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// The socket.
    pub socket: SocketId,
    /// Stream offset of the first byte, not above `end`. With several holders it may be ahead of what
    /// the engine knows: then the note of another holder comes first.
    pub start: u64,
    /// Stream offset after the last byte. May be older than one seen before: then it says nothing new.
    pub end: u64,
    /// Where the bytes are, if they are not in the window.
    pub source: Option<FileSource>,
    /// What kind of write it was.
    pub mode: WriteMode,
    /// The program made the bytes where they lie, in the window: it copied nothing.
    pub in_place: bool,
    /// Which times of sending of the last byte the program asks for: bits of [`crate::stamp`].
    pub stamps: u8,
}

impl Written {
    /// Bytes in the window, and nothing else to be said of them.
    #[must_use]
    #[inline(always)]
    pub const fn plain(socket: SocketId, start: u64, end: u64) -> Written {
        Written {
            socket,
            start,
            end,
            source: None,
            mode: WriteMode::Plain,
            in_place: false,
            stamps: 0,
        }
    }
}

/// How bytes were written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WriteMode {
    /// As usual.
    #[default]
    Plain,
    /// More will follow at once (`MSG_MORE`): a partial segment may wait.
    More,
    /// The last byte is urgent (`MSG_OOB`).
    Urgent,
    /// A record ends with the last byte (`MSG_EOR`): no segment goes beyond it.
    EndOfRecord,
}

/// Bytes of a shared file in place of bytes in the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileSource {
    /// The file, from `Prepare`.
    pub handle: u32,
    /// Where in the file the first byte lies; the range ends within what a file can hold.
    pub offset: u64,
}

/// The program consumed bytes from the receive window (`rcv` ring).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Consumed {
    /// The socket.
    pub socket: SocketId,
    /// Stream offset after the last byte. May be older than one seen before: then it says nothing new.
    pub end: u64,
    /// The program read the bytes where they lie, in the window: it copied nothing.
    pub in_place: bool,
}

/// What the engine tells a program (`cpl` ring).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// A command is done.
    Done {
        /// From the command.
        token: u32,
        /// 0, or the errno that the program shall see.
        errno: u16,
        /// The command's result (port of a bind).
        value: u64,
    },
    /// An accept is done.
    Accepted {
        /// From the command.
        token: u32,
        /// The new connection.
        socket: SocketId,
        /// The region that holds its header and windows (that of the listener's owner, perhaps).
        region: u32,
        /// Index of its header there.
        header: u32,
        /// The other end.
        peer: SocketAddr,
    },
    /// The header of a socket changed.
    Event {
        /// Which.
        socket: SocketId,
    },
}

/// The lower half of a word.
#[must_use]
pub fn low(word: u64) -> u32 {
    u32::try_from(word & 0xffff_ffff).expect("invariant: 32 bits remain")
}

/// The upper half of a word.
#[must_use]
pub fn high(word: u64) -> u32 {
    u32::try_from(word >> 32).expect("invariant: 32 bits remain")
}

/// One word from two halves.
#[must_use]
pub fn join(low: u32, high: u32) -> u64 {
    u64::from(low) | (u64::from(high) << 32)
}

/// Family numbers in shared memory and messages (those of Linux).
pub const FAMILY_IPV4: u8 = 2;
/// See [`FAMILY_IPV4`].
pub const FAMILY_IPV6: u8 = 10;

/// An address as family and 16 bytes; IPv4 uses the first four.
#[must_use]
pub fn address_bytes(address: IpAddr) -> (u8, [u8; 16]) {
    match address {
        IpAddr::V4(v4) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&v4.octets());
            (FAMILY_IPV4, bytes)
        }
        IpAddr::V6(v6) => (FAMILY_IPV6, v6.octets()),
    }
}

/// Reads an address back; `None` for a family that is neither.
#[must_use]
pub fn address_from_bytes(family: u8, bytes: [u8; 16]) -> Option<IpAddr> {
    match family {
        FAMILY_IPV4 => Some(IpAddr::V4(Ipv4Addr::new(
            bytes[0], bytes[1], bytes[2], bytes[3],
        ))),
        FAMILY_IPV6 => Some(IpAddr::from(bytes)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
