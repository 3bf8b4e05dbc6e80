//! Whether the dynamic loader will preload a library into a program, see elf(5) and ld.so(8).
//!
//! Where it would not, it would do so silently and the program would run on the kernel without a
//! word: therefore this is looked at before the program starts.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

/// How many interpreters of interpreters the kernel follows (fs/exec.c).
const MAX_INTERPRETERS: usize = 5;

const ELF_MAGIC: &[u8] = b"\x7fELF";
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const SEGMENT_INTERPRETER: u32 = 3;
/// Size of a program header of the 64-bit class.
const SEGMENT_HEADER_LEN: usize = 56;
/// Longest interpreter path read.
const PATH_MAX: usize = 4096;

#[cfg(target_arch = "x86_64")]
const OUR_MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const OUR_MACHINE: u16 = 183;

/// Refuses, with the reason, a program into which no library can be preloaded.
pub fn check_preloadable(program: &Path) -> anyhow::Result<()> {
    let mut file = program.to_owned();
    for _ in 0..MAX_INTERPRETERS {
        check_privileges(&file)?;
        match script_interpreter(&file)? {
            Some(interpreter) => file = interpreter,
            None => return check_binary(&file),
        }
    }
    bail!(
        "{}: the script's interpreter is a script, more than {MAX_INTERPRETERS} deep",
        program.display()
    )
}

/// A program that gains privileges by its file runs in secure mode, where LD_PRELOAD is ignored.
fn check_privileges(file: &Path) -> anyhow::Result<()> {
    const SET_UID: u32 = 0o4000;
    /// Set-group-id counts only together with group execution, see inode(7).
    const SET_GID: u32 = 0o2010;
    let metadata = file
        .metadata()
        .with_context(|| file.display().to_string())?;
    let uid = rustix::process::geteuid();
    let gains_user = metadata.mode() & SET_UID != 0 && metadata.uid() != uid.as_raw();
    let gains_group = metadata.mode() & SET_GID == SET_GID
        && metadata.gid() != rustix::process::getegid().as_raw();
    if gains_user || gains_group {
        let bit = if gains_user {
            "set-user-id"
        } else {
            "set-group-id"
        };
        bail!(
            "{} is {bit}: the dynamic loader preloads nothing into such programs. Run it as the user it changes to, or on the kernel without shunt",
            file.display()
        );
    }
    let mut value = [0_u8; 64];
    let has_capabilities =
        rustix::fs::getxattr(file, c"security.capability", &mut value[..]).is_ok_and(|len| len > 0);
    if has_capabilities && !uid.is_root() {
        bail!(
            "{} has file capabilities (getcap): the dynamic loader preloads nothing into such programs. Run it as root, or a copy without them",
            file.display()
        );
    }
    Ok(())
}

/// The interpreter in a `#!` line.
fn script_interpreter(path: &Path) -> anyhow::Result<Option<PathBuf>> {
    let mut start = Vec::new();
    let file = File::open(path)
        .with_context(|| format!("{}: cannot be read to see how it is linked", path.display()))?;
    file.take(256)
        .read_to_end(&mut start)
        .with_context(|| path.display().to_string())?;
    let Some(line) = start.strip_prefix(b"#!") else {
        return Ok(None);
    };
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let name = String::from_utf8_lossy(line);
    match name.split_ascii_whitespace().next() {
        Some(interpreter) => Ok(Some(PathBuf::from(interpreter))),
        None => bail!("{}: the #! line names no interpreter", path.display()),
    }
}

