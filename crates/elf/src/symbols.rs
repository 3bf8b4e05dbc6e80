//! Which functions a program names in its table of dynamic symbols.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use crate::image;

/// The longest table that is read.
const NAMES_MAX: u64 = 16 << 20;

/// Whether the program imports or exports a symbol of one of these names. One that cannot be read has none.
#[must_use]
pub fn names_any(program: &Path, symbols: &[&str]) -> bool {
    read_names(program).is_ok_and(|names| contains_any(&names, symbols))
}

fn read_names(program: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(program)?;
    let mut names = Vec::new();
    if let Some((offset, len)) = image::read(&mut file)?.names {
        file.seek(SeekFrom::Start(offset))?;
        file.take(len.min(NAMES_MAX)).read_to_end(&mut names)?;
    }
    Ok(names)
}

/// The table has each name with a zero behind it.
fn contains_any(names: &[u8], symbols: &[&str]) -> bool {
    let mut names = names.split(|&byte| byte == 0);
    names.any(|name| symbols.iter().any(|symbol| symbol.as_bytes() == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_is_a_whole_name() {
        let names = b"\0libc.so.6\0setuid\0bind\0";
        assert!(contains_any(names, &["listen", "setuid"]));
        assert!(!contains_any(names, &["set", "uid", "lib"]));
    }

    #[test]
    fn this_test_imports_what_it_calls_and_text_has_no_symbols() {
        let own = std::env::current_exe().unwrap();
        assert!(names_any(&own, &["write"]) && !names_any(&own, &["capset"]));
        assert!(!names_any(Path::new("/etc/passwd"), &["write"]));
    }
}
