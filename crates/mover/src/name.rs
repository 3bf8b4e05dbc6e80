//! Names of files as they travel: relative, and nothing in them that leads out of the target folder.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Longest name in bytes (Linux `PATH_MAX`).
const NAME_MAX_BYTES: usize = 4_096;
/// Longest part of a name between slashes (Linux `NAME_MAX`), less what a part file's own name adds.
const PART_MAX_BYTES: usize = 255;

/// What the hidden file of a transfer that is not over ends with.
pub const PART_SUFFIX: &str = ".shunt-part";
/// What its journal ends with.
pub const JOURNAL_SUFFIX: &str = ".shunt-journal";

/// A name below the target folder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name(Vec<u8>);

impl Name {
    /// Checks what a peer sent; `None`: it is no name that an honest sender would use.
    pub fn parse(bytes: Vec<u8>) -> Option<Self> {
        let is_fit = !bytes.is_empty()
            && bytes.len() <= NAME_MAX_BYTES
            && !bytes.contains(&0)
            && bytes.split(|byte| *byte == b'/').all(is_plain);
        is_fit.then_some(Self(bytes))
    }

    /// The last part.
    pub fn last(&self) -> &OsStr {
        let part = self.0.rsplit(|byte| *byte == b'/').next();
        OsStr::from_bytes(part.unwrap_or_default())
    }

    /// The folders before it, outermost first.
    pub fn folders(&self) -> impl Iterator<Item = &OsStr> {
        let folders = match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(end) => &self.0[..end],
            None => &[],
        };
        folders
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty())
            .map(OsStr::from_bytes)
    }

    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// As it travels.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The hidden name of the last part while the file is not whole.
    pub fn hidden(&self, suffix: &str) -> OsString {
        let last = self.last().as_bytes();
        let room = PART_MAX_BYTES - 1 - suffix.len();
        let mut hidden = vec![b'.'];
        if last.len() <= room {
            hidden.extend_from_slice(last);
        } else {
            // As much of it as there is room for, and a hash of all of it.
            let hash = blake3::hash(last).to_hex();
            hidden.extend_from_slice(&last[..room - 17]);
            hidden.push(b'~');
            hidden.extend_from_slice(&hash.as_bytes()[..16]);
        }
        hidden.extend_from_slice(suffix.as_bytes());
        OsString::from_vec(hidden)
    }
}

/// Whether a part between slashes leads nowhere else, and is no file of our own.
fn is_plain(part: &[u8]) -> bool {
    let is_ours = part.starts_with(b".")
        && (part.ends_with(PART_SUFFIX.as_bytes()) || part.ends_with(JOURNAL_SUFFIX.as_bytes()));
    !part.is_empty() && part != b"." && part != b".." && part.len() <= PART_MAX_BYTES && !is_ours
}

/// Whether a symbolic link in `name`'s folder with this text leads to nothing outside the target folder, whatever other
/// links are there that this allowed.
///
/// `..` may stand at the beginning only, and no more often than the link lies deep. Behind a name it would go up from
/// where a link of that name leads, and two links together leave the folder: `d/M` to `..`, then `d/M/../../x`.
pub fn link_stays_inside(name: &Name, text: &[u8]) -> bool {
    if text.is_empty() || text.len() > NAME_MAX_BYTES || text.contains(&0) || text[0] == b'/' {
        return false;
    }
    let parts = || {
        text.split(|byte| *byte == b'/')
            .filter(|part| !matches!(*part, b"" | b"."))
    };
    let up = parts().take_while(|part| *part == b"..").count();
    up <= name.folders().count() && parts().skip(up).all(|part| part != b"..")
}

/// The name of `path` below the folder that holds `top`, both as given by a user.
pub fn below(top: &Path, path: &Path) -> Option<Name> {
    let own = top.file_name()?;
    let rest = path.strip_prefix(top).ok()?;
    let mut name = PathBuf::from(own);
    name.push(rest);
    let bytes = name.into_os_string().into_vec();
    let trimmed = bytes.strip_suffix(b"/").map(<[u8]>::to_vec);
    Name::parse(trimmed.unwrap_or(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_lead_elsewhere_are_none() {
        for name in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "a/..",
            "a/../b",
            "./a",
            "a//b",
            "a/",
            "a\0b",
            ".a.shunt-part",
            "d/.x.shunt-journal/y",
        ] {
            assert_eq!(Name::parse(name.into()), None, "{name:?}");
        }
        let name = Name::parse(b"a/b c/\xff".to_vec()).unwrap();
        assert_eq!(name.folders().collect::<Vec<_>>(), ["a", "b c"]);
        assert_eq!(name.last().as_bytes(), b"\xff");
    }

    #[test]
    fn links_may_point_to_what_lies_inside_only() {
        let name = Name::parse(b"d/e/link".to_vec()).unwrap();
        for (text, inside) in [
            ("f", true),
            ("../f", true),
            ("../../f", true),
            (".././..//f", true),
            ("../../../f", false),
            ("/etc", false),
            ("../x/../../../y", false),
            ("x/../y", false),
            ("f/..", false),
            ("", false),
        ] {
            assert_eq!(link_stays_inside(&name, text.as_bytes()), inside, "{text}");
        }
    }

    #[test]
    fn a_long_name_has_a_hidden_one_that_fits() {
        let long = |end: &str| Name::parse([&[b'x'; 250][..], end.as_bytes()].concat()).unwrap();
        let (one, other) = (long("a").hidden(PART_SUFFIX), long("b").hidden(PART_SUFFIX));
        assert!(one.len() <= PART_MAX_BYTES && one != other);
        assert_eq!(
            Name::parse(b"d/f".to_vec()).unwrap().hidden(PART_SUFFIX),
            ".f.shunt-part"
        );
    }

    #[test]
    fn what_a_user_names_is_sent_under_its_last_part() {
        let name = |top: &str, path: &str| below(Path::new(top), Path::new(path));
        assert_eq!(name("/a/b", "/a/b/c/d").unwrap().path(), Path::new("b/c/d"));
        assert_eq!(name("b", "b").unwrap().path(), Path::new("b"));
        assert_eq!(name("/", "/x"), None);
    }

    proptest! {
        #[test]
        fn no_name_ever_leaves_the_folder(bytes in proptest::collection::vec(
            prop_oneof![Just(b'/'), Just(b'.'), Just(b'a'), any::<u8>()], 0..40)) {
            if let Some(name) = Name::parse(bytes) {
                for part in name.path().components() {
                    prop_assert!(matches!(part, std::path::Component::Normal(_)));
                }
            }
        }
    }
}
