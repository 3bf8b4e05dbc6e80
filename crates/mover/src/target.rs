//! The folder beneath which everything is stored, and part files in it. No step ever follows a symbolic link.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use rustix::fs::{self, AtFlags, FallocateFlags, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use crate::checksum::{BlockHasher, BlockPosition, Digest};
use crate::error::Error;
use crate::hidden::{self, Refusal};
use crate::journal::{Identity, Journal};
use crate::lock::lock;
use crate::name::{JOURNAL_SUFFIX, Name, PART_SUFFIX};
use crate::protocol::{Entry, blocks_of};

/// Permission bits that are kept; set-uid and its kin are not.
const MODE_KEPT: u32 = 0o777;
/// Blocks of a journal that are always looked at.
const CHECKED_BLOCKS: usize = 64;
/// Bytes of them that are read at a time.
const CHECKED_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub struct Target {
    root: OwnedFd,
    path: PathBuf,
    check: Check,
}

/// The type of a file system in memory (statfs(2)). It takes O_DIRECT and copies all the same.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// Which of the blocks of an earlier try are read and hashed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Check {
    /// Those that were written last.
    #[default]
    Last,
    /// All.
    All,
}

impl Target {
    /// Opens a folder that is there.
    pub fn open(path: &Path, check: Check) -> Result<Self, Error> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let root = fs::open(path, flags, Mode::empty())
            .map_err(|errno| Error::file("opening the target folder", path)(errno.into()))?;
        if fs::accessat(&root, ".", fs::Access::WRITE_OK, AtFlags::EACCESS).is_err() {
            let denied = std::io::ErrorKind::PermissionDenied.into();
            return Err(Error::file("writing to the target folder", path)(denied));
        }
        Ok(Self {
            root,
            path: path.to_owned(),
            check,
        })
    }

    fn error(&self, what: &'static str, name: &Name) -> impl FnOnce(Errno) -> Error {
        let path = self.path.join(name.path());
        move |errno| Error::file(what, path)(errno.into())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where a name is, for messages.
    pub fn path_of(&self, name: &Name) -> PathBuf {
        self.path.join(name.path())
    }

    /// The folder that a name lies in, made if it is not there.
    fn parent(&self, name: &Name) -> Result<OwnedFd, Error> {
        let mut folder = open_folder(&self.root, OsStr::new("."))
            .map_err(self.error("opening the folder of", name))?;
        for part in name.folders() {
            match fs::mkdirat(&folder, part, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(self.error("making the folder of", name)(errno)),
            }
            folder =
                open_folder(&folder, part).map_err(self.error("opening the folder of", name))?;
        }
        Ok(folder)
    }

    /// Makes a symbolic link, in place of one that is there.
    pub fn make_link(&self, name: &Name, text: &[u8]) -> Result<(), Error> {
        let folder = self.parent(name)?;
        let hidden = name.hidden(PART_SUFFIX);
        match fs::unlinkat(&folder, &hidden, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(self.error("linking", name)(errno)),
        }
        fs::symlinkat(text, &folder, &hidden)
            .and_then(|()| fs::renameat(&folder, &hidden, &folder, name.last()))
            .map_err(self.error("linking", name))
    }

    /// Makes a folder if it is not there, and gives it its mode and times.
    pub fn make_folder(&self, name: &Name, entry: &Entry) -> Result<(), Error> {
        let parent = self.parent(name)?;
        match fs::mkdirat(&parent, name.last(), Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(self.error("making folder", name)(errno)),
        }
        let folder =
            open_folder(&parent, name.last()).map_err(self.error("opening folder", name))?;
        fs::fchmod(&folder, Mode::from_raw_mode(entry.mode & MODE_KEPT))
            .and_then(|()| fs::futimens(&folder, &times(entry)))
            .map_err(self.error("setting mode and time of", name))
    }

    /// Begins or goes on with a file of a known size or of none. Where another transfer has it, it waits so long for its
    /// end.
    pub fn open_part(
        &self,
        name: &Name,
        entry: &Entry,
        size: Option<u64>,
        patience: Duration,
    ) -> Result<PartFile, Error> {
        let folder = self.parent(name)?;
        let error = |what| self.error(what, name);
        if let Ok(stat) = fs::statat(&folder, name.last(), AtFlags::SYMLINK_NOFOLLOW)
            && fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::Directory
        {
            return Err(error("storing")(Errno::ISDIR));
        }
        let hidden = name.hidden(PART_SUFFIX);
        let file = hidden::open_locked(&folder, &hidden, patience).map_err(|refusal| {
            refused(
                refusal,
                "opening the part file of",
                &self.path_of(name),
                &hidden,
            )
        })?;
        let mut part = PartFile {
            file,
            folder,
            path: self.path_of(name),
            name: name.clone(),
            journal: Mutex::new(None),
            kept: Vec::new(),
            was_empty: true,
        };
        match size {
            Some(size) => part.resume(entry, size, self.check)?,
            None => part.begin()?,
        }
        if let Some(size) = size {
            part.make_space(size, entry.is_sparse)?;
        }
        Ok(part)
    }
}

