//! The messages of the control channel, and which descriptors travel with each.

use bitflags::bitflags;
use core::net::IpAddr;

use super::CaptureFilter;
use crate::id::SocketId;
use crate::steering::Steering;
use crate::sync::moderation::Moderation;

/// No message is longer.
pub const MESSAGE_BYTES: usize = 4096;
/// Backing sockets in one `Open`.
pub const MAX_OPEN: usize = 16;
/// Backing sockets in one `Prepare`.
pub const MAX_PREPARE: usize = 64;

/// What a status query asks about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum QueryKind {
    /// The engine as a whole.
    Status,
    /// Its sockets.
    Sockets,
    /// The programs attached to it.
    Sessions,
    /// Its interfaces, addresses and routes.
    Interfaces,
}

/// What a program asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// First message of a channel (also of one that a fork handed over). No descriptors.
    Hello {
        /// Oldest version that the program speaks.
        min_version: u16,
        /// Newest version that the program speaks.
        max_version: u16,
        /// Its process number, for people to read; the engine asks SO_PEERCRED.
        pid: u32,
    },
    /// TCP sockets for these backing sockets, `count` of them as descriptors.
    Open {
        /// 1 to [`MAX_OPEN`].
        count: u16,
    },
    /// A UDP socket for a backing socket: one descriptor. `Opened` answers.
    OpenDatagram,
    /// Backing sockets for later accepts, `count` of them as descriptors.
    Prepare {
        /// 1 to [`MAX_PREPARE`].
        count: u16,
    },
    /// A file that the engine is to send from: one descriptor. `Prepared` answers.
    ShareFile,
    /// The process is about to fork. The child's session holds at once every socket that this one holds. No descriptors.
    Fork,
    /// The process wants to use another core too. The core takes process and user from this session. No descriptors.
    Join {
        /// Which; below the number of cores.
        core: u16,
    },
    /// Another session's region, of which this session holds a socket. No descriptors.
    MapRegion {
        /// From `Completion::Accepted`.
        region: u32,
    },
    /// The process has a descriptor that came from elsewhere, through exec(3) or SCM_RIGHTS: one descriptor. If it is
    /// the backing socket of one of this core's sockets the session holds that from now on.
    Adopt,
    /// Descriptors of sockets that the session holds may be open where no session says so, from now on: a program is
    /// about to be executed, or the descriptor leaves in a message. No descriptors.
    Share {
        /// Which socket; `None`: all of them.
        socket: Option<SocketId>,
    },
    /// The memory between the engine and a neighbour (`channel_region`), where this session holds a socket with a slot. No
    /// descriptors.
    MapArea {
        /// From the socket's header.
        channel_region: u32,
    },
    /// The memory that says which local ends listeners and UDP sockets have (`holders`). No descriptors.
    MapHolders,
    /// The program has a signal sent for events of a socket that the session holds (fcntl(2), F_SETOWN). No descriptors.
    Signals {
        /// Which socket.
        socket: SocketId,
    },
    /// The addresses that the engine owns. No descriptors.
    Addresses,
    /// From now on this session's program is told of news by this policy. No descriptors.
    Moderate(Moderation),
    /// Another engine is about to start with this one's name and addresses. One that an ended program left behind ends
    /// as soon as nothing is left to be sent, and the channel with it. No descriptors.
    Yield,
    /// From now on frames that pass this core and are wanted, until either socket is closed. No descriptors.
    Capture(CaptureFilter),
    /// Asks for a report as JSON. No descriptors.
    Query {
        /// About what.
        kind: QueryKind,
    },
}

impl Request {
    /// How many descriptors belong to the message; a packet with another number is invalid.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        match self {
            Request::Open { count } | Request::Prepare { count } => usize::from(*count),
            Request::Adopt | Request::OpenDatagram | Request::ShareFile => 1,
            Request::Fork
            | Request::Join { .. }
            | Request::Hello { .. }
            | Request::MapRegion { .. }
            | Request::Share { .. }
            | Request::MapArea { .. }
            | Request::MapHolders
            | Request::Signals { .. }
            | Request::Addresses
            | Request::Moderate(_)
            | Request::Yield
            | Request::Capture(_)
            | Request::Query { .. } => 0,
        }
    }
}

