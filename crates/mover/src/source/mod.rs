//! A file that is sent: its blocks by their offsets, each hashed and put on the connection by one of several methods.

mod method;
mod passage;

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::sys;
use crate::view;
pub use method::Method;
pub use passage::Mover;

/// What a file was when it was opened; if it is something else later, somebody has written it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &File) -> io::Result<Self> {
        let data = file.metadata()?;
        Ok(Self {
            size: data.size(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        })
    }
}

/// An open file to send.
#[derive(Debug)]
pub struct Source {
    /// Tells it from every other one of this process.
    number: u64,
    file: File,
    path: PathBuf,
    stamp: Stamp,
}

impl Source {
    /// Opens a regular file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(Error::file("opening", path))?;
        let stamp = Stamp::of(&file).map_err(Error::file("looking at", path))?;
        // Asks for more reading ahead; a wish.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Sequential);
        Ok(Self {
            number: view::number(),
            file,
            path: path.to_owned(),
            stamp,
        })
    }

    /// Its size when it was opened.
    pub fn size(&self) -> u64 {
        self.stamp.size
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its times and mode now.
    pub fn metadata(&self) -> Result<std::fs::Metadata, Error> {
        self.file
            .metadata()
            .map_err(Error::file("looking at", &self.path))
    }

    /// An error if somebody has written it.
    pub fn check_unchanged(&self) -> Result<(), Error> {
        let now = Stamp::of(&self.file).map_err(Error::file("looking at", &self.path))?;
        if now == self.stamp {
            Ok(())
        } else {
            Err(Error::Changed(self.path.clone()))
        }
    }

    /// Whether a range is a hole as a whole.
    pub fn is_hole(&self, offset: u64, len: u64) -> bool {
        match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(data) => data >= offset + len,
            // Nothing but a hole up to the end.
            Err(rustix::io::Errno::NXIO) => true,
            Err(_) => false,
        }
    }

    /// Reads a range whole.
    pub fn read(&self, bytes: &mut [u8], offset: u64) -> Result<(), Error> {
        let (mut done, retry) = (0, sys::Retry::new());
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => return Err(Error::Changed(self.path.clone())),
                Ok(count) => done += count,
                Err(error) if retry.again(&error) => {}
                Err(error) => return Err(Error::file("reading", &self.path)(error)),
            }
        }
        Ok(())
    }
}
