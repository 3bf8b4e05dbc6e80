//! The sending end of a session: walks through what is to be sent, hears what the receiver says, and has a thread
//! for each data connection.

mod data;
mod job;
mod work;

use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::checksum::Algorithm;
use crate::connection::Connection;
use crate::ending::Ending;
use crate::error::Error;
use crate::lock::lock;
use crate::meter::{Totals, sum};
use crate::name::{self, Name};
use crate::protocol::{Entry, Intake, Kind, Message, SMALL_MAX_BYTES, StageTimes, block_bytes_for};
use crate::session::{ALIVE, Outcome, Session, Watch};
use crate::source::{Method, Source};
use data::Pace;
use job::{Job, Progress};
use work::{Open, Small, Work};

/// What a sender is to do.
#[derive(Clone, Debug)]
pub struct SenderConfig {
    /// Files and folders.
    pub sources: Vec<PathBuf>,
    /// Standard input too, under this name.
    pub input_name: Option<String>,
    /// How bytes leave; `None`: what costs least here.
    pub method: Option<Method>,
    /// How blocks are hashed.
    pub algorithm: Algorithm,
    /// At most so many bytes a second.
    pub rate_bytes_per_s: Option<u64>,
    /// Blocks and small files travel as zstd frames of this level, from 1 to [`crate::PACK_LEVEL_MAX`], where that makes
    /// them shorter.
    pub pack_level: Option<u8>,
}

/// The sending end.
#[derive(Debug)]
pub struct Sender<'a> {
    config: &'a SenderConfig,
    work: Work,
    pace: Pace,
    ending: Ending,
    outcome: Mutex<Outcome>,
    watch: &'a Watch,
    next_file: AtomicU64,
}

