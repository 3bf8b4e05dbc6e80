//! Several engines in one process (docs/decisions/0032-several-engines.md): which of them has a local
//! address, which carries a connection, and what was learnt when one could not.
//!
//! An engine is named by its place in the order in which the environment names them, which is the order of
//! their priority. `route` judges one engine against the kernel; here the engines are judged against each other.

mod attached;

use core::hash::{BuildHasher, Hash, Hasher};
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::hash::{DefaultHasher, RandomState};
use std::sync::{Arc, OnceLock};

use hostif::control::SocketKinds;
use hostif::{ENGINES_MAX, PLACEMENT_VARIABLE};

pub use attached::{Engines, Networks, is_for_the_kernel, is_refusal};

use crate::lock::lock;
use crate::route::{self, Claim, EngineNetworks, Owner};
use crate::session::Session;

/// The place of an engine among those of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place(u8);

impl Place {
    /// The first engine: it has priority over all others.
    pub const FIRST: Place = Place(0);

    /// By its index; `None` beyond the last that can be.
    #[must_use]
    pub fn new(index: usize) -> Option<Place> {
        let place = u8::try_from(index).ok().map(Place)?;
        (index < ENGINES_MAX).then_some(place)
    }

    /// Its index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What the engines of the process own, each at its place.
pub type AllNetworks = [Arc<EngineNetworks>];

/// Who has a local address, of the kernel (`None`) and all engines.
#[must_use]
pub fn owner(address: IpAddr, all: &AllNetworks) -> Option<(Owner, Place)> {
    let mut shared = None;
    for (index, networks) in all.iter().enumerate() {
        match (route::owner(address, networks), Place::new(index)) {
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
            let place = Place::new(index)?;
            one.kinds.contains(kind).then_some(place)
        })
        .collect()
}

/// Whether two engines are on one link of this kernel, where both hear what is for everybody.
#[must_use]
pub fn are_on_one_link(one: Place, other: Place, all: &AllNetworks) -> bool {
    let link = |place: Place| all.get(place.index()).map_or(0, |one| one.scope_id);
    link(one) != 0 && link(one) == link(other)
}

/// Of the engines on the link of one of them the first, which hears for all what is for everybody there.
#[must_use]
pub fn first_on_link(place: Place, among: Candidates, all: &AllNetworks) -> Place {
    let mut before = among.iter().take_while(|one| *one != place);
    before
        .find(|one| are_on_one_link(*one, place, all))
        .unwrap_or(place)
}

/// The engine on an interface of that number, of several the first.
#[must_use]
pub fn of_interface(index: u32, all: &AllNetworks) -> Option<Place> {
    let place = all.iter().position(|one| one.scope_id == index)?;
    Place::new(place)
}

/// Engines among which a placement chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidates(u8);

const _: () = assert!(ENGINES_MAX <= u8::BITS as usize);

impl Candidates {
    /// A single one.
    #[must_use]
    pub fn only(place: Place) -> Candidates {
        Candidates(1 << place.0)
    }

    /// Those of them that are this one.
    #[must_use]
    pub fn limited_to(self, place: Place) -> Candidates {
        Candidates(self.0 & (1 << place.0))
    }

    /// The first of them.
    #[must_use]
    pub fn first(self) -> Option<Place> {
        self.iter().next()
    }

    fn best_of(claims: impl Iterator<Item = Option<Claim>>) -> Candidates {
        let (mut best, mut candidates) = (None, 0);
        for (index, claim) in claims.enumerate().take(ENGINES_MAX) {
            if claim.is_none() || claim < best {
                continue;
            }
            if claim > best {
                (best, candidates) = (claim, 0);
            }
            candidates |= 1 << index;
        }
        Candidates(candidates)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this one is among them.
    #[must_use]
    pub fn has(self, place: Place) -> bool {
        self.0 & (1 << place.0) != 0
    }

    /// In the order of their priority.
    pub fn iter(self) -> impl Iterator<Item = Place> {
        (0..)
            .map(Place)
            .take(ENGINES_MAX)
            .filter(move |place| self.has(*place))
    }

    /// In the order of their priority, but from one on, round.
    fn from(self, turn: u32) -> impl Iterator<Item = Place> {
        let count = self.0.count_ones().max(1);
        let first = usize::try_from(turn % count).unwrap_or(0);
        self.iter().skip(first).chain(self.iter().take(first))
    }
}

impl FromIterator<Place> for Candidates {
    fn from_iter<T: IntoIterator<Item = Place>>(places: T) -> Candidates {
        let bits = places.into_iter().map(|place| 1 << place.0);
        Candidates(bits.fold(0, |all, one: u8| all | one))
    }
}

/// Which of several engines gets a connection that all of them could carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The first.
    #[default]
    Priority,
    /// One after the other.
    RoundRobin,
    /// That on which this process has the fewest sockets.
    LeastLoad,
    /// By addresses and ports: the same four always to the same.
    FlowHash,
}

impl Placement {
    /// All of them, by name.
    pub const ALL: [(&'static str, Placement); 4] = [
        ("priority", Placement::Priority),
        ("round-robin", Placement::RoundRobin),
        ("least-load", Placement::LeastLoad),
        ("flow-hash", Placement::FlowHash),
    ];

    /// By its name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Placement> {
        let mut all = Placement::ALL.into_iter();
        all.find(|(own, _)| *own == name).map(|(_, one)| one)
    }

