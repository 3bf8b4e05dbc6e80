//! UDP sockets (RFC 768; RFC 1122 §4.1 is what a host must do, RFC 8085 what its users should).
//!
//! A socket is a row ([`UdpRecord`]) from bind to close. Read `table` (which socket a datagram is for),
//! `receive`, `send`, and `errors` (what ICMP says of datagrams that were sent). Payload is never kept
//! here, but for packets that wait for a neighbour (`held`).

mod errors;
mod fields;
mod held;
mod path_mtu;
mod receive;
mod record;
mod send;
mod socket;
mod table;

use crate::config::Config;
use crate::egress::IpOptions;
use crate::interface::InterfaceId;
use crate::ports::Ports;
use crate::stack::subkey;
use core::net::{IpAddr, SocketAddr};
pub(crate) use errors::Report;
pub(crate) use held::Held;
use path_mtu::PathMtus;
pub use record::UdpRecord;
pub(crate) use send::multicast_hardware;
use siphasher::sip::SipHasher13;
pub use socket::UdpBind;
use table::Table;

/// Rows for UDP sockets unless the caller wants others.
pub const UDP_SOCKETS_DEFAULT: usize = 16_384;

/// Names a UDP socket; stale once the row was given to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UdpId {
    /// Row.
    pub index: u32,
    /// Which use of the row.
    pub generation: u32,
}

/// What to do about the path MTU (`IP_MTU_DISCOVER`, ip(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MtuDiscovery {
    /// Never set DF; fragment what does not fit.
    Dont,
    /// Set DF on what fits the path, fragment the rest.
    #[default]
    Want,
    /// Always DF; what does not fit the path is refused.
    Do,
    /// Always DF; only the interface's MTU counts.
    Probe,
    /// Never DF; only the interface's MTU counts, and what does not fit it is refused.
    Interface,
    /// As [`Self::Interface`], but what does not fit is fragmented.
    Omit,
}

impl MtuDiscovery {
    const ALL: [Self; 6] = [
        Self::Dont,
        Self::Want,
        Self::Do,
        Self::Probe,
        Self::Interface,
        Self::Omit,
    ];

    /// By Linux's number of it; another number is the default.
    pub fn from_number(number: u8) -> Self {
        let found = Self::ALL.get(usize::from(number));
        found.copied().unwrap_or_default()
    }

    /// Linux's number of it.
    pub const fn number(self) -> u8 {
        match self {
            Self::Dont => 0,
            Self::Want => 1,
            Self::Do => 2,
            Self::Probe => 3,
            Self::Interface => 4,
            Self::Omit => 5,
        }
    }

    fn believes_path(self) -> bool {
        matches!(self, Self::Dont | Self::Want | Self::Do)
    }

    fn may_fragment(self) -> bool {
        matches!(self, Self::Dont | Self::Want | Self::Omit)
    }

    fn forbids_fragments(self) -> bool {
        matches!(self, Self::Want | Self::Do | Self::Probe)
    }
}

/// What a program may choose for a UDP socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpOptions {
    /// `SO_BROADCAST`.
    pub broadcast: bool,
    /// `SO_REUSEPORT`: sockets on one end share its datagrams by the hash of their senders.
    pub reuse_port: bool,
    /// `IPV6_V6ONLY`: a socket on `::` gets no IPv4.
    pub v6_only: bool,
    /// `UDP_GRO`: takes merged datagrams as they come.
    pub merged: bool,
    /// Hears what is for an address of this host's, and groups that it has joined itself; not what is for everybody.
    pub addressed_only: bool,
    /// For datagrams of IPv4.
    pub v4: FamilyOptions,
    /// For datagrams of IPv6.
    pub v6: FamilyOptions,
}

impl UdpOptions {
    /// Those that count for datagrams to or from this address.
    pub(crate) fn of(&self, address: IpAddr) -> &FamilyOptions {
        match address {
            IpAddr::V4(_) => &self.v4,
            IpAddr::V6(_) => &self.v6,
        }
    }
}

/// What counts for datagrams of one family; a socket of `AF_INET6` has both (ip(7), RFC 3493 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyOptions {
    /// `IP_TTL`, `IP_TOS`; `IPV6_UNICAST_HOPS`, `IPV6_TCLASS`.
    pub ip: IpOptions,
    /// `IP_RECVERR`, `IPV6_RECVERR`.
    pub error_queue: bool,
    /// `IP_MTU_DISCOVER`, `IPV6_MTU_DISCOVER`.
    pub mtu_discovery: MtuDiscovery,
    /// `IP_MULTICAST_TTL`, `IPV6_MULTICAST_HOPS`.
    pub multicast_ttl: u8,
    /// `IP_MULTICAST_LOOP`, `IPV6_MULTICAST_LOOP`.
    pub multicast_loop: bool,
    /// `IP_MULTICAST_ALL`, `IPV6_MULTICAST_ALL`: hears groups that others of this host have joined.
    pub multicast_all: bool,
    /// `IP_MULTICAST_IF`, `IPV6_MULTICAST_IF`.
    pub multicast_interface: Option<InterfaceId>,
}

