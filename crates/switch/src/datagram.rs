//! UDP: by which stack a datagram leaves, and on which a socket receives (decisions 12 and 32).

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use client::SocketKinds;
use client::address::{self, Family, Name};
use client::datagram_messages::{self as messages, SendAncillary};
use client::engines::{self, AllNetworks, Candidates, EngineIndex};
use client::route::{self, EngineNetworks};
use rustix::io::Errno;

use crate::bind::Local;
use crate::device::Device;

/// The broadcast address of 127.0.0.0/8, which is left to the kernel, with its errors.
pub const LOOPBACK_BROADCAST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 255, 255, 255));

/// What is asked of a socket to decide by which stack it sends and receives.
#[derive(Clone, Copy, Debug)]
pub struct Sender<'a> {
    /// Where it is bound.
    pub local: Local,
    /// Whose interface it is bound to.
    pub device: Device,
    /// What would stay with the kernel is an error.
    pub is_engine_only: bool,
    /// What the engines that serve UDP own.
    pub all: &'a AllNetworks,
}

impl Sender<'_> {
    /// The engines that a datagram to this destination could leave by; none: it is the kernel's. `multicast_device` is whose
    /// interface the program names for groups of a family.
    pub fn ways(
        &self,
        destination: SocketAddr,
        multicast_device: impl FnOnce(Family) -> Device,
    ) -> Result<Candidates, Errno> {
        let (all, ip) = (self.all, destination.ip());
        let is_local = route::is_loopback(ip);
        // Bound to an address of an engine: nobody else could send from it, but only to others.
        if let Local::Bound(bound) = self.local
            && self.local.is_an_engines()
            && !is_local
        {
            return Ok(Candidates::only(bound.place));
        }
        let leaves = !engines::stays_here(ip, all);
        // From loopback nothing reaches another host, and the kernel says so.
        if self.local.is_loopback() && leaves || ip == LOOPBACK_BROADCAST {
            return Ok(Candidates::default());
        }
        // Groups, and everybody on a link that is not named.
        let reaches_many = ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST);
        let closest = if reaches_many {
            let device = multicast_device(address::family(destination));
            towards_group(destination, device, all)
        } else {
            engines::closest(destination, all)
        };
        // An address that the kernel shares with one engine is not another engine's.
        let candidates = match self.one_hosts() {
            Some(place) => closest.limited_to(place),
            None => closest,
        };
        let candidates = match self.device {
            Device::Engine(named) if !is_local => candidates.limited_to(named),
            Device::Engine(_) => Candidates::default(),
            Device::Kernel if self.is_on_kernels_device() => Candidates::default(),
            Device::Kernel | Device::Loopback(_) | Device::Any => candidates,
        };
        if !candidates.is_empty() || !self.is_engine_only || is_local {
            return Ok(candidates);
        }
        let first = engines::serving(SocketKinds::DATAGRAM, all).first();
        match first.filter(|_| reaches_many) {
            Some(first) => Ok(Candidates::only(first)),
            None => Err(Errno::NETUNREACH),
        }
    }

    /// The engines that the socket is on as long as it has no peer.
    pub fn engines(&self) -> Vec<EngineIndex> {
        if let Some(place) = self.one_hosts() {
            return vec![place];
        }
        // A broadcast address is an address of those only that are in its network.
        let broadcast = match self.local.specific().map(|bound| bound.address.ip()) {
            Some(IpAddr::V4(v4)) if !v4.is_multicast() => Some(v4),
            _ => None,
        };
        let hears = |place: &EngineIndex| {
            let networks = &self.all[place.index()];
            let by_device = match self.device {
                Device::Engine(named) => self.all[named.index()].scope_id == networks.scope_id,
                _ => true,
            };
            by_device && broadcast.is_none_or(|address| networks.is_broadcast(address))
        };
        let serving = engines::serving(SocketKinds::DATAGRAM, self.all);
        serving.iter().filter(hears).collect()
    }

    /// Whether the socket receives nothing from an engine: it is bound to an interface that no engine is on.
    pub fn is_on_kernels_device(&self) -> bool {
        self.device == Device::Kernel && self.local.specific().is_none()
    }

    /// The engine of the address that it is bound to, if that is one of a single host's.
    fn one_hosts(&self) -> Option<EngineIndex> {
        let is_broadcast = |v4: Ipv4Addr| self.all.iter().any(|one| one.is_broadcast(v4));
        let bound = self.local.specific()?;
        let is_manys = match bound.address.ip() {
            IpAddr::V4(v4) => v4.is_multicast() || is_broadcast(v4),
            IpAddr::V6(v6) => v6.is_multicast(),
        };
        (!is_manys).then_some(bound.place)
    }
}

fn towards_group(destination: SocketAddr, device: Device, all: &AllNetworks) -> Candidates {
    let has_scope = matches!(destination, SocketAddr::V6(v6) if v6.scope_id() != 0);
    match device {
        Device::Engine(place) if !has_scope => Candidates::only(place),
        Device::Kernel if !has_scope => Candidates::default(),
        _ => engines::closest_to_group(destination, all),
    }
}

/// Reads a destination; a socket of AF_INET6 takes names of AF_INET too (`udpv6_sendmsg`).
pub fn parse(name: &[u8], family: Family) -> Result<Name, Errno> {
    match address::parse(name, family)? {
        Name::Other if family == Family::V6 => address::parse(name, Family::V4),
        parsed => Ok(parsed),
    }
}

/// Whether the program says itself from which interface or address a datagram leaves.
pub fn has_chosen(control: &[u8], to: SocketAddr) -> bool {
    let ancillary = messages::parse(control, address::family(to));
    ancillary.is_ok_and(|one| one.interface != 0 || one.source.is_some())
}

/// Whether that interface and that address are an engine's, as far as they are named.
pub fn has_chosen_engine(ancillary: &SendAncillary, networks: &EngineNetworks) -> bool {
    (ancillary.interface == 0 || networks.has_interface(ancillary.interface))
        && ancillary.source.is_none_or(|source| networks.has(source))
}