impl<'a> Sender<'a> {
    /// Sends everything, and waits until the receiver has it.
    ///
    /// # Errors
    /// What ended the session; files that failed one by one are in the outcome.
    pub fn run(
        session: Session,
        config: &'a SenderConfig,
        watch: &'a Watch,
    ) -> Result<Outcome, Error> {
        let sender = Self {
            config,
            work: Work::default(),
            pace: Pace::new(config.rate_bytes_per_s),
            ending: Ending::new(&session)?,
            outcome: Mutex::default(),
            watch,
            next_file: AtomicU64::new(0),
        };
        let Session { control, data, .. } = session;
        thread::scope(|scope| {
            let keeper = scope.spawn(|| sender.keep());
            let listener = scope.spawn(|| {
                let finished = sender.ending.watch(|| sender.listen(&control));
                sender.work.close();
                finished
            });
            let threads: Vec<_> = data
                .into_iter()
                .map(|stream| scope.spawn(|| sender.watched(|| sender.send(stream))))
                .collect();
            let walked = sender.watched(|| sender.walk());
            sender.work.close();
            let times = threads
                .into_iter()
                .filter_map(|thread| thread.join().ok().flatten());
            let own = sum(times.collect::<Vec<StageTimes>>());
            if walked.is_some() && !sender.ending.has_failed() {
                sender.watched(|| sender.ending.say(&Message::Finish));
            }
            if let Ok(Some(theirs)) = listener.join() {
                lock(&sender.outcome).totals = Totals::new(&own, &theirs);
            }
            sender.ending.end();
            let _ = keeper.join();
        });
        sender.ending.result()?;
        Ok(sender
            .outcome
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner))
    }

    /// A thread whose error ends all.
    fn watched<T>(&self, body: impl FnOnce() -> Result<T, Error>) -> Option<T> {
        let value = self.ending.watch(body);
        if value.is_none() {
            self.work.close();
        }
        value
    }

    /// What the receiver says, to its last word.
    fn listen(&self, control: &Connection) -> Result<StageTimes, Error> {
        let mut intake = Intake::new(control);
        loop {
            match intake.message()? {
                Message::Kept(file, first, digests) => {
                    let job = self.job(file)?;
                    let kept = job
                        .keep(first, &digests)
                        .ok_or(Error::Protocol("blocks that cannot be"))?;
                    Watch::add(&self.watch.kept_bytes, kept);
                }
                Message::Ready(file) => self.on_ready(file)?,
                Message::Again(file, block) => self.on_again(file, block)?,
                Message::Done(files) => {
                    for file in files {
                        self.on_done(file);
                    }
                }
                Message::Failed(file, reason) => {
                    if let Some(open) = self.work.close_file(file) {
                        lock(&self.outcome).fail(open.path(), reason);
                    }
                }
                Message::Alive(stored) => self.watch.stored_bytes.store(stored, Ordering::Relaxed),
                Message::Finished(times) => return Ok(times),
                Message::Refuse(reason) => return Err(Error::Refused(reason)),
                _ => return Err(Error::Protocol("a message of the other side")),
            }
        }
    }

    fn job(&self, file: u64) -> Result<Arc<Job>, Error> {
        match self.work.find(file) {
            Some(Open::Large(job)) => Ok(job),
            _ => Err(Error::Protocol(
                "it speaks of a file that it was not told of",
            )),
        }
    }

    fn on_ready(&self, file: u64) -> Result<(), Error> {
        match self.work.find(file) {
            Some(Open::Large(job)) => match job.progress() {
                Progress::Going => self.work.queue_job(job),
                Progress::Complete(whole) => self.end(&job, whole)?,
            },
            Some(Open::Other(_)) => self.work.queue_input(self.input_entry(file)),
            // Given up meanwhile.
            Some(Open::Small(_)) | None => {}
        }
        Ok(())
    }

    fn on_again(&self, file: u64, block: u64) -> Result<(), Error> {
        Watch::add(&self.watch.again, 1);
        match self.work.find(file) {
            Some(Open::Large(job)) if job.send_again(block) => self.work.queue_job(job),
            Some(Open::Large(_)) => return Err(Error::Protocol("it wants a block that is none")),
            Some(Open::Small(small)) => self.work.queue_small(small),
            Some(Open::Other(path)) => {
                let reason =
                    "it arrived damaged, and what came from standard input cannot be sent again";
                self.work.close_file(file);
                lock(&self.outcome).fail(path, reason.to_owned());
                self.ending.say(&Message::Failed(file, reason.to_owned()))?;
            }
            None => {}
        }
        Ok(())
    }

    fn on_done(&self, file: u64) {
        match self.work.close_file(file) {
            Some(Open::Small(_) | Open::Large(_)) => {
                lock(&self.outcome).files += 1;
                Watch::add(&self.watch.files, 1);
            }
            Some(Open::Other(path)) if Some(path.as_os_str()) == self.input_path().as_deref() => {
                lock(&self.outcome).files += 1;
                Watch::add(&self.watch.files, 1);
            }
            Some(Open::Other(_)) | None => {}
        }
    }

    /// Tells the receiver that this end lives, and ends everything when somebody asks for it.
    fn keep(&self) {
        let mut turns = 0_u32;
        loop {
            if self.watch.is_stopped() {
                self.ending.fail(Error::Interrupted);
                self.work.close();
            }
            if turns.is_multiple_of(10) && !self.ending.has_failed() {
                // The thread that listens hears of a lost connection too.
                let _ = self.ending.say(&Message::Alive(0));
            }
            turns = turns.wrapping_add(1);
            if self.ending.rest(ALIVE / 10) {
                return;
            }
        }
    }

    /// Tells of everything that is to be sent, folders last, and waits until the receiver has it.
    fn walk(&self) -> Result<(), Error> {
        for source in &self.config.sources {
            let top = absolute(source)?;
            self.walk_files(&top, &top)?;
        }
        if let Some(path) = self.input_path() {
            let file = self.number();
            self.work.add(file, Open::Other(path.into()));
            self.ending.say(&Message::Entry(self.input_entry(file)))?;
        }
        // Whatever is stored in a folder changes its time.
        if !self.work.await_empty() {
            return Ok(());
        }
        for source in &self.config.sources {
            let top = absolute(source)?;
            self.walk_folders(&top, &top)?;
        }
        self.work.await_empty();
        Ok(())
    }

    fn number(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    fn input_path(&self) -> Option<std::ffi::OsString> {
        self.config
            .input_name
            .as_ref()
            .map(std::ffi::OsString::from)
    }

    fn input_entry(&self, file: u64) -> Entry {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seconds = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(0));
        Entry {
            file,
            name: self
                .config
                .input_name
                .clone()
                .unwrap_or_default()
                .into_bytes(),
            kind: Kind::File(None),
            mode: 0o644,
            modified: (seconds, 0),
            algorithm: self.config.algorithm,
            block_bytes: block_bytes_for(None),
            is_sparse: false,
        }
    }

    /// Children of a folder, one at a time: it may have millions.
    fn children(&self, folder: &Path) -> impl Iterator<Item = PathBuf> {
        let fail = |error: std::io::Error| {
            lock(&self.outcome).fail(folder.to_owned(), error.to_string());
        };
        let entries = fs::read_dir(folder).map_err(fail).into_iter().flatten();
        entries.filter_map(move |entry| Some(entry.map_err(fail).ok()?.path()))
    }

    fn walk_files(&self, top: &Path, path: &Path) -> Result<(), Error> {
        if self.ending.has_failed() {
            return Ok(());
        }
        let metadata = match fs::symlink_metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if path == top => return Err(Error::file("opening", path)(error)),
            Err(error) => {
                lock(&self.outcome).fail(path.to_owned(), error.to_string());
                return Ok(());
            }
        };
        if metadata.is_dir() {
            for child in self.children(path) {
                self.walk_files(top, &child)?;
            }
            return Ok(());
        }
        let Some(name) = name::below(top, path) else {
            let reason = "its name cannot travel: it is one of this tool's own, or too long";
            lock(&self.outcome).fail(path.to_owned(), reason.to_owned());
            return Ok(());
        };
        self.tell(path, &name, &metadata)
    }

    /// Tells of one file or link.
    fn tell(&self, path: &Path, name: &Name, metadata: &Metadata) -> Result<(), Error> {
        let kind = metadata.file_type();
        if !self.work.await_capacity() {
            return Ok(());
        }
        if kind.is_symlink() {
            return match fs::read_link(path) {
                Ok(text) => self.tell_other(
                    path,
                    name,
                    metadata,
                    Kind::Link(text.into_os_string().into_vec()),
                ),
                Err(error) => {
                    lock(&self.outcome).fail(path.to_owned(), error.to_string());
                    Ok(())
                }
            };
        }
        if !kind.is_file() {
            lock(&self.outcome)
                .skipped
                .push((path.to_owned(), special(&kind)));
            return Ok(());
        }
        Watch::add(&self.watch.total_bytes, metadata.size());
        let entry = self.entry(name, metadata, Kind::File(Some(metadata.size())));
        if metadata.size() <= SMALL_MAX_BYTES {
            let small = Small {
                path: path.to_owned(),
                entry,
            };
            self.work.add(small.entry.file, Open::Small(small));
            return Ok(());
        }
        let source = match Source::open(path) {
            Ok(source) => source,
            Err(error) => {
                lock(&self.outcome).fail(path.to_owned(), error.to_string());
                return Ok(());
            }
        };
        // Of the open file, not of what the name meant before.
        let metadata = source.metadata()?;
        let entry = Entry {
            file: entry.file,
            ..self.entry(name, &metadata, Kind::File(Some(source.size())))
        };
        let job = Arc::new(Job::new(entry.clone(), source));
        self.work.add(entry.file, Open::Large(job));
        self.ending.say(&Message::Entry(entry))
    }

    fn tell_other(
        &self,
        path: &Path,
        name: &Name,
        metadata: &Metadata,
        kind: Kind,
    ) -> Result<(), Error> {
        let entry = self.entry(name, metadata, kind);
        self.work.add(entry.file, Open::Other(path.to_owned()));
        self.ending.say(&Message::Entry(entry))
    }

    fn entry(&self, name: &Name, metadata: &Metadata, kind: Kind) -> Entry {
        let size = match kind {
            Kind::File(size) => size,
            Kind::Folder | Kind::Link(_) => Some(0),
        };
        Entry {
            file: self.number(),
            name: name.bytes().to_vec(),
            kind,
            mode: metadata.mode() & 0o7777,
            modified: (
                metadata.mtime(),
                u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
            ),
            algorithm: self.config.algorithm,
            block_bytes: block_bytes_for(size),
            is_sparse: metadata.blocks() * 512 < metadata.size(),
        }
    }

    fn walk_folders(&self, top: &Path, path: &Path) -> Result<(), Error> {
        let Ok(metadata) = fs::symlink_metadata(path) else {
            return Ok(());
        };
        if !metadata.is_dir() || self.ending.has_failed() {
            return Ok(());
        }
        for child in self.children(path) {
            self.walk_folders(top, &child)?;
        }
        match name::below(top, path) {
            Some(name) if self.work.await_capacity() => {
                self.tell_other(path, &name, &metadata, Kind::Folder)
            }
            _ => Ok(()),
        }
    }
}

fn special(kind: &fs::FileType) -> &'static str {
    if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// A source by a name that has a last part: `.` and `..` have none.
fn absolute(path: &Path) -> Result<PathBuf, Error> {
    let ends_in_name = path.file_name().is_some();
    let whole = if ends_in_name {
        std::path::absolute(path)
    } else {
        path.canonicalize()
    };
    whole.map_err(Error::file("opening", path))
}
