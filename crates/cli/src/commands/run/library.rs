//! Finding the preload library: one of the two inside this binary, written out once per user and version.
//!
//! Whoever could change that file could run code in the user's programs. So it lies in a directory
//! that only the user can write to, carries its content's hash in its name, and appears under that name
//! only when complete and on the disk. It is compared byte by byte once a day, its length and owner before each use.

mod unused;

use std::{
    env,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write},
    iter,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use rustix::fs::StatVfsMountFlags;

/// A library inside this binary.
#[derive(Clone, Copy)]
struct Embedded {
    content: &'static [u8],
    /// Tells it from other versions; nobody relies on it for more.
    hash: &'static str,
}

/// The ordinary library and that with an engine.
#[cfg(embedded_library)]
const EMBEDDED: Option<[Embedded; 2]> = Some([
    Embedded {
        content: include_bytes!(env!("SHUNT_LIBRARY_FILE")),
        hash: env!("SHUNT_LIBRARY_HASH"),
    },
    Embedded {
        content: include_bytes!(env!("SHUNT_INLINE_LIBRARY_FILE")),
        hash: env!("SHUNT_INLINE_LIBRARY_HASH"),
    },
]);
#[cfg(not(embedded_library))]
const EMBEDDED: Option<[Embedded; 2]> = None;
/// Bytes that are compared at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Which of the two libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The switch alone: engines are other processes.
    Ordinary,
    /// The switch and an engine.
    Inline,
}

impl Kind {
    /// That of a program that has its engine inside, or has not.
    pub fn of(is_inline: bool) -> Self {
        if is_inline {
            Self::Inline
        } else {
            Self::Ordinary
        }
    }

    /// It, where this binary has it.
    fn embedded(self) -> Option<Embedded> {
        EMBEDDED.map(|[ordinary, inline]| match self {
            Self::Ordinary => ordinary,
            Self::Inline => inline,
        })
    }

    fn file_name(self) -> &'static str {
        match self {
            Self::Ordinary => "libshunt.so",
            Self::Inline => "libshunt_inline.so",
        }
    }
}

/// Bits by which somebody else could write.
const OTHERS_WRITE: u32 = 0o022;

/// The library to preload; `asked` overrides the usual choice.
pub fn locate(kind: Kind, asked: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(file) = asked {
        return fs::canonicalize(file).with_context(|| format!("--library {}", file.display()));
    }
    match kind.embedded() {
        Some(embedded) => install(embedded, cache_directories()),
        None => beside_binary(kind.file_name()),
    }
}

/// Whether a file bears the name of a library of ours, of whichever version.
pub fn is_ours(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("libshunt") && name.ends_with(".so"))
}

/// Where packages put it: next to the binary, or in the library directory that belongs to it.
fn beside_binary(file_name: &str) -> anyhow::Result<PathBuf> {
    let binary = env::current_exe().context("finding this binary")?;
    let directory = binary.parent().context("this binary has no directory")?;
    let candidates = [
        directory.join(file_name),
        directory.join("../lib/shunt").join(file_name),
    ];
    match candidates
        .iter()
        .find_map(|path| fs::canonicalize(path).ok())
    {
        Some(path) => Ok(path),
        None => bail!(
            "this shunt was built without its preload library and {} does not exist: install it there, name it with --library, or rebuild without SHUNT_EMBED_LIBRARY",
            candidates[0].display()
        ),
    }
}

/// Directories to try, best first. Root's is readable by everyone, because programs start as root,
/// change their user and execute others.
fn cache_directories() -> impl Iterator<Item = PathBuf> {
    let mut directories = Vec::new();
    if rustix::process::geteuid().is_root() {
        directories.push(PathBuf::from("/var/cache/shunt"));
    }
    let absolute = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    if let Some(cache) = absolute("XDG_CACHE_HOME") {
        directories.push(cache.join("shunt"));
    } else if let Some(home) = absolute("HOME") {
        directories.push(home.join(".cache/shunt"));
    }
    // The last resort is asked for only when it is needed, because asking creates it.
    directories
        .into_iter()
        .chain(iter::once_with(lab::state::directory).flatten())
}

fn install(
    embedded: Embedded,
    directories: impl IntoIterator<Item = PathBuf>,
) -> anyhow::Result<PathBuf> {
    let Embedded { content, hash } = embedded;
    let name = format!("libshunt-{hash}.so");
    let mut refusals = String::new();
    for directory in directories {
        match install_into(&directory, &name, content) {
            Ok(path) => return Ok(path),
            Err(error) => refusals += &format!("\n  {}: {error:#}", directory.display()),
        }
    }
    bail!(
        "the preload library can be written nowhere; set XDG_CACHE_HOME to a directory of your own{refusals}"
    )
}

fn install_into(directory: &Path, name: &str, content: &[u8]) -> anyhow::Result<PathBuf> {
    create_directory(directory)?;
    let path = directory.join(name);
    let is_new_day = {
        let lock = unused::lock(directory);
        let is_ours = is_ours_with_len(&path, content.len())?;
        let is_new_day = !is_ours || unused::is_new_day(&path);
        if is_ours && (!is_new_day || begins_with(File::open(&path)?, content)?) {
            // A folder that can only be read has nothing to be noted or removed.
            let is_noted = is_new_day && lock.is_ok();
            if is_noted {
                unused::touch(&path);
            }
            is_noted
        } else {
            let _lock = lock?;
            write_atomically(&path, content)?;
            true
        }
    };
    if is_new_day {
        unused::remove(directory, name);
    }
    Ok(path)
}

