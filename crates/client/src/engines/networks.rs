//! What the engines of a process own, judged against each other: which of them has a local address, and which serve a
//! destination. `route` judges one engine against the kernel.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hostif::control::SocketKinds;

use crate::engines::engine_index::{Candidates, EngineIndex};
use crate::engines::route::{self, EngineNetworks, Owner};

/// What the engines of the process own, by [`EngineIndex`].
pub type AllNetworks = [Arc<EngineNetworks>];

/// Who has a local address, of the kernel (`None`) and all engines.
#[must_use]
pub fn owner(address: IpAddr, all: &AllNetworks) -> Option<(Owner, EngineIndex)> {
    let mut shared = None;
    for (index, networks) in all.iter().enumerate() {
        match (route::owner(address, networks), EngineIndex::new(index)) {
            (Some(Owner::Engine), Some(place)) => return Some((Owner::Engine, place)),
            (Some(Owner::Any), place) => shared = shared.or(place),
            _ => {}
        }
    }
    shared.map(|place| (Owner::Any, place))
}

/// Which engines serve a destination equally well, none better; empty: the kernel has to.
#[must_use]
pub fn closest(destination: SocketAddr, all: &AllNetworks) -> Candidates {
    let claims = all.iter().map(|one| route::claim(destination, one));
    Candidates::best_of(claims)
}

/// As [`closest`], of a datagram to a group or to everybody.
#[must_use]
pub fn closest_to_group(destination: SocketAddr, all: &AllNetworks) -> Candidates {
    let claims = all
        .iter()
        .map(|one| route::claim_on_group(destination, one));
    Candidates::best_of(claims)
}

/// Whether packets to an address stay on this host, for a process that has loopback on an engine: the kernel may have
/// sockets there too.
#[must_use]
pub fn stays_here(address: IpAddr, all: &AllNetworks) -> bool {
    route::is_loopback(address) || all.iter().any(|one| one.has_as_loopback(address))
}

/// Those that serve sockets of this kind.
#[must_use]
pub fn serving(kind: SocketKinds, all: &AllNetworks) -> Candidates {
    all.iter()
        .enumerate()
        .filter_map(|(index, one)| {
            let place = EngineIndex::new(index)?;
            one.kinds.contains(kind).then_some(place)
        })
        .collect()
}

/// Whether two engines are on one link of this kernel, where both hear what is for everybody.
#[must_use]
pub fn are_on_one_link(one: EngineIndex, other: EngineIndex, all: &AllNetworks) -> bool {
    let link = |place: EngineIndex| all.get(place.index()).map_or(0, |one| one.scope_id);
    link(one) != 0 && link(one) == link(other)
}

/// Of the engines on the link of one of them the first, which hears for all what is for everybody there.
#[must_use]
pub fn first_on_link(place: EngineIndex, among: Candidates, all: &AllNetworks) -> EngineIndex {
    let mut before = among.iter().take_while(|one| *one != place);
    before
        .find(|one| are_on_one_link(*one, place, all))
        .unwrap_or(place)
}

/// The engine on an interface of that number, of several the first.
#[must_use]
pub fn of_interface(index: u32, all: &AllNetworks) -> Option<EngineIndex> {
    let place = all.iter().position(|one| one.scope_id == index)?;
    EngineIndex::new(place)
}