impl Default for FamilyOptions {
    fn default() -> Self {
        Self {
            ip: IpOptions::default(),
            error_queue: false,
            mtu_discovery: MtuDiscovery::default(),
            // RFC 1112 §6.1, RFC 3493 §5.2: multicast does not leave the link unless asked to.
            multicast_ttl: 1,
            multicast_loop: true,
            multicast_all: true,
            multicast_interface: None,
        }
    }
}

/// A datagram that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// By which interface.
    pub interface: InterfaceId,
    /// The number by which programs name it.
    pub scope_id: u32,
    /// Who sent it.
    pub source: SocketAddr,
    /// For which address and port.
    pub destination: SocketAddr,
    /// Type of service.
    pub tos: u8,
    /// Time to live as it arrived.
    pub ttl: u8,
    /// Its payload.
    pub payload: &'a [u8],
    /// Several datagrams stand in it one after the other, each with so many bytes but the last; 0: it is
    /// one.
    pub segment_bytes: u16,
}

/// A datagram to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// Where to; `None`: the connected peer.
    pub destination: Option<SocketAddr>,
    /// Own address to send from; `None`: as bound or routed.
    pub source: Option<IpAddr>,
    /// Interface; `None`: as routed.
    pub interface: Option<InterfaceId>,
    /// Type of service, if other than the socket's.
    pub tos: Option<u8>,
    /// Time to live, if other than the socket's.
    pub ttl: Option<u8>,
    /// Cut the payload into datagrams of so many bytes; 0: it is one.
    pub segment_bytes: u16,
}

/// Why a datagram was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The interface is busy: offer it again.
    Busy,
    /// It will never go.
    Refused(crate::Error),
}

/// Something became known about a datagram that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramError<'a> {
    /// What.
    pub kind: DatagramErrorKind,
    /// Whether a connected socket's next call shall fail with it; others only hear of it in their error
    /// queue (RFC 1122 §4.1.3.3).
    pub is_hard: bool,
    /// The socket keeps an error queue (`IP_RECVERR`).
    pub is_queued: bool,
    /// Whom the datagram was for.
    pub destination: SocketAddr,
    /// Who reported it; `None`: this host.
    pub offender: Option<IpAddr>,
    /// Type and code of the ICMP message.
    pub icmp: (u8, u8),
    /// The MTU of the next hop, with [`DatagramErrorKind::TooBig`].
    pub mtu: u16,
    /// As much of the payload as was quoted.
    pub payload: &'a [u8],
}

/// What an ICMP message means for a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatagramErrorKind {
    /// Nobody listens on the port.
    PortUnreachable,
    /// The host does not speak UDP.
    ProtocolUnreachable,
    /// No way to the host.
    HostUnreachable,
    /// No way to the network.
    NetworkUnreachable,
    /// The host is down, says a router.
    HostUnknown,
    /// The host is isolated.
    HostIsolated,
    /// A router or the host forbids it.
    Prohibited,
    /// The source route failed.
    SourceRouteFailed,
    /// It did not fit the path.
    TooBig,
    /// A header field was wrong.
    Protocol,
}

/// Everything about UDP that is derived.
#[derive(Debug)]
pub(crate) struct Udp {
    pub(crate) table: Table,
    pub(crate) ports: Ports,
    pub(crate) free: Vec<u32>,
    pub(crate) held: Held,
    path_mtus: PathMtus,
    pub(crate) identifications: Identifications,
    /// Orders sockets that share an end by when they were bound.
    bindings: u64,
}

impl Udp {
    pub(crate) fn new(rows: usize, config: &Config) -> Self {
        let (first, last) = config.ephemeral_ports;
        Self {
            table: Table::new(&subkey(config, b"udp table")),
            ports: Ports::new(&subkey(config, b"udp ports"), first, last),
            free: Vec::with_capacity(rows),
            held: Held::default(),
            path_mtus: PathMtus::new(&subkey(config, b"udp path mtus")),
            identifications: Identifications::new(&subkey(config, b"udp identifications")),
            bindings: 0,
        }
    }
}

/// Identifications of packets that may be fragmented: unique for a destination for as long as possible
/// (RFC 6864 §4.3, RFC 8200 §4.5), and not to be guessed from those of another (RFC 7739 §5.3 for the hashed
/// counters).
#[derive(Debug)]
pub(crate) struct Identifications {
    hasher: SipHasher13,
    counters: [u32; Self::COUNTERS],
}

impl Identifications {
    const COUNTERS: usize = 512;

    fn new(key: &[u8; 16]) -> Self {
        let hasher = SipHasher13::new_with_key(key);
        let start = |n: usize| {
            let [a, b, c, d, ..] = hasher.hash(&n.to_le_bytes()).to_le_bytes();
            u32::from_le_bytes([a, b, c, d])
        };
        Self {
            counters: core::array::from_fn(start),
            hasher,
        }
    }

    /// IPv4 has room for the lower half.
    pub(crate) fn next(&mut self, destination: IpAddr) -> u32 {
        let hash = match destination {
            IpAddr::V4(address) => self.hasher.hash(&address.octets()),
            IpAddr::V6(address) => self.hasher.hash(&address.octets()),
        };
        let [a, b, ..] = hash.to_le_bytes();
        let counter = &mut self.counters[usize::from(u16::from_le_bytes([a, b])) % Self::COUNTERS];
        *counter = counter.wrapping_add(1);
        *counter
    }
}
