//! Which sources of a group are listened to (RFC 3376 §3): by one socket, and by an interface for all of
//! its sockets together.

use core::net::IpAddr;

/// Sources of one filter at most; more are refused, as beyond Linux's `igmp_max_msf`.
pub(crate) const SOURCES_MAX: usize = 64;

/// A list of sources to listen to, or not to. Including none is listening to nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) excludes: bool,
    /// In order, without duplicates.
    pub(crate) sources: Vec<IpAddr>,
}

impl Filter {
    /// Listens to nobody.
    pub(crate) const NOBODY: Self = Self {
        excludes: false,
        sources: Vec::new(),
    };
    /// Listens to everybody.
    pub(crate) const EVERYBODY: Self = Self {
        excludes: true,
        sources: Vec::new(),
    };

    /// Whether a source is listened to.
    pub(crate) fn takes(&self, source: IpAddr) -> bool {
        self.sources.binary_search(&source).is_ok() != self.excludes
    }

    /// Adds a source to the list; false: it is there already, or there are too many.
    pub(crate) fn add(&mut self, source: IpAddr) -> bool {
        match self.sources.binary_search(&source) {
            Err(place) if self.sources.len() < SOURCES_MAX => {
                self.sources.insert(place, source);
                true
            }
            _ => false,
        }
    }

    /// Takes a source out of the list; false: it is not there.
    pub(crate) fn remove(&mut self, source: IpAddr) -> bool {
        let found = self.sources.binary_search(&source);
        found.map(|place| self.sources.remove(place)).is_ok()
    }

    /// What the interface has to listen to for all of these (RFC 3376 §3.2). A list that would be too
    /// long becomes everybody: sockets filter for themselves.
    pub(crate) fn together<'a>(filters: impl Iterator<Item = &'a Filter> + Clone) -> Self {
        let excluding = || filters.clone().filter(|filter| filter.excludes);
        let including = || filters.clone().filter(|filter| !filter.excludes);
        let mut sum = Self::NOBODY;
        if let Some(first) = excluding().next() {
            sum.excludes = true;
            let is_unwanted = |source: &&IpAddr| {
                excluding().all(|filter| !filter.takes(**source))
                    && including().all(|filter| !filter.takes(**source))
            };
            sum.sources.extend(first.sources.iter().filter(is_unwanted));
            return sum;
        }
        for source in including().flat_map(|filter| &filter.sources) {
            if !sum.add(*source) && sum.sources.len() == SOURCES_MAX && !sum.takes(*source) {
                return Self::EVERYBODY;
            }
        }
        sum
    }

    /// The sources of this list that the other does not have.
    pub(crate) fn without(&self, other: &Filter) -> Vec<IpAddr> {
        let is_new = |source: &&IpAddr| other.sources.binary_search(source).is_err();
        self.sources.iter().filter(is_new).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn source(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    fn filter() -> impl Strategy<Value = Filter> {
        (
            any::<bool>(),
            proptest::collection::btree_set(0_u8..6, 0..5),
        )
            .prop_map(|(excludes, sources)| Filter {
                excludes,
                sources: sources.into_iter().map(source).collect(),
            })
    }

    proptest! {
        #[test]
        fn an_interface_takes_what_any_of_its_sockets_takes(
            filters in proptest::collection::vec(filter(), 0..5)
        ) {
            let sum = Filter::together(filters.iter());
            for n in 0..8 {
                let wanted = filters.iter().any(|filter| filter.takes(source(n)));
                prop_assert_eq!(sum.takes(source(n)), wanted);
            }
        }
    }

    #[test]
    fn sources_are_listed_once_and_bounded() {
        let mut filter = Filter::NOBODY;
        for n in 0..64 {
            assert!(filter.add(source(n)));
        }
        assert!(!filter.add(source(3)) && !filter.add(source(200)));
        assert!(filter.remove(source(3)) && !filter.remove(source(3)));
    }

    #[test]
    fn more_sources_than_fit_are_everybody() {
        let half = |from: u8| Filter {
            excludes: false,
            sources: (from..from + 40).map(source).collect(),
        };
        let (low, high) = (half(0), half(100));
        assert_eq!(
            Filter::together([&low, &high].into_iter()),
            Filter::EVERYBODY
        );
    }
}