/// Creates the directory, or refuses one that others could tamper with or nothing can be run from.
fn create_directory(directory: &Path) -> anyhow::Result<()> {
    const STICKY: u32 = 0o1000;
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(directory)?;
    let metadata = fs::symlink_metadata(directory)?;
    if !metadata.is_dir()
        || metadata.uid() != rustix::process::geteuid().as_raw()
        || metadata.mode() & OTHERS_WRITE != 0
    {
        bail!("is no directory of yours alone");
    }
    for ancestor in fs::canonicalize(directory)?.ancestors().skip(1) {
        let mode = fs::metadata(ancestor)?.mode();
        if mode & 0o002 != 0 && mode & STICKY == 0 {
            bail!("{} is writable for everyone", ancestor.display());
        }
    }
    // The loader would say so on stderr and start the program without the library.
    if rustix::fs::statvfs(directory)?
        .f_flag
        .contains(StatVfsMountFlags::NOEXEC)
    {
        bail!("is mounted noexec");
    }
    Ok(())
}

/// True where the file is ours and has this length. Anything else is replaced.
fn is_ours_with_len(path: &Path, len: usize) -> anyhow::Result<bool> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        metadata => metadata?,
    };
    Ok(metadata.is_file()
        && metadata.uid() == rustix::process::geteuid().as_raw()
        && metadata.mode() & OTHERS_WRITE == 0
        && u64::try_from(len).is_ok_and(|len| len == metadata.len()))
}

/// Compares in pieces, for the sake of a processor's caches.
fn begins_with(mut file: File, content: &[u8]) -> io::Result<bool> {
    let mut place = vec![0; PIECE_BYTES];
    for piece in content.chunks(PIECE_BYTES) {
        let read = &mut place[..piece.len()];
        match file.read_exact(read) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            done => done?,
        }
        if read != piece {
            return Ok(false);
        }
    }
    Ok(true)
}

fn write_atomically(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let temporary = path.with_extension(format!("new-{}", std::process::id()));
    let write = || -> io::Result<()> {
        let mut file: File = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&temporary)?;
        file.write_all(content)?;
        // Whatever the umask says: the program may read it after a change of user.
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
        // After a loss of power there is no file of this name, or a whole one.
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = env::temp_dir().join(format!("shunt-library-{name}-{}", std::process::id()));
            DirBuilder::new().mode(0o700).create(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// One whose content is its hash.
    fn library(content: &'static [u8]) -> Embedded {
        let hash = std::str::from_utf8(content).unwrap();
        Embedded { content, hash }
    }

    #[test]
    fn the_library_is_written_once_and_repaired_when_damaged() {
        let scratch = Scratch::new("once");
        let directories = [scratch.0.join("deep/cache")];
        let path = install(library(b"library"), directories.clone()).unwrap();
        let first = fs::metadata(&path).unwrap().ino();
        assert_eq!(
            install(library(b"library"), directories.clone()).unwrap(),
            path
        );
        assert_eq!(
            fs::metadata(&path).unwrap().ino(),
            first,
            "an intact file stays"
        );
        let repaired = || {
            install(library(b"library"), directories.clone()).unwrap();
            fs::read(&path).unwrap()
        };
        fs::write(&path, b"lib").unwrap();
        assert_eq!(repaired(), b"library");
        // What is as long is found the next day.
        fs::write(&path, b"lobrary").unwrap();
        assert_eq!(repaired(), b"lobrary");
        let yesterday = SystemTime::now() - Duration::from_secs(25 * 60 * 60);
        File::open(&path).unwrap().set_modified(yesterday).unwrap();
        assert_eq!(repaired(), b"library");
    }

    #[test]
    fn libraries_of_ours_are_known_by_name() {
        for (file, expected) in [
            ("/var/cache/shunt/libshunt-0123456789abcdef.so", true),
            ("target/debug/libshunt.so", true),
            ("/usr/lib/libasan.so", false),
            ("libshunt.so.bak", false),
        ] {
            assert_eq!(is_ours(Path::new(file)), expected, "{file}");
        }
    }

    #[test]
    fn another_version_gets_another_name() {
        let scratch = Scratch::new("versions");
        let directories = [scratch.0.clone()];
        assert_ne!(
            install(library(b"one"), directories.clone()).unwrap(),
            install(library(b"two"), directories).unwrap()
        );
    }

    #[test]
    fn directories_that_others_can_write_to_are_passed_over() {
        let scratch = Scratch::new("open");
        let open = scratch.0.join("open");
        DirBuilder::new().create(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let own = scratch.0.join("own");
        let path = install(
            library(b"x"),
            [open.clone(), open.join("below"), own.clone()],
        )
        .unwrap();
        assert_eq!(path.parent(), Some(own.as_path()));
    }

    #[test]
    fn a_library_that_is_there_needs_no_lock() {
        let scratch = Scratch::new("read-only");
        let path = install(library(b"x"), [scratch.0.clone()]).unwrap();
        // As in a folder that can only be read, which root can always write.
        fs::remove_file(scratch.0.join(".lock")).unwrap();
        fs::create_dir(scratch.0.join(".lock")).unwrap();
        assert_eq!(install(library(b"x"), [scratch.0.clone()]).unwrap(), path);
        assert!(install(library(b"y"), [scratch.0.clone()]).is_err());
    }

    #[test]
    fn a_symbolic_link_in_the_place_of_the_file_is_replaced() {
        let scratch = Scratch::new("link");
        let path = install(library(b"x"), [scratch.0.clone()]).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        install(library(b"x"), [scratch.0.clone()]).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
    }
}
