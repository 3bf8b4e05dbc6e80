//! Which of several engines gets a connection, and what was learnt when one could not carry it.

use core::hash::{BuildHasher, Hash, Hasher};
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::hash::{DefaultHasher, RandomState};
use std::sync::OnceLock;

use hostif::{ENGINES_MAX, PLACEMENT_VARIABLE};

use crate::engines::engine_index::{Candidates, EngineIndex};
use crate::engines::session::Session;

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
        let name = hostif::environment::text(PLACEMENT_VARIABLE).unwrap_or_default();
        Placement::parse(&name).unwrap_or_default()
    }

    /// The candidates, the one to be tried first at the front.
    #[must_use]
    pub fn order(
        self,
        candidates: Candidates,
        flow: Flow,
        sessions: &[&Session],
    ) -> Vec<EngineIndex> {
        match self {
            Placement::Priority => candidates.iter().collect(),
            Placement::RoundRobin => {
                static TURN: AtomicU32 = AtomicU32::new(0);
                candidates
                    .from(TURN.fetch_add(1, Ordering::Relaxed))
                    .collect()
            }
            Placement::LeastLoad => {
                let load = |place: &EngineIndex| {
                    let session = sessions.get(place.index());
                    session.map_or(usize::MAX, |session| session.socket_count())
                };
                let mut places: Vec<EngineIndex> = candidates.iter().collect();
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
    pub fn prefer(&self, destination: IpAddr, places: &mut [EngineIndex]) {
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
    pub fn remember(&self, destination: IpAddr, place: EngineIndex) {
        let (slot, hash) = self.slot(destination);
        slot.store(hash | (place.index() as u64 + 1), Ordering::Relaxed);
    }
}
