//! Pages of a memory chain, see madvise(2) and proc_pid_smaps(5).

#![allow(unsafe_code)]

use std::fs;

use rustix::mm::{Advice, madvise};

const PAGE_BYTES: usize = 4096;

/// Asks for huge pages, or for none, where memory of a vector lies that was not written yet.
pub fn prefer_huge_pages<T>(memory: &mut Vec<T>, wanted: bool) {
    let begin = memory.as_mut_ptr().addr().next_multiple_of(PAGE_BYTES);
    let skipped = begin - memory.as_mut_ptr().addr();
    let bytes = memory.capacity() * size_of::<T>();
    let len = bytes.saturating_sub(skipped) / PAGE_BYTES * PAGE_BYTES;
    let advice = if wanted {
        Advice::LinuxHugepage
    } else {
        Advice::LinuxNoHugepage
    };
    // SAFETY: the range lies within the vector's own memory, and the advice changes no contents.
    let _ = unsafe {
        let first = memory.as_mut_ptr().cast::<u8>().add(skipped);
        madvise(first.cast(), len, advice)
    };
}

/// What part of a slice's memory lies in huge pages.
pub fn huge_part<T>(memory: &[T]) -> f64 {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    // A large vector has a mapping of its own, or shares one with its neighbours.
    let at = memory.as_ptr().addr() + size_of_val(memory) / 2;
    huge_bytes(&smaps, at) / size_of_val(memory) as f64
}

/// Bytes in huge pages of the mapping in which an address lies.
fn huge_bytes(smaps: &str, at: usize) -> f64 {
    let mut is_inside = false;
    for line in smaps.lines() {
        let range = line.split(' ').next().and_then(|word| word.split_once('-'));
        let number = |text: &str| usize::from_str_radix(text, 16).ok();
        if let Some((from, to)) = range.and_then(|(from, to)| Some((number(from)?, number(to)?))) {
            is_inside = (from..to).contains(&at);
        } else if let Some(size) = line.strip_prefix("AnonHugePages:").filter(|_| is_inside) {
            let kib = size.trim().trim_end_matches("kB").trim().parse::<f64>();
            return kib.unwrap_or(0.0) * 1024.0;
        }
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_those_of_the_mapping_in_which_the_memory_lies() {
        let smaps = "1000-2000 rw-p 0\nAnonHugePages:   2048 kB\n5000-9000 rw-p 0\nSize: 4 kB\nAnonHugePages:  4096 kB\n";
        assert_eq!(huge_bytes(smaps, 0x1800), 2048.0 * 1024.0);
        assert_eq!(huge_bytes(smaps, 0x5000), 4096.0 * 1024.0);
        assert_eq!(huge_bytes(smaps, 0x3000), 0.0);
    }
}
