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
mod tests {
    use super::kernel::Route;
    use super::*;

    pub(super) fn network(text: &str) -> Network {
        let (address, len) = text.split_once('/').unwrap();
        Network {
            address: address.parse().unwrap(),
            prefix_len: len.parse().unwrap(),
        }
    }

    fn engine(has_gateway: bool) -> EngineNetworks {
        EngineNetworks {
            interfaces: vec![network("10.0.0.2/24")],
            has_gateway_v4: has_gateway,
            mtu_bytes: 1_500,
            ..EngineNetworks::default()
        }
    }

    fn route(destination: &str, engine: &EngineNetworks, kernel: &[&str]) -> Stack {
        let kernel = kernel.iter().map(|text| Route::to(network(text)));
        let kernel = KernelRoutes(kernel.collect());
        stack_of(choose(destination.parse().unwrap(), engine, || {
            Arc::new(kernel)
        }))
    }

    #[test]
    fn the_engines_subnet_goes_to_the_engine_and_others_to_the_kernel() {
        let kernel = ["0.0.0.0/0", "192.168.1.0/24"];
        assert_eq!(route("10.0.0.9", &engine(false), &kernel), Stack::Engine);
        assert_eq!(route("192.168.1.9", &engine(false), &kernel), Stack::Kernel);
        assert_eq!(route("1.1.1.1", &engine(false), &kernel), Stack::Kernel);
    }

    #[test]
    fn with_a_gateway_the_engine_takes_what_the_kernel_has_no_closer_route_to() {
        let kernel = ["0.0.0.0/0", "192.168.1.0/24", "10.8.0.0/16"];
        assert_eq!(route("1.1.1.1", &engine(true), &kernel), Stack::Engine);
        assert_eq!(route("192.168.1.9", &engine(true), &kernel), Stack::Kernel);
        assert_eq!(route("10.8.3.1", &engine(true), &kernel), Stack::Kernel);
    }

    #[test]
    fn an_address_of_the_kernel_inside_the_engines_subnet_stays_with_the_kernel() {
        let kernel = ["10.0.0.0/24", "10.0.0.5/32"];
        assert_eq!(route("10.0.0.5", &engine(false), &kernel), Stack::Kernel);
        assert_eq!(route("10.0.0.6", &engine(false), &kernel), Stack::Engine);
        // The engine's own address is its own even where the kernel has it too (shared address).
        assert_eq!(
            route("10.0.0.2", &engine(false), &["10.0.0.2/32"]),
            Stack::Engine
        );
    }

    #[test]
    fn loopback_reaches_an_engine_only_where_the_process_wants_it() {
        for (has_loopback, stack, owned) in [
            (false, Stack::Kernel, None),
            (true, Stack::Engine, Some(Owner::Any)),
        ] {
            let all = EngineNetworks {
                interfaces: vec![network("10.0.0.2/24")],
                has_gateway_v4: true,
                has_loopback,
                ..EngineNetworks::default()
            };
            for to in [
                "127.0.0.1:80",
                "127.8.0.1:80",
                "0.0.0.0:80",
                "[::1]:80",
                "[::]:80",
            ] {
                assert_eq!(stack_for(to.parse().unwrap(), &all), stack, "{to}");
            }
            assert_eq!(owner("127.0.0.1".parse().unwrap(), &all), owned);
        }
        let resolved = |text: &str| resolved(text.parse().unwrap()).to_string();
        assert_eq!(resolved("0.0.0.0:80"), "127.0.0.1:80");
        assert_eq!(resolved("[::]:80"), "[::1]:80");
        assert_eq!(resolved("10.0.0.1:80"), "10.0.0.1:80");
    }

