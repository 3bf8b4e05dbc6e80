//! What an ELF program says of itself: how it is linked, whether Go built it, where its code lies.

use std::io::{self, Read, Seek, SeekFrom};

const ELF_MAGIC: &[u8] = b"\x7fELF";
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const SEGMENT_LOAD: u32 = 1;
const SEGMENT_DYNAMIC: u32 = 2;
const SEGMENT_INTERPRETER: u32 = 3;
const SEGMENT_NOTE: u32 = 4;
const EXECUTABLE: u32 = 1;
/// Entries of the dynamic segment, see elf(5): a library's name, and where the names are in memory.
const DYNAMIC_NEEDED: u64 = 1;
const DYNAMIC_NAMES: u64 = 5;
/// How long they are together.
const DYNAMIC_NAMES_LEN: u64 = 10;
/// Bytes of such an entry.
const DYNAMIC_LEN: usize = 16;
/// Bytes of a library's name that are read.
const LIBRARY_NAME_MAX: u64 = 64;
/// What runs beside our own programs where the kernel was built for it.
pub const SMALLER: &str = "a 32-bit or big-endian program";
/// Size of a program header of the 64-bit class.
const SEGMENT_HEADER_LEN: usize = 56;
/// Longest interpreter path, and longest note segment, that are read.
const TEXT_MAX: usize = 4096;
/// Name and type of the note with Go's build identifier (cmd/link, `elf.go`), in front of its text.
const GO_NOTE: (&[u8], u32) = (b"Go\0\0", 4);

#[cfg(target_arch = "x86_64")]
const OUR_MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const OUR_MACHINE: u16 = 183;

/// How a program is linked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// Names its loader.
    Dynamic(String),
    /// Needs none.
    Static,
    /// Not a program for this machine.
    Foreign(String),
}

/// A program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// How it is linked.
    pub linkage: Linkage,
    /// Go built it.
    pub is_go: bool,
    /// Where in the file its code lies: offset and length.
    pub code: Vec<(u64, u64)>,
    /// The libraries that it is linked with, by their names.
    pub libraries: Vec<String>,
    /// Where in the file the names of its dynamic symbols lie: offset and length.
    pub names: Option<(u64, u64)>,
}

impl Image {
    fn of(linkage: Linkage) -> Image {
        Image {
            linkage,
            is_go: false,
            code: Vec::new(),
            libraries: Vec::new(),
            names: None,
        }
    }

    /// The library whose name begins so, if it is linked with one.
    pub fn library(&self, start: &str) -> Option<&str> {
        let names = self.libraries.iter().map(String::as_str);
        names.into_iter().find(|name| name.starts_with(start))
    }

    fn foreign(what: impl Into<String>) -> Image {
        Image::of(Linkage::Foreign(what.into()))
    }
}

/// Reads what the headers say.
pub fn read(file: &mut (impl Read + Seek)) -> io::Result<Image> {
    let mut header = [0_u8; 64];
    if file.read_exact(&mut header).is_err() || !header.starts_with(ELF_MAGIC) {
        return Ok(Image::foreign(
            "neither an ELF program nor a script with a #! line",
        ));
    }
    if header[4] != CLASS_64 || header[5] != LITTLE_ENDIAN {
        return Ok(Image::foreign(SMALLER));
    }
    let machine = u16_at(&header, 18);
    if machine != OUR_MACHINE {
        let what = format!("built for another processor (ELF machine {machine})");
        return Ok(Image::foreign(what));
    }
    let table = u64_at(&header, 32);
    let (entry_len, count) = (u16_at(&header, 54), u16_at(&header, 56));
    if usize::from(entry_len) < SEGMENT_HEADER_LEN {
        return Err(damaged("program headers"));
    }
    let mut image = Image::of(Linkage::Static);
    let (mut loaded, mut dynamic) = (Vec::new(), Vec::new());
    for index in 0..count {
        let at = table.checked_add(u64::from(index) * u64::from(entry_len));
        file.seek(SeekFrom::Start(at.ok_or_else(|| damaged("headers"))?))?;
        let mut segment = [0_u8; SEGMENT_HEADER_LEN];
        file.read_exact(&mut segment)
            .map_err(|_| damaged("program headers"))?;
        note_segment(file, &segment, &mut image)?;
        let (offset, len) = (u64_at(&segment, 8), u64_at(&segment, 32));
        match u32_at(&segment, 0) {
            SEGMENT_LOAD => loaded.push((u64_at(&segment, 16), offset, len)),
            SEGMENT_DYNAMIC => dynamic = text(file, offset, len)?,
            _ => {}
        }
    }
    image.names = names(&dynamic, &loaded);
    if let Some((names, _)) = image.names {
        image.libraries = libraries(file, &dynamic, names)?;
    }
    Ok(image)
}

