//! The engine's sockets as plain data: what must survive of a socket besides its TCP connection.

use super::shares::Table;
use crate::state::rows::{Fenced, Held};
use bitflags::bitflags;
use core::net::SocketAddr;
use stack::{ConnectionId, IpOptions, ListenerId, PackedAddress, UdpId};
use tcp::SocketOptions;
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// Where a row is in its table.
pub fn at(row: u32) -> usize {
    usize::try_from(row).expect("invariant: usize has at least 32 bits")
}

/// What a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
pub enum Kind {
    /// The row is free.
    Free = 0,
    /// Opened, perhaps bound, neither listening nor connecting.
    Fresh,
    /// Listens.
    Listener,
    /// A peer's handshake is in progress; the stack has not named the connection yet.
    Arriving,
    /// Has a connection, in any state.
    Connection,
    /// A datagram socket that is not bound.
    FreshDatagram,
    /// A datagram socket that the stack knows.
    Datagram,
}

bitflags! {
    /// What holds of a socket beyond its kind.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Marks: u8 {
        /// The engine chose the port of its connection: the backing socket holds none.
        const PORT_CHOSEN = 1;
        /// Descriptors of it may be open where no session says so.
        const SHARED = 1 << 1;
        /// No session holds it, and such a descriptor is looked for: `backing` is the set that shows it, or the backing socket
        /// until that is entered there.
        const ORPHAN = 1 << 2;
        /// Its connection is in TIME-WAIT.
        const IN_TIME_WAIT = 1 << 3;
        /// The backing socket of a connection listens, so that the kernel says nothing to its peer.
        const BACKING_LISTENS = 1 << 4;
        /// Others hold it besides `holder`.
        const MORE_HOLDERS = 1 << 5;
    }
}

/// One socket.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct SocketRow {
    /// Odd while the row is being changed, so that a crash in between can be seen.
    pub sequence: u32,
    /// Which use of the row; names of earlier uses are stale.
    pub generation: u32,
    /// Number of the region that holds the header and the windows.
    pub region: u32,
    /// Header in that region.
    pub header: u32,
    /// Window pair in that region, plus one; 0: none.
    pub pair_plus_one: u32,
    /// The stack's row of the connection or listener, and its generation.
    pub object_index: u32,
    pub object_generation: u32,
    /// Events counted for edge-triggered readiness.
    pub rx_events: u32,
    pub tx_events: u32,
    /// Flags as published in the header.
    pub published: u32,
    /// The local address that the program chose.
    pub local_address: PackedAddress,
    pub local_port: u16,
    pub kind: Kind,
    /// The program opened the connection, rather than accepting it.
    pub active: bool,
    /// `SO_LINGER` is on, with this time.
    pub linger: bool,
    /// `IP_TTL`; 0: the default.
    pub ttl: u8,
    /// `IP_TOS`.
    pub tos: u8,
    /// `TCP_SAVE_SYN`: connections that arrive keep the headers of their SYN.
    pub save_syn: bool,
    pub linger_s: u32,
    /// How much of the send window the program is to use; 0: all of it (`SO_SNDBUF`).
    pub send_limit: u32,
    /// `TCP_FASTOPEN`, for when the socket listens.
    pub fast_open: u16,
    /// `SO_TIMESTAMP`: the header tells when data arrived.
    pub tells_arrival: bool,
    /// See [`Marks`].
    pub marks: u8,
    /// Stream offset, modulo 2^32, of what lies at the start of the receive window.
    pub receive_base: u32,
    /// How much of the send window autotuning lets the program use; 0: there is none yet.
    pub send_room: u32,
    /// The engine's duplicate of the backing socket.
    pub backing: Held,
    /// Slot of a session that holds it, plus one; 0: none does.
    pub holder: u32,
    /// What the program may change.
    pub options: SocketOptions,
}

/// Bytes of the row that the engine keeps for each socket.
pub const SOCKET_ROW_BYTES: usize = size_of::<SocketRow>();

const _: () = assert!(size_of::<SocketRow>() <= 160);

impl Fenced for SocketRow {
    fn sequence_mut(&mut self) -> &mut u32 {
        &mut self.sequence
    }
}

impl SocketRow {
    /// The tables of which its user has a row by it.
    pub fn tables(&self) -> [Option<Table>; 3] {
        let of_kind = match self.kind {
            Kind::Listener => Some(Table::Listeners),
            Kind::Datagram => Some(Table::Datagrams),
            _ => None,
        };
        let has_windows = self.pair_plus_one != 0 && self.kind != Kind::Datagram;
        let of_windows = has_windows.then_some(Table::Connections);
        [Some(Table::Sockets), of_kind, of_windows]
    }

    /// Whether it has this mark.
    pub fn has(&self, mark: Marks) -> bool {
        Marks::from_bits_truncate(self.marks).contains(mark)
    }

    /// Sets this mark, or takes it away.
    pub fn set(&mut self, mark: Marks, on: bool) {
        let mut marks = Marks::from_bits_truncate(self.marks);
        marks.set(mark, on);
        self.marks = marks.bits();
    }

    /// The stack's connection, for [`Kind::Connection`].
    pub fn connection(&self) -> Option<ConnectionId> {
        (self.kind == Kind::Connection).then_some(ConnectionId {
            index: self.object_index,
            generation: self.object_generation,
        })
    }

    /// The stack's listener, for [`Kind::Listener`].
    pub fn listener(&self) -> Option<ListenerId> {
        (self.kind == Kind::Listener).then_some(ListenerId {
            index: self.object_index,
            generation: self.object_generation,
        })
    }

    /// The stack's UDP socket, for [`Kind::Datagram`].
    pub fn datagram(&self) -> Option<UdpId> {
        (self.kind == Kind::Datagram).then_some(UdpId {
            index: self.object_index,
            generation: self.object_generation,
        })
    }

    /// What the IP header of its packets says.
    pub fn ip(&self) -> IpOptions {
        let default = IpOptions::default();
        IpOptions {
            ttl: if self.ttl == 0 { default.ttl } else { self.ttl },
            tos: self.tos,
        }
    }

    /// The window pair in the region.
    pub fn pair(&self) -> Option<u32> {
        self.pair_plus_one.checked_sub(1)
    }

    /// The bound address; port 0 when the socket was not bound.
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.local_address.address(), self.local_port)
    }
}
