//! `net.ipv4.tcp_fastopen_key`: the keys of the kernel's own Fast Open cookies, which only root may read. An engine that has
//! them makes the same cookies, as do others with the same keys.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The name of the setting.
pub const NAME: &str = "tcp_fastopen_key";
/// Of keys as text, two and what lies between.
const TEXT_MAX: usize = 128;

/// Keys as the stack has them: the one for new cookies first.
pub type Keys = [Option<[u8; 16]>; 2];

/// The setting, and what it was.
#[derive(Debug, Default)]
pub struct FastOpenKey {
    file: Option<File>,
    last: Keys,
}

impl FastOpenKey {
    /// That of a folder, if it may be read.
    pub fn open_in(folder: &Path) -> Self {
        Self {
            file: File::open(folder.join(NAME)).ok(),
            last: Keys::default(),
        }
    }

    /// Takes over keys that are others than before; whether they are.
    pub fn look(&mut self, target: &mut Keys) -> bool {
        let mut text = [0; TEXT_MAX];
        let read = self
            .file
            .as_ref()
            .and_then(|file| file.read_at(&mut text, 0).ok());
        let text = read.and_then(|len| core::str::from_utf8(text.get(..len)?).ok());
        let Some(keys) = text.and_then(parse).filter(|keys| *keys != self.last) else {
            return false;
        };
        self.last = keys;
        *target = keys;
        true
    }
}

/// One key or two, apart by a comma (ip-sysctl). A key of zeros is what a kernel says that has none yet.
fn parse(text: &str) -> Option<Keys> {
    let mut keys = Keys::default();
    let mut parts = text.trim().split(',');
    for (place, part) in keys.iter_mut().zip(&mut parts) {
        *place = Some(parse_one(part)?);
    }
    let is_none = keys == [Some([0; 16]), None];
    (parts.next().is_none()).then_some(if is_none { Keys::default() } else { keys })
}

/// Four words of eight hexadecimal digits, each with its lowest byte first in the key.
fn parse_one(text: &str) -> Option<[u8; 16]> {
    let mut key = [0; 16];
    let mut words = text.split('-');
    for place in key.chunks_exact_mut(4) {
        let word = u32::from_str_radix(words.next()?.trim(), 16).ok()?;
        place.copy_from_slice(&word.to_le_bytes());
    }
    words.next().is_none().then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_the_kernel_writes_them() {
        let one = "00112233-44556677-8899aabb-ccddeeff";
        let bytes = [
            0x33, 0x22, 0x11, 0x00, 0x77, 0x66, 0x55, 0x44, 0xbb, 0xaa, 0x99, 0x88, 0xff, 0xee,
            0xdd, 0xcc,
        ];
        assert_eq!(parse(&format!("{one}\n")), Some([Some(bytes), None]));
        let both = format!("{one},1-2-3-4\n");
        let second = [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0];
        assert_eq!(parse(&both), Some([Some(bytes), Some(second)]));
    }

    #[test]
    fn what_is_no_key_is_none() {
        let none = "00000000-00000000-00000000-00000000";
        assert_eq!(parse(none), Some(Keys::default()), "not set yet");
        for text in [
            "",
            "1-2-3",
            "1-2-3-4-5",
            "1-2-3-x",
            "1-2-3-4,1-2-3-4,1-2-3-4",
            "123456789-1-1-1",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