/// The values of the entries with a tag in the dynamic segment.
fn values(dynamic: &[u8], tag: u64) -> impl Iterator<Item = u64> {
    let entries = dynamic.chunks_exact(DYNAMIC_LEN);
    let tagged = entries.filter(move |entry| u64_at(entry, 0) == tag);
    tagged.map(|entry| u64_at(entry, 8))
}

/// Where in the file the names are that the dynamic segment means. What is loaded: address, offset in the file, length there.
fn names(dynamic: &[u8], loaded: &[(u64, u64, u64)]) -> Option<(u64, u64)> {
    let names = values(dynamic, DYNAMIC_NAMES).next()?;
    let (address, offset, _) = loaded
        .iter()
        .find(|(address, _, len)| (*address..address.saturating_add(*len)).contains(&names))?;
    let len = values(dynamic, DYNAMIC_NAMES_LEN).next().unwrap_or(0);
    Some(((names - address).saturating_add(*offset), len))
}

/// The libraries that the dynamic segment names.
fn libraries(file: &mut (impl Read + Seek), dynamic: &[u8], names: u64) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for name in values(dynamic, DYNAMIC_NEEDED) {
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(names.saturating_add(name)))?;
        file.by_ref()
            .take(LIBRARY_NAME_MAX)
            .read_to_end(&mut text)?;
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        found.push(String::from_utf8_lossy(text).into_owned());
    }
    Ok(found)
}

fn note_segment(
    file: &mut (impl Read + Seek),
    segment: &[u8; SEGMENT_HEADER_LEN],
    image: &mut Image,
) -> io::Result<()> {
    let (kind, flags) = (u32_at(segment, 0), u32_at(segment, 4));
    let (offset, len) = (u64_at(segment, 8), u64_at(segment, 32));
    match kind {
        SEGMENT_LOAD if flags & EXECUTABLE != 0 => image.code.push((offset, len)),
        SEGMENT_INTERPRETER => {
            let name = text(file, offset, len)?;
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            image.linkage = Linkage::Dynamic(String::from_utf8_lossy(name).into_owned());
        }
        SEGMENT_NOTE => image.is_go |= has_go_note(&text(file, offset, len)?),
        _ => {}
    }
    Ok(())
}

fn text(file: &mut (impl Read + Seek), offset: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(TEXT_MAX).min(TEXT_MAX)];
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(&mut bytes)
        .map_err(|_| damaged("segment"))?;
    Ok(bytes)
}

