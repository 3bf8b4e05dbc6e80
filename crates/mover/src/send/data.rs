//! A data connection: blocks by the chosen method, small files in one piece.

use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::Sender;
use super::job::{Job, Progress};
use super::work::{Small, Task};
use crate::checksum::{self, BlockHasher, BlockPosition};
use crate::choice::Probe;
use crate::connection::Connection;
use crate::error::Error;
use crate::lock::lock;
use crate::meter::{Clock, Stage};
use crate::packing::Packer;
use crate::protocol::{BLOCKS_MAX, Block, Entry, Message, StageTimes, encode, write_all};
use crate::session::Watch;
use crate::source::{Method, Mover, Source};

/// Bytes of small files that are put together before they leave.
const BATCH_BYTES: usize = 256 * 1024;

/// Holds a sender to a rate; all its threads together.
#[derive(Debug)]
pub struct Pace {
    bytes_per_s: Option<u64>,
    next: Mutex<Option<Instant>>,
}

impl Pace {
    /// At most so many bytes each second.
    pub fn new(bytes_per_s: Option<u64>) -> Self {
        Self {
            bytes_per_s,
            next: Mutex::new(None),
        }
    }

    /// Waits until so many more bytes may leave.
    fn wait(&self, bytes: u64) {
        let Some(rate) = self.bytes_per_s else {
            return;
        };
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let until = {
            let mut next = lock(&self.next);
            let now = Instant::now();
            let begin = next.map_or(now, |next| next.max(now));
            *next = Some(begin + takes);
            begin
        };
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}

/// What one data thread has.
struct Line {
    stream: Connection,
    mover: Mover,
    clock: Clock,
    probe: Probe<Method>,
    batch: Vec<u8>,
    /// Where bytes are to be packed; they are read into `plain` for that.
    packer: Option<Packer>,
    plain: Vec<u8>,
}

impl Line {
    fn flush(&mut self) -> Result<(), Error> {
        let result = write_all(&mut &self.stream, &self.batch);
        self.batch.clear();
        self.clock.lap(Stage::Network);
        result
    }

    /// The same, where bytes follow at once: they may share a segment.
    fn flush_before_bytes(&mut self) -> Result<(), Error> {
        let result = self.stream.write_before_more(&self.batch);
        self.batch.clear();
        self.clock.lap(Stage::Network);
        result
    }
}

impl Sender<'_> {
    /// Sends what there is to send, until nothing more comes.
    pub(super) fn send(&self, stream: Connection) -> Result<StageTimes, Error> {
        let packer = self.config.pack_level.map(Packer::new).transpose();
        let mut line = Line {
            probe: Probe::new(&Method::TRIED, Method::ReadWrite),
            stream,
            mover: Mover::new(self.config.algorithm),
            clock: Clock::new(),
            batch: Vec::with_capacity(2 * BATCH_BYTES),
            packer: packer.map_err(Error::network("taking memory"))?,
            plain: Vec::new(),
        };
        let mut flushed = Ok(());
        while let Some(task) = self.work.next(|| {
            flushed = line.flush();
            line.clock.idle();
        }) {
            std::mem::replace(&mut flushed, Ok(()))?;
            match task {
                Task::Small(small) => self.send_small(&mut line, small)?,
                Task::Block(job, block) => self.send_block(&mut line, &job, &block)?,
                Task::Input(entry) => self.send_input(&mut line, &entry)?,
            }
        }
        flushed?;
        line.batch.extend(encode(&Message::Finish));
        line.flush()?;
        if line.packer.is_some()
            && self
                .config
                .method
                .is_some_and(|asked| asked != Method::ReadWrite)
        {
            let note =
                "to be packed bytes have to pass through this program: sent by read and write";
            lock(&self.outcome).note(note.to_owned());
        }
        Ok(line.clock.times())
    }

    /// Ends a file that cannot be sent; the session goes on.
    fn give_up(&self, file: u64, error: &Error) -> Result<(), Error> {
        if let Some(open) = self.work.close_file(file) {
            lock(&self.outcome).fail(open.path(), error.to_string());
        }
        self.ending.say(&Message::Failed(file, error.to_string()))
    }

