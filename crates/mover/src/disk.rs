//! What a disk can do by itself, measured with the calls that a transfer uses: `shunt send --probe`, `shunt bench mover`.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::direct::DirectWriter;
use crate::error::Error;
use crate::store::{DIRECT_DEPTH, PIECE_BYTES};
use crate::sys::Memory;

/// What a measurement came to.
#[derive(Clone, Copy, Debug)]
pub struct DiskRate {
    /// Bytes that were moved.
    pub bytes: u64,
    /// In this time, a last fdatasync included.
    pub taken: Duration,
}

/// A file that goes away.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // Gone already, perhaps.
        let _ = fs::remove_file(&self.0);
    }
}

/// Writes so many bytes into a new file in a folder, syncs them and removes it.
///
/// # Errors
/// What failed, or that `stop` was set.
pub fn write_rate(folder: &Path, bytes: u64, stop: &AtomicBool) -> Result<DiskRate, Error> {
    let path = folder.join(format!(".shunt-probe-{}", std::process::id()));
    let file = File::create_new(&path).map_err(Error::file("creating", &path))?;
    let scratch = Scratch(path);
    let path = scratch.0.as_path();
    let begun = Instant::now();
    // Where this is not to be had, room is taken as it is written.
    let _ = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes);
    let direct = fs::OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .ok()
        .zip(DirectWriter::new(DIRECT_DEPTH, PIECE_BYTES).ok());
    match direct {
        Some((direct, mut writer)) => write_direct(&direct, &mut writer, bytes, stop),
        None => write_buffered(&file, bytes, stop),
    }
    .and_then(|()| file.sync_data())
    .map_err(Error::file("writing", path))?;
    let taken = begun.elapsed();
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    Ok(DiskRate { bytes, taken })
}

fn write_direct(
    file: &File,
    writer: &mut DirectWriter,
    bytes: u64,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    for index in 0..usize::from(DIRECT_DEPTH) {
        // Zeros might be treated as holes.
        writer.buffer(index).fill(0xa5);
    }
    let mut at = 0;
    while at < bytes && !stop.load(Ordering::Relaxed) {
        match writer.free() {
            Some(index) => {
                writer.write(index, file.as_fd(), at, PIECE_BYTES)?;
                at += PIECE_BYTES as u64;
            }
            None => drop(
                writer
                    .ended(true)?
                    .map(|written| written.result)
                    .transpose()?,
            ),
        }
    }
    while writer.is_busy() {
        writer
            .ended(true)?
            .map(|written| written.result)
            .transpose()?;
    }
    Ok(())
}

fn write_buffered(file: &File, bytes: u64, stop: &AtomicBool) -> std::io::Result<()> {
    let mut memory = Memory::new(PIECE_BYTES)?;
    memory.bytes().fill(0xa5);
    let mut at = 0;
    while at < bytes && !stop.load(Ordering::Relaxed) {
        file.write_all_at(memory.bytes(), at)?;
        at += PIECE_BYTES as u64;
    }
    Ok(())
}

/// Reads at most so many bytes of a file: from the page cache what lies there, as a transfer does.
///
/// # Errors
/// What failed, or that `stop` was set.
pub fn read_rate(path: &Path, bytes: u64, stop: &AtomicBool) -> Result<DiskRate, Error> {
    let file = File::open(path).map_err(Error::file("opening", path))?;
    let read = |memory: &mut Memory, at| file.read_at(memory.bytes(), at);
    let mut memory = Memory::new(PIECE_BYTES).map_err(Error::file("taking memory for", path))?;
    let begun = Instant::now();
    let mut at = 0;
    while at < bytes && !stop.load(Ordering::Relaxed) {
        match read(&mut memory, at).map_err(Error::file("reading", path))? {
            0 => break,
            count => at += count as u64,
        }
    }
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    Ok(DiskRate {
        bytes: at,
        taken: begun.elapsed(),
    })
}

/// Reads at most so many bytes of a file from its device: what of it lies in the page cache is dropped before.
///
/// # Errors
/// What failed, that `stop` was set, or that the kernel has counted fewer bytes from a device than were read.
pub fn device_read_rate(path: &Path, bytes: u64, stop: &AtomicBool) -> Result<DiskRate, Error> {
    let forget = || {
        let file = File::open(path)?;
        // What is not on the device yet stays.
        file.sync_data()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        Ok(())
    };
    forget().map_err(Error::file("dropping from the page cache", path))?;
    let before = fetched_bytes();
    let rate = read_rate(path, bytes, stop)?;
    let fetched = before
        .zip(fetched_bytes())
        .map(|(before, after)| after.saturating_sub(before));
    match fetched {
        Some(fetched) if fetched < rate.bytes / 10 * 9 => {
            let said = format!(
                "of {} bytes {fetched} came from a device: this file system keeps or fetches them in another way",
                rate.bytes
            );
            let error = std::io::Error::new(std::io::ErrorKind::Unsupported, said);
            Err(Error::file("reading", path)(error))
        }
        _ => Ok(rate),
    }
}

/// Bytes that this process had fetched from devices, see proc_pid_io(5); `None`: this kernel does not count them.
fn fetched_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes:"));
    line?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_measured_and_left_as_it_was() {
        let folder = std::env::temp_dir().join(format!("shunt-disk-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let go = AtomicBool::new(false);
        let written = write_rate(&folder, 5 << 20, &go).unwrap();
        assert_eq!(written.bytes, 5 << 20);
        assert!(!written.taken.is_zero());
        let stopped = write_rate(&folder, 5 << 20, &AtomicBool::new(true));
        assert!(matches!(stopped, Err(Error::Interrupted)));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::write(folder.join("f"), vec![1; 3_000_000]).unwrap();
        let whole = read_rate(&folder.join("f"), u64::MAX, &go).unwrap();
        assert_eq!(whole.bytes, 3_000_000);
        let before = fetched_bytes();
        match device_read_rate(&folder.join("f"), u64::MAX, &go) {
            Ok(rate) => {
                assert_eq!(rate.bytes, 3_000_000);
                let fetched = before.zip(fetched_bytes());
                assert!(fetched.is_none_or(|(before, after)| after - before >= 2_700_000));
            }
            // A file system in memory has no device.
            Err(error) => assert!(error.to_string().contains("from a device"), "{error}"),
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
