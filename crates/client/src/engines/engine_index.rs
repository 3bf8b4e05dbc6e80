//! The index of an engine among those of the process, and sets of indexes.

use hostif::ENGINES_MAX;

use crate::engines::route::Claim;

/// The index of an engine among those of the process, in the order of their priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EngineIndex(pub(super) u8);

impl EngineIndex {
    /// The first engine: it has priority over all others.
    pub const FIRST: EngineIndex = EngineIndex(0);

    /// By its index; `None` beyond the last that can be.
    #[must_use]
    pub fn new(index: usize) -> Option<EngineIndex> {
        let place = u8::try_from(index).ok().map(EngineIndex)?;
        (index < ENGINES_MAX).then_some(place)
    }

    /// Its index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Engines among which a placement chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidates(pub(super) u8);

const _: () = assert!(ENGINES_MAX <= u8::BITS as usize);

impl Candidates {
    /// A single one.
    #[must_use]
    pub fn only(place: EngineIndex) -> Candidates {
        Candidates(1 << place.0)
    }

    /// Those of them that are this one.
    #[must_use]
    pub fn limited_to(self, place: EngineIndex) -> Candidates {
        Candidates(self.0 & (1 << place.0))
    }

    /// The first of them.
    #[must_use]
    pub fn first(self) -> Option<EngineIndex> {
        self.iter().next()
    }

    /// Those whose claim is the best of all; none where nobody claims.
    pub(crate) fn best_of(claims: impl Iterator<Item = Option<Claim>>) -> Candidates {
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
    pub fn has(self, place: EngineIndex) -> bool {
        self.0 & (1 << place.0) != 0
    }

    /// In the order of their priority.
    pub fn iter(self) -> impl Iterator<Item = EngineIndex> {
        (0..)
            .map(EngineIndex)
            .take(ENGINES_MAX)
            .filter(move |place| self.has(*place))
    }

    /// In the order of their priority, but from number `turn` on, and then from the first.
    pub(crate) fn from(self, turn: u32) -> impl Iterator<Item = EngineIndex> {
        let count = self.0.count_ones().max(1);
        let first = usize::try_from(turn % count).unwrap_or(0);
        self.iter().skip(first).chain(self.iter().take(first))
    }
}

impl FromIterator<EngineIndex> for Candidates {
    fn from_iter<T: IntoIterator<Item = EngineIndex>>(places: T) -> Candidates {
        let bits = places.into_iter().map(|place| 1 << place.0);
        Candidates(bits.fold(0, |all, one: u8| all | one))
    }
}
