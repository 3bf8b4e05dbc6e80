//! Which stack serves a destination, and which owns a local address: the longest matching route over
//! the engine's addresses and the kernel's tables. Equal length goes to the engine. Every switch asks
//! here: the preload library for its program, the supervisor for programs that cannot be preloaded.
//!
//! Where the engine shares the kernel's addresses the kernel's own route decides: what leaves by the
//! engine's interface is the engine's, what is for this host itself the kernel's.

mod kernel;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hostif::control::{Sharing, SocketKinds};
use kernel::KernelRoutes;

use crate::engines::session::Session;

/// How long an engine's list of addresses serves before it is asked again.
const OWN_AGE: Duration = Duration::from_secs(5);
/// The same where the addresses are the kernel's, who changes them when it likes.
const SHARED_AGE: Duration = Duration::from_secs(1);

/// The number of `lo` in every network namespace (net/flow.h, `LOOPBACK_IFINDEX`).
pub const LOOPBACK_INDEX: u32 = 1;

/// Who has the address that a socket is bound to. Addresses of the kernel are not listed: a socket
/// bound to one is left to the kernel at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// INADDR_ANY: every stack.
    Any,
    /// An engine.
    Engine,
}

/// Where a connection goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// The kernel.
    Kernel,
    /// The engine that the process is attached to.
    Engine,
}

/// A network: an address in it and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Any address of it; for an interface, the interface's own.
    pub address: IpAddr,
    /// 0 to 32, or to 128.
    pub prefix_len: u8,
}

impl Network {
    fn contains(self, address: IpAddr) -> bool {
        let shared = match (self.address, address) {
            (IpAddr::V4(one), IpAddr::V4(other)) => {
                (one.to_bits() ^ other.to_bits()).leading_zeros()
            }
            (IpAddr::V6(one), IpAddr::V6(other)) => {
                (one.to_bits() ^ other.to_bits()).leading_zeros()
            }
            _ => return false,
        };
        shared >= u32::from(self.prefix_len)
    }
}

/// The engine's addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineNetworks {
    /// Its interfaces' addresses with their networks.
    pub interfaces: Vec<Network>,
    /// Whether it has a gateway for everything else of IPv4.
    pub has_gateway_v4: bool,
    /// The same of IPv6.
    pub has_gateway_v6: bool,
    /// The number of its interface, as programs name it beside link-local addresses.
    pub scope_id: u32,
    /// Largest packet that it sends.
    pub mtu_bytes: usize,
    /// Sockets that it serves.
    pub kinds: SocketKinds,
    /// Whether the kernel has these addresses too, and gets what arrives for them.
    pub sharing: Sharing,
    /// Whether this process uses loopback there, by which it reaches the addresses that it shares with the kernel too. The
    /// kernel's is never given up: it has other programs.
    pub has_loopback: bool,
}

impl EngineNetworks {
    /// Asks the engine of a session.
    #[must_use]
    pub fn of(session: &Session) -> Option<EngineNetworks> {
        let own = session.addresses().ok()?;
        let interfaces = own.addresses.iter().map(|one| Network {
            address: one.address,
            prefix_len: one.prefix_len,
        });
        let mtu_bytes = own
            .addresses
            .iter()
            .map(|one| usize::try_from(one.mtu_bytes).unwrap_or(usize::MAX));
        Some(EngineNetworks {
            interfaces: interfaces.collect(),
            has_gateway_v4: own.gateways.iter().any(IpAddr::is_ipv4),
            has_gateway_v6: own.gateways.iter().any(IpAddr::is_ipv6),
            scope_id: own.scope_id,
            kinds: own.kinds,
            sharing: own.sharing,
            has_loopback: false,
            mtu_bytes: mtu_bytes.min().unwrap_or(usize::MAX),
        })
    }

    /// How long this answer may serve.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        match self.sharing {
            Sharing::Owned => OWN_AGE,
            Sharing::Steered | Sharing::Doubled => SHARED_AGE,
        }
    }

    /// Whether a program can speak from this address there.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        self.owns(address) || (self.has_loopback && address.is_loopback())
    }

    /// Whether it is on the interface of that number.
    #[must_use]
    pub fn has_interface(&self, index: u32) -> bool {
        index == self.scope_id || (self.has_loopback && index == LOOPBACK_INDEX)
    }

    fn owns(&self, address: IpAddr) -> bool {
        self.interfaces.iter().any(|own| own.address == address)
    }

    /// Whether this process reaches the address there as Linux reaches those of its own host: over loopback.
    #[must_use]
    pub fn has_as_loopback(&self, address: IpAddr) -> bool {
        self.has_loopback && self.sharing != Sharing::Owned && self.owns(address)
    }

    /// Whether the address reaches every host of one of its networks.
    #[must_use]
    pub fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        let is_last = |network: &Network| {
            // RFC 3021: a /31 has no broadcast address, nor has a /32.
            let host = u32::MAX
                .checked_shr(u32::from(network.prefix_len))
                .unwrap_or(0);
            network.prefix_len < 31
                && network.contains(address.into())
                && address.to_bits() & host == host
        };
        address.is_broadcast() || self.interfaces.iter().any(is_last)
    }
}

