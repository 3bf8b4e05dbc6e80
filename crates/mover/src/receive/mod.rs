//! The receiving end of a session: a thread for messages, one for each data connection, and one that syncs what
//! has come and notes it in the journals.

mod arrival;
mod data;
pub mod sink;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::checksum;
use crate::connection::Connection;
use crate::ending::Ending;
use crate::error::Error;
use crate::lock::lock;
use crate::meter::sum;
use crate::name::{self, Name};
use crate::protocol::{Entry, Intake, KEPT_MAX, Kind, Message, StageTimes};
use crate::session::{ALIVE, Outcome, Session, Watch};
use crate::store::Storage;
use crate::sys::SILENCE;
use crate::target::{Check, Target};
use sink::{Sink, Verdict};

/// Most files of a session that are not whole at one time; an honest sender has fewer.
const SINKS_MAX: usize = 1_024;
/// Small files of all data connections that wait for their names; each takes two descriptors.
const SMALL_OPEN_MAX: usize = 256;
/// How often journals are brought up to date.
const CHECKPOINT: Duration = Duration::from_secs(1);
/// How long a file waits for another transfer that has its name: that of a sender that was killed ends by then, when what
/// came of it is on the disk.
const HELD: Duration = Duration::from_secs(3);

/// What a receiver is to do.
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// Where files go; it is there.
    pub folder: PathBuf,
    /// How they are stored; `None`: as the file system allows best.
    pub storage: Option<Storage>,
    /// Which blocks of an earlier try are read and hashed again.
    pub check: Check,
}

/// How long nothing has come that should.
#[derive(Debug)]
struct Stall {
    since: Instant,
    bytes: u64,
}

impl Stall {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            bytes: 0,
        }
    }

    fn is_too_long(&mut self, should_come: bool, bytes: u64) -> bool {
        if !should_come || bytes != self.bytes {
            self.bytes = bytes;
            self.since = Instant::now();
        }
        self.since.elapsed() >= SILENCE
    }
}

/// The receiving end.
#[derive(Debug)]
pub struct Receiver<'a> {
    target: Target,
    /// What the user named, and what it is.
    asked: Option<Storage>,
    storage: Storage,
    ending: Ending,
    sinks: Mutex<HashMap<u64, Arc<Sink>>>,
    outcome: Mutex<Outcome>,
    watch: &'a Watch,
    /// The sender's last message has come.
    is_told: AtomicBool,
    /// Small files that a data thread may have open before it gives them their names.
    small_most: usize,
}

impl ReceiverConfig {
    /// Whether the folder can be opened and written to, as far as that shows before anything is.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check(&self) -> Result<(), Error> {
        Target::open(&self.folder, self.check).map(|_| ())
    }
}

