//! Time stamps on the way of a message, for `shunt ping --stages`: a program, its library and its engine note when a message
//! passes. Nothing is noted unless the process was started with [`STAGES_VARIABLE`]; else a mark is one load and a branch.
//!
//! A process notes in a file of its own in the folder that the variable names: a count, then a word for each mark, the
//! time in nanoseconds of CLOCK_MONOTONIC in its upper bits. The newest marks are kept, as many as the file has room for.

use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustix::fd::AsFd as _;
use rustix::fs::{Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};

use crate::cursor::Cells;
use crate::sync::Ordering;
use crate::sys::Mapping;

/// Environment variable that names the folder in which a process notes.
pub const STAGES_VARIABLE: &str = "SHUNT_STAGES";
/// Marks of one process that are kept: 8 MiB.
const MARKS_MAX: usize = (1 << 20) - 1;
/// Bytes of a process's file.
const FILE_BYTES: u64 = (MARKS_MAX as u64 + 1) * 8;
/// Processes whose notes are read at most.
const FILES_MAX: usize = 64;
/// Bits of a word that say which mark it is.
const MARK_BITS: u32 = 5;
const MARK_MASK: u64 = (1 << MARK_BITS) - 1;
/// Pairs of reads of two clocks.
const OFFSET_TRIES: usize = 50;
/// Words in a page, to touch each page before it is needed.
const PAGE_WORDS: usize = 512;

/// What a message has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mark {
    /// The program is about to send it.
    Call = 1,
    /// It lies in the send window, and its note is about to be pushed into the ring.
    Pushed,
    /// The engine has found the note.
    Taken,
    /// The connection knows of the bytes.
    Accepted,
    /// A segment with payload is made, and goes to the driver; of the kernel's stack: to the queueing discipline.
    Transmit,
    /// It has left the host's software.
    Left,
    /// The receiving host's software has it.
    Arrived,
    /// The receiving TCP begins with a frame.
    Received,
    /// The receiving TCP has judged it, and its payload is about to be placed.
    Placed,
    /// The payload can be read.
    Readable,
    /// The receiving program's thread has found it.
    Seen,
    /// The program has it.
    Returned,
    /// The peer has acknowledged it.
    Acknowledged,
}

impl Mark {
    /// All marks.
    pub const ALL: [Self; 13] = [
        Self::Call,
        Self::Pushed,
        Self::Taken,
        Self::Accepted,
        Self::Transmit,
        Self::Left,
        Self::Arrived,
        Self::Received,
        Self::Placed,
        Self::Readable,
        Self::Seen,
        Self::Returned,
        Self::Acknowledged,
    ];
}

/// A process's notes.
struct Log {
    words: Cells,
    /// CLOCK_REALTIME less CLOCK_MONOTONIC.
    offset_ns: u64,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Notes that a message passes, now.
#[inline(always)]
pub fn mark(mark: Mark) {
    if let Some(log) = LOG.get() {
        log.note(mark, now_ns());
    }
}

/// Notes that a message passed at that time of CLOCK_REALTIME, in nanoseconds since 1970.
#[inline]
pub fn mark_at(mark: Mark, real_ns: Option<u64>) {
    if let (Some(log), Some(real_ns)) = (LOG.get(), real_ns) {
        log.note(mark, real_ns.saturating_sub(log.offset_ns));
    }
}

/// Whether this process notes.
#[must_use]
pub fn is_on() -> bool {
    LOG.get().is_some()
}

/// Now, by the clock of the marks.
#[must_use]
pub fn now_ns() -> u64 {
    time_ns(ClockId::Monotonic)
}

fn time_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// CLOCK_REALTIME less CLOCK_MONOTONIC, from the closest of several pairs of reads.
fn offset_ns() -> u64 {
    let tries = (0..OFFSET_TRIES).map(|_| {
        let (before, real, after) = (now_ns(), time_ns(ClockId::Realtime), now_ns());
        let middle = before + (after - before) / 2;
        (after - before, real.saturating_sub(middle))
    });
    tries.min().map_or(0, |(_, offset_ns)| offset_ns)
}

impl Log {
    #[cold]
    fn note(&self, mark: Mark, at_ns: u64) {
        let index = self.words[0].fetch_add(1, Ordering::Relaxed);
        let place = usize::try_from(index % MARKS_MAX as u64);
        if let Some(word) = place.ok().and_then(|place| self.words.get(place + 1)) {
            word.store(at_ns << MARK_BITS | mark as u64, Ordering::Release);
        }
    }

