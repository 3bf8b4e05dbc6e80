//! Hidden files of a transfer that is not over, the part file and its journal: opened only where they are this user's own.
//!
//! Another user who may write to the folder could put something else under the same name: a symbolic link, a second
//! name (hard link) of a file that is none of the transfer's business, a FIFO, a device, or a file that he keeps open.
//! Nothing of that is written to. Read open(2), O_NOFOLLOW, first.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// How often a file is looked at that another transfer has.
const HELD_LOOK: Duration = Duration::from_millis(10);
/// Without waiting for who might be at the other end of what is no file.
const FLAGS: OFlags = OFlags::RDWR
    .union(OFlags::CREATE)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Why a hidden file was not opened.
#[derive(Debug)]
pub enum Refusal {
    /// Something of that name is there that is not this user's alone.
    Foreign,
    /// Another transfer has had it for as long as was waited.
    Busy,
    System(Errno),
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        match errno {
            // A symbolic link, a socket or a device that has no driver, a folder.
            Errno::LOOP | Errno::NXIO | Errno::ISDIR => Self::Foreign,
            _ => Self::System(errno),
        }
    }
}

/// A plain file of this user that has one name.
fn is_own(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_nlink == 1
        && stat.st_uid == geteuid().as_raw()
}

/// Whether two descriptors are of one file.
pub fn is_same(one: impl AsFd, other: impl AsFd) -> bool {
    let both = fs::fstat(one).and_then(|one| Ok((one, fs::fstat(other)?)));
    both.is_ok_and(|(one, other)| is_one(&one, &other))
}

fn is_one(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Whether this name is, at this moment, of this open file; ENOENT: it is nobody's.
pub fn is_named(folder: &OwnedFd, name: &OsStr, file: impl AsFd) -> Result<bool, Errno> {
    let own = fs::fstat(file)?;
    let there = fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(is_one(&own, &there))
}

/// Opens a hidden file for reading and writing, and makes it where there is none.
pub fn open(folder: &OwnedFd, name: &OsStr) -> Result<File, Refusal> {
    match fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        // To open a device may already do something.
        Ok(stat) if !is_own(&stat) => return Err(Refusal::Foreign),
        Ok(_) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    let file = fs::openat(folder, name, FLAGS, Mode::from_raw_mode(0o600))?;
    // What was looked at need not be what was opened.
    let stat = fs::fstat(&file)?;
    let is_removed = stat.st_nlink == 0;
    if is_removed || is_own(&stat) {
        return Ok(File::from(file));
    }
    Err(Refusal::Foreign)
}

/// The same for this process alone; waits so long for another one that has it.
pub fn open_locked(folder: &OwnedFd, name: &OsStr, patience: Duration) -> Result<File, Refusal> {
    let until = Instant::now() + patience;
    loop {
        let file = open(folder, name)?;
        match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() >= until => return Err(Refusal::Busy),
            Err(Errno::WOULDBLOCK) => {
                std::thread::sleep(HELD_LOOK);
                continue;
            }
            result => result?,
        }
        // Whoever had it before may have given it its final name in between.
        match is_named(folder, name, &file) {
            Ok(true) => return Ok(file),
            Ok(false) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    struct Folder(PathBuf, OwnedFd);

    impl Folder {
        fn new(what: &str) -> Self {
            let name = format!("shunt-hidden-{what}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir(&path).unwrap();
            let folder = fs::open(&path, OFlags::DIRECTORY, Mode::empty()).unwrap();
            Self(path, folder)
        }

        fn open(&self, name: &str) -> Result<File, Refusal> {
            open_locked(&self.1, OsStr::new(name), Duration::ZERO)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_is_not_this_users_own_plain_file_is_refused() {
        let folder = Folder::new("foreign");
        std::fs::write(folder.0.join("precious"), b"untouched").unwrap();
        std::fs::hard_link(folder.0.join("precious"), folder.0.join("second-name")).unwrap();
        symlink("precious", folder.0.join("link")).unwrap();
        symlink("nowhere", folder.0.join("dangling")).unwrap();
        std::fs::create_dir(folder.0.join("folder")).unwrap();
        let fifo = (FileType::Fifo, Mode::from_raw_mode(0o600));
        fs::mknodat(&folder.1, "fifo", fifo.0, fifo.1, 0).unwrap();
        for name in ["second-name", "link", "dangling", "folder", "fifo"] {
            let opened = folder.open(name);
            assert!(
                matches!(opened, Err(Refusal::Foreign)),
                "{name}: {opened:?}"
            );
        }
        let kept = std::fs::read(folder.0.join("precious")).unwrap();
        assert_eq!(kept, b"untouched");
        assert!(!folder.0.join("nowhere").exists());
    }

    #[test]
    fn another_users_file_is_refused() {
        if !geteuid().is_root() {
            println!("skipped: only root can give a file away");
            return;
        }
        let folder = Folder::new("users");
        std::fs::write(folder.0.join("his"), b"").unwrap();
        std::os::unix::fs::chown(folder.0.join("his"), Some(65_534), None).unwrap();
        assert!(matches!(folder.open("his"), Err(Refusal::Foreign)));
    }

    #[test]
    fn an_own_file_is_opened_again_but_by_one_at_a_time() {
        let folder = Folder::new("own");
        let first = folder.open("part").unwrap();
        assert!(matches!(folder.open("part"), Err(Refusal::Busy)));
        drop(first);
        folder.open("part").unwrap();
    }
}