impl<'a> Receiver<'a> {
    /// Receives what the peer sends, to its end.
    ///
    /// # Errors
    /// What ended the session; files that failed one by one are in the outcome.
    pub fn run(
        session: Session,
        config: &ReceiverConfig,
        watch: &'a Watch,
    ) -> Result<Outcome, Error> {
        let receiver = Self {
            target: Target::open(&config.folder, config.check)?,
            asked: config.storage,
            storage: config.storage.unwrap_or(Storage::Direct),
            ending: Ending::new(&session)?,
            sinks: Mutex::default(),
            outcome: Mutex::default(),
            watch,
            is_told: AtomicBool::new(false),
            small_most: (SMALL_OPEN_MAX / session.data.len().max(1)).max(1),
        };
        let Session { control, data, .. } = session;
        thread::scope(|scope| {
            let keeper = scope.spawn(|| receiver.keep());
            let threads: Vec<_> = data
                .into_iter()
                .map(|stream| scope.spawn(|| receiver.ending.watch(|| receiver.receive(stream))))
                .collect();
            let finished = receiver.ending.watch(|| receiver.listen(&control));
            receiver.is_told.store(true, Ordering::Relaxed);
            let times: Vec<StageTimes> = threads
                .into_iter()
                .filter_map(|thread| thread.join().ok().flatten())
                .collect();
            if finished.is_some() && !receiver.ending.has_failed() {
                let told = receiver.ending.say(&Message::Finished(sum(times)));
                receiver.ending.watch(|| told);
            }
            receiver.ending.end();
            let _ = keeper.join();
        });
        receiver.ending.result()?;
        Ok(receiver
            .outcome
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner))
    }

    /// Messages of the sender, to the last.
    fn listen(&self, control: &Connection) -> Result<(), Error> {
        let mut intake = Intake::new(control);
        loop {
            match intake.message()? {
                Message::Entry(entry) => self.begin(entry)?,
                Message::End(file, size, digest) => {
                    if let Some(sink) = self.sink(file) {
                        sink.ends(size, digest)?;
                        self.conclude(&sink)?;
                    }
                }
                Message::Failed(file, reason) => self.give_up(file, reason),
                Message::Alive(_) => {}
                Message::Finish => return Ok(()),
                Message::Refuse(reason) => return Err(Error::Refused(reason)),
                _ => return Err(Error::Protocol("a message of the other side")),
            }
        }
    }

    fn sink(&self, file: u64) -> Option<Arc<Sink>> {
        lock(&self.sinks).get(&file).cloned()
    }

    /// Makes ready for what comes. What cannot be is told, and does not end the session.
    fn begin(&self, entry: Entry) -> Result<(), Error> {
        let file = entry.file;
        let Some(name) = Name::parse(entry.name.clone()) else {
            return self.refuse(
                file,
                PathBuf::from("?"),
                "its name leads elsewhere".to_owned(),
            );
        };
        let path = self.target.path_of(&name);
        let result = match &entry.kind {
            Kind::Folder => self.target.make_folder(&name, &entry).map(|()| true),
            Kind::Link(text) if name::link_stays_inside(&name, text) => {
                self.target.make_link(&name, text).map(|()| true)
            }
            Kind::Link(_) => {
                let reason = "the link leads out of the target folder".to_owned();
                return self.refuse(file, path, reason);
            }
            Kind::File(size) => {
                let size = *size;
                self.expect(&name, entry, size).map(|()| false)
            }
        };
        match result {
            Ok(true) => self.ending.say(&Message::Done(vec![file])),
            Ok(false) => Ok(()),
            Err(error @ Error::Protocol(_)) => Err(error),
            Err(error) => self.refuse(file, path, error.to_string()),
        }
    }

    /// A file: says what is there of it already.
    fn expect(&self, name: &Name, entry: Entry, size: Option<u64>) -> Result<(), Error> {
        if lock(&self.sinks).len() >= SINKS_MAX {
            return Err(Error::Protocol("too many files at once"));
        }
        let path = self.target.path_of(name);
        let is_own = lock(&self.sinks).values().any(|sink| sink.path() == path);
        let patience = if is_own { Duration::ZERO } else { HELD };
        let wanted = self.storage;
        let sink = Arc::new(Sink::open(
            &self.target,
            name,
            entry,
            size,
            wanted,
            patience,
        )?);
        for (first, digests) in sink.kept(KEPT_MAX) {
            self.ending
                .say(&Message::Kept(sink.number(), first, digests))?;
        }
        Watch::add(&self.watch.kept_bytes, sink.kept_bytes());
        Watch::add(&self.watch.total_bytes, size.unwrap_or(0));
        self.note_storage(sink.storage());
        let number = sink.number();
        if lock(&self.sinks).insert(number, sink).is_some() {
            return Err(Error::Protocol("a file's number comes twice"));
        }
        self.ending.say(&Message::Ready(number))
    }

    /// How files get to the disk; who asked for something that is not to be had here is told.
    fn note_storage(&self, storage: Storage) {
        lock(&self.outcome).storage = Some(storage);
        if self.asked == Some(Storage::Direct) && storage == Storage::Buffered {
            self.note_refusal("this file system or system has no direct writes");
        }
    }

    /// What was asked for is replaced by recv and write through the page cache.
    fn note_refusal(&self, why: &str) {
        let Some(asked) = self.asked.filter(|asked| *asked != Storage::Buffered) else {
            return;
        };
        let name = asked.name();
        let note = format!(
            "--store {name} cannot be had here ({why}): stored by recv and write, through the page cache"
        );
        lock(&self.outcome).note(note);
    }

    /// Says that a file will not be.
    fn refuse(&self, file: u64, path: PathBuf, reason: String) -> Result<(), Error> {
        lock(&self.outcome).fail(path, reason.clone());
        self.ending.say(&Message::Failed(file, reason))
    }

    /// The sender gives a file up: it changed, or cannot be read.
    fn give_up(&self, file: u64, reason: String) {
        // It stays known, because blocks of it may be on their way.
        if let Some(sink) = self.sink(file) {
            if sink.verdict() == Verdict::Pending {
                sink.discard();
            }
            sink.give_up(&reason);
            lock(&self.outcome).fail(sink.path().to_owned(), reason);
        }
    }

    /// Ends a file that is whole, or cannot be.
    fn conclude(&self, sink: &Arc<Sink>) -> Result<(), Error> {
        let (size, digest) = match sink.verdict() {
            Verdict::Pending => return Ok(()),
            Verdict::Failed(reason) => {
                // It stays known, because blocks of it may be on their way.
                return self.refuse(sink.number(), sink.path().to_owned(), reason);
            }
            Verdict::Whole(size, digest) => (size, digest),
        };
        lock(&self.sinks).remove(&sink.number());
        if let Err(error) = sink.finish(size) {
            return self.refuse(sink.number(), sink.path().to_owned(), error.to_string());
        }
        {
            let mut outcome = lock(&self.outcome);
            outcome.files += 1;
            outcome.last_digest = Some(checksum::hex(sink.entry().algorithm, &digest));
        }
        Watch::add(&self.watch.files, 1);
        self.ending.say(&Message::Done(vec![sink.number()]))
    }

    /// Tells the sender that this end lives, keeps journals, and ends everything when somebody asks for it.
    fn keep(&self) {
        let mut last = Instant::now();
        let mut stall = Stall::new();
        loop {
            let is_over = self.ending.rest(ALIVE / 5);
            if self.watch.is_stopped() {
                self.ending.fail(Error::Interrupted);
            }
            // The sender has said its last word, but not on every data connection.
            let is_told = self.is_told.load(Ordering::Relaxed);
            if stall.is_too_long(is_told, self.watch.bytes.load(Ordering::Relaxed)) {
                self.ending.fail(Error::Silent(SILENCE.as_secs()));
            }
            if is_over || last.elapsed() >= CHECKPOINT {
                last = Instant::now();
                self.checkpoint();
                if !is_over && !self.ending.has_failed() {
                    let stored = self.watch.stored_bytes.load(Ordering::Relaxed);
                    // The thread that listens hears of a lost connection too.
                    let _ = self.ending.say(&Message::Alive(stored));
                }
            }
            if is_over {
                return;
            }
        }
    }

    fn checkpoint(&self) {
        let sinks: Vec<_> = lock(&self.sinks).values().cloned().collect();
        for sink in sinks {
            if let Err(error) = sink.checkpoint() {
                sink.fail(&error);
            }
        }
    }
}
