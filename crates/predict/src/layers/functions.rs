//! The functions of a program file or library, by its symbol table: elf(5). Of what the file says only what lies within it is believed.

/// Type of a section with all symbols, and of a segment that is loaded.
const SYMBOLS: u32 = 2;
const LOADED: u32 = 1;
/// Symbols that are functions.
const FUNCTION: u8 = 2;
/// Bytes of a symbol.
const SYMBOL_BYTES: usize = 24;

/// Functions in the order of their addresses.
#[derive(Debug, Default)]
pub struct Functions {
    /// Of each loaded segment: place in the file, length there, address.
    segments: Vec<[u64; 3]>,
    /// First address, length, name.
    symbols: Vec<(u64, u64, String)>,
}

/// A file of 64 bits, smallest byte first.
struct Bytes<'f>(&'f [u8]);

impl<'f> Bytes<'f> {
    fn at<const N: usize>(&self, place: u64) -> Option<[u8; N]> {
        let place = usize::try_from(place).ok()?;
        self.0.get(place..place.checked_add(N)?)?.try_into().ok()
    }

    fn half(&self, place: u64) -> Option<u64> {
        self.at(place).map(u16::from_le_bytes).map(u64::from)
    }

    fn word(&self, place: u64) -> Option<u32> {
        self.at(place).map(u32::from_le_bytes)
    }

    fn long(&self, place: u64) -> Option<u64> {
        self.at(place).map(u64::from_le_bytes)
    }

    fn part(&self, place: u64, bytes: u64) -> Option<&'f [u8]> {
        let [place, bytes] = [place, bytes].map(|one| usize::try_from(one).ok());
        self.0.get(place?..place?.checked_add(bytes?)?)
    }

    /// Headers of a table: where it is, the size of each, how many.
    fn headers(&self, [table, size, count]: [u64; 3]) -> Option<Vec<u64>> {
        let [table, size, count] = [self.long(table)?, self.half(size)?, self.half(count)?];
        let place = |n: u64| table.checked_add(n * size);
        (0..count).map(place).collect()
    }
}

impl Functions {
    /// Those that the file names; `None`: it is none of 64 bits.
    pub fn of(file: &[u8]) -> Option<Self> {
        let file = Bytes(file);
        if file.at(0)? != *b"\x7fELF\x02\x01" {
            return None;
        }
        let mut found = Self::default();
        for header in file.headers([32, 54, 56])? {
            if file.word(header)? == LOADED {
                let long = |place| file.long(header + place);
                found.segments.push([long(8)?, long(32)?, long(16)?]);
            }
        }
        let sections = file.headers([40, 58, 60])?;
        for header in &sections {
            if file.word(header + 4)? != SYMBOLS {
                continue;
            }
            let table = |header: u64| file.part(file.long(header + 24)?, file.long(header + 32)?);
            let names = usize::try_from(file.word(header + 40)?).ok()?;
            let names = table(*sections.get(names)?)?;
            for symbol in table(*header)?.chunks_exact(SYMBOL_BYTES) {
                found.symbols.extend(symbol_of(&Bytes(symbol), names));
            }
        }
        found.symbols.sort();
        Some(found)
    }

    /// Whether the file names none.
    pub fn is_stripped(&self) -> bool {
        self.symbols.is_empty()
    }

    /// The function at a place of the file.
    pub fn name(&self, place: u64) -> Option<&str> {
        let mut segments = self.segments.iter();
        let address = segments.find_map(|[begin, length, address]| {
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

fn symbol_of(symbol: &Bytes<'_>, names: &[u8]) -> Option<(u64, u64, String)> {
    let [kind] = symbol.at(4)?;
    let (address, length) = (symbol.long(8)?, symbol.long(16)?);
    let name = names.get(usize::try_from(symbol.word(0)?).ok()?..)?;
    let name = name.split(|byte| *byte == 0).next()?;
    (kind & 15 == FUNCTION && length > 0)
        .then(|| (address, length, String::from_utf8_lossy(name).into_owned()))
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
        let of = |[begin, length, address]: &[u64; 3]| {
            let within = at.checked_sub(*address).filter(|one| one < length)?;
            Some(begin + within)
        };
        let place = functions.segments.iter().find_map(of).unwrap();
        assert_eq!(functions.name(place), Some(name.as_str()));
        assert!(Functions::of(b"#!/bin/sh").is_none());
        for cut in [64, file.len() / 2] {
            let _ = Functions::of(&file[..cut]);
        }
    }
}