fn check_binary(path: &Path) -> anyhow::Result<()> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    match loader_of(&mut file).with_context(|| path.display().to_string())? {
        Linkage::Foreign(what) => bail!(
            "{} is {what}: the preload library cannot be loaded into it",
            path.display()
        ),
        Linkage::Static => bail!(
            "{} is statically linked: it never calls the dynamic loader, so no library can be preloaded. Use a dynamically linked build of it (Go: CGO_ENABLED=1), or run it on the kernel without shunt",
            path.display()
        ),
        Linkage::Dynamic(loader) if loader.contains("ld-musl") => bail!(
            "{} is linked with musl ({loader}); the preload library needs glibc. Use a glibc build of it",
            path.display()
        ),
        Linkage::Dynamic(_) => Ok(()),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Linkage {
    /// Names its loader.
    Dynamic(String),
    Static,
    /// Not a program for this machine.
    Foreign(String),
}

fn loader_of(file: &mut (impl Read + Seek)) -> anyhow::Result<Linkage> {
    let mut header = [0_u8; 64];
    if file.read_exact(&mut header).is_err() || !header.starts_with(ELF_MAGIC) {
        return Ok(Linkage::Foreign(
            "neither an ELF program nor a script with a #! line".to_owned(),
        ));
    }
    if header[4] != CLASS_64 || header[5] != LITTLE_ENDIAN {
        return Ok(Linkage::Foreign(
            "a 32-bit or big-endian program".to_owned(),
        ));
    }
    let machine = u16::from_le_bytes([header[18], header[19]]);
    if machine != OUR_MACHINE {
        return Ok(Linkage::Foreign(format!(
            "built for another processor (ELF machine {machine})"
        )));
    }
    let table = u64_at(&header, 32).context("ELF header")?;
    let entry_len = u16::from_le_bytes([header[54], header[55]]);
    let count = u16::from_le_bytes([header[56], header[57]]);
    if usize::from(entry_len) < SEGMENT_HEADER_LEN {
        bail!("damaged ELF program headers");
    }
    for index in 0..count {
        let mut segment = [0_u8; SEGMENT_HEADER_LEN];
        let at = table
            .checked_add(u64::from(index) * u64::from(entry_len))
            .context("damaged ELF program headers")?;
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut segment)
            .context("damaged ELF program headers")?;
        if segment[..4] != SEGMENT_INTERPRETER.to_le_bytes() {
            continue;
        }
        let offset = u64_at(&segment, 8).context("ELF segment")?;
        let len = usize::try_from(u64_at(&segment, 32).context("ELF segment")?)?.min(PATH_MAX);
        let mut name = vec![0; len];
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(&mut name)
            .context("damaged ELF interpreter")?;
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        return Ok(Linkage::Dynamic(String::from_utf8_lossy(name).into_owned()));
    }
    Ok(Linkage::Static)
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// A 64-bit program for this machine, with or without an interpreter segment.
    fn program(interpreter: Option<&str>) -> Vec<u8> {
        let mut bytes = vec![0_u8; 64];
        bytes[..4].copy_from_slice(ELF_MAGIC);
        bytes[4] = CLASS_64;
        bytes[5] = LITTLE_ENDIAN;
        bytes[18..20].copy_from_slice(&OUR_MACHINE.to_le_bytes());
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
        let Some(interpreter) = interpreter else {
            return bytes;
        };
        bytes[56..58].copy_from_slice(&1_u16.to_le_bytes());
        let mut segment = [0_u8; SEGMENT_HEADER_LEN];
        segment[..4].copy_from_slice(&SEGMENT_INTERPRETER.to_le_bytes());
        segment[8..16].copy_from_slice(&120_u64.to_le_bytes());
        segment[32..40]
            .copy_from_slice(&u64::try_from(interpreter.len() + 1).unwrap().to_le_bytes());
        bytes.extend_from_slice(&segment);
        bytes.extend_from_slice(interpreter.as_bytes());
        bytes.push(0);
        bytes
    }

    fn linkage(bytes: Vec<u8>) -> anyhow::Result<Linkage> {
        loader_of(&mut Cursor::new(bytes))
    }

    #[test]
    fn the_interpreter_segment_tells_dynamic_from_static() {
        let loader = "/lib64/ld-linux-x86-64.so.2";
        assert_eq!(
            linkage(program(Some(loader))).unwrap(),
            Linkage::Dynamic(loader.to_owned())
        );
        assert_eq!(linkage(program(None)).unwrap(), Linkage::Static);
    }

    #[test]
    fn text_and_other_processors_are_foreign() {
        assert!(matches!(
            linkage(b"hello".to_vec()).unwrap(),
            Linkage::Foreign(_)
        ));
        let mut other = program(None);
        other[18] = 0xff;
        assert!(matches!(linkage(other).unwrap(), Linkage::Foreign(_)));
    }

    #[test]
    fn every_truncation_of_a_program_is_an_error_or_foreign_but_no_panic() {
        let whole = program(Some("/lib64/ld-linux-x86-64.so.2"));
        for len in 0..whole.len() {
            let result = linkage(whole[..len].to_vec());
            assert!(!matches!(result, Ok(Linkage::Dynamic(_))), "{len} bytes");
        }
    }

    #[test]
    fn ordinary_programs_and_scripts_of_this_machine_are_accepted() {
        check_preloadable(Path::new("/bin/sh")).unwrap();
        let script = std::env::temp_dir().join(format!("shunt-elf-test-{}", std::process::id()));
        std::fs::write(&script, "#! /bin/sh -e\nexit 0\n").unwrap();
        let checked = check_preloadable(&script);
        std::fs::remove_file(&script).unwrap();
        checked.unwrap();
    }
}