    fn create(folder: &Path, role: &str) -> std::io::Result<Self> {
        let name = format!("{}-{role}", std::process::id());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::open(folder.join(name), flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::ftruncate(&file, FILE_BYTES)?;
        let mapping = Mapping::new(file.as_fd(), FILE_BYTES).map_err(std::io::Error::other)?;
        let words = Arc::new(mapping).cells(0, MARKS_MAX + 1);
        let words = words.ok_or(std::io::ErrorKind::InvalidData)?;
        // No mark shall wait for a page.
        for word in words.iter().step_by(PAGE_WORDS) {
            word.store(0, Ordering::Relaxed);
        }
        let offset_ns = offset_ns();
        Ok(Self { words, offset_ns })
    }
}

/// Begins to note, if the environment asks for it; `role` is what part of the process does.
///
/// # Errors
/// The folder that it names is not there, or this process has begun in this role before.
pub fn begin(role: &str) -> std::io::Result<()> {
    let Some(folder) = crate::environment::value(STAGES_VARIABLE) else {
        return Ok(());
    };
    if LOG.get().is_some() {
        return Ok(());
    }
    let log = Log::create(Path::new(&folder), role)?;
    // A thread that begins at the same moment has a file of its own name, and fails there.
    let _ = LOG.set(log);
    Ok(())
}

/// What the processes that were told to note in a folder have noted, in the order of time.
#[derive(Debug, Default)]
pub struct Marks {
    /// Time of CLOCK_MONOTONIC in nanoseconds, and what happened.
    pub marks: Vec<(u64, Mark)>,
    /// Numbers of the processes, as they see them.
    pub pids: Vec<u32>,
    /// Older marks, for which the files had no room.
    pub lost: u64,
}

impl Marks {
    /// Reads them.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn read(folder: &Path) -> std::io::Result<Self> {
        Self::read_since(folder, 0)
    }

    /// Reads those of the time `since_ns` and later, while processes may go on noting. Of a folder with many files some are left out.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn read_since(folder: &Path, since_ns: u64) -> std::io::Result<Self> {
        let mut found = Self::default();
        for entry in std::fs::read_dir(folder)?.take(FILES_MAX) {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let pid = name.split('-').next().and_then(|pid| pid.parse().ok());
            let (Some(pid), true) = (pid, entry.file_type()?.is_file()) else {
                continue;
            };
            let mut bytes = Vec::new();
            let file = std::fs::File::open(entry.path())?;
            file.take(FILE_BYTES).read_to_end(&mut bytes)?;
            found.pids.push(pid);
            found.add(&bytes, since_ns);
        }
        found.marks.sort_unstable();
        Ok(found)
    }

    fn add(&mut self, bytes: &[u8], since_ns: u64) {
        let mut words = bytes
            .chunks_exact(8)
            .filter_map(|word| Some(u64::from_ne_bytes(word.try_into().ok()?)));
        let count = words.next().unwrap_or(0);
        let noted = usize::try_from(count).unwrap_or(MARKS_MAX).min(MARKS_MAX);
        self.lost += count.saturating_sub(MARKS_MAX as u64);
        let of = |word: u64| {
            let mark = Mark::ALL
                .into_iter()
                .find(|mark| *mark as u64 == word & MARK_MASK)?;
            Some((word >> MARK_BITS, mark)).filter(|(at_ns, _)| *at_ns >= since_ns)
        };
        self.marks.extend(words.take(noted).filter_map(of));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_read_in_the_order_of_time_and_what_lost_its_place_is_counted() {
        let folder = std::env::temp_dir().join(format!("shunt-stages-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let logs = ["program", "engine"].map(|role| Log::create(&folder, role).unwrap());
        logs[0].note(Mark::Returned, 300);
        logs[0].note(Mark::Call, 100);
        logs[1].note(Mark::Taken, 200);
        let again = Log::create(&folder, "engine").err().unwrap();
        assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
        let found = Marks::read(&folder).unwrap();
        assert_eq!(
            found.marks,
            [(100, Mark::Call), (200, Mark::Taken), (300, Mark::Returned)]
        );
        assert_eq!(found.lost, 0);
        let late = Marks::read_since(&folder, 200).unwrap().marks;
        assert_eq!(late, [(200, Mark::Taken), (300, Mark::Returned)]);
        for _ in 0..MARKS_MAX + 5 {
            logs[1].note(Mark::Taken, 1);
        }
        let found = Marks::read(&folder).unwrap();
        assert_eq!((found.marks.len(), found.lost), (MARKS_MAX + 2, 6));
        assert!(
            !found.marks.contains(&(200, Mark::Taken)),
            "the newest stay"
        );
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn every_mark_is_told_apart() {
        for (index, mark) in Mark::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(mark as u8), index + 1);
        }
        assert!(Mark::ALL.len() < 1 << MARK_BITS);
    }
}