    #[test]
    fn a_shared_address_of_this_host_is_reached_over_loopback_where_that_is_the_engines() {
        let one = |sharing, has_loopback| EngineNetworks {
            interfaces: vec![network("10.0.0.2/24")],
            sharing,
            has_loopback,
            ..EngineNetworks::default()
        };
        let own: IpAddr = "10.0.0.2".parse().unwrap();
        for (sharing, has_loopback, expected) in [
            (Sharing::Steered, true, true),
            (Sharing::Doubled, true, true),
            (Sharing::Steered, false, false),
            (Sharing::Owned, true, false),
        ] {
            let engine = one(sharing, has_loopback);
            assert_eq!(engine.has_as_loopback(own), expected);
            if expected {
                let claimed = claim(SocketAddr::new(own, 80), &engine);
                assert_eq!(claimed, Some(Claim::Own));
            }
        }
    }

    #[test]
    fn the_last_address_of_a_network_reaches_everybody() {
        let engine = engine(false);
        for (address, expected) in [
            ("10.0.0.255", true),
            ("10.0.1.255", false),
            ("10.0.0.2", false),
        ] {
            assert_eq!(engine.is_broadcast(address.parse().unwrap()), expected);
        }
    }

    #[test]
    fn owners_of_local_addresses_are_told_apart() {
        let engine = engine(true);
        for any in ["0.0.0.0", "::"] {
            assert_eq!(owner(any.parse().unwrap(), &engine), Some(Owner::Any));
        }
        assert_eq!(
            owner("10.0.0.2".parse().unwrap(), &engine),
            Some(Owner::Engine)
        );
        assert_eq!(owner("10.0.0.3".parse().unwrap(), &engine), None);
    }

    #[test]
    fn ipv6_goes_by_its_own_prefixes_and_gateway() {
        let engine = EngineNetworks {
            interfaces: vec![network("10.0.0.2/24"), network("2001:db8::2/64")],
            has_gateway_v4: true,
            ..EngineNetworks::default()
        };
        let kernel = ["::/0", "2001:db8::7/128"];
        assert_eq!(route("2001:db8::9", &engine, &kernel), Stack::Engine);
        assert_eq!(route("2001:db8::7", &engine, &kernel), Stack::Kernel);
        assert_eq!(route("2a00::1", &engine, &[]), Stack::Kernel);
        let with_gateway = EngineNetworks {
            has_gateway_v6: true,
            ..engine
        };
        assert_eq!(route("2a00::1", &with_gateway, &kernel), Stack::Engine);
    }

    #[test]
    fn a_link_local_destination_goes_to_whoever_has_the_named_link() {
        let engine = EngineNetworks {
            interfaces: vec![network("fe80::2/64")],
            scope_id: 3,
            ..EngineNetworks::default()
        };
        let there = |scope| stack_for(format!("[fe80::9%{scope}]:80").parse().unwrap(), &engine);
        assert_eq!(there(4), Stack::Kernel);
        assert_eq!(there(3), Stack::Engine);
    }

    #[test]
    fn with_shared_addresses_the_kernels_route_decides() {
        let engine = EngineNetworks {
            scope_id: 3,
            sharing: Sharing::Steered,
            ..engine(true)
        };
        let route = |text, interface, metric| Route {
            network: network(text),
            interface,
            metric,
        };
        let kernel = Arc::new(KernelRoutes(vec![
            route("10.0.0.0/24", 3, 0),
            route("10.0.0.2/32", 0, 0),
            route("10.8.0.0/16", 4, 0),
            route("10.8.0.0/16", 3, 100),
            route("0.0.0.0/0", 4, 100),
            route("0.0.0.0/0", 3, 50),
        ]));
        for (destination, expected) in [
            ("10.0.0.9", Stack::Engine),
            ("10.0.0.2", Stack::Kernel),
            ("10.8.0.1", Stack::Kernel),
            ("1.1.1.1", Stack::Engine),
            ("2001:db8::1", Stack::Kernel),
        ] {
            let chosen = choose(destination.parse().unwrap(), &engine, || {
                Arc::clone(&kernel)
            });
            assert_eq!(stack_of(chosen), expected, "{destination}");
        }
        let own = owner("10.0.0.2".parse().unwrap(), &engine);
        assert_eq!(
            own,
            Some(Owner::Any),
            "programs of this host come by the kernel"
        );
    }
}