/// A core's answer to `Hello`. Descriptors: region, the program's doorbell, the core's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// The version that both sides speak from now on.
    pub version: u16,
    /// Which core answers.
    pub core: u16,
    /// How many there are, and how connections are spread over them.
    pub steering: Steering,
    /// The session's number, 1 to [`crate::sync::lock::MAX_SESSION`]; locks are held in its name.
    pub session: u32,
    /// The region's number.
    pub region: u32,
}

/// One socket made by `Open`; its header is in the session's own region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Its name.
    pub socket: SocketId,
    /// Its header.
    pub header: u32,
}

/// A socket that the session holds now; its header may be in another session's region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Adopted {
    /// Its name.
    pub socket: SocketId,
    /// The region of its header and its windows.
    pub region: u32,
    /// Its header.
    pub header: u32,
}

/// An address that the engine owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineAddress {
    /// The address.
    pub address: IpAddr,
    /// Length of its network's prefix.
    pub prefix_len: u8,
    /// MTU of its interface, in bytes.
    pub mtu_bytes: u32,
}

/// What the engine owns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Addresses {
    /// All addresses, at most 150.
    pub addresses: Vec<EngineAddress>,
    /// The default gateways, at most one of each family.
    pub gateways: Vec<IpAddr>,
    /// How programs name the engine's link beside link-local addresses: its interface's number.
    pub scope_id: u32,
    /// Sockets that it serves; the others stay with the kernel.
    pub kinds: SocketKinds,
    /// Whether the kernel has the same addresses.
    pub sharing: Sharing,
}

/// Whether the kernel has the engine's addresses too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Sharing {
    /// They are the engine's alone.
    #[default]
    Owned = 0,
    /// It has them, and what arrives for the engine's sockets does not come to it.
    Steered = 1,
    /// It has them, and gets everything that the engine gets: backing sockets must throw it away.
    Doubled = 2,
}

impl Sharing {
    /// By its number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Owned),
            1 => Some(Self::Steered),
            2 => Some(Self::Doubled),
            _ => None,
        }
    }
}

bitflags! {
    /// Kinds of sockets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SocketKinds: u8 {
        /// TCP.
        const STREAM = 1;
        /// UDP.
        const DATAGRAM = 2;
    }
}

impl Default for SocketKinds {
    fn default() -> Self {
        Self::all()
    }
}

/// What the engine answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// To `Hello`.
    Welcome(Welcome),
    /// To `Open`, in the order of the descriptors.
    Opened(Vec<Opened>),
    /// To `Prepare`: handles `first` to `first + count - 1`, in the order of the descriptors.
    Prepared {
        /// First handle.
        first: u32,
        /// How many.
        count: u16,
    },
    /// To `Fork`: one descriptor, the child's end of its control channel.
    Forked {
        /// Number of the child's session.
        session: u32,
    },
    /// To `Join`: one descriptor, the process's end of a control channel, on which it says hello.
    Joined,
    /// To `MapRegion`: one descriptor, the region.
    Region {
        /// Which.
        region: u32,
    },
    /// To `Adopt`.
    Adopted(Adopted),
    /// To `Share`.
    Shared,
    /// To `MapArea`: one descriptor, the memory.
    ChannelRegion {
        /// Which.
        channel_region: u32,
    },
    /// To `MapHolders`: one descriptor, the memory.
    Holders,
    /// To `Signals`: one descriptor. What is set on it by F_SETOWN, F_SETSIG and O_ASYNC says which signals are sent.
    Signals,
    /// To `Addresses`.
    Addresses(Addresses),
    /// To `Moderate`.
    Moderated,
    /// To `Yield`: it ends, or at least tries.
    Yields,
    /// To `Capture`: one descriptor, the stream of frames.
    Capture,
    /// To `Query`: one descriptor, a memory file with JSON.
    Report,
    /// The request failed.
    Refused {
        /// The errno for the program.
        errno: u16,
        /// For people; at most 1024 bytes.
        text: String,
    },
}
