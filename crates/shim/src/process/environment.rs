//! The environment of programs that this one starts. Where it has lost what `shunt run` put into it (`env -i`, a web server that
//! gives its CGI programs an environment of their own) the program would run on the kernel, and could not use a socket that it
//! has from here. So it is put back for the start, and the library takes it out again before the new program's `main`, which sees the
//! environment that it was given (docs/decisions/0110). Read first: environ(7), ld.so(8).

pub mod sys;

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use hostif::environment::{Kept, kept, value_of};
use hostif::{LIBRARY_VARIABLE, POLICY_VARIABLE};

pub use sys::at_load;

/// Stands before the variables that were put back.
const MARK: &CStr = c"SHUNT_PUT_BACK=1";
const PRELOAD: &str = "LD_PRELOAD";
pub const KERNEL_ONLY: &str = "kernel-only";

/// What an environment says of Shunt.
#[derive(Debug, Default)]
pub struct Seen<'a> {
    /// LD_PRELOAD, where it names no library of ours.
    others: Option<&'a OsStr>,
    has_library: bool,
    /// `shunt run` wants none for this program, or the program shall be the kernel's.
    is_let_go: bool,
}

impl<'a> Seen<'a> {
    fn add(&mut self, entry: &'a CStr) {
        if let Some(list) = value_of(entry, PRELOAD) {
            self.has_library = names_ours(list);
            self.others = Some(list).filter(|list| !list.is_empty());
        }
        self.is_let_go |= value_of(entry, LIBRARY_VARIABLE).is_some_and(OsStr::is_empty)
            || value_of(entry, POLICY_VARIABLE).is_some_and(|policy| policy == KERNEL_ONLY);
    }

    /// Whether a program with this environment would not have the library that this one has.
    pub fn is_lost(&self) -> bool {
        !self.has_library && !self.is_let_go
    }

    /// Whether it shall have none.
    pub fn is_let_go(&self) -> bool {
        self.is_let_go
    }
}

/// Whether a value of LD_PRELOAD names a library of Shunt's, of whichever version.
fn names_ours(list: &OsStr) -> bool {
    let mut names = list.as_bytes().split(|byte| matches!(byte, b' ' | b':'));
    names.any(|name| {
        let file = Path::new(OsStr::from_bytes(name)).file_name();
        let file = file.map_or(b"".as_slice(), OsStr::as_bytes);
        file.starts_with(b"libshunt") && file.ends_with(b".so")
    })
}

/// What this process was started with, if `shunt run` has preloaded a library, and the library's file.
fn own() -> Option<(&'static Kept, &'static OsStr)> {
    let kept = kept()?;
    let library = kept.value(LIBRARY_VARIABLE)?;
    (!library.is_empty()).then_some((kept, library))
}

/// Whether the loader would find the library: not in a chroot(2) without it, nor where another user may not read it.
pub fn is_library_there() -> bool {
    let flags = rustix::fs::AtFlags::EACCESS;
    let may =
        |file| rustix::fs::accessat(rustix::fs::CWD, file, rustix::fs::Access::READ_OK, flags);
    own().is_none_or(|(_, library)| may(library).is_ok())
}

/// The name and the sign of equality of an entry.
fn name_of(entry: &CStr) -> &[u8] {
    let bytes = entry.to_bytes();
    let end = bytes.iter().position(|byte| *byte == b'=');
    &bytes[..end.map_or(bytes.len(), |end| end + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen<'a>(entries: &[&'a CStr]) -> Seen<'a> {
        let mut seen = Seen::default();
        entries.iter().for_each(|entry| seen.add(entry));
        seen
    }

    #[test]
    fn an_environment_without_the_library_has_lost_it() {
        assert!(seen(&[]).is_lost());
        assert!(seen(&[c"PATH=/bin", c"SHUNT_ENGINE=@one"]).is_lost());
        let other = seen(&[c"LD_PRELOAD=/usr/lib/libjemalloc.so.2"]);
        assert!(other.is_lost());
        assert_eq!(other.others, Some(OsStr::new("/usr/lib/libjemalloc.so.2")));
        assert!(seen(&[c"LD_PRELOAD=/x/libshunt.so.1"]).is_lost());
    }

    #[test]
    fn one_with_it_or_of_somebody_who_wants_none_has_not() {
        for entry in [
            c"LD_PRELOAD=/x/libshunt-1234.so",
            c"LD_PRELOAD=liba.so:/x/libshunt_inline.so libb.so",
            c"SHUNT_LIBRARY=",
            c"SHUNT_POLICY=kernel-only",
        ] {
            assert!(!seen(&[c"PATH=/bin", entry]).is_lost(), "{entry:?}");
        }
        assert!(seen(&[c"SHUNT_LIBRARY=/x/libshunt.so", c"SHUNT_POLICY=auto"]).is_lost());
    }
}