/// A note segment: notes of name length, text length, type, name, text; both padded to four bytes.
fn has_go_note(mut notes: &[u8]) -> bool {
    while notes.len() >= 12 {
        let (name_len, text_len) = (u32_at(notes, 0), u32_at(notes, 4));
        let kind = u32_at(notes, 8);
        let padded =
            |len: u32| usize::try_from(len).map_or(usize::MAX, |len| len.next_multiple_of(4));
        let name = notes[12..].get(..usize::try_from(name_len).unwrap_or(usize::MAX));
        if name == Some(GO_NOTE.0) && kind == GO_NOTE.1 {
            return true;
        }
        let len = padded(name_len)
            .saturating_add(padded(text_len))
            .saturating_add(12);
        notes = notes.get(len..).unwrap_or_default();
    }
    false
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("damaged ELF {what}"))
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    let field = bytes[offset..].first_chunk().copied().unwrap_or_default();
    u16::from_le_bytes(field)
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let field = bytes[offset..].first_chunk().copied().unwrap_or_default();
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let field = bytes[offset..].first_chunk().copied().unwrap_or_default();
    u64::from_le_bytes(field)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// A 64-bit program for this machine with these segments: type, flags, content.
    fn program(segments: &[(u32, u32, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0_u8; 64];
        bytes[..4].copy_from_slice(ELF_MAGIC);
        bytes[4] = CLASS_64;
        bytes[5] = LITTLE_ENDIAN;
        bytes[18..20].copy_from_slice(&OUR_MACHINE.to_le_bytes());
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
        let count = u16::try_from(segments.len()).unwrap();
        bytes[56..58].copy_from_slice(&count.to_le_bytes());
        let mut offset = 64 + 56 * segments.len();
        for (kind, flags, content) in segments {
            let mut segment = [0_u8; SEGMENT_HEADER_LEN];
            segment[..4].copy_from_slice(&kind.to_le_bytes());
            segment[4..8].copy_from_slice(&flags.to_le_bytes());
            segment[8..16].copy_from_slice(&u64::try_from(offset).unwrap().to_le_bytes());
            let len = u64::try_from(content.len()).unwrap();
            segment[32..40].copy_from_slice(&len.to_le_bytes());
            bytes.extend_from_slice(&segment);
            offset += content.len();
        }
        for (_, _, content) in segments {
            bytes.extend_from_slice(content);
        }
        bytes
    }

    const LOADER: (u32, u32, &[u8]) = (SEGMENT_INTERPRETER, 4, b"/lib64/ld-linux-x86-64.so.2\0");
    const GO: &[u8] = b"\x04\0\0\0\x05\0\0\0\x04\0\0\0Go\0\0abcde\0\0\0";
    const GNU: &[u8] = b"\x04\0\0\0\x04\0\0\0\x03\0\0\0GNU\0abcd";

    fn image(bytes: &[u8]) -> io::Result<Image> {
        read(&mut Cursor::new(bytes))
    }

    #[test]
    fn the_interpreter_segment_tells_dynamic_from_static() {
        let dynamic = image(&program(&[LOADER])).unwrap().linkage;
        assert_eq!(
            dynamic,
            Linkage::Dynamic("/lib64/ld-linux-x86-64.so.2".to_owned())
        );
        assert_eq!(image(&program(&[])).unwrap().linkage, Linkage::Static);
    }

    #[test]
    fn go_is_known_by_its_note_behind_others_too() {
        let notes = [GNU, GO].concat();
        assert!(image(&program(&[(SEGMENT_NOTE, 4, &notes)])).unwrap().is_go);
        assert!(!image(&program(&[(SEGMENT_NOTE, 4, GNU)])).unwrap().is_go);
        let endless = [0xff; 64];
        assert!(!has_go_note(&endless));
    }

    #[test]
    fn the_libraries_of_a_program_are_known() {
        let libraries = |library: &[u8]| {
            // The names are in the first segment, whose address in this image is 0, behind a first byte.
            let names = [&b"xlibc.so.6\0"[..], library, b"\0"].concat();
            let entry = |tag: u64, value: u64| [tag.to_le_bytes(), value.to_le_bytes()].concat();
            let dynamic = [entry(1, 0), entry(1, 10), entry(5, 1), entry(0, 0)].concat();
            let segments = [
                (SEGMENT_LOAD, 4, &names[..]),
                (SEGMENT_DYNAMIC, 4, &dynamic),
            ];
            image(&program(&segments)).unwrap()
        };
        let image_of_one = libraries(b"liburing.so.2");
        assert_eq!(image_of_one.libraries, ["libc.so.6", "liburing.so.2"]);
        assert_eq!(image_of_one.library("liburing.so"), Some("liburing.so.2"));
        assert_eq!(libraries(b"libpthread.so.0").library("liburing.so"), None);
        let endless = [&1_u64.to_le_bytes()[..], &[0xff; 24]].concat();
        let segments = [(SEGMENT_DYNAMIC, 4, &endless[..])];
        assert_eq!(image(&program(&segments)).unwrap().library(""), None);
    }

    #[test]
    fn code_is_what_is_loaded_to_be_executed() {
        let segments = [(SEGMENT_LOAD, 4, &b"data"[..]), (SEGMENT_LOAD, 5, b"code!")];
        assert_eq!(
            image(&program(&segments)).unwrap().code,
            [(64 + 112 + 4, 5)]
        );
    }

    #[test]
    fn text_and_other_processors_are_foreign() {
        let is_foreign =
            |bytes: &[u8]| matches!(image(bytes).unwrap().linkage, Linkage::Foreign(_));
        assert!(is_foreign(b"hello"));
        let mut other = program(&[]);
        other[18] = 0xff;
        assert!(is_foreign(&other));
    }

    #[test]
    fn every_truncation_of_a_program_is_an_error_or_foreign_but_no_panic() {
        let whole = program(&[(SEGMENT_NOTE, 4, GO), LOADER]);
        for len in 0..whole.len() {
            let result = image(&whole[..len]);
            let is_dynamic = result.is_ok_and(|image| matches!(image.linkage, Linkage::Dynamic(_)));
            assert!(!is_dynamic, "{len} bytes");
        }
    }
}
