//! What `shunt run` tells a program in its environment, by variables whose names begin with `SHUNT_`, as it was when the program
//! began: a program may empty its environment, or write over the memory where it lies, before it makes its first socket.
//! See environ(7). Who changes environments is not here.

use std::env;
use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// How the names begin of variables that are Shunt's.
const PREFIX: &[u8] = b"SHUNT_";
/// Bytes of all of them, with the byte of zero behind each: eight engines that are named by paths take a quarter.
const ROOM: usize = 4096;

static KEPT: OnceLock<Kept> = OnceLock::new();

/// A copy of some variables, made where nothing may allocate.
#[derive(Debug)]
pub struct Kept {
    bytes: [u8; ROOM],
    len: usize,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            bytes: [0; ROOM],
            len: 0,
        }
    }
}

impl Kept {
    /// Copies the entry (`NAME=value`) if it is Shunt's and there is room for it.
    pub fn add(&mut self, entry: &CStr) {
        let bytes = entry.to_bytes_with_nul();
        if !bytes.starts_with(PREFIX) {
            return;
        }
        if let Some(room) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            room.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }

    /// What was copied.
    pub fn entries(&self) -> impl Iterator<Item = &CStr> + Clone {
        self.bytes[..self.len]
            .split_inclusive(|byte| *byte == 0)
            .filter_map(|bytes| CStr::from_bytes_with_nul(bytes).ok())
    }

    /// The value of a variable. Neither locks nor allocates.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&OsStr> {
        self.entries().find_map(|entry| value_of(entry, name))
    }
}

/// The value in an entry of an environment, if it is the variable of this name.
#[must_use]
pub fn value_of<'a>(entry: &'a CStr, name: &str) -> Option<&'a OsStr> {
    let rest = entry.to_bytes().strip_prefix(name.as_bytes())?;
    rest.strip_prefix(b"=").map(OsStr::from_bytes)
}

/// From now on these are the process's variables, whatever its environment says. The first to keep some is heard.
pub fn keep(kept: Kept) {
    let _ = KEPT.set(kept);
}

/// What was kept; nothing in a program without the preloaded library.
#[must_use]
pub fn kept() -> Option<&'static Kept> {
    KEPT.get()
}

/// A variable of Shunt's.
#[must_use]
pub fn value(name: &str) -> Option<OsString> {
    match kept() {
        Some(kept) => kept.value(name).map(OsStr::to_owned),
        None => env::var_os(name),
    }
}

/// One that is text; `None` for any other too.
#[must_use]
pub fn text(name: &str) -> Option<String> {
    value(name)?.into_string().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_shunt_are_kept_and_others_are_not() {
        let mut kept = Kept::default();
        for entry in [
            c"HOME=/root",
            c"SHUNT_ENGINE=@a,@b",
            c"SHUNT",
            c"SHUNT_EMPTY=",
            c"SHUNT_ENGINE=@late",
        ] {
            kept.add(entry);
        }
        assert_eq!(kept.value("SHUNT_ENGINE"), Some(OsStr::new("@a,@b")));
        assert_eq!(kept.value("SHUNT_EMPTY"), Some(OsStr::new("")));
        assert_eq!(kept.value("SHUNT_EMPT"), None);
        assert_eq!(kept.value("HOME"), None);
        assert_eq!(kept.entries().count(), 3);
    }

    #[test]
    fn what_does_not_fit_is_left_out_as_a_whole() {
        let mut kept = Kept::default();
        let long = std::ffi::CString::new([b"SHUNT_A=".as_slice(), &[b'x'; ROOM - 12]].concat());
        kept.add(&long.unwrap());
        kept.add(c"SHUNT_B=12");
        kept.add(c"SHUNT_");
        assert_eq!(kept.value("SHUNT_A").map(OsStr::len), Some(ROOM - 12));
        assert_eq!(kept.value("SHUNT_B"), None);
        assert_eq!(kept.entries().count(), 1);
    }
}