fn open_folder(within: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    fs::openat(within, name, flags, Mode::empty())
}

/// Why a file cannot begin whose hidden file cannot be opened.
fn refused(refusal: Refusal, what: &'static str, path: &Path, hidden: &OsStr) -> Error {
    match refusal {
        Refusal::Foreign => Error::Foreign(path.with_file_name(hidden)),
        Refusal::Busy => Error::Busy(path.to_owned()),
        Refusal::System(errno) => Error::file(what, path)(errno.into()),
    }
}

fn times(entry: &Entry) -> Timestamps {
    let modified = Timespec {
        tv_sec: entry.modified.0,
        tv_nsec: i64::from(entry.modified.1.min(999_999_999)),
    };
    Timestamps {
        last_access: modified,
        last_modification: modified,
    }
}

/// A file that is not whole yet, under its hidden name, locked.
#[derive(Debug)]
pub struct PartFile {
    file: File,
    folder: OwnedFd,
    path: PathBuf,
    name: Name,
    journal: Mutex<Option<Journal>>,
    kept: Vec<(u64, Digest)>,
    /// Nothing but zeros was in it at the beginning.
    was_empty: bool,
}

impl PartFile {
    fn error(&self, what: &'static str) -> impl FnOnce(Errno) -> Error {
        let path = self.path.clone();
        move |errno| Error::file(what, path)(errno.into())
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where it will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file once more, past the page cache; `None`: its file system cannot do that, or has nothing behind that cache.
    pub fn direct(&self) -> Option<File> {
        if fs::fstatfs(&self.file).is_ok_and(|system| system.f_type == TMPFS_MAGIC) {
            return None;
        }
        let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let hidden = self.name.hidden(PART_SUFFIX);
        let file = fs::openat(&self.folder, hidden, flags, Mode::empty()).ok()?;
        hidden::is_same(&self.file, &file).then(|| File::from(file))
    }

    /// Blocks of an earlier try that are on the disk.
    pub fn take_kept(&mut self) -> Vec<(u64, Digest)> {
        std::mem::take(&mut self.kept)
    }

    fn begin(&mut self) -> Result<(), Error> {
        self.file
            .set_len(0)
            .map_err(Error::file("emptying the part file of", &self.path))
    }

    /// Those of the blocks that the journal tells of whose bytes have the hash that it tells: of the last ones, where a
    /// crash would have left its traces, or of all. One that has not, and all are looked at.
    fn proved(
        &self,
        mut told: Vec<(u64, Digest)>,
        entry: &Entry,
        size: u64,
        check: Check,
    ) -> Vec<(u64, Digest)> {
        let believed = match check {
            Check::Last => told.len().saturating_sub(CHECKED_BLOCKS),
            Check::All => 0,
        };
        let holds = |told: &(u64, Digest)| self.has_block(told, entry, size);
        if told[believed..].iter().all(&holds) {
            return told;
        }
        told.retain(holds);
        told
    }

    fn has_block(&self, (index, digest): &(u64, Digest), entry: &Entry, size: u64) -> bool {
        let block_bytes = u64::from(entry.block_bytes);
        let offset = index.saturating_mul(block_bytes);
        let mut left = size.saturating_sub(offset).min(block_bytes);
        let place = BlockPosition {
            offset,
            is_only: size <= block_bytes,
        };
        if left == 0 {
            return false;
        }
        let mut hasher = BlockHasher::new(entry.algorithm, place);
        let mut buffer = vec![0; CHECKED_BYTES];
        let mut at = offset;
        while left > 0 {
            let count = usize::try_from(left)
                .unwrap_or(CHECKED_BYTES)
                .min(CHECKED_BYTES);
            let piece = &mut buffer[..count];
            if self.file.read_exact_at(piece, at).is_err() {
                return false;
            }
            hasher.update(piece);
            at += count as u64;
            left -= count as u64;
        }
        hasher.finish() == *digest
    }

    fn resume(&mut self, entry: &Entry, size: u64, check: Check) -> Result<(), Error> {
        let identity = Identity {
            name: self.name.bytes().to_vec(),
            size,
            modified: entry.modified,
            algorithm: entry.algorithm,
            block_bytes: entry.block_bytes,
        };
        let hidden = self.name.hidden(JOURNAL_SUFFIX);
        let file = hidden::open(&self.folder, &hidden)
            .map_err(|refusal| refused(refusal, "opening the journal of", &self.path, &hidden))?;
        let (mut journal, told) = Journal::open(file, &identity)
            .map_err(Error::file("reading the journal of", &self.path))?;
        journal.make_space(blocks_of(size, entry.block_bytes));
        let count = told.len();
        let kept = self.proved(told, entry, size, check);
        if kept.len() < count {
            journal
                .restart(&kept)
                .map_err(Error::file("writing the journal of", &self.path))?;
        }
        if kept.is_empty() {
            self.begin()?;
        }
        self.journal = Mutex::new(Some(journal));
        self.was_empty = kept.is_empty();
        self.kept = kept;
        Ok(())
    }

    /// Takes room on the disk before the first byte, where the file system can say whether there is any.
    fn make_space(&self, size: u64, is_sparse: bool) -> Result<(), Error> {
        let stat = fs::fstat(&self.file).map_err(self.error("looking at the part file of"))?;
        let has_bytes = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        let system =
            fs::fstatvfs(&self.file).map_err(self.error("looking at the file system of"))?;
        let free_bytes = system.f_bavail.saturating_mul(system.f_frsize);
        let needed_bytes = size.saturating_sub(has_bytes);
        if !is_sparse && needed_bytes > free_bytes {
            return Err(Error::NoRoom {
                path: self.path.clone(),
                needed_bytes,
                free_bytes,
            });
        }
        if size > 0 && !is_sparse {
            match fs::fallocate(&self.file, FallocateFlags::empty(), 0, size) {
                Ok(()) => return Ok(()),
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(errno) => return Err(self.error("making room for")(errno)),
            }
        }
        self.file
            .set_len(size)
            .map_err(Error::file("making room for", &self.path))
    }

    /// Leaves a hole where a block is none but zeros.
    pub fn punch(&self, offset: u64, len: u64) -> Result<(), Error> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fs::fallocate(&self.file, flags, offset, len) {
            Ok(()) => Ok(()),
            // The part file was empty, so zeros are there.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if self.was_empty => Ok(()),
            Err(errno) => Err(self.error("leaving a hole in")(errno)),
        }
    }

