//! Which part of the file with the state of an engine is a core's. The parts lie one after the other, all of the same size.

/// A core's part of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Which core.
    pub core: u16,
    /// How many there are.
    pub cores: u16,
}

impl Section {
    /// The only core's.
    pub const ONLY: Self = Self { core: 0, cores: 1 };

    /// Where it begins, and how long the file is, where each section has `len` bytes; `None`: too long.
    #[must_use]
    pub fn place(self, len: u64) -> Option<(u64, u64)> {
        let start = len.checked_mul(self.core.into());
        let whole = len.checked_mul(self.cores.into());
        start.zip(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_follow_each_other_to_the_end_of_the_file() {
        assert_eq!(Section::ONLY.place(4096), Some((0, 4096)));
        for core in 0..3 {
            let section = Section { core, cores: 3 };
            assert_eq!(section.place(100), Some((u64::from(core) * 100, 300)));
        }
        assert_eq!(Section { core: 0, cores: 2 }.place(u64::MAX), None);
    }
}
