//! Where files are moved: a folder on the file system that is measured, with the file to send; removed at the end.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use load::interrupt::Interrupt;

/// Bytes that are made and compared at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// What is left free beside the two copies of the file.
const SPARE_BYTES: u64 = 1 << 30;

/// A folder of one measurement.
#[derive(Debug)]
pub struct Site {
    folder: PathBuf,
    /// The file system's type, and where it is mounted.
    pub file_system: FileSystem,
    /// Bytes of the file.
    pub bytes: u64,
    /// Ends everything.
    pub interrupt: Interrupt,
}

/// Which file system a folder is on.
#[derive(Debug, Clone, serde::Serialize)]
pub struct FileSystem {
    /// Its type: ext4, tmpfs.
    pub kind: String,
    /// The folder that was asked for.
    pub folder: PathBuf,
}

impl FileSystem {
    fn of(folder: &Path) -> anyhow::Result<Self> {
        let folder = folder
            .canonicalize()
            .with_context(|| format!("--dir {}", folder.display()))?;
        let mounts = fs::read_to_string("/proc/self/mounts").context("/proc/self/mounts")?;
        let kind = mounts.lines().filter_map(|line| {
            let mut words = line.split_ascii_whitespace().skip(1);
            let (point, kind) = (words.next()?, words.next()?);
            folder.starts_with(point).then_some((point.len(), kind))
        });
        // The innermost mount, and of those the last, which hides the others.
        let (_, kind) = kind.max_by_key(|(len, _)| *len).unwrap_or((0, "unknown"));
        Ok(Self {
            kind: kind.to_owned(),
            folder,
        })
    }

    /// Whether what it holds takes the machine's memory.
    pub fn is_memory(&self) -> bool {
        matches!(self.kind.as_str(), "tmpfs" | "ramfs")
    }
}

impl Site {
    /// Makes the folder and the file. Other files of up to `largest_bytes` are moved in turns with it, one at a time.
    pub fn create(
        within: &Path,
        bytes: u64,
        largest_bytes: u64,
        interrupt: Interrupt,
    ) -> anyhow::Result<Self> {
        let file_system = FileSystem::of(within)?;
        let needed = bytes + bytes.max(largest_bytes) + SPARE_BYTES;
        let room = room(&file_system)?;
        if room < needed {
            bail!(
                "{} are free, {} are needed for a file of {} and a copy of the largest; pass a smaller --size",
                size_text(room),
                size_text(needed),
                size_text(bytes)
            );
        }
        let name = format!("shunt-bench-mover-{}-{bytes}", std::process::id());
        let folder = file_system.folder.join(name);
        fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
        let site = Self {
            folder,
            file_system,
            bytes,
            interrupt,
        };
        fs::create_dir(site.target()).context("making the target folder")?;
        site.make_source().context("making the file to send")?;
        Ok(site)
    }

    /// The file that is sent.
    pub fn source(&self) -> PathBuf {
        self.folder.join("source")
    }

    pub fn target(&self) -> PathBuf {
        self.folder.join("target")
    }

    /// What it becomes.
    pub fn stored(&self) -> PathBuf {
        self.target().join("source")
    }

