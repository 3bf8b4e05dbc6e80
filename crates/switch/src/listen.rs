//! listen(2): on which stacks a listener is. One on ANY is on all of them at once.

use client::SocketKinds;
use client::engines::{EngineIndex, Engines};
use client::route::Owner;
use rustix::io::Errno;

use crate::bind::Local;
use crate::device::Device;

/// Where a listener is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Whose its address is: of [`Owner::Any`] the kernel listens too.
    pub owner: Owner,
    /// The engine that listens.
    pub place: EngineIndex,
    /// All other engines listen too.
    pub is_on_all: bool,
}

/// Where a socket listens; `None`: the kernel alone has the address, or the interface. EADDRNOTAVAIL: so it is, and the engine
/// alone is wanted.
pub fn decide(
    local: Local,
    device: Device,
    is_engine_only: bool,
    engines: &Engines,
) -> Result<Option<Listener>, Errno> {
    let owner = match local {
        Local::Bound(bound) => bound.owner,
        Local::Unbound | Local::Kernels => Owner::Any,
    };
    // An engine hears what comes by `lo` alone where the address does.
    let is_kernels = match device {
        _ if local == Local::Kernels => true,
        Device::Kernel => true,
        Device::Loopback(_) => !local.is_loopback(),
        Device::Any | Device::Engine(_) => false,
    };
    if owner == Owner::Any && is_kernels {
        return match is_engine_only {
            true => Err(Errno::ADDRNOTAVAIL),
            false => Ok(None),
        };
    }
    let place = match device {
        Device::Engine(place) | Device::Loopback(place) => place,
        Device::Any | Device::Kernel => match local.specific() {
            Some(bound) => bound.place,
            None => engines.first_for(SocketKinds::STREAM).unwrap_or_default(),
        },
    };
    Ok(Some(Listener {
        owner,
        place,
        is_on_all: local.specific().is_none() && device == Device::Any,
    }))
}