    fn send_small(&self, line: &mut Line, small: Small) -> Result<(), Error> {
        let Small { path, entry } = small;
        let file = entry.file;
        let read = || {
            let source = Source::open(&path)?;
            let mut bytes = vec![0; usize::try_from(source.size()).unwrap_or(0)];
            source.read(&mut bytes, 0)?;
            source.check_unchanged()?;
            Ok(bytes)
        };
        let bytes = match read() {
            Ok(bytes) if entry.kind == crate::protocol::Kind::File(Some(bytes.len() as u64)) => {
                bytes
            }
            Ok(_) => return self.give_up_small(file, &path, Error::Changed(path.clone())),
            Err(error) => return self.give_up_small(file, &path, error),
        };
        Watch::add(&self.watch.read_bytes, bytes.len() as u64);
        line.clock.lap(Stage::Disk);
        let digest = BlockHasher::digest(entry.algorithm, &bytes);
        line.clock.lap(Stage::Hash);
        let len = u32::try_from(bytes.len()).expect("invariant: small files are small");
        let (sent, frame_bytes) = self.packed(&mut line.packer, &mut line.clock, &bytes);
        self.pace.wait(sent.len() as u64);
        line.batch
            .extend(encode(&Message::Small(entry, len, frame_bytes)));
        line.batch.extend(sent);
        line.batch.extend(digest);
        Watch::add(&self.watch.bytes, bytes.len() as u64);
        if line.batch.len() >= BATCH_BYTES {
            line.flush()?;
        }
        Ok(())
    }

    /// The receiver does not know of a small file before it comes.
    fn give_up_small(&self, file: u64, path: &std::path::Path, error: Error) -> Result<(), Error> {
        self.work.close_file(file);
        lock(&self.outcome).fail(path.to_owned(), error.to_string());
        Ok(())
    }