    /// What the environment asks for: priority where it says nothing that is known.
    #[must_use]
    pub fn wanted() -> Placement {
        let name = std::env::var(PLACEMENT_VARIABLE).unwrap_or_default();
        Placement::parse(&name).unwrap_or_default()
    }

    /// The candidates, the one to be tried first at the front.
    #[must_use]
    pub fn order(self, candidates: Candidates, flow: Flow, sessions: &[&Session]) -> Vec<Place> {
        match self {
            Placement::Priority => candidates.iter().collect(),
            Placement::RoundRobin => {
                static TURN: AtomicU32 = AtomicU32::new(0);
                candidates
                    .from(TURN.fetch_add(1, Ordering::Relaxed))
                    .collect()
            }
            Placement::LeastLoad => {
                let load = |place: &Place| {
                    let session = sessions.get(place.index());
                    session.map_or(usize::MAX, |session| session.socket_count())
                };
                let mut places: Vec<Place> = candidates.iter().collect();
                // Stable: of equal ones the first.
                places.sort_by_key(load);
                places
            }
            Placement::FlowHash => candidates.from(flow.hash()).collect(),
        }
    }
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Flow {
    /// As far as it is known.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
}

impl Flow {
    fn hash(self) -> u32 {
        // Without a key: the same four parts lead every process to the same engine.
        let mut hasher = DefaultHasher::new();
        Hash::hash(&self, &mut hasher);
        u32::try_from(hasher.finish() >> 32).unwrap_or(0)
    }
}

/// Destinations that are remembered.
const REMEMBERED: usize = 256;
/// In a slot: nothing is remembered.
const FORGOTTEN: u64 = 0;

/// Which engine worked for a destination when the one that should have had it did not. A destination that
/// takes another's slot drives it out.
pub struct Remembered {
    /// Upper 56 bits: of the destination's hash; lower 8: 1 and the place.
    slots: [AtomicU64; REMEMBERED],
    key: OnceLock<RandomState>,
}

impl Default for Remembered {
    fn default() -> Self {
        Self::new()
    }
}

impl Remembered {
    /// Nothing yet.
    #[must_use]
    pub const fn new() -> Remembered {
        Remembered {
            slots: [const { AtomicU64::new(FORGOTTEN) }; REMEMBERED],
            key: OnceLock::new(),
        }
    }

    fn slot(&self, destination: IpAddr) -> (&AtomicU64, u64) {
        // With a key, so that nobody can choose destinations that drive out each other.
        let hash = self.key.get_or_init(RandomState::new).hash_one(destination);
        let index = usize::try_from(hash % REMEMBERED as u64).unwrap_or(0);
        (&self.slots[index], hash & !0xff)
    }

    /// Puts the one that worked for a destination to the front.
    pub fn prefer(&self, destination: IpAddr, places: &mut [Place]) {
        let (slot, hash) = self.slot(destination);
        let seen = slot.load(Ordering::Relaxed);
        if seen == FORGOTTEN || seen & !0xff != hash {
            return;
        }
        let index = usize::try_from((seen & 0xff) - 1).unwrap_or(ENGINES_MAX);
        if let Some(at) = places.iter().position(|place| place.index() == index) {
            places[..=at].rotate_right(1);
        }
    }

    /// The first that was tried did not work, and this one did.
    pub fn remember(&self, destination: IpAddr, place: Place) {
        let (slot, hash) = self.slot(destination);
        slot.store(hash | (u64::from(place.0) + 1), Ordering::Relaxed);
    }
}

impl Session {
    /// Sockets of this process on the engine.
    #[must_use]
    pub fn socket_count(&self) -> usize {
        lock(&self.registry).len()
    }
}

#[cfg(test)]
mod tests;
