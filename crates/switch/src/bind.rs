//! bind(2): whose an address is that a socket has, and what follows from that.

use core::net::{IpAddr, SocketAddr};

use client::engines::{self, AllNetworks, EngineIndex};
use client::route::Owner;
use rustix::io::Errno;

/// The result of a bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Address and port as the kernel reports them, port 0 resolved.
    pub address: SocketAddr,
    /// Who has the address.
    pub owner: Owner,
    /// The engine that has it; of ANY, the first.
    pub place: EngineIndex,
}

/// Where a socket is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// Nowhere yet.
    Unbound,
    /// To an address that the kernel alone has.
    Kernels,
    /// To one that an engine has, alone or too.
    Bound(Bound),
}

impl Local {
    /// By what the kernel says of the backing socket. An address without a port is that of IP_BIND_ADDRESS_NO_PORT (ip(7)).
    pub fn of(address: SocketAddr, all: &AllNetworks) -> Local {
        if address.port() == 0 && address.ip().is_unspecified() {
            return Local::Unbound;
        }
        match engines::owner(address.ip(), all) {
            Some((owner, place)) => Local::Bound(Bound {
                address,
                owner,
                place,
            }),
            None => Local::Kernels,
        }
    }

    /// Whether an engine alone has it: the kernel cannot send from there.
    pub fn is_an_engines(&self) -> bool {
        matches!(self, Local::Bound(bound) if bound.owner == Owner::Engine)
    }

    /// The address, if it is one of an interface or of loopback.
    pub(crate) fn specific(&self) -> Option<Bound> {
        match self {
            Local::Bound(bound) if !bound.address.ip().is_unspecified() => Some(*bound),
            _ => None,
        }
    }

    pub(crate) fn is_loopback(&self) -> bool {
        matches!(self, Local::Bound(bound) if bound.address.ip().is_loopback())
    }
}

impl From<Option<Bound>> for Local {
    fn from(bound: Option<Bound>) -> Local {
        bound.map_or(Local::Unbound, Local::Bound)
    }
}

/// Who has an address that a program binds to. EADDRNOTAVAIL: the kernel alone, and the engine alone is wanted.
pub fn owner(
    ip: IpAddr,
    is_engine_only: bool,
    all: &AllNetworks,
) -> Result<Option<(Owner, EngineIndex)>, Errno> {
    match engines::owner(ip, all) {
        None if is_engine_only && !ip.is_loopback() => Err(Errno::ADDRNOTAVAIL),
        owner => Ok(owner),
    }
}
