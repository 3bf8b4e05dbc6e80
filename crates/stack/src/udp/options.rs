//! Options of UDP sockets.

use crate::config::IpOptions;
use crate::link::interface::InterfaceId;
use core::net::IpAddr;

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

    pub(super) fn believes_path(self) -> bool {
        matches!(self, Self::Dont | Self::Want | Self::Do)
    }

    pub(super) fn may_fragment(self) -> bool {
        matches!(self, Self::Dont | Self::Want | Self::Omit)
    }

    pub(super) fn forbids_fragments(self) -> bool {
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
    /// Receives what is for an address of this host, and for groups that it has joined itself; not broadcasts or other groups.
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
    /// `IP_MULTICAST_ALL`, `IPV6_MULTICAST_ALL`: receives from groups that other sockets of this host have joined.
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