    /// Waits until what is written is on the disk, then notes these blocks.
    pub fn checkpoint(&self, blocks: &[(u64, Digest)]) -> Result<(), Error> {
        if let Some(journal) = &mut *lock(&self.journal) {
            self.file
                .sync_data()
                .map_err(Error::file("syncing", &self.path))?;
            journal
                .add(blocks)
                .map_err(Error::file("writing the journal of", &self.path))?;
        }
        Ok(())
    }

    /// The file is whole: syncs it and gives it its size, mode, times and name.
    pub fn finish(&self, entry: &Entry, size: u64) -> Result<(), Error> {
        self.prepare(entry, size)?;
        self.sync()?;
        self.give_name()?;
        self.sync_folder()
    }

    /// Gives it its size, mode and times.
    pub fn prepare(&self, entry: &Entry, size: u64) -> Result<(), Error> {
        self.file
            .set_len(size)
            .map_err(Error::file("sizing", &self.path))?;
        fs::fchmod(&self.file, Mode::from_raw_mode(entry.mode & MODE_KEPT))
            .and_then(|()| fs::futimens(&self.file, &times(entry)))
            .map_err(self.error("setting mode and time of"))
    }

    /// Waits until its bytes are on the disk.
    pub fn sync(&self) -> Result<(), Error> {
        self.file
            .sync_data()
            .map_err(Error::file("syncing", &self.path))
    }

    /// Waits until the bytes of all files of its file system are on the disk.
    pub fn sync_file_system(&self) -> Result<(), Error> {
        fs::syncfs(&self.file).map_err(self.error("syncing the file system of"))
    }

    /// Gives it its name; to be called when it is synced. What somebody has put in its place meanwhile gets none.
    pub fn give_name(&self) -> Result<(), Error> {
        let hidden = self.name.hidden(PART_SUFFIX);
        if !hidden::is_named(&self.folder, &hidden, &self.file).map_err(self.error("naming"))? {
            return Err(Error::Foreign(self.path.with_file_name(hidden)));
        }
        fs::renameat(&self.folder, hidden, &self.folder, self.name.last())
            .map_err(self.error("naming"))?;
        if lock(&self.journal).is_some() {
            let _ = fs::unlinkat(
                &self.folder,
                self.name.hidden(JOURNAL_SUFFIX),
                AtFlags::empty(),
            );
        }
        Ok(())
    }

    /// Waits until its name is on the disk.
    pub fn sync_folder(&self) -> Result<(), Error> {
        fs::fsync(self.folder.as_fd()).map_err(self.error("syncing the folder of"))
    }

    /// Tells folders apart.
    pub fn folder_number(&self) -> Option<(u64, u64)> {
        let stat = fs::fstat(&self.folder).ok()?;
        Some((stat.st_dev, stat.st_ino))
    }

    /// Gives up: nothing of it is worth keeping.
    pub fn discard(&self) {
        for suffix in [PART_SUFFIX, JOURNAL_SUFFIX] {
            let _ = fs::unlinkat(&self.folder, self.name.hidden(suffix), AtFlags::empty());
        }
    }
}