    /// A file for whatever else is needed.
    pub fn aside(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Bytes that do not repeat, on the disk and in the page cache.
    fn make_source(&self) -> anyhow::Result<()> {
        let mut file = File::create(self.source())?;
        let mut state = 88_172_645_463_325_252_u64;
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        let mut left = self.bytes;
        while left > 0 {
            self.interrupt.check()?;
            chunk.clear();
            while chunk.len() < CHUNK_BYTES {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                chunk.extend(state.to_le_bytes());
            }
            let count = left.min(CHUNK_BYTES as u64);
            file.write_all(&chunk[..usize::try_from(count).unwrap_or(CHUNK_BYTES)])?;
            left -= count;
        }
        file.sync_all()?;
        Ok(())
    }

    /// After a run: nothing is there, and nothing is on its way to the disk.
    pub fn clean(&self) -> anyhow::Result<()> {
        for entry in fs::read_dir(self.target())? {
            fs::remove_file(entry?.path())?;
        }
        let folder = File::open(&self.folder)?;
        rustix::fs::syncfs(&folder).context("syncing the file system")
    }

    /// Before a run: all of the source is in the page cache, if that has room for it. The system drops parts of what lies there,
    /// and a run that has to read them again is another measurement.
    pub fn bring_in(&self) -> anyhow::Result<()> {
        if self.file_system.is_memory() || self.bytes > available_bytes()? {
            return Ok(());
        }
        mover::disk::read_rate(&self.source(), self.bytes, self.interrupt.flag())
            .context("reading the file to send")?;
        Ok(())
    }

    /// After a run: the file is there as a whole; with `compare`, byte by byte.
    pub fn check_stored(&self, compare: bool) -> anyhow::Result<()> {
        let stored = File::open(self.stored()).context("opening what was stored")?;
        let len = stored.metadata()?.len();
        if len != self.bytes {
            bail!("it stored {len} bytes of {}, and said nothing", self.bytes);
        }
        if !compare {
            return Ok(());
        }
        let source = File::open(self.source())?;
        let (mut one, mut other) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
        let mut at = 0;
        while at < len {
            self.interrupt.check()?;
            let count = usize::try_from(len - at)
                .unwrap_or(CHUNK_BYTES)
                .min(CHUNK_BYTES);
            source.read_exact_at(&mut one[..count], at)?;
            stored.read_exact_at(&mut other[..count], at)?;
            if one[..count] != other[..count] {
                bail!("what it stored is not what was sent, within 1 MiB of byte {at}");
            }
            at += count as u64;
        }
        Ok(())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            note!("shunt: removing {}: {error}", self.folder.display());
        }
    }
}

/// Bytes that a file system has for us.
fn room(file_system: &FileSystem) -> anyhow::Result<u64> {
    let system = rustix::fs::statvfs(&file_system.folder).context("looking for room")?;
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    if !file_system.is_memory() {
        return Ok(free);
    }
    Ok(free.min(available_bytes()?))
}

/// Memory that can be had, for instance for the page cache; what lies there already counts.
fn available_bytes() -> anyhow::Result<u64> {
    let memory = fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    let available = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0);
    Ok(available * 1024)
}

/// A size as people say it.
pub fn size_text(bytes: u64) -> String {
    match bytes {
        0x4000_0000.. => format!("{:.3} GiB", bytes as f64 / f64::from(1 << 30)),
        _ => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_would_take_the_room_of_the_largest_copy_is_refused() {
        let folder = std::env::temp_dir();
        let room = room(&FileSystem::of(&folder).unwrap()).unwrap();
        let made = Site::create(&folder, 4096, room, Interrupt::default());
        let error = made.unwrap_err().to_string();
        assert!(error.contains("a copy of the largest"), "{error}");
    }

    #[test]
    fn a_short_or_different_copy_is_found_and_the_folder_goes_away() {
        let interrupt = Interrupt::default();
        let site = Site::create(&std::env::temp_dir(), 2_500_000, 0, interrupt).unwrap();
        let (folder, stored) = (site.folder.clone(), site.stored());
        fs::copy(site.source(), &stored).unwrap();
        site.check_stored(true).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&stored).unwrap();
        file.write_all_at(b"wrong", 2_100_000).unwrap();
        assert!(site.check_stored(false).is_ok());
        let wrong = site.check_stored(true).unwrap_err().to_string();
        assert!(wrong.contains("not what was sent"), "{wrong}");
        file.set_len(7).unwrap();
        let short = site.check_stored(false).unwrap_err().to_string();
        assert!(short.contains("7 bytes of 2500000"), "{short}");
        site.clean().unwrap();
        assert!(!stored.exists());
        site.bring_in().unwrap();
        drop(site);
        assert!(!folder.exists());
    }
}