    /// What travels of some bytes: a zstd frame, where they are to be packed and that is shorter.
    fn packed<'b>(
        &self,
        packer: &'b mut Option<Packer>,
        clock: &mut Clock,
        bytes: &'b [u8],
    ) -> (&'b [u8], Option<u32>) {
        let Some(frame) = packer.as_mut().and_then(|packer| packer.pack(bytes)) else {
            return (bytes, None);
        };
        clock.lap(Stage::Pack);
        let short = |len: usize| u32::try_from(len).expect("invariant: blocks are small");
        let frame_bytes = Some(short(frame.len()));
        self.watch.count_packed(short(bytes.len()), frame_bytes);
        (frame, frame_bytes)
    }

    fn send_block(&self, line: &mut Line, job: &Job, block: &Block) -> Result<(), Error> {
        let place = BlockPosition {
            offset: job.offset(block),
            is_only: block.is_only,
        };
        let digest = if block.is_hole {
            line.batch.extend(encode(&Message::Block(*block)));
            line.mover.hash_hole(place, block.len)
        } else {
            // In the middle of a block nothing but its bytes may follow: an error ends the session.
            let digest = if line.packer.is_some() {
                self.send_packed(line, job, block, place)?
            } else {
                self.send_plain(line, job, block, place)?
            };
            Watch::add(&self.watch.read_bytes, u64::from(block.len));
            digest
        };
        // It leaves with the next block's message, or before this thread waits for work.
        line.batch.extend(digest);
        if line.batch.len() >= BATCH_BYTES {
            line.flush()?;
        }
        Watch::add(&self.watch.bytes, u64::from(block.len));
        if let Progress::Complete(whole) = job.sent(block, digest) {
            self.end(job, whole)?;
        }
        Ok(())
    }

    /// By the method that was asked for, or the one that does best.
    fn send_plain(
        &self,
        line: &mut Line,
        job: &Job,
        block: &Block,
        place: BlockPosition,
    ) -> Result<checksum::Digest, Error> {
        let (method, is_final) = match self.config.method {
            // What the kernel would put there is not what TLS says.
            _ if !line.stream.is_plain() => (Method::ReadWrite, true),
            Some(method) => (method, true),
            None => line.probe.next(),
        };
        self.pace.wait(u64::from(block.len));
        line.batch.extend(encode(&Message::Block(*block)));
        line.flush_before_bytes()?;
        let (stream, clock) = (&line.stream, &mut line.clock);
        let digest = line
            .mover
            .send(method, &job.source, place, block.len, stream, clock)?;
        if is_final {
            lock(&self.outcome).method = Some(method);
        } else {
            line.probe.moved(u64::from(block.len));
        }
        Ok(digest)
    }

    /// Through memory, as short as it gets.
    fn send_packed(
        &self,
        line: &mut Line,
        job: &Job,
        block: &Block,
        place: BlockPosition,
    ) -> Result<checksum::Digest, Error> {
        line.plain
            .resize(usize::try_from(block.len).unwrap_or(usize::MAX), 0);
        job.source.read(&mut line.plain, place.offset)?;
        line.clock.lap(Stage::Disk);
        let mut hasher = BlockHasher::new(job.entry.algorithm, place);
        hasher.update(&line.plain);
        line.clock.lap(Stage::Hash);
        lock(&self.outcome).method = Some(Method::ReadWrite);
        let plain = std::mem::take(&mut line.plain);
        self.send_bytes(line, *block, &plain)?;
        line.plain = plain;
        Ok(hasher.finish())
    }

    /// Sends a block's message and these bytes after it, packed where that is wanted.
    fn send_bytes(&self, line: &mut Line, block: Block, bytes: &[u8]) -> Result<(), Error> {
        let (sent, packed) = self.packed(&mut line.packer, &mut line.clock, bytes);
        self.pace.wait(sent.len() as u64);
        line.batch
            .extend(encode(&Message::Block(Block { packed, ..block })));
        let result = line
            .stream
            .write_before_more(&line.batch)
            .and_then(|()| write_all(&mut &line.stream, sent));
        line.batch.clear();
        line.clock.lap(Stage::Network);
        result
    }

    /// All blocks of a file have left.
    pub(super) fn end(&self, job: &Job, whole: checksum::Digest) -> Result<(), Error> {
        let file = job.entry.file;
        match job.source.check_unchanged() {
            Ok(()) => self
                .ending
                .say(&Message::End(file, job.source.size(), whole)),
            Err(error) => self.give_up(file, &error),
        }
    }

    /// Fills as much of `bytes` as standard input has. It may be silent as long as it likes, but not longer than the
    /// session lives.
    fn read_input(&self, bytes: &mut [u8]) -> Result<usize, Error> {
        let input = io::stdin();
        let tick = Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        let mut done = 0;
        while done < bytes.len() {
            let mut ready = [PollFd::new(&input, PollFlags::IN)];
            let polled = poll(&mut ready, Some(&tick));
            if self.ending.has_failed() {
                return Err(Error::Interrupted);
            }
            if matches!(polled, Ok(0)) {
                continue;
            }
            match rustix::io::read(&input, &mut bytes[done..]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(Error::file("reading", "standard input")(errno.into())),
            }
        }
        Ok(done)
    }

    /// Standard input: whether a block is the only one is known when the next has been read.
    fn send_input(&self, line: &mut Line, entry: &Entry) -> Result<(), Error> {
        let block_bytes = usize::try_from(entry.block_bytes).expect("invariant: blocks are small");
        let next = |bytes: &mut Vec<u8>| {
            bytes.resize(block_bytes, 0);
            let count = self.read_input(bytes)?;
            bytes.truncate(count);
            Ok::<_, Error>(())
        };
        let (mut bytes, mut ahead) = (Vec::new(), Vec::new());
        let mut digests = Vec::new();
        let mut size = 0;
        next(&mut bytes)?;
        while !bytes.is_empty() {
            next(&mut ahead)?;
            Watch::add(&self.watch.read_bytes, bytes.len() as u64);
            line.clock.lap(Stage::Disk);
            let index = digests.len() as u64;
            if index >= BLOCKS_MAX {
                return Err(Error::Protocol(
                    "standard input is longer than any file may be",
                ));
            }
            let block = Block {
                file: entry.file,
                index,
                len: u32::try_from(bytes.len()).expect("invariant: blocks are small"),
                is_only: index == 0 && ahead.is_empty(),
                is_hole: false,
                packed: None,
            };
            let place = BlockPosition {
                offset: index * u64::from(entry.block_bytes),
                is_only: block.is_only,
            };
            let mut hasher = BlockHasher::new(entry.algorithm, place);
            hasher.update(&bytes);
            line.clock.lap(Stage::Hash);
            self.send_bytes(line, block, &bytes)?;
            line.batch.extend(hasher.finish());
            line.flush()?;
            digests.push(hasher.finish());
            size += bytes.len() as u64;
            Watch::add(&self.watch.bytes, bytes.len() as u64);
            std::mem::swap(&mut bytes, &mut ahead);
        }
        lock(&self.outcome).method = Some(Method::ReadWrite);
        let whole = checksum::whole(entry.algorithm, &digests);
        self.ending.say(&Message::End(entry.file, size, whole))
    }
}