/// Who owns a local address that a program binds to; `None` is the kernel.
#[must_use]
pub fn owner(address: IpAddr, engine: &EngineNetworks) -> Option<Owner> {
    if address.is_unspecified() {
        return Some(Owner::Any);
    }
    if address.is_loopback() {
        return engine.has_loopback.then_some(Owner::Any);
    }
    // A shared address is everybody's: this host's own programs reach it through the kernel.
    let owner = match engine.sharing {
        Sharing::Owned => Owner::Engine,
        Sharing::Steered | Sharing::Doubled => Owner::Any,
    };
    engine.owns(address).then_some(owner)
}

/// Where a connection to `destination` goes.
#[must_use]
pub fn stack_for(destination: SocketAddr, engine: &EngineNetworks) -> Stack {
    stack_of(claim(destination, engine))
}

fn stack_of(claim: Option<Claim>) -> Stack {
    claim.map_or(Stack::Kernel, |_| Stack::Engine)
}

/// How close an engine is to a destination that it serves: of several engines the closest gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// By a route with a prefix of this length; 0 is a gateway.
    Route(u8),
    /// It is the engine's own address.
    Own,
}

/// Whether an engine, and not the kernel, serves a destination, and how close it is.
#[must_use]
pub fn claim(destination: SocketAddr, engine: &EngineNetworks) -> Option<Claim> {
    let scope_id = match destination {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => Some(v6.scope_id()),
        _ => None,
    };
    let destination = destination.ip();
    if is_loopback(destination) {
        return engine.has_loopback.then_some(Claim::Own);
    }
    // Broadcast and multicast get the kernel's errno.
    if destination == IpAddr::V4(Ipv4Addr::BROADCAST) || destination.is_multicast() {
        return None;
    }
    if scope_id.is_none() && engine.has_as_loopback(destination) {
        return Some(Claim::Own);
    }
    // A link-local address lies on the link that the program names.
    if let Some(scope_id) = scope_id
        && scope_id != engine.scope_id
    {
        return None;
    }
    if scope_id.is_some() && engine.sharing != Sharing::Owned {
        return (!engine.owns(destination)).then_some(Claim::Route(LINK_LOCAL_LEN));
    }
    choose(destination, engine, kernel::routes)
}

/// Whether packets to an address stay on this host whatever addresses it has: the unspecified one is loopback to Linux.
#[must_use]
pub fn is_loopback(address: IpAddr) -> bool {
    address.is_loopback() || address.is_unspecified()
}

/// A destination as Linux understands it: without an address it is loopback.
#[must_use]
pub fn resolved(destination: SocketAddr) -> SocketAddr {
    if !destination.ip().is_unspecified() {
        return destination;
    }
    let loopback: IpAddr = if destination.is_ipv4() {
        Ipv4Addr::LOCALHOST.into()
    } else {
        Ipv6Addr::LOCALHOST.into()
    };
    SocketAddr::new(loopback, destination.port())
}

/// As [`claim`], of a datagram to a group: a scope names the link, else the routes decide, of which every host has one
/// to all groups of IPv6.
#[must_use]
pub fn claim_on_group(destination: SocketAddr, engine: &EngineNetworks) -> Option<Claim> {
    let has_v6 = || engine.interfaces.iter().any(|one| one.address.is_ipv6());
    match destination {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => {
            (v6.scope_id() == engine.scope_id).then_some(Claim::Own)
        }
        SocketAddr::V6(_) => has_v6().then_some(Claim::Route(0)),
        SocketAddr::V4(_) => choose(destination.ip(), engine, kernel::routes),
    }
}

/// Of fe80::/64 (RFC 4291 §2.5.6).
const LINK_LOCAL_LEN: u8 = 64;

fn choose(
    destination: IpAddr,
    engine: &EngineNetworks,
    kernel: impl FnOnce() -> Arc<KernelRoutes>,
) -> Option<Claim> {
    if engine.sharing != Sharing::Owned {
        let kernel = kernel();
        return match kernel.interface_to(destination) {
            Some(interface) if interface == engine.scope_id => {
                kernel.longest(destination).map(Claim::Route)
            }
            _ => None,
        };
    }
    let own = engine.owns(destination);
    let network = longest(&engine.interfaces, destination);
    let has_gateway = if destination.is_ipv4() {
        engine.has_gateway_v4
    } else {
        engine.has_gateway_v6
    };
    let engine_len = match (own, network, has_gateway) {
        (true, ..) => return Some(Claim::Own),
        (false, Some(len), _) => len,
        (false, None, true) => 0,
        (false, None, false) => return None,
    };
    match kernel().longest(destination) {
        Some(kernel_len) if kernel_len > engine_len => None,
        _ => Some(Claim::Route(engine_len)),
    }
}

fn longest(networks: &[Network], address: IpAddr) -> Option<u8> {
    networks
        .iter()
        .filter(|one| one.contains(address))
        .map(|one| one.prefix_len)
        .max()
}

#[cfg(test)]
mod tests;
