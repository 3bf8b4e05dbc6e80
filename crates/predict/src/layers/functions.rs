//! The functions of a program file or library, by its symbol table: elf(5).

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};

/// Functions in the order of their addresses.
#[derive(Debug, Default)]
pub struct Functions {
    /// Of each loaded segment: place in the file, length there, address.
    segments: Vec<(u64, u64, u64)>,
    /// First address, length, name.
    symbols: Vec<(u64, u64, String)>,
}

impl Functions {
    /// Those that the file names; `None`: it is no program of this kind.
    pub fn of(file: &[u8]) -> Option<Self> {
        let file = object::File::parse(file).ok()?;
        let segments = file.segments().map(|segment| {
            let (begin, length) = segment.file_range();
            (begin, length, segment.address())
        });
        let functions = file
            .symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0);
        let named = functions.filter_map(|symbol| {
            let name = symbol.name().ok()?.to_owned();
            Some((symbol.address(), symbol.size(), name))
        });
        let mut symbols: Vec<_> = named.collect();
        symbols.sort();
        Some(Self {
            segments: segments.collect(),
            symbols,
        })
    }

    /// Whether the file names none.
    pub fn is_stripped(&self) -> bool {
        self.symbols.is_empty()
    }

    /// The function at a place of the file.
    pub fn name(&self, place: u64) -> Option<&str> {
        let mut segments = self.segments.iter();
        let address = segments.find_map(|(begin, length, address)| {
            let within = place.checked_sub(*begin).filter(|at| at < length)?;
            address.checked_add(within)
        })?;
        let after = self
            .symbols
            .partition_point(|(begin, ..)| *begin <= address);
        let (begin, length, name) = self.symbols.get(after.checked_sub(1)?)?;
        (address - begin < *length).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_this_test_is_found_and_what_is_no_program_has_none() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let functions = Functions::of(&file).unwrap();
        assert!(!functions.is_stripped());
        let (at, _, name) = &functions.symbols[functions.symbols.len() / 2];
        let mut segments = functions.segments.iter();
        let place = segments.find_map(|(begin, length, address)| {
            let within = at.checked_sub(*address).filter(|one| one < length)?;
            Some(begin + within)
        });
        assert_eq!(functions.name(place.unwrap()), Some(name.as_str()));
        assert!(Functions::of(b"#!/bin/sh").is_none());
    }

    #[test]
    fn tables_that_lie_beyond_a_file_are_none_of_it() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let is_stripped = |file: &[u8]| Functions::of(file).is_none_or(|found| found.is_stripped());
        assert!(is_stripped(&file[..64]));
        // The place of the table of sections, which says where symbols are.
        for place in [u64::MAX, u64::MAX - 63, 1 << 62] {
            let mut other = file.clone();
            other[40..48].copy_from_slice(&place.to_le_bytes());
            assert!(is_stripped(&other), "{place:#x}");
        }
    }
}
