//! Which files the engine reads for programs: regular ones on local file systems, open for reading.
//!
//! Any other could make the engine wait for somebody: a pipe for its writer, FUSE or NFS for a server.
//! Asking such a file what it is (fstat, fstatfs) may wait as well, so the file system is looked up in
//! proc_pid_mountinfo(5) before the file is asked anything. A mount that the engine does not see, in
//! another mount namespace, is refused: the program then copies by itself.

use super::{Answered, Programs};
use crate::programs::users::ProgramFd;
use hostif::control::Reply;
use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

/// Their files are in the page cache or on a local disk, and whoever reads them takes no lock that a writer keeps while it
/// waits for its own memory (as on XFS, where both take that of the inode).
const FILE_SYSTEMS: &[&str] = &["ext2", "ext3", "ext4", "btrfs", "f2fs", "tmpfs"];

/// Why a file is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// Not open for reading.
    #[error("the file is not open for reading")]
    NotReadable,
    /// Not one of the file systems above, or not in sight.
    #[error("the engine sends only from files on local file systems that it sees mounted")]
    FileSystem,
    /// A directory, a device and the like.
    #[error("the engine sends only from regular files")]
    NotRegular,
}

impl Programs {
    /// A program lends a file to send from.
    pub(crate) fn share_file(&mut self, slot: usize, descriptors: Vec<ProgramFd>) -> Answered {
        let file = descriptors
            .into_iter()
            .next()
            .ok_or((Errno::BADF, String::new()))?;
        check(&file).map_err(|refused| (Errno::OPNOTSUPP, refused.to_string()))?;
        self.answered(slot)?;
        let first = self
            .keep_file(slot, file)
            .ok_or((Errno::MFILE, "too many shared files".to_owned()))?;
        Ok((Reply::Prepared { first, count: 1 }, Vec::new()))
    }
}

/// Whether the engine may read from the file whenever it likes.
pub fn check(file: &OwnedFd) -> Result<(), Refused> {
    let flags = rustix::fs::fcntl_getfl(file).unwrap_or(OFlags::PATH);
    let access = flags & OFlags::RWMODE;
    if flags.contains(OFlags::PATH) || access == OFlags::WRONLY {
        return Err(Refused::NotReadable);
    }
    if !is_local(file).unwrap_or(false) {
        return Err(Refused::FileSystem);
    }
    match rustix::fs::fstat(file) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => Ok(()),
        _ => Err(Refused::NotRegular),
    }
}

/// Whether the file has bytes up to `end`. Only for files that passed [`check`].
pub fn reaches(file: &OwnedFd, end: u64) -> bool {
    rustix::fs::fstat(file)
        .is_ok_and(|stat| u64::try_from(stat.st_size).is_ok_and(|size| end <= size))
}

fn is_local(file: &OwnedFd) -> Option<bool> {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let mount = about
        .lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))?
        .trim();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    Some(FILE_SYSTEMS.contains(&file_system(&mounts, mount)?))
}

/// The type of the mount with that number: `36 35 98:0 / /mnt rw master:1 - ext3 /dev/root rw`.
fn file_system<'a>(mounts: &'a str, mount: &str) -> Option<&'a str> {
    let line = mounts
        .lines()
        .find(|line| line.split(' ').next() == Some(mount))?;
    line.split_once(" - ")?.1.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_is_found_behind_optional_fields() {
        let mounts = "36 35 98:0 /a /mnt rw,noatime master:1 shared:2 - ext3 /dev/root rw\n\
                      136 35 0:4 / /mnt/136 rw - fuse.sshfs host:/ rw\n";
        assert_eq!(file_system(mounts, "36"), Some("ext3"));
        assert_eq!(file_system(mounts, "136"), Some("fuse.sshfs"));
        assert_eq!(file_system(mounts, "6"), None);
    }

    #[test]
    fn pipes_devices_and_files_that_cannot_be_read_are_refused() {
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert_eq!(check(&pipe), Err(Refused::FileSystem));
        let zero = std::fs::File::open("/dev/zero").unwrap();
        assert!(check(&OwnedFd::from(zero)).is_err());
        let process = std::fs::File::open("/proc/self/status").unwrap();
        assert_eq!(check(&OwnedFd::from(process)), Err(Refused::FileSystem));
        let folder = std::fs::File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
        assert!(check(&OwnedFd::from(folder)).is_err());
        let null = std::fs::File::options().write(true).open("/dev/null");
        assert_eq!(
            check(&OwnedFd::from(null.unwrap())),
            Err(Refused::NotReadable)
        );
        let path = rustix::fs::open("/", OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        assert_eq!(check(&path), Err(Refused::NotReadable));
    }
}
