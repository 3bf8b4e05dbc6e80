//! Which functions a program names in its table of dynamic symbols.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use crate::{image, window::Window};

/// The longest table that is read.
const NAMES_MAX: u64 = 16 << 20;

/// What a program's table of dynamic symbols names.
#[derive(Clone, Debug, Default)]
pub struct Symbols(Vec<u8>);

impl Symbols {
    /// Those of a program. One that cannot be read has none.
    #[must_use]
    pub fn of(program: &Path) -> Self {
        Self(read_names(program).unwrap_or_default())
    }

    /// Whether the program imports or exports a symbol of one of these names.
    #[must_use]
    pub fn name_any(&self, symbols: &[&str]) -> bool {
        contains_any(&self.0, symbols)
    }
}

fn read_names(program: &Path) -> io::Result<Vec<u8>> {
    let mut file = Window::new(File::open(program)?);
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
        let symbols = Symbols::of(&own);
        assert!(symbols.name_any(&["write"]) && !symbols.name_any(&["capset"]));
        assert!(!Symbols::of(Path::new("/etc/passwd")).name_any(&["write"]));
    }
}
